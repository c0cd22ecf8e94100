// Tests of reading and cancelling notifications.

package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
)

func TestGetAndFindNotification(t *testing.T) {
	b := newBench(t)
	b.prefer("u-ana", "sms", "push")
	urgent := tidings.Urgent
	id := b.submit("u-ana", "e1", func(n *tidings.Notification) {
		n.Data, n.Category, n.Priority = []byte(`{"order": 7}`), "orders", &urgent
		n.About = &tidings.About{Conv: "c-1", Seq: 4}
	})
	byID, err := b.GetNotification(t.Context(), id)
	b.must(err)
	byKey, err := b.FindNotification(t.Context(), "u-ana", "e1")
	b.must(err)
	if byID.ID != byKey.ID || byID.ID != id || byID.User != "u-ana" || byID.EventKey != "e1" || byID.Title != "title" || byID.Body != "body" ||
		string(byID.Data) != `{"order": 7}` || byID.Category != "orders" || byID.Priority != urgent || byID.MaxAttempts != tidings.DefaultBudget ||
		byID.Duplicates != tidings.Forbid || *byID.About != (tidings.About{Conv: "c-1", Seq: 4}) || byID.ExpiresAt.Sub(byID.CreatedAt) != time.Hour {
		t.Errorf("GetNotification = %+v", byID)
	}
	var channels []string
	for _, task := range byKey.Tasks {
		channels = append(channels, task.Channel)
		if task.State != tidings.Pending || task.Notification != id || task.User != "u-ana" || task.BudgetLeft != 5 || task.NextAttemptAt == nil || task.Priority != urgent {
			t.Errorf("task %+v", task)
		}
	}
	if !slices.Equal(channels, []string{"push", "sms"}) {
		t.Errorf("tasks on %q", channels)
	}

	_, err = b.FindNotification(t.Context(), "u-ana", "e2")
	b.want(tidings.NotFound, err)
	_, err = b.GetNotification(t.Context(), tidings.UUID{1})
	b.want(tidings.NotFound, err)
	_, err = b.TaskDetail(t.Context(), tidings.UUID{1})
	b.want(tidings.NotFound, err)
}

func TestTaskDetail(t *testing.T) {
	b := newBench(t)
	id := b.task(push, "u-ana", "e1")
	b.finish(b.claimOne(push), tidings.Timeout, "")
	b.finish(b.claimOne(push), tidings.AcceptedReplay, "p-1")
	d := b.detail(id)
	if d.State != tidings.Sent || d.InDoubt || d.AttemptCount != 2 || d.BudgetLeft != 3 || d.ProviderMsgID != "p-1" || d.EventKey != "e1" ||
		d.Address != "at-u-ana" || d.Body == "" || d.FirstCallAt == nil {
		t.Errorf("TaskDetail = %+v", d)
	}
	if got := b.outcomes(id); !slices.Equal(got, []tidings.Outcome{tidings.Timeout, tidings.AcceptedReplay}) {
		t.Errorf("journal %v", got)
	}
	if a := d.Attempts[1]; a.Action != tidings.ActionSend || a.Worker != "w" || a.FinishedAt == nil || a.ProviderMsgID != "p-1" {
		t.Errorf("attempt %+v", a)
	}
	b.kept()
}

func TestCancel(t *testing.T) {
	b := newBench(t)
	pending := b.task(push, "u-ana", "e1")
	d := b.detail(pending)
	for i, want := range []bool{true, false} {
		if got, err := b.CancelNotification(t.Context(), d.Notification); got != want || err != nil {
			t.Errorf("cancel %d = %t, %v", i, got, err)
		}
	}
	first := b.detail(pending).CancelledAt
	if c := b.claimOne(push); c.State != tidings.Suppressed || c.Stop != tidings.Cancelled {
		t.Errorf("the claim found %s, %s", c.State, c.Stop)
	}
	if again := b.detail(pending); again.State != tidings.Suppressed || !again.CancelledAt.Equal(*first) {
		t.Errorf("the task is %s, cancelled at %v, first %v", again.State, again.CancelledAt, first)
	}
	_, err := b.CancelNotification(t.Context(), tidings.UUID{1})
	b.want(tidings.NotFound, err)

	purged, _, err := b.Purge(t.Context(), 0, 10)
	b.must(err)
	if purged != 1 {
		t.Fatalf("%d were purged", purged)
	}
	_, err = b.CancelNotification(t.Context(), d.Notification)
	b.want(tidings.OriginalExpired, err)
	b.kept()
}

// Of many cancellations at once one cancels, and every task that is claimed afterwards obeys.
func TestCancelAtOnce(t *testing.T) {
	b := newBench(t)
	id := b.detail(b.task(push, "u-ana", "e1")).Notification
	won := make([]bool, 16)
	atOnce(len(won), func(i int) {
		var err error
		if won[i], err = b.CancelNotification(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
	if n := len(slices.DeleteFunc(won, func(w bool) bool { return !w })); n != 1 {
		t.Errorf("%d cancelled it", n)
	}
	if c := b.claimOne(push); c.State != tidings.Suppressed {
		t.Errorf("the claim made it %s", c.State)
	}
}
