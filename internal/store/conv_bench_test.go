// A store with conversations and members, for tests of the log.

package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// newTalk is a bench with the conversations c-1 to c-n, of which u-ana and u-ben are members, on a pool that the product makes.
func newTalk(t *testing.T, n int) *bench {
	t.Helper()
	c, err := pgxpool.ParseConfig(pgtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 40
	store.Configure(c)
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := benchOn(t, pool)
	b.must(b.EnsureLineage(t.Context()))
	for i := range n {
		created, err := b.CreateConversation(t.Context(), store.Conversation{Conv: fmt.Sprintf("c-%d", i+1), RecallWindow: 2 * time.Minute, Members: []string{"u-ana", "u-ben"}})
		b.must(err)
		if !created {
			t.Fatal("it was there already")
		}
	}
	return b
}

func said(conv, cmid string) tidings.Message {
	return tidings.Message{Conv: conv, Sender: "u-ana", Device: "u-ana-d1", Cmid: cmid, Body: "hello " + cmid}
}

// say sends messages without waiting for locks.
func (b *bench) say(messages ...tidings.Message) []tidings.Answer {
	b.t.Helper()
	answers, err := b.Send(b.t.Context(), messages, 0)
	b.must(err)
	if len(answers) != len(messages) {
		b.t.Fatalf("%d answers to %d messages", len(answers), len(messages))
	}
	return answers
}

// log is a conversation's log without its times and ids: "1 join u-ana", "3 msg u-ana m-1".
func (b *bench) log(conv string) (lines []string) {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `SELECT concat_ws(' ', seq, kind, sender_user, cmid) FROM tidings.event WHERE conv_id = $1 ORDER BY seq`, conv)
	b.must(err)
	lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
	b.must(err)
	return lines
}

// whole fails if a conversation has a hole, a seq beyond its head or a time that runs backwards.
func (b *bench) whole() {
	b.t.Helper()
	if n := one[int](b, `SELECT count(*) FROM tidings.conversation`); n == 0 {
		b.t.Error("there is no conversation to look at")
	}
	if broken := one[int](b, `SELECT count(*) FROM tidings.conversation c LEFT JOIN LATERAL
			(SELECT count(*) AS n, min(e.seq) AS low, max(e.seq) AS high FROM tidings.event e WHERE e.conv_id = c.conv_id) l ON true
			WHERE l.n <> c.next_seq - c.min_seq OR l.n > 0 AND (l.low <> c.min_seq OR l.high <> c.next_seq - 1)`); broken > 0 {
		b.t.Errorf("%d conversations are not whole", broken)
	}
	if back := one[int](b, `SELECT count(*) FROM (SELECT created_at < lag(created_at) OVER (PARTITION BY conv_id ORDER BY seq) AS back FROM tidings.event) e WHERE back`); back > 0 {
		b.t.Errorf("the time of %d events is before that of the one before", back)
	}
}

// hold locks a conversation until the function that it returns is called.
func (b *bench) hold(conv string) (release func()) {
	b.t.Helper()
	tx, err := b.pool.Begin(b.t.Context())
	b.must(err)
	_, err = tx.Exec(b.t.Context(), `SELECT FROM tidings.conversation WHERE conv_id = $1 FOR NO KEY UPDATE`, conv)
	b.must(err)
	return func() {
		b.t.Helper()
		b.must(tx.Rollback(context.WithoutCancel(b.t.Context())))
	}
}

// waiting waits until n sessions of the database wait for a lock.
func (b *bench) waiting(n int) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); one[int](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) < n; {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d sessions do not wait for a lock", n)
		}
		time.Sleep(time.Millisecond)
	}
}
