// Recovery after a restore.

package store

import (
	"context"
	"crypto/rand"
	"fmt"
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

	Journal []outside.Line               // what was taken back, as ReadJournal gives it; empty: unknown
	Note    func([]outside.Taking) error // appends to the journal that the next recovery will read; nil: there is none

	DespiteViolations bool // a copy that violates a promise is served all the same
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
	Lineage       Lineage `json:"lineage"` // empty when it was not recorded

	Findings []Finding `json:"findings,omitempty"` // what was verified; nothing when nothing was lost
	Recorded bool      `json:"recorded"`           // false: a promise is violated, and the copy is not served
}

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
// The copy is verified, and the lineage is recorded last, by which it is served: a recovery that was interrupted is run again, and does
// no harm twice. Of a copy that violates a promise it is not recorded; the report says so, without an error.
func (s *Store) Recover(ctx context.Context, o RecoverOptions) (report RecoverReport, err error) {
	var generation *int64 // nil: the recorded one stays
	if !o.Lossless {
		if err := s.recover(ctx, o, &report); err != nil {
			return report, err
		}
		generation = &report.Generation
		if report.Findings, err = s.verify(ctx, generation); err != nil {
			return report, fmt.Errorf("it could not be verified, so the recovery is not finished: %w", err)
		}
		if Violations(report.Findings) > 0 && !o.DespiteViolations {
			return report, nil
		}
	}
	err = s.transact(ctx, "record the lineage", func(ctx context.Context, tx pgx.Tx) error {
		l := &report.Lineage
		return tx.QueryRow(ctx, recordLineageSQL, pgx.NamedArgs{"node": node, "generation": generation}).
			Scan(&report.Generation, &l.SystemIdentifier, &l.Timeline, &l.LSN, &l.DatabaseOID, &l.LogOID)
	})
	report.Recorded = err == nil
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
		func() error { return s.clearUnread(ctx) }, // also what replayed recalls have queued
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
	line := outside.Taking{At: next.at, What: outside.TookRecover, Epoch: next.generation, Installation: next.installation}
	_, _ = rand.Read(line.ID[:]) // never fails
	if err := o.Note([]outside.Taking{line}); err != nil {
		return tidings.Errorf(tidings.Unavailable, "note the recovery in the journal: %w", err)
	}
	return nil
}
