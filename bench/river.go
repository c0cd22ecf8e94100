// River, to compare with.

package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River with no-op jobs that carry what a notification carries.
type riverQueue struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	done   *atomic.Int64
}

type job struct {
	User     string `json:"user"`
	EventKey string `json:"event_key"`
	Body     string `json:"body"`
}

func (job) Kind() string { return "notification" }

type noop struct {
	river.WorkerDefaults[job]
	done *atomic.Int64
}

func (w *noop) Work(context.Context, *river.Job[job]) error {
	w.done.Add(1)
	return nil
}

func newRiver(ctx context.Context, b *bench, name string) (*riverQueue, error) {
	pool, _, err := b.database(ctx, name, false)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	r := &riverQueue{pool: pool, done: new(atomic.Int64)}
	return r, r.newClient()
}

// newClient makes a client; one that was stopped cannot be started again.
func (r *riverQueue) newClient() error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &noop{done: r.done})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	r.client = client
	return err
}

func (r *riverQueue) insert(ctx context.Context, from, n int) error {
	batch := make([]river.InsertManyParams, n)
	for i := range batch {
		batch[i] = river.InsertManyParams{Args: job{User: fmt.Sprintf("u-%d", (from+i)%users), EventKey: fmt.Sprintf("e-%d", from+i), Body: "Your order has been shipped."}}
	}
	_, err := r.client.InsertMany(ctx, batch)
	return err
}

// settle lets River work n jobs off and returns jobs per second.
func (r *riverQueue) settle(ctx context.Context, n int) (float64, error) {
	if _, err := r.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return 0, err
	}
	for from := 0; from < n; from += 1000 {
		if err := r.insert(ctx, from, min(1000, n-from)); err != nil {
			return 0, err
		}
	}
	if _, err := r.pool.Exec(ctx, "VACUUM ANALYZE river_job"); err != nil {
		return 0, err
	}
	r.done.Store(0)
	began := time.Now()
	if err := r.client.Start(ctx); err != nil {
		return 0, err
	}
	err := await(ctx, r.pool, func() bool { return r.done.Load() >= int64(n) }, "SELECT count(*) FROM river_job WHERE state = 'completed'", n)
	took := time.Since(began)
	if stopErr := r.client.Stop(ctx); err == nil {
		err = stopErr
	}
	if err == nil {
		err = r.newClient()
	}
	return float64(n) / took.Seconds(), err
}

// await waits until the work was called n times, and then until the table says that all n are settled.
func await(ctx context.Context, pool *pgxpool.Pool, called func() bool, countSQL string, n int) error {
	deadline := time.Now().Add(5 * time.Minute)
	for {
		if called() {
			var settled int
			if err := pool.QueryRow(ctx, countSQL).Scan(&settled); err != nil {
				return err
			}
			if settled == n {
				return nil
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("not settled in time: %w", context.Cause(ctx))
		}
		time.Sleep(5 * time.Millisecond)
	}
}
