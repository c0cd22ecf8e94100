// What comes round by the clock: purge and forget.

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

// housekeep does what comes round by the clock for notifications until ctx ends. Every worker does; the store lets them share the work.
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
	purged := s.step(ctx, s.cfg.PurgeAfter, func(age time.Duration) (int, bool, error) { return s.store.Purge(ctx, age, purgeSize) })
	forgotten := s.step(ctx, s.cfg.ForgetAfter, func(age time.Duration) (int, bool, error) { return s.store.DeleteTombstones(ctx, age, purgeSize) })
	receipts := s.step(ctx, s.cfg.ReceiptsFor, func(age time.Duration) (int, bool, error) {
		n, err := s.store.PurgeReceipts(ctx, age)
		return n, false, err
	})
	if purged+forgotten+receipts > 0 {
		s.log.Info("purged", "notifications", purged, "keys", forgotten, "receipts", receipts)
	}
}

// purgeConversations purges events whose retention is over and forgets what is kept of old ones. Every process does, since there may be
// no worker; while one looks at the conversations, the others leave them to it.
func (s *Server) purgeConversations(ctx context.Context) {
	logs, _, err := s.store.PurgeLogsInTurn(ctx)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("some conversations were not purged; it is tried again", "error", err)
	}
	forgotten := s.step(ctx, s.cfg.TombstonesFor, func(age time.Duration) (int, bool, error) { return s.store.ForgetMessages(ctx, age, purgeSize) })
	s.step(ctx, journalFor, func(age time.Duration) (int, bool, error) {
		return s.store.ForgetTakings(ctx, age, s.cfg.OutsideDir == "", purgeSize)
	})
	if logs.Events+forgotten > 0 {
		s.log.Info("purged conversations", "conversations", logs.Conversations, "events", logs.Events, "keys_kept", logs.Tombstones, "keys_forgotten", forgotten,
			"longest_lock_ms", logs.Longest.Milliseconds())
	}
}

// step repeats a bounded step of what is older than age until there is no more, and returns how much it was. An age of 0 is never over.
func (s *Server) step(ctx context.Context, age time.Duration, do func(time.Duration) (int, bool, error)) (count int) {
	for more := age > 0; more && ctx.Err() == nil; {
		var n int
		var err error
		n, more, err = do(age)
		count += n
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("the purge was interrupted; it is tried again", "error", err)
			}
			break
		}
	}
	return count
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
