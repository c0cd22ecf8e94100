// Tells notifications that the message they speak of is gone.

package server

import (
	"context"
	"time"
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
		for n, more := 1, true; more && n > 0 && ctx.Err() == nil; {
			var err error
			n, more, err = s.store.MarkGone(ctx, marksSize)
			switch {
			case err == nil && !warned.IsZero():
				s.log.Info("notifications are told again of what is gone")
				warned = time.Time{}
			case err != nil && time.Since(warned) > marksQuiet:
				s.log.Warn("notifications were not told of messages that are gone and may be sent; it is tried again", "error", err)
				warned = time.Now()
			}
		}
	})
}

// markFirst marks everything that is not marked yet, before the first claim: nobody may have done it while no process ran.
func (s *Server) markFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, marksPatience)
	defer cancel()
	for more := true; more; {
		n, again, err := s.store.MarkGone(ctx, marksSize)
		if more = again; more && n == 0 { // another process is at it, or it failed
			select {
			case <-ctx.Done():
				s.log.Warn("the worker begins, though not all notifications were told of messages that are gone", "error", err)
				return
			case <-time.After(marksEach / 5):
			}
		}
	}
}
