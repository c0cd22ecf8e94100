// Tests of the notifications of members who have not read.

package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

var notice = store.UnreadNotice{Title: "New message", TTL: time.Hour}

// newWatched is newTalk with conversations that notify after a minute, and users who can be reached.
func newWatched(t *testing.T, n int) *bench {
	t.Helper()
	b := newTalk(t, n)
	after := time.Minute
	for i := range n {
		_, err := b.ChangeSettings(t.Context(), fmt.Sprintf("c-%d", i+1), store.SettingsChange{NotifyAfter: &after})
		b.must(err)
	}
	for _, user := range []string{"u-ana", "u-ben", "u-cyd"} {
		b.prefer(user, push.Channel)
	}
	return b
}

// later lets time pass for what is queued and in the logs.
func (b *bench) later(d time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE tidings.event SET created_at = created_at - $1::float8 * interval '1 second'`, d.Seconds())
	b.exec(`UPDATE tidings.unread_due SET due_at = due_at - $1::float8 * interval '1 second', since_at = since_at - $1::float8 * interval '1 second'`, d.Seconds())
}

// look makes a pass and expects how many rows it handled and notifications it created.
func (b *bench) look(rows, notifications int) {
	b.t.Helper()
	if done, err := b.NotifyUnread(b.t.Context(), notice); done != (store.NotifiedUnread{Rows: rows, Notifications: notifications}) || err != nil {
		b.t.Errorf("NotifyUnread = %+v, %v, want %d rows, %d notifications", done, err, rows, notifications)
	}
}

// open are the notifications of unread messages that stand: "u-ben c-1 3".
func (b *bench) open() string {
	b.t.Helper()
	return one[string](b, `SELECT coalesce(string_agg(concat_ws(' ', user_id, about_conv, about_seq), ', ' ORDER BY user_id, about_conv, about_seq), '') FROM tidings.notification
		WHERE event_key LIKE 'unread-%' AND about_gone_at IS NULL`)
}

// queued are the rows of the queue.
func (b *bench) queued() string {
	b.t.Helper()
	return one[string](b, `SELECT coalesce(string_agg(concat_ws(' ', conv_id, seq), ', ' ORDER BY conv_id, seq), '') FROM tidings.unread_due`)
}

// online gives a user a device with a current route; the returned function takes it away.
func (b *bench) online(user string) (offline func()) {
	b.t.Helper()
	ctx := b.t.Context()
	b.must(b.RenewLease(ctx, "g1", time.Hour, false))
	h, err := b.Hello(ctx, user, "d1", "i1", "g1", connection(7))
	b.must(err)
	r := store.Route{User: user, Device: "d1", Gateway: "g1", Connection: connection(7), Version: h.Version}
	_, err = b.RegisterRoute(ctx, r)
	b.must(err)
	return func() { b.must(b.CloseRoutes(ctx, []store.Route{r})) }
}

func TestNotifyUnread(t *testing.T) {
	b := newWatched(t, 2)
	ctx := t.Context()
	b.say(said("c-1", "m-1"), said("c-1", "m-2")) // 3, 4
	b.look(0, 0)
	if got := b.queued(); got != "c-1 3, c-1 4" {
		t.Errorf("two messages queue %q", got)
	}
	b.later(59 * time.Second)
	b.look(0, 0)
	b.later(2 * time.Second)
	b.look(2, 1)
	if got := b.open() + b.queued(); got != "u-ben c-1 3" {
		t.Errorf("after a minute: %s", got)
	}
	n := one[string](b, `SELECT concat_ws('|', n.event_key = 'unread-' || e.mid, n.title, n.body, n.data, n.category, n.preview, extract(epoch FROM n.expires_at - n.created_at), (SELECT count(*) FROM tidings.task))
		FROM tidings.notification n JOIN tidings.event e ON e.conv_id = n.about_conv AND e.seq = n.about_seq`)
	if n != `t|New message|{"seq": 3, "conv": "c-1"}|chat|f|3600.000000|1` {
		t.Errorf("the notification is %s", n)
	}
	// One at a time: while it stands there is no other.
	b.say(said("c-1", "m-3")) // 5
	b.later(time.Hour)
	b.look(1, 0)
	// What is read is told, and the next unread message makes another.
	_, err := b.Read(ctx, "u-ben", "c-1", 0, 5)
	b.must(err)
	b.mark(10, 1, false)
	b.say(said("c-1", "m-4"), said("c-2", "m-1")) // 6; 3
	b.later(time.Hour)
	b.look(2, 2)
	if got := b.open(); got != "u-ben c-1 6, u-ben c-2 3" {
		t.Errorf("after more: %s", got)
	}
	// Left, and back: what came before is none of theirs.
	_, err = b.Leave(ctx, "c-2", "u-ben", "")
	b.must(err)
	_, err = b.Join(ctx, "c-2", "u-ben", "")
	b.must(err)
	b.exec(`UPDATE tidings.notification SET created_at = created_at - interval '1 second'`)
	b.mark(10, 1, false)
	b.say(tidings.Message{Conv: "c-2", Sender: "u-ben", Cmid: "mine", Body: "own"}) // 6
	b.later(time.Hour)
	b.look(1, 1)
	if got := b.open(); got != "u-ana c-2 6, u-ben c-1 6" {
		t.Errorf("after a leave: %s", got)
	}
	// Whoever cannot be reached gets none, nor is anybody looked for in a conversation that notifies no more.
	_, err = b.Join(ctx, "c-1", "u-dee", "")
	b.must(err)
	b.say(said("c-1", "m-5"))
	b.later(time.Hour)
	b.look(1, 0)
	b.prefer("u-dee", push.Channel)
	b.say(said("c-1", "m-6"))
	_, err = b.ChangeSettings(ctx, "c-1", store.SettingsChange{NeverNotify: true})
	b.must(err)
	b.later(time.Hour)
	b.look(1, 0)
	b.say(said("c-1", "m-7"))
	if got := b.queued(); got != "" {
		t.Errorf("a conversation that does not notify queues %q", got)
	}
	b.whole()
}

// A recall makes room for the next message that is unread, and of a recalled message nobody is notified.
func TestNotifyUnreadAfterRecall(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	b.say(said("c-1", "m-1"), said("c-1", "m-2")) // 3, 4
	b.later(61 * time.Second)
	b.look(2, 1)
	b.recalls("the first", store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-1", Target: 3}, "", 5, false)
	if got := b.queued(); got != "c-1 5" {
		t.Errorf("a recall queues %q", got)
	}
	b.look(1, 1) // before the notification was told: it is about an earlier message than the first unread one
	b.mark(10, 1, false)
	if got := b.open(); got != "u-ben c-1 4" {
		t.Errorf("after a recall %s", got)
	}
	b.recalls("the second", store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-2", Target: 4}, "", 6, false)
	b.look(1, 0)
	b.mark(10, 1, false)
	b.say(said("c-1", "m-3")) // 7
	b.recalls("the third", store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-3", Target: 7}, "", 8, false)
	b.later(61 * time.Second)
	b.look(2, 0)
	if got := b.open() + b.queued(); got != "" {
		t.Errorf("when all are recalled: %s", got)
	}
	// An erasure recalls, too.
	b.say(said("c-1", "m-4"), tidings.Message{Conv: "c-1", Sender: "u-ben", Cmid: "b", Body: "x"}, said("c-1", "m-5")) // 9, 10, 11
	_, err := b.Join(ctx, "c-1", "u-cyd", "")
	b.must(err)
	_, err = b.EraseUser(ctx, "u-ana", "op-1")
	b.must(err)
	if got := b.queued(); got != "c-1 10, c-1 11, c-1 13, c-1 9" && got != "c-1 9, c-1 10, c-1 11, c-1 13" {
		t.Errorf("an erasure queues %q", got)
	}
}

// Who is connected and does not read is looked at again, ever later, and notified when they are gone; one row serves all.
func TestNotifyUnreadOfTheConnected(t *testing.T) {
	b := newWatched(t, 1)
	offline := b.online("u-ben")
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	b.later(61 * time.Second)
	b.look(2, 0)
	wait := func() float64 {
		return one[float64](b, `SELECT extract(epoch FROM due_at - statement_timestamp())::float8 FROM tidings.unread_due WHERE seq = 0`)
	}
	for _, want := range []float64{60, 60, 120, 240, 480, 960, 1920, 3600, 3600} {
		if got := wait(); got < 0.95*want || got > 1.05*want || b.queued() != "c-1 0" {
			t.Fatalf("looked at again in %.0f s, want %.0f; queued are %q", got, want, b.queued())
		}
		b.later(time.Duration(wait()+1) * time.Second)
		b.look(1, 0)
	}
	// Something new begins the waits anew, and does not put off what is due sooner.
	b.say(said("c-1", "m-3"))
	b.later(61 * time.Second)
	b.look(1, 0)
	if got := wait(); got > 61 || b.queued() != "c-1 0" {
		t.Errorf("after something new looked at again in %.0f s; queued are %q", got, b.queued())
	}
	offline()
	b.later(61 * time.Second)
	b.look(1, 1)
	if got := b.open() + b.queued(); got != "u-ben c-1 3" {
		t.Errorf("when they are gone: %s", got)
	}
	// A gateway whose lease is over holds nobody; after a day nobody is looked at any more.
	_, err := b.Read(t.Context(), "u-ben", "c-1", 0, 5)
	b.must(err)
	b.mark(10, 1, false)
	b.online("u-ben")
	b.say(said("c-1", "m-4"))
	b.later(61 * time.Second)
	b.look(1, 0)
	b.later(25 * time.Hour)
	b.look(1, 0)
	if got := b.queued(); got != "" {
		t.Errorf("after a day %q is queued", got)
	}
	b.say(said("c-1", "m-5"))
	b.exec(`UPDATE tidings.gateway SET lease_until = statement_timestamp() - interval '1 second'`)
	b.later(61 * time.Second)
	b.look(1, 1)
}

// A wait that has become longer holds for what is queued, too.
func TestNotifyUnreadAfterALongerWait(t *testing.T) {
	b := newWatched(t, 1)
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	after := time.Hour
	_, err := b.ChangeSettings(t.Context(), "c-1", store.SettingsChange{NotifyAfter: &after})
	b.must(err)
	b.look(1, 0)
	if got := b.queued(); got != "c-1 0" {
		t.Errorf("queued are %q", got)
	}
	b.later(time.Hour + time.Second)
	b.look(1, 1)
}

// An erasure forgets when and of what its user did not want to hear; what came after it stays.
func TestEraseForgetsWishes(t *testing.T) {
	b := newWatched(t, 3)
	ctx := t.Context()
	for _, user := range []string{"u-ana", "u-ben"} {
		b.must(b.PutQuiet(ctx, user, store.Quiet{Zone: "UTC", From: "22:00", To: "07:00"}))
		for c := range 3 {
			_, err := b.Mute(ctx, fmt.Sprint("c-", c+1), user, nil)
			b.must(err)
		}
	}
	b.exec(`UPDATE tidings.mute SET at = at + interval '1 hour' WHERE conv_id = 'c-3'`)
	_, err := b.EraseUser(ctx, "u-ben", "op-1")
	b.must(err)
	if got := one[string](b, `SELECT concat_ws(' ', (SELECT string_agg(user_id, ',' ORDER BY user_id) FROM tidings.quiet), (SELECT string_agg(user_id || conv_id, ',' ORDER BY user_id, conv_id) FROM tidings.mute))`); got != "u-ana u-anac-1,u-anac-2,u-anac-3,u-benc-3" {
		t.Errorf("left are %s", got)
	}
}

// What was due in a restored copy the lost history has notified of: recover does not do it twice.
func TestRecoverClearsTheQueue(t *testing.T) {
	b := newWatched(t, 1)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	if _, err := b.Recover(t.Context(), store.RecoverOptions{Lossless: true}); err != nil || b.queued() != "c-1 3, c-1 4" {
		t.Errorf("after a planned switch %q is queued, %v", b.queued(), err)
	}
	if report, err := b.Recover(t.Context(), store.RecoverOptions{}); err != nil || !report.Recorded || b.queued() != "" {
		t.Errorf("after a recovery %q is queued, %+v, %v", b.queued(), report, err)
	}
	b.say(said("c-1", "m-3"))
	if got := b.queued(); got != "c-1 5" {
		t.Errorf("afterwards %q is queued", got)
	}
}

// Every way to send queues: alone, in a batch of several conversations, by an application; a repeat and a refusal do not.
func TestEverySendQueues(t *testing.T) {
	b := newWatched(t, 3)
	_, err := b.ChangeSettings(t.Context(), "c-2", store.SettingsChange{NeverNotify: true})
	b.must(err)
	b.say(said("c-1", "m-1"), said("c-2", "m-1"), said("c-3", "m-1"), said("c-1", "m-2"), tidings.Message{Conv: "c-1", Sender: "u-eve", Cmid: "m", Body: "x"})
	b.say(said("c-1", "m-1"))
	b.exec(`SELECT tidings.post_v1('[{"conv": "c-1", "sender": "u-ana", "cmid": "p-1", "body": "x"}, {"conv": "c-2", "sender": "u-ana", "cmid": "p-1", "body": "x"}, {"conv": "c-1", "sender": "u-ana", "cmid": "m-2", "body": "hello m-2"}]')`)
	if got := b.queued(); got != "c-1 3, c-1 4, c-1 5, c-3 3" {
		t.Errorf("queued are %q", got)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.unread_due u JOIN tidings.event e USING (conv_id, seq) WHERE u.due_at <> e.created_at + interval '1 minute'`); n != 0 {
		t.Errorf("%d are due at another time", n)
	}
	// It is of the sender's own transaction.
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = tx.Exec(t.Context(), `SELECT tidings.post_v1('{"conv": "c-3", "sender": "u-ana", "cmid": "p-2", "body": "x"}')`)
	b.must(err)
	b.must(tx.Rollback(t.Context()))
	if got := b.queued(); got != "c-1 3, c-1 4, c-1 5, c-3 3" {
		t.Errorf("after a rollback queued are %q", got)
	}
}

// Whoever looks at a notification or a task sees what it is about, and that it shows the message.
func TestPreviewIsShownToOperators(t *testing.T) {
	b := newWatched(t, 1)
	yes := true
	_, err := b.ChangeSettings(t.Context(), "c-1", store.SettingsChange{Preview: &yes})
	b.must(err)
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	b.look(1, 1)
	n, err := b.GetNotification(t.Context(), one[tidings.UUID](b, `SELECT id FROM tidings.notification`))
	b.must(err)
	d, err := b.TaskDetail(t.Context(), n.Tasks[0].ID)
	b.must(err)
	about := tidings.About{Conv: "c-1", Seq: 3}
	if !n.Preview || *n.About != about || n.Body != "" || !d.Preview || d.About == nil || *d.About != about || d.Body != "" {
		t.Errorf("%+v, %+v", n, d)
	}
	if c := b.claimOne(push); c.AboutConv != "c-1" || c.AboutSeq != 3 || c.Body != "" {
		t.Errorf("%+v", c)
	}
}
