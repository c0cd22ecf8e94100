// Recovery after a restore.

package store

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

// RecoverOptions say what is known of the time that a restore lost.
type RecoverOptions struct {
	StoppedAt *time.Time // when the last worker stopped; nil: now
	LostSince *time.Time // the newest instant that the restored copy holds; nil: unknown
	Lossless  bool       // nothing was lost, the lineage is only recorded: a planned switch, an upgrade

	Journal []outside.Taking             // what was taken back, as ReadJournal gives it; empty: unknown
	Note    func([]outside.Taking) error // appends to the journal that the next recovery will read; nil: there is none
}

// RecoverReport says what Recover did.
type RecoverReport struct {
	Sending       int     `json:"sending"`       // tasks in doubt now that a worker held
	Pending       int     `json:"pending"`       // that were scheduled and not in doubt
	Unknown       int     `json:"unknown"`       // that were scheduled and in doubt before
	Routes        int     `json:"routes"`        // of devices that were connected when the copy was made; they are cleared
	Conversations int     `json:"conversations"` // that have the new generation as their epoch
	Replay        Replay  `json:"replay"`
	Generation    int64   `json:"generation"`
	Lineage       Lineage `json:"lineage"`
}

// setGenerationSQL gives the lineage the generation that the conversations have as their epoch.
const setGenerationSQL = `UPDATE tidings.lineage l SET generation = @generation::bigint WHERE l.node = @node`

// Recover makes a restored database fit to be used. It must run before any gateway or worker does.
//
// What the lost history sent is unknown, so every task that it may have sent is in doubt from now on, and the channel's contract decides
// what follows. Those are all tasks that a worker held, and all that were due before the last worker stopped. Parked tasks wait on.
// The first call of a task that has none on record counts from LostSince, or from the notification's creation.
//
// Conversations get a new generation as their epoch, so that no seq of the lost history is taken for one of this. What was taken back in
// the lost time is taken back again, as far as the journal tells. The generation exceeds that of the copy and every one in the
// journal, so a history that is made later is a greater one, also on a clock that is behind.
//
// The lineage is recorded last: a recovery that was interrupted is run again, and does no harm twice.
func (s *Store) Recover(ctx context.Context, o RecoverOptions) (report RecoverReport, err error) {
	if !o.Lossless {
		if err := s.recover(ctx, o, &report); err != nil {
			return report, err
		}
	}
	err = s.transact(ctx, "record the lineage", func(ctx context.Context, tx pgx.Tx) error {
		l, generation := &report.Lineage, int64(0)
		err := tx.QueryRow(ctx, recordLineageSQL, pgx.NamedArgs{"node": node, "lossless": true, "least": report.Generation}).
			Scan(&generation, &l.SystemIdentifier, &l.Timeline, &l.LSN, &l.DatabaseOID, &l.LogOID)
		if err != nil || o.Lossless {
			report.Generation = generation
			return err
		}
		_, err = tx.Exec(ctx, setGenerationSQL, pgx.NamedArgs{"node": node, "generation": report.Generation})
		return err
	})
	return report, err
}

func (s *Store) recover(ctx context.Context, o RecoverOptions, report *RecoverReport) error {
	next, err := s.nextGeneration(ctx, o.Journal)
	if err != nil {
		return err
	}
	report.Generation = next.generation
	for _, step := range []func() error{
		func() error { return s.doubtAll(ctx, o, report) },
		func() error { return s.clearRoutes(ctx, report) },
		func() error { return s.replay(ctx, o.Journal, next.before, &report.Replay) },
		func() error { return s.newEpochs(ctx, report) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if o.Note == nil {
		return nil
	}
	// Before the lineage is recorded: no history begins that the journal does not know.
	line := outside.Taking{At: next.at, What: outside.TookRecover, Epoch: next.generation}
	_, _ = rand.Read(line.ID[:]) // never fails
	if err := o.Note([]outside.Taking{line}); err != nil {
		return &tidings.Error{Code: tidings.Unavailable, Message: "note the recovery in the journal", Err: err}
	}
	return nil
}
