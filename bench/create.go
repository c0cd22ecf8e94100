// Measures the creation of notifications beside River.

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/outbox"
)

const users = 10_000

// create measures notifications that are created in batches, each with one enabled channel, so each is two rows: the notification and
// its task. River inserts one row per job.
func (b *bench) create(ctx context.Context) error {
	pool, _, err := b.database(ctx, "create_tidings", true)
	if err != nil {
		return err
	}
	if err := seedUsers(ctx, pool); err != nil {
		return err
	}
	r, err := newRiver(ctx, b, "create_river")
	if err != nil {
		return err
	}
	for _, size := range []int{100, 1000} {
		for round := range *rounds + 1 {
			ours, err := inBatches(*tasks, size, func(from, n int) error { return notify(ctx, pool, fmt.Sprintf("c%d-%d", size, round), from, n) })
			if err != nil {
				return err
			}
			rivers, err := inBatches(*tasks, size, func(from, n int) error { return r.insert(ctx, from, n) })
			if err != nil {
				return err
			}
			if round == 0 { // plans and caches are warm after it
				continue
			}
			b.record(fmt.Sprintf("created in batches of %d", size), ours)
			b.record(fmt.Sprintf("River InsertMany of %d", size), rivers)
		}
		b.show("/s", fmt.Sprintf("created in batches of %d", size), fmt.Sprintf("River InsertMany of %d", size))
		b.ratio(fmt.Sprintf("create_%d", size), fmt.Sprintf("created in batches of %d", size), fmt.Sprintf("River InsertMany of %d", size))
	}
	return nil
}

// inBatches calls insert for total rows in batches from two callers and returns rows per second.
func inBatches(total, size int, insert func(from, n int) error) (float64, error) {
	const callers = 2
	var wg sync.WaitGroup
	errs := make([]error, callers)
	began := time.Now()
	for c := range callers {
		wg.Go(func() {
			for from := c * size; from < total && errs[c] == nil; from += callers * size {
				errs[c] = insert(from, min(size, total-from))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(total) / time.Since(began).Seconds(), nil
}

func seedUsers(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
		SELECT tidings.bucket_of('u-' || g), 'u-' || g, 'instant', 'somewhere' FROM generate_series(0, $1::int - 1) g`, users)
	if err == nil {
		_, err = pool.Exec(ctx, "ANALYZE")
	}
	return err
}

func notify(ctx context.Context, pool *pgxpool.Pool, run string, from, n int) error {
	batch := make([]tidings.Notification, n)
	for i := range batch {
		batch[i] = tidings.Notification{User: fmt.Sprintf("u-%d", (from+i)%users), EventKey: fmt.Sprintf("%s-%d", run, from+i),
			Body: "Your order has been shipped.", TTL: tidings.Seconds(time.Hour)}
	}
	got, err := outbox.Notify(ctx, pool, batch...)
	if err != nil {
		return err
	}
	for _, g := range got {
		if !g.Created || g.Tasks != 1 {
			return fmt.Errorf("not created: %+v", g)
		}
	}
	return nil
}
