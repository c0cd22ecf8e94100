// Tests of an erasure beside transactions that are open.

package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// What a transaction writes that is open while a user is erased is erased when it commits: the erasure waits for it.
func TestEraseWaitsForOpenTransactions(t *testing.T) {
	b := newTalk(t, 1)
	ctx := t.Context()
	b.prefer("u-ana", "push")
	b.say(said("c-1", "m-0"))
	tx, err := b.pool.Begin(ctx)
	b.must(err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, `SELECT tidings.notify_v1(json_build_object('user', 'u-ana', 'event_key', 'open', 'body', 'x', 'ttl_s', 3600))`)
	b.must(err)
	_, err = tx.Exec(ctx, `INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) SELECT 'c-2', 3, 'msg', gen_random_uuid(), 'u-ana', 'open', 'x'`)
	b.must(err)
	_, err = tx.Exec(ctx, `INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT 'c-2', epoch, 4 FROM tidings.conversation WHERE conv_id = 'c-1'`)
	b.must(err)
	_, err = tx.Exec(ctx, `INSERT INTO tidings.member VALUES ('c-2', 'u-ana', 1, NULL)`)
	b.must(err)
	type erased struct {
		did store.EraseReport
		err error
	}
	done := make(chan erased, 1)
	go func() {
		did, err := b.EraseUser(ctx, "u-ana", "op-1")
		done <- erased{did, err}
	}()
	for deadline := time.Now().Add(30 * time.Second); one[int](b, `SELECT count(*) FROM tidings.event WHERE cmid = 'm-0' AND recalled_by IS NOT NULL`) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the erasure does not go on beside it")
		}
	}
	select {
	case e := <-done:
		t.Fatalf("the erasure did not wait: %+v", e)
	case <-time.After(300 * time.Millisecond):
	}
	b.must(tx.Commit(ctx))
	e := <-done
	b.must(e.err)
	if e.did.Messages != 2 || e.did.Conversations != 2 || e.did.Notifications != 1 {
		t.Errorf("the report is %+v", e.did)
	}
	if n := one[int](b, `SELECT (SELECT count(*) FROM tidings.event WHERE kind = 'msg' AND recalled_by IS NULL) + (SELECT count(*) FROM tidings.notification WHERE erased_at IS NULL)`); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// A transaction that does not end makes the erasure fail, not report what is not so; one that only reads does not matter.
func TestEraseBesideEndlessTransactions(t *testing.T) {
	b := newTalk(t, 1)
	ctx := t.Context()
	reader, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	b.must(err)
	defer reader.Rollback(ctx)
	_, err = reader.Exec(ctx, `SELECT FROM tidings.event`)
	b.must(err)
	b.must(b.Outlive(ctx, time.Nanosecond))
	writer, err := b.pool.Begin(ctx)
	b.must(err)
	defer writer.Rollback(ctx)
	_, err = writer.Exec(ctx, `SELECT pg_current_xact_id()`)
	b.must(err)
	b.want(tidings.Unavailable, b.Outlive(ctx, 200*time.Millisecond))
	b.must(writer.Rollback(ctx))
	b.must(b.Outlive(ctx, time.Nanosecond))
}
