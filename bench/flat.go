// Measures claims beside large tables of other tasks.

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// flat measures single claims of 100 tasks, each with its finish, on tables that hold nothing else and on tables with a million tasks of the
// future, a million finished ones and 100 000 that wait for a person.
func (b *bench) flat(ctx context.Context) error {
	empty, _, err := b.database(ctx, "flat_empty", true)
	if err != nil {
		return err
	}
	full, _, err := b.database(ctx, "flat_full", true)
	if err != nil {
		return err
	}
	for _, pool := range []*pgxpool.Pool{empty, full} {
		if err := seedUsers(ctx, pool); err != nil {
			return err
		}
	}
	if err := fill(ctx, full, 1_000_000, "PENDING", 24*time.Hour); err != nil {
		return err
	}
	if err := fill(ctx, full, 1_000_000, "SENT", 0); err != nil {
		return err
	}
	if err := fill(ctx, full, 100_000, "UNKNOWN", 0); err != nil {
		return err
	}
	for round := range *rounds + 1 {
		for _, c := range []struct {
			name string
			pool *pgxpool.Pool
		}{{"on otherwise empty tables", empty}, {"beside 2.1 M other tasks", full}} {
			p50, p99, err := claimTimes(ctx, c.pool, fmt.Sprintf("f%d", round), *tasks/2)
			if err != nil {
				return err
			}
			if round > 0 {
				b.record("claim p50, "+c.name, p50)
				b.record("claim p99, "+c.name, p99)
			}
		}
	}
	b.show("µs", "claim p50, on otherwise empty tables", "claim p50, beside 2.1 M other tasks", "claim p99, on otherwise empty tables", "claim p99, beside 2.1 M other tasks")
	b.ratio("claim_p50_full_to_empty", "claim p50, beside 2.1 M other tasks", "claim p50, on otherwise empty tables")
	b.ratio("claim_p99_full_to_empty", "claim p99, beside 2.1 M other tasks", "claim p99, on otherwise empty tables")
	return nil
}

// claimTimes settles n new tasks in claims of 100 and returns the median and the 99th percentile of a claim in microseconds.
func claimTimes(ctx context.Context, pool *pgxpool.Pool, run string, n int) (p50, p99 float64, err error) {
	for from := 0; from < n; from += 1000 {
		if err := notify(ctx, pool, run, from, min(1000, n-from)); err != nil {
			return 0, 0, err
		}
	}
	if _, err := pool.Exec(ctx, "ANALYZE tidings.task, tidings.attempt, tidings.notification"); err != nil {
		return 0, 0, err
	}
	s := store.New(pool)
	lane := store.Lane{Channel: "instant", Worker: "bench", Renderer: "instant/1", Lease: time.Minute, Timeout: time.Second}
	var mark store.Watermark
	var times []float64
	for done := 0; done < n; {
		var id store.ClaimID
		_, _ = rand.Read(id[:])
		began := time.Now()
		claimed, err := s.Claim(ctx, lane, 100, id, &mark)
		if err != nil {
			return 0, 0, err
		}
		if len(claimed) == 0 {
			return 0, 0, fmt.Errorf("%d of %d tasks were claimed", done, n)
		}
		times = append(times, float64(time.Since(began).Microseconds()))
		ends := make([]store.Finish, len(claimed))
		for i, c := range claimed {
			ends[i] = store.Finish{ID: c.ID, N: c.N, Token: c.Token, Verdict: tidings.Finish(c.Held, tidings.Observation{Outcome: tidings.Accepted}), ProviderMsgID: c.ID.Key()}
		}
		if stale, err := s.Finish(ctx, ends); err != nil || len(stale) > 0 {
			return 0, 0, fmt.Errorf("%d stale: %w", len(stale), err)
		}
		done += len(claimed)
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}
