// What a worker does beside its tasks: purge and forget.

package server

import (
	"context"
	"sync"
	"time"
)

const (
	sweepEach = time.Second // how often receipts without a task are tried again; each has its own turn
	sweepSize = 500
	purgeSize = 1000
)

// housekeep does what comes round by the clock until ctx ends. Every worker does; the store lets them share the work.
func (s *Server) housekeep(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { every(ctx, sweepEach, s.sweepReceipts) })
	loops.Go(func() { every(ctx, s.cfg.HousekeepingEach, s.purge) })
	loops.Wait()
}

func (s *Server) sweepReceipts(ctx context.Context) {
	matched, err := s.store.SweepReceipts(ctx, sweepSize)
	if err != nil {
		s.log.Warn("receipts were not swept; they are tried again", "error", err)
	}
	if matched > 0 {
		s.log.Info("receipts found their tasks late", "receipts", matched)
	}
}

// purge empties and forgets what is old enough, in steps, until nothing is left to do.
func (s *Server) purge(ctx context.Context) {
	var purged, forgotten, receipts int
	step := func(age time.Duration, count *int, do func() (int, bool, error)) {
		for more := age > 0; more && ctx.Err() == nil; {
			var n int
			var err error
			n, more, err = do()
			*count += n
			if err != nil {
				if ctx.Err() == nil {
					s.log.Warn("the purge was interrupted; it is tried again", "error", err)
				}
				return
			}
		}
	}
	step(s.cfg.PurgeAfter, &purged, func() (int, bool, error) { return s.store.Purge(ctx, s.cfg.PurgeAfter, purgeSize) })
	step(s.cfg.ForgetAfter, &forgotten, func() (int, bool, error) { return s.store.DeleteTombstones(ctx, s.cfg.ForgetAfter, purgeSize) })
	step(s.cfg.ReceiptsFor, &receipts, func() (int, bool, error) {
		n, err := s.store.PurgeReceipts(ctx, s.cfg.ReceiptsFor)
		return n, false, err
	})
	if purged+forgotten+receipts > 0 {
		s.log.Info("purged", "notifications", purged, "keys", forgotten, "receipts", receipts)
	}
}

// every does work each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, work func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			work(ctx)
		}
	}
}
