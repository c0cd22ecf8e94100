// Tests of the purge of notifications.

package store_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func (b *bench) purge(olderThan time.Duration, limit, want int, wantMore bool) {
	b.t.Helper()
	if n, more, err := b.Purge(b.t.Context(), olderThan, limit); n != want || more != wantMore || err != nil {
		b.t.Errorf("Purge = %d, %t, %v, want %d, %t", n, more, err, want, wantMore)
	}
}

func TestPurge(t *testing.T) {
	b := newBench(t)
	sent := b.detail(b.task(push, "u-ana", "sent", func(n *tidings.Notification) {
		n.Data, n.Category, n.About = []byte(`{"a":1}`), "orders", &tidings.About{Conv: "c", Seq: 1}
	}))
	b.finish(b.claimOne(push), tidings.Accepted, "p-1")
	b.record("push", receipts("p-1", "", "delivered"), store.ReceiptResult{Matched: 1})
	failed := b.detail(b.task(push, "u-ana", "failed"))
	b.finish(b.claimOne(push), tidings.Rejected, "")
	parked := b.parked("u-ana", "parked")
	pending := b.detail(b.task(sms, "u-ana", "pending"))
	lonely := b.submit("u-nobody", "no-channel")
	b.prefer("u-ben", "push", "sms")
	half := b.submit("u-ben", "half") // one task is SENT, the other is not
	b.finish(b.claimOne(push), tidings.Accepted, "p-2")

	b.purge(time.Hour, 100, 0, false)
	b.purge(0, 1, 1, true)
	b.purge(0, 100, 2, false)
	b.purge(0, 100, 0, false)

	for _, gone := range []tidings.UUID{sent.Notification, failed.Notification, lonely} {
		n, err := b.GetNotification(t.Context(), gone)
		b.must(err)
		if n.PurgedAt == nil || n.Title+n.Body+n.Category != "" || n.Data != nil || n.Channels != nil || n.About != nil || len(n.Tasks) > 0 {
			t.Errorf("purged: %+v", n)
		}
	}
	for _, id := range []tidings.UUID{sent.ID, failed.ID} {
		_, err := b.TaskDetail(t.Context(), id)
		b.want(tidings.NotFound, err)
		if n := one[int](b, `SELECT count(*) FROM tidings.attempt WHERE task_id = $1`, id); n != 0 {
			t.Errorf("%d attempts are left", n)
		}
	}
	for _, kept := range []tidings.UUID{parked.Notification, pending.Notification, half} {
		if n, err := b.GetNotification(t.Context(), kept); err != nil || n.PurgedAt != nil || n.Body == "" || len(n.Tasks) == 0 {
			t.Errorf("kept: %+v, %v", n, err)
		}
	}
	if s := one[string](b, `SELECT string_agg(state, ' ' ORDER BY state) FROM tidings.task WHERE notification_id = $1`, half); s != "PENDING SENT" {
		t.Errorf("of the notification that is half done the tasks are %s", s)
	}
	// The key remembers.
	again := one[string](b, `SELECT tidings.notify_v1('{"user":"u-ana","event_key":"sent","body":"x","ttl_s":60}')::text`)
	var answer []tidings.Notified
	b.must(json.Unmarshal([]byte(again), &answer))
	if !answer[0].Expired || answer[0].Created || answer[0].ID != sent.Notification {
		t.Errorf("a late submission is answered %s", again)
	}
	// A receipt that comes after the purge finds nothing any more.
	b.record("push", receipts("p-1", sent.ID.Key(), "read"), store.ReceiptResult{Unmatched: 1})
	b.kept()
}

func TestDeleteTombstones(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.submit("u-nobody", fmt.Sprint("e", i))
	}
	for i := range 2 {
		b.task(push, "u-ana", fmt.Sprint("purged", i))
		b.finish(b.claimOne(push), tidings.Rejected, "")
	}
	b.purge(0, 100, 5, false)
	young := b.task(push, "u-ana", "kept")
	for i, want := range []struct {
		age   time.Duration
		limit int
		n     int
		more  bool
	}{{time.Hour, 10, 0, false}, {0, 2, 2, true}, {0, 2, 2, true}, {0, 2, 1, false}, {0, 2, 0, false}} {
		if n, more, err := b.DeleteTombstones(t.Context(), want.age, want.limit); n != want.n || more != want.more || err != nil {
			t.Errorf("DeleteTombstones %d = %d, %t, %v", i, n, more, err)
		}
	}
	b.detail(young)
	if n := one[int](b, `SELECT count(*) FROM tidings.notification`); n != 1 {
		t.Errorf("%d notifications are left", n)
	}
	// What is lost: the key is free again.
	if id := b.submit("u-nobody", "e0"); id.IsZero() {
		t.Error("the key is not free")
	}
}

// Purges, receipts and a person's words at once: everything is purged once, nothing is left behind.
func TestPurgeAtOnce(t *testing.T) {
	b := newBench(t)
	const many = 20
	var tasks []store.TaskDetail
	for i := range many {
		d := b.parked("u-ana", fmt.Sprint("e", i))
		tasks = append(tasks, d)
	}
	var purged, settled atomic.Int32
	atOnce(3*many, func(i int) {
		d := tasks[i/3]
		switch i % 3 {
		case 0:
			n, _, err := b.Purge(t.Context(), 0, 100)
			if err != nil {
				t.Error(err)
			}
			purged.Add(int32(n))
		case 1:
			r, err := b.RecordReceipts(t.Context(), "plain", receipts("p", d.ID.Key(), fmt.Sprint("s", i)))
			if err != nil {
				t.Error(err)
			}
			settled.Add(int32(r.Settled))
		case 2:
			switch err := b.Resolve(t.Context(), b.resolution(d, store.VerbFailed)); tidings.ErrorCode(err) {
			case "":
				settled.Add(1)
			case tidings.AlreadySettled, tidings.NotFound, tidings.Conflict:
			default:
				t.Error(err)
			}
		}
	})
	for _, f := range b.kept() {
		if f.Name == "task-has-notification" && f.Examined != many-int(purged.Load()) {
			t.Errorf("%d tasks are left, %d were purged", f.Examined, purged.Load())
		}
	}
	n, _, err := b.Purge(t.Context(), 0, 100)
	b.must(err)
	if total := n + int(purged.Load()); total != many || settled.Load() != many {
		t.Errorf("%d were purged, %d settled", total, settled.Load())
	}
	if left := one[int](b, `SELECT (SELECT count(*) FROM tidings.task) + (SELECT count(*) FROM tidings.attempt)`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}
