// Tests of the notifications of members who have not read, beside reads, sends and other processes.

package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// A read that comes while the notification is created is told all the same.
func TestNotifyUnreadBesideRead(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	// The notification is held up between the look at who has read and its commit.
	hold, err := b.pool.Begin(ctx)
	b.must(err)
	defer hold.Rollback(context.Background())
	_, err = hold.Exec(ctx, `LOCK TABLE tidings.notification IN SHARE MODE`)
	b.must(err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.NotifyUnread(ctx, notice)
		ended <- err
	}()
	b.waiting(1)
	_, err = b.Read(ctx, "u-ben", "c-1", 0, 3)
	b.must(err)
	b.exec(`DELETE FROM tidings.gone`) // it was told before the notification is there
	b.must(hold.Rollback(ctx))
	b.must(<-ended)
	if b.open() != "u-ben c-1 3" {
		t.Fatalf("created are %q", b.open())
	}
	b.mark(10, 1, false)
	if got := b.open(); got != "" {
		t.Errorf("%s stands though it is read", got)
	}
}

// Senders, readers, recalls and two drainers at once: there is never more than one notification that stands for a user, and in the end nobody
// is left out.
func TestNotifyUnreadConcurrently(t *testing.T) {
	const convs, senders, messages = 3, 2 * 3, 25
	b := newWatched(t, convs)
	ctx := t.Context()
	b.exec(`UPDATE tidings.conversation SET notify_after_ms = 1`)
	for c := 1; c <= convs; c++ {
		_, err := b.Join(ctx, fmt.Sprint("c-", c), "u-cyd", "")
		b.must(err)
	}
	var busy atomic.Int32
	busy.Store(senders + convs)
	var created atomic.Int64
	atOnce(senders+convs+3, func(i int) {
		switch {
		case i < senders: // two in each conversation send and recall
			defer busy.Add(-1)
			conv, user := fmt.Sprint("c-", i/2+1), []string{"u-ana", "u-cyd"}[i%2]
			for m := range messages {
				answers, err := b.Send(ctx, []tidings.Message{{Conv: conv, Sender: user, Cmid: fmt.Sprint("m-", m), Body: "hello"}}, time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				if rand.IntN(4) == 0 {
					if _, err := b.Recall(ctx, store.Recall{Conv: conv, User: user, Cmid: fmt.Sprint("r-", m), Target: answers[0].Seq}, false); err != nil {
						t.Error(err)
					}
				}
			}
		case i < senders+convs: // read now and then
			defer busy.Add(-1)
			conv := fmt.Sprint("c-", i-senders+1)
			for range messages / 4 {
				if _, err := b.Read(ctx, "u-ben", conv, 0, one[int64](b, `SELECT next_seq - 1 FROM tidings.conversation WHERE conv_id = $1`, conv)); err != nil {
					t.Error(err)
				}
			}
		case i < senders+convs+2: // notify
			for busy.Load() > 0 {
				done, err := b.NotifyUnread(ctx, notice)
				if err != nil {
					t.Error(err)
				}
				created.Add(int64(done.Notifications))
			}
		default: // look: what stands about messages that are unread now
			for busy.Load() > 0 {
				if n := one[int](b, `SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM tidings.notification n
						JOIN tidings.event e ON e.conv_id = n.about_conv AND e.seq = n.about_seq AND e.recalled_by IS NULL
						LEFT JOIN tidings.read r ON r.conv_id = n.about_conv AND r.user_id = n.user_id
						WHERE n.about_seq > coalesce(r.seq, 0) AND n.about_gone_at IS NULL GROUP BY n.user_id, n.about_conv) x`); n > 1 {
					t.Errorf("%d notifications stand for one user", n)
					return
				}
			}
		}
	})
	for again := true; again; {
		done, err := b.NotifyUnread(ctx, notice)
		b.must(err)
		created.Add(int64(done.Notifications))
		again = b.queued() != ""
	}
	for again := true; again; {
		done, err := b.MarkGone(ctx, 1000)
		b.must(err)
		again = done.More || done.Rows > 0
	}
	if n := one[int64](b, `SELECT count(*) FROM tidings.notification`); n != created.Load() || n < 2*convs {
		t.Errorf("%d notifications are there, %d were created", n, created.Load())
	}
	// Each member with an unread message has one, about the first of them, and nobody else has.
	if wrong := one[int](b, `SELECT count(*) FROM (SELECT m.conv_id, m.user_id, (SELECT min(e.seq) FROM tidings.event e
				WHERE e.conv_id = m.conv_id AND e.seq > greatest(m.join_seq, r.seq) AND e.kind = 'msg' AND e.recalled_by IS NULL AND e.sender_user <> m.user_id) AS first,
			ARRAY(SELECT n.about_seq FROM tidings.notification n WHERE n.user_id = m.user_id AND n.about_conv = m.conv_id AND n.about_gone_at IS NULL) AS open
			FROM tidings.member m LEFT JOIN tidings.read r ON r.conv_id = m.conv_id AND r.user_id = m.user_id) x
		WHERE open <> CASE WHEN first IS NULL THEN '{}'::bigint[] ELSE ARRAY[first] END`); wrong > 0 {
		t.Errorf("%d members have not the notification that they should have; open are %s", wrong, b.open())
	}
	b.whole()
}

// What fails is due still, and does not keep others from their turn.
func TestNotifyUnreadAgain(t *testing.T) {
	b := newWatched(t, 2)
	b.say(said("c-1", "m-1"), said("c-2", "m-1"))
	b.later(61 * time.Second)
	b.exec(`ALTER TABLE tidings.notification ADD CONSTRAINT cut CHECK (about_conv <> 'c-1')`)
	done, err := b.NotifyUnread(t.Context(), notice)
	if done.Rows != 1 || done.Notifications != 1 || tidings.ErrorCode(err) != tidings.InvalidArgument {
		t.Errorf("%+v, %v", done, err)
	}
	if got := b.queued() + "; " + b.open(); got != "c-1 3; u-ben c-2 3" {
		t.Errorf("after a failure: %s", got)
	}
	b.exec(`ALTER TABLE tidings.notification DROP CONSTRAINT cut`)
	b.exec(`CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cut'; END $$`)
	b.exec(`CREATE TRIGGER fails BEFORE DELETE ON tidings.unread_due FOR EACH STATEMENT EXECUTE FUNCTION fails()`)
	if done, err := b.NotifyUnread(t.Context(), notice); done.Notifications != 1 || err == nil {
		t.Errorf("%+v, %v", done, err)
	}
	b.exec(`DROP TRIGGER fails ON tidings.unread_due`)
	b.look(1, 0)
	if got := b.queued() + b.open(); got != "u-ben c-1 3, u-ben c-2 3" {
		t.Errorf("handled again: %s", got)
	}
	// Another process is at it.
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, 0x756e72656164)
	b.must(err)
	if done, err := b.NotifyUnread(t.Context(), notice); done != (store.NotifiedUnread{Busy: true}) || err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	b.must(tx.Rollback(t.Context()))
	if n, oldest, err := b.WaitingUnread(t.Context()); n != 0 || oldest != 0 || err != nil {
		t.Errorf("waiting are %d, the oldest for %f s, %v", n, oldest, err)
	}
}
