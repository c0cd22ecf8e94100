// Measures the settling of tasks, and fills the tables for it.

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/dispatch"
)

// instant is a channel that accepts at once, so that what is measured is claim, journal row and finish.
type instant struct{ calls atomic.Int64 }

func (*instant) Contract() channel.Contract {
	return channel.Contract{Source: "none: it answers at once"}
}
func (*instant) Renderer() string { return "instant/1" }
func (c *instant) Send(_ context.Context, m channel.Message) channel.Outcome {
	c.calls.Add(1)
	return channel.Outcome{Code: tidings.Accepted, ProviderMsgID: m.Key}
}

// queue is Tidings in a database.
type queue struct {
	pool *pgxpool.Pool
	runs int
}

// settle creates n notifications, lets a worker settle their tasks and returns tasks per second. What was in the tables before
// stays when keep is set.
func (q *queue) settle(ctx context.Context, n int, keep bool) (float64, error) {
	if !keep {
		if _, err := q.pool.Exec(ctx, "TRUNCATE tidings.notification, tidings.task, tidings.attempt"); err != nil {
			return 0, err
		}
	}
	q.runs++
	run := fmt.Sprintf("s%d", q.runs)
	for from := 0; from < n; from += 1000 {
		if err := notify(ctx, q.pool, run, from, min(1000, n-from)); err != nil {
			return 0, err
		}
	}
	if _, err := q.pool.Exec(ctx, "VACUUM ANALYZE tidings.notification, tidings.task, tidings.attempt"); err != nil {
		return 0, err
	}
	var before int
	if err := q.pool.QueryRow(ctx, settledSQL).Scan(&before); err != nil {
		return 0, err
	}
	ch := &instant{}
	w, err := dispatch.New(dispatch.Config{Pool: q.pool, Worker: "bench",
		Channels: []dispatch.Channel{{Name: "instant", Channel: ch, Concurrency: 1000}}})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- w.Run(running) }()
	err = await(ctx, q.pool, func() bool { return ch.calls.Load() >= int64(n) }, settledSQL, before+n)
	took := time.Since(began)
	stop()
	if runErr := <-ended; err == nil {
		err = runErr
	}
	return float64(n) / took.Seconds(), err
}

const settledSQL = "SELECT count(*) FROM tidings.task WHERE state = 'SENT'"

const finishedRows = 1_000_000

// settle measures tasks that are carried out with a channel that answers at once, beside River and beside a plain claim, and
// undisturbed beside a million finished rows and beside an old snapshot that is held open.
func (b *bench) settle(ctx context.Context) error {
	empty, _, err := b.database(ctx, "settle_tidings", true)
	if err != nil {
		return err
	}
	full, _, err := b.database(ctx, "settle_full", true)
	if err != nil {
		return err
	}
	for _, pool := range []*pgxpool.Pool{empty, full} {
		if err := seedUsers(ctx, pool); err != nil {
			return err
		}
	}
	if err := fill(ctx, full, finishedRows, "SENT", 0); err != nil {
		return err
	}
	r, err := newRiver(ctx, b, "settle_river")
	if err != nil {
		return err
	}
	p, err := newPlain(ctx, b)
	if err != nil {
		return err
	}
	onEmpty, onFull := &queue{pool: empty}, &queue{pool: full}
	for round := range *rounds + 1 {
		for _, c := range []struct {
			name string
			run  func() (float64, error)
		}{
			{"settled", func() (float64, error) { return onEmpty.settle(ctx, *tasks, false) }},
			{"River, 1 000 workers, 2 ms", func() (float64, error) { return r.settle(ctx, *tasks) }},
			{"settled, old snapshot", func() (float64, error) {
				return heldOpen(ctx, empty, func() (float64, error) { return onEmpty.settle(ctx, *tasks, false) })
			}},
			{"settled, a million finished", func() (float64, error) { return onFull.settle(ctx, *tasks, true) }},
			{"plain claim, 4 workers", func() (float64, error) { return p.settle(ctx, *tasks/20) }},
		} {
			rate, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				b.record(c.name, rate)
			}
		}
	}
	b.show("/s", "settled", "River, 1 000 workers, 2 ms", "plain claim, 4 workers", "settled, old snapshot", "settled, a million finished")
	b.ratio("settled_to_river", "settled", "River, 1 000 workers, 2 ms")
	b.ratio("settled_to_plain", "settled", "plain claim, 4 workers")
	b.ratio("old_snapshot_to_undisturbed", "settled, old snapshot", "settled")
	b.ratio("million_finished_to_undisturbed", "settled, a million finished", "settled")
	return nil
}

// heldOpen runs measure while a REPEATABLE READ snapshot that is older than everything it writes is held open.
func heldOpen(ctx context.Context, pool *pgxpool.Pool, measure func() (float64, error)) (rate float64, err error) {
	// In another database's transaction the snapshot would not hold this one's rows: it has to be here.
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var one int
		if err := tx.QueryRow(ctx, "SELECT 1 FROM pg_class LIMIT 1").Scan(&one); err != nil {
			return err
		}
		rate, err = measure()
		return err
	})
	return rate, err
}

// fill writes n tasks of a state directly: SENT ones with their attempts, UNKNOWN ones in review, PENDING ones due after ahead.
func fill(ctx context.Context, pool *pgxpool.Pool, n int, state string, ahead time.Duration) error {
	const step = 100_000
	for from := 0; from < n; from += step {
		if _, err := pool.Exec(ctx, fillSQL, from, min(from+step, n)-1, state, ahead.Seconds(), users); err != nil {
			return fmt.Errorf("fill the tables: %w", err)
		}
	}
	_, err := pool.Exec(ctx, "VACUUM ANALYZE tidings.notification, tidings.task, tidings.attempt")
	return err
}

const fillSQL = `WITH item AS (
		SELECT g, 'u-' || g % $5::int AS user_id, tidings.bucket_of('u-' || g % $5::int) AS bucket FROM generate_series($1::int, $2::int) g
	), n AS (
		INSERT INTO tidings.notification (id, bucket, user_id, event_key, body, payload_hash, priority, max_attempts, duplicates, expires_at, created_at)
		SELECT tidings.new_id(bucket), bucket, user_id, $3::text || '-' || g, 'Your order has been shipped.', sha256(uuid_send(gen_random_uuid())), 1, 5, 'forbid', now() + interval '30 days', now()
		  FROM item RETURNING id, bucket, user_id
	), t AS (
		INSERT INTO tidings.task (id, bucket, user_id, notification_id, channel, slot, priority, state, attempt_count, budget_left, outcome_uncertain,
			needs_review, next_attempt_at, doubt_at, address, renderer)
		SELECT tidings.new_id(bucket), bucket, user_id, id, 'instant', '', 1, $3::text, CASE $3::text WHEN 'PENDING' THEN 0 ELSE 1 END, 4, $3::text = 'UNKNOWN', $3::text = 'UNKNOWN',
			CASE $3::text WHEN 'PENDING' THEN now() + $4::float8 * interval '1 second' + random() * interval '1 hour' END,
			CASE $3::text WHEN 'UNKNOWN' THEN now() END, 'somewhere', 'instant/1'
		  FROM n RETURNING id, bucket
	)
	INSERT INTO tidings.attempt (bucket, task_id, n, token, action, worker, started_at, finished_at, outcome)
	SELECT bucket, id, 1, id, 'SEND', 'filler', now(), now(), CASE $3::text WHEN 'SENT' THEN 'ACCEPTED' ELSE 'TIMEOUT' END FROM t WHERE $3::text <> 'PENDING'`
