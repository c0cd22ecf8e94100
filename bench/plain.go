// The plain claim, one task at a time, to compare with.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// plain is a worker as one would write it first: each claims one task in a transaction, calls, and finishes it in another statement.
// It keeps the same promises, so it is what batches are compared with.
type plain struct{ pool *pgxpool.Pool }

const plainSchema = `
CREATE TABLE pref (user_id text, channel text, address text, enabled boolean NOT NULL, PRIMARY KEY (user_id, channel));
CREATE TABLE notification (id bigserial PRIMARY KEY, user_id text NOT NULL, event_key text NOT NULL, body text, expires_at timestamptz NOT NULL,
	UNIQUE (user_id, event_key));
CREATE TABLE task (id bigserial PRIMARY KEY, notification_id bigint NOT NULL REFERENCES notification, channel text NOT NULL,
	state text NOT NULL DEFAULT 'PENDING', attempt_count int NOT NULL DEFAULT 0, attempt_token uuid, outcome_uncertain boolean NOT NULL DEFAULT false,
	lease_owner text, lease_until timestamptz, next_attempt_at timestamptz, needs_review boolean NOT NULL DEFAULT false, provider_msg_id text,
	UNIQUE (notification_id, channel));
CREATE INDEX ON task (next_attempt_at) WHERE state IN ('PENDING', 'UNKNOWN');
CREATE INDEX ON task (lease_until) WHERE state = 'SENDING';
CREATE TABLE attempt (attempt_token uuid PRIMARY KEY, task_id bigint NOT NULL REFERENCES task, n int NOT NULL, action text NOT NULL,
	started_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz, outcome text, late_outcome text);`

func newPlain(ctx context.Context, b *bench) (*plain, error) {
	pool, _, err := b.database(ctx, "plain", false)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, plainSchema); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `INSERT INTO pref SELECT 'u-' || g, 'instant', 'somewhere', true FROM generate_series(0, $1::int - 1) g`, users)
	return &plain{pool}, err
}

const plainClaim = `SELECT t.id, t.attempt_count, n.body, p.address FROM task t JOIN notification n ON n.id = t.notification_id
	LEFT JOIN pref p ON p.user_id = n.user_id AND p.channel = t.channel
	WHERE (t.state IN ('PENDING', 'UNKNOWN') AND t.next_attempt_at <= now()) OR (t.state = 'SENDING' AND t.lease_until < now())
	ORDER BY t.id LIMIT 1 FOR UPDATE OF t SKIP LOCKED`

// settle works n tasks off with 4 workers and returns tasks per second.
func (p *plain) settle(ctx context.Context, n int) (float64, error) {
	if _, err := p.pool.Exec(ctx, `TRUNCATE notification, task, attempt`); err != nil {
		return 0, err
	}
	if _, err := p.pool.Exec(ctx, `WITH n AS (INSERT INTO notification (user_id, event_key, body, expires_at)
		SELECT 'u-' || g % $2::int, 'e-' || g, 'Your order has been shipped.', now() + interval '1 hour' FROM generate_series(1, $1::int) g RETURNING id)
		INSERT INTO task (notification_id, channel, next_attempt_at) SELECT id, 'instant', now() FROM n`, n, users); err != nil {
		return 0, err
	}
	if _, err := p.pool.Exec(ctx, "VACUUM ANALYZE notification, task, attempt"); err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	began := time.Now()
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				var more bool
				if more, errs[w] = p.one(ctx, fmt.Sprint("w", w)); !more {
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(began).Seconds(), errors.Join(errs...)
}

func (p *plain) one(ctx context.Context, worker string) (bool, error) {
	var id, count int64
	var body, address, token string
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, plainClaim).Scan(&id, &count, &body, &address); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `UPDATE task SET state = 'SENDING', attempt_token = gen_random_uuid(), attempt_count = attempt_count + 1, lease_owner = $2,
			lease_until = now() + interval '60 seconds', next_attempt_at = NULL WHERE id = $1 RETURNING attempt_token::text`, id, worker).Scan(&token); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO attempt (attempt_token, task_id, n, action) VALUES ($1::text::uuid, $2, $3, 'SEND')`, token, id, count+1)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The channel answers at once: there is nothing to call.
	return true, pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE task SET state = 'SENT', attempt_token = NULL, lease_owner = NULL, lease_until = NULL, provider_msg_id = 'm-1'
			WHERE id = $1 AND state = 'SENDING' AND attempt_token = $2::text::uuid`, id, token)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("stale")
		}
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE attempt SET outcome = 'ACCEPTED', finished_at = now() WHERE attempt_token = $1::text::uuid`, token)
		}
		return err
	})
}
