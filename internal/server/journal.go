// Copies what was taken back to the journal outside of the database.

package server

import (
	"context"
	"errors"
	"time"

	"github.com/tidings-project/tidings/internal/outside"
)

const (
	journalEach  = 500 * time.Millisecond // its stated lag, 2 s, leaves room for one that fails
	journalPage  = 500
	journalFor   = 35 * 24 * time.Hour // how long rows are kept after that: longer than a backup usually is
	journalQuiet = time.Minute         // between two warnings of the same trouble
)

// copyTakings copies what was taken back out of the database until ctx ends, and then once more: an orderly end leaves nothing behind.
// Every process that has a directory does; the store lets one do it at a time. When it fails the rows wait, and whatever else the
// process does goes on.
func (s *Server) copyTakings(ctx context.Context) {
	if s.cfg.OutsideDir == "" {
		s.log.Warn("nothing protects from a restore what is taken back: a recall, a purge, a leave, an erasure. Set outside-dir in every process")
		return
	}
	var warned time.Time // when it last failed and said so; zero: it works
	copied := func(ctx context.Context) {
		for n := journalPage; n == journalPage; {
			var err error
			n, err = s.store.TakeTakings(ctx, journalPage, s.journal)
			switch {
			case err == nil && !warned.IsZero():
				s.log.Info("what is taken back is copied to the journal again")
				warned = time.Time{}
			case err != nil && time.Since(warned) > journalQuiet:
				s.log.Warn("what was taken back was not copied to the journal and would come back with a restore; it is tried again", "error", err)
				warned = time.Now()
			}
		}
	}
	every(ctx, journalEach, copied)
	copied(context.WithoutCancel(ctx)) // it has a deadline of its own
}

// journal appends to the journal. It is opened anew each time: it may have been moved away, or its directory mounted, since.
func (s *Server) journal(takings []outside.Taking) error {
	file, err := outside.OpenJournal(s.cfg.OutsideDir)
	if err != nil {
		return err
	}
	return errors.Join(file.Append(takings), file.Close())
}
