// Tells notifications that the message they speak of is gone.

package server

import (
	"context"
	"errors"
	"time"

	"github.com/tidings-project/tidings/internal/store"
)

const (
	marksEach     = 250 * time.Millisecond // the stated bound, 2 s, leaves room for some that fail
	marksSize     = 1000
	marksQuiet    = time.Minute      // between two warnings of the same trouble
	marksPatience = 10 * time.Second // how long a worker's first claim waits for what is not marked yet
)

// markGone marks the notifications of what is recalled, read or left until ctx ends. Every process does, whatever its roles; the store
// lets one do it at a time.
func (s *Server) markGone(ctx context.Context) {
	var warned time.Time // when it last failed and said so; zero: it works
	every(ctx, marksEach, func(ctx context.Context) {
		for ctx.Err() == nil {
			done, err := s.store.MarkGone(ctx, marksSize)
			switch {
			case err != nil && time.Since(warned) > marksQuiet:
				s.log.Warn("notifications were not told of messages that are gone and may be sent; it is tried again", "error", err)
				warned = time.Now()
			case err == nil && !done.Busy && !warned.IsZero(): // what another process does says nothing of this one
				s.log.Info("notifications are told again of what is gone")
				warned = time.Time{}
			}
			if err != nil || !goesOn(done) {
				return
			}
		}
	})
}

// goesOn tells whether the next pass can begin at once: there is more, and it is not held up by somebody.
func goesOn(done store.MarkedGone) bool { return done.More && done.Rows+done.Notifications > 0 }

// markFirst marks everything that is not marked yet, before the first claim: nobody may have done it while no process ran.
func (s *Server) markFirst(ctx context.Context) {
	patience, cancel := context.WithTimeout(ctx, marksPatience)
	defer cancel()
	why := errors.New("there are more than could be told")
	for patience.Err() == nil {
		done, err := s.store.MarkGone(patience, marksSize)
		switch {
		case err != nil:
			why = err
		case done.Busy:
			why = errors.New("another process is at it")
		case !done.More:
			return
		case goesOn(done):
			continue
		default:
			why = errors.New("somebody has locked some")
		}
		select {
		case <-patience.Done():
		case <-time.After(marksEach / 5):
		}
	}
	if ctx.Err() == nil { // it begins, and does not end
		s.log.Warn("the worker begins, though not all notifications were told of messages that are gone", "error", why)
	}
}
