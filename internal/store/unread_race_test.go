// Tests of notifications of unread messages whose creation something else comes in between.

package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/store"
)

// between lets a pass look at who has not read, then does what comes in between, then lets the pass create. The pass has ended on return.
func (b *bench) between(do func()) {
	b.t.Helper()
	hold := b.lock(`LOCK TABLE tidings.channel_pref IN ACCESS EXCLUSIVE MODE`)
	ended := make(chan error, 1)
	go func() {
		_, err := b.NotifyUnread(b.t.Context(), notice)
		ended <- err
	}()
	b.waiting(1)
	do()
	b.must(hold.Rollback(b.t.Context()))
	b.must(<-ended)
}

// lock runs a statement that locks something, until the transaction ends.
func (b *bench) lock(sql string) pgx.Tx {
	b.t.Helper()
	tx, err := b.pool.Begin(b.t.Context())
	b.must(err)
	b.t.Cleanup(func() { tx.Rollback(context.Background()) })
	_, err = tx.Exec(b.t.Context(), sql)
	b.must(err)
	return tx
}

// Whatever is told between the look at a member and the notification, and marked while there is none, is told once more.
func TestNotifyUnreadBesideWhatIsGone(t *testing.T) {
	for name, do := range map[string]func(b *bench){
		"read": func(b *bench) {
			_, err := b.Read(b.t.Context(), "u-ben", "c-1", 0, 3)
			b.must(err)
		},
		"recall": func(b *bench) {
			b.recalls("it", store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-1", Target: 3}, "", 4, false)
		},
		"leave": func(b *bench) { b.leave("c-1", "u-ben") },
		"left and back": func(b *bench) {
			b.leave("c-1", "u-ben")
			b.join("c-1", "u-ben")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWatched(t, 1)
			b.say(said("c-1", "m-1"))
			b.later(61 * time.Second)
			b.between(func() {
				do(b)
				b.mark(10, 1, false)
			})
			if got := b.open(); got != "u-ben c-1 3" {
				t.Fatalf("created are %q", got)
			}
			b.mark(10, 1, false)
			if got := b.open(); got != "" {
				t.Errorf("%s stands", got)
			}
		})
	}
}

// The word of a read that is being deleted, because it was marked before the notification was there, is left once more.
func TestNotifyUnreadBesideMarkGone(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	hold := b.lock(`LOCK TABLE tidings.channel_pref IN ACCESS EXCLUSIVE MODE`)
	notified, marked := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.NotifyUnread(ctx, notice)
		notified <- err
	}()
	b.waiting(1)
	_, err := b.Read(ctx, "u-ben", "c-1", 0, 3)
	b.must(err)
	word := b.lock(`SELECT FROM tidings.gone FOR UPDATE`)
	go func() {
		_, err := b.MarkGone(ctx, 10)
		marked <- err
	}()
	b.waiting(2)
	b.must(hold.Rollback(ctx))
	for deadline := time.Now().Add(10 * time.Second); len(notified) == 0 && one[int](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the pass neither ends nor waits")
		}
	}
	b.must(word.Rollback(ctx))
	b.must(<-notified)
	b.must(<-marked)
	for more := true; more; {
		done, err := b.MarkGone(ctx, 10)
		b.must(err)
		more = done.Rows > 0
	}
	if got := b.open(); got != "" {
		t.Errorf("%s stands though it is read", got)
	}
}

// A pass that ends before it has asked what came in between is made good by the next one, also for who has nothing unread any more.
func TestNotifyUnreadResumes(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	hold := b.lock(`LOCK TABLE tidings.channel_pref IN ACCESS EXCLUSIVE MODE`)
	ended := make(chan error, 1)
	go func() {
		_, err := b.NotifyUnread(ctx, notice)
		ended <- err
	}()
	b.waiting(1)
	b.leave("c-1", "u-ben")
	b.mark(10, 1, false)
	b.exec(`CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cut'; END $$`)
	b.exec(`CREATE TRIGGER fails BEFORE INSERT ON tidings.gone FOR EACH STATEMENT EXECUTE FUNCTION fails()`)
	b.must(hold.Rollback(ctx))
	if err := <-ended; err == nil || b.open() != "u-ben c-1 3" {
		t.Fatalf("%v; created are %q", err, b.open())
	}
	b.exec(`DROP TRIGGER fails ON tidings.gone`)
	resumed := notice
	resumed.Resume = true
	if done, err := b.NotifyUnread(ctx, resumed); done != (store.NotifiedUnread{Rows: 1}) || err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	b.mark(10, 1, false)
	if got := b.open(); got != "" {
		t.Errorf("%s stands though its user has left", got)
	}
}

// A wait that has become longer than a day is waited for.
func TestNotifyUnreadAfterAMuchLongerWait(t *testing.T) {
	b := newWatched(t, 1)
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	after := 50 * time.Hour
	_, err := b.ChangeSettings(t.Context(), "c-1", store.SettingsChange{NotifyAfter: &after})
	b.must(err)
	for range 49 {
		b.look(1, 0)
		b.later(61 * time.Minute)
		if got := b.queued(); got != "c-1 0" {
			t.Fatalf("queued are %q", got)
		}
	}
	b.look(1, 0)
	b.later(61 * time.Minute)
	b.look(1, 1)
}

// A recall that a recovery replays makes nobody look again: the lost history has notified of what else is unread.
func TestRecoverNotifiesOfNothingTwice(t *testing.T) {
	b := newWatched(t, 1)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	restored, dir := b.copied(), t.TempDir()
	b.later(61 * time.Second)
	b.look(2, 1)
	b.recalls("the second", store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-1", Target: 4}, "", 5, false)
	b.takings(dir)
	if r := restored.recovered(dir); replayed(r.Replay) != "recall 1" {
		t.Fatalf("replayed is %s", replayed(r.Replay))
	}
	restored.later(61 * time.Second)
	restored.look(0, 0)
	if got := restored.open() + restored.queued(); got != "" {
		t.Errorf("after the recovery: %s", got)
	}
}

// A notification that was cancelled is not made anew for the same message: the next comes when they have read.
func TestNotifyUnreadAfterACancellation(t *testing.T) {
	b := newWatched(t, 1)
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	b.look(1, 1)
	b.exec(`UPDATE tidings.notification SET cancelled_at = statement_timestamp()`)
	b.say(said("c-1", "m-2"))
	b.later(61 * time.Second)
	b.look(1, 0)
	_, err := b.Read(t.Context(), "u-ben", "c-1", 0, 4)
	b.must(err)
	b.say(said("c-1", "m-3"))
	b.later(61 * time.Second)
	b.look(1, 1)
}
