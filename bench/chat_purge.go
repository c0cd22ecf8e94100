// Measures the purge of old events beside sends to the same conversations.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/store"
)

var chatPurgeEvents = flag.Int("chat-purge-events", 1_000_000, "old events that the purge finds, for all rounds; half of them in one conversation")

// purged is how many conversations the old events are in; the sends go to the same ones.
const purged = 100

const (
	// oldEventsSQL writes messages of two hours ago: $2 into the first conversation, $3 into each other.
	oldEventsSQL = `INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, sender_device, cmid, request_hash, body, created_at)
		SELECT 'spread-' || c, n, 'msg', gen_random_uuid(), 'spread-s-' || c % 64, 'spread-s-' || c % 64 || '-d', 'old-' || n, sha256('x'), $4::text,
			statement_timestamp() - interval '2 hours' + n * interval '1 microsecond'
		  FROM generate_series(0, $1::int - 1) c, generate_series(1, CASE c WHEN 0 THEN $2::int ELSE $3::int END) n`
	oldHeadsSQL = `UPDATE tidings.conversation c SET next_seq = CASE c.conv_id WHEN 'spread-0' THEN $2::int ELSE $3::int END + 1, retention_ms = 3600000
		WHERE c.conv_id IN (SELECT 'spread-' || n FROM generate_series(0, $1::int - 1) n)`
)

func (b *bench) chatPurge(ctx context.Context) error { return b.chat(ctx, b.measurePurge) }

func (b *bench) measurePurge(ctx context.Context, p *programs) error {
	*chatConvs = max(*chatConvs, purged)
	pool, url, err := b.chatDatabase(ctx, "chat_purge", "spread")
	if err != nil {
		return err
	}
	if err := seedOldEvents(ctx, pool); err != nil {
		return err
	}
	m := &sends{bench: b}
	if m.gateway, err = startGateway(p, url, "TIDINGS_HOUSEKEEPING_EACH=24h"); err != nil {
		return err
	}
	defer m.gateway.stop()
	if m.client, err = startClient(p); err != nil {
		return err
	}
	defer m.client.stop()
	cfg := pool.Config()
	store.Configure(cfg)
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	m.pools = append(m.pools, pool)

	fast, _, err := m.load(m.gateway, "spread", 1, purged, 0)
	if err != nil {
		return err
	}
	for range *rounds {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := m.besidePurge(ctx, "without", fast.PerSecond/2, nil); err != nil {
			return err
		}
		if err := m.besidePurge(ctx, "with", fast.PerSecond/2, store.New(pool)); err != nil {
			return err
		}
	}
	m.show("/s", "sent without", "sent with", "purged")
	fmt.Printf("sends at half of what %d conversations take: p50 %.2f ms, p99 %.2f ms; while they are purged: p50 %.2f ms, p99 %.2f ms\n", purged,
		m.median("without p50"), m.median("without p99"), m.median("with p50"), m.median("with p99"))
	fmt.Printf("a conversation was locked by a step of the purge for up to %.1f ms (the median of the rounds)\n\n", m.median("longest lock"))
	m.ratio("chat_send_p50_with_to_without_purge", "with p50", "without p50")
	m.ratio("chat_send_p99_with_to_without_purge", "with p99", "without p99")
	fmt.Printf("ratio chat_purge_longest_lock_ms %.1f\n", m.median("longest lock"))
	return nil
}

func seedOldEvents(ctx context.Context, pool *pgxpool.Pool) error {
	half := *chatPurgeEvents / 2
	if _, err := pool.Exec(ctx, oldEventsSQL, purged, half, half/(purged-1), text(*chatBody)); err != nil {
		return fmt.Errorf("write old events: %w", err)
	}
	if _, err := pool.Exec(ctx, oldHeadsSQL, purged, half, half/(purged-1)); err != nil {
		return fmt.Errorf("write old events: %w", err)
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "CHECKPOINT")
	return err
}

// besidePurge sends at a rate, by the clock, and beside it s purges as the product's housekeeping does, if there is one.
func (m *sends) besidePurge(ctx context.Context, name string, rate float64, s *store.Store) error {
	var done store.PurgedLogs
	var failed error
	var took time.Duration
	m.during = nil
	if s != nil {
		m.during = func() {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(*chatSeconds*float64(time.Second)))
			defer cancel()
			began := time.Now()
			done, failed = s.PurgeLogs(ctx)
			took = time.Since(began)
		}
	}
	got, _, err := m.load(m.gateway, "spread", 1, purged, rate)
	if errors.Is(failed, context.DeadlineExceeded) {
		failed = nil // as it was asked to
	}
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("%s purge: %w", name, err)
	}
	m.record("sent "+name, got.PerSecond)
	m.record(name+" p50", got.P50)
	m.record(name+" p99", got.P99)
	if s == nil {
		return nil
	}
	if done.Events == 0 || took.Seconds() < *chatSeconds/2 {
		return fmt.Errorf("the purge was over after %d events and %v: there are too few, see -chat-purge-events", done.Events, took)
	}
	m.record("purged", float64(done.Events)/took.Seconds())
	m.record("longest lock", float64(done.Longest.Microseconds())/1000)
	return nil
}
