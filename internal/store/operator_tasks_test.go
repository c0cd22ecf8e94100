// Tests of how operators find tasks.

package store_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// found are the event keys and channels of the tasks that a filter finds, over all pages.
func (b *bench) found(f store.TaskFilter) (keys []string) {
	b.t.Helper()
	seen := map[tidings.UUID]bool{}
	for range 100 {
		items, next, partial, err := b.FindTasks(b.t.Context(), f)
		b.must(err)
		if partial {
			b.t.Error("a search is partial")
		}
		for _, i := range items {
			if seen[i.Task] {
				b.t.Errorf("the task of %s is on two pages", i.EventKey)
			}
			seen[i.Task] = true
			keys = append(keys, i.EventKey+" "+i.Channel)
		}
		if f.After = next; next == "" {
			return keys
		}
		if len(items) != f.Limit {
			b.t.Errorf("a page that is not the last has %d tasks of %d", len(items), f.Limit)
		}
	}
	b.t.Fatal("the pages do not end")
	return nil
}

func TestFindTasksOfAUser(t *testing.T) {
	b := newBench(t)
	b.prefer("u-ana", "push", "sms")
	b.prefer("u-ben", "push")
	long := strings.Repeat("k", tidings.MaxID)
	var want []string
	for _, key := range []string{"z", "a", long, "m"} { // whatever their names: the newest first
		id := b.submit("u-ana", key)
		b.submit("u-ben", key)
		channels := []string{"push", "sms"} // which has the greater task id is chance
		if one[string](b, `SELECT channel FROM tidings.task WHERE notification_id = $1 ORDER BY id DESC LIMIT 1`, id) == "sms" {
			slices.Reverse(channels)
		}
		want = append([]string{key + " " + channels[0], key + " " + channels[1]}, want...)
	}
	b.submit("u-nobody", "without-tasks")
	for limit := range 10 {
		if got := b.found(store.TaskFilter{User: "u-ana", Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("by %d: %v, not %v", limit, got, want)
		}
	}
	if got := b.found(store.TaskFilter{User: "u-ana", EventKey: long, Limit: 1}); !slices.Equal(got, want[2:4]) {
		t.Errorf("of one event: %v", got)
	}
	for _, f := range []store.TaskFilter{{User: "u-nobody"}, {User: "u-absent"}, {User: "u-ana", EventKey: "absent"}, {User: "u-ana", EventKey: "~"}, {ProviderMsgID: "absent"}} {
		items, next, partial, err := b.FindTasks(t.Context(), f)
		if items == nil || len(items) != 0 || next != "" || partial || err != nil {
			t.Errorf("%+v: %v, %q, %v, %v", f, items, next, partial, err)
		}
	}
	// A purged notification has no tasks.
	b.exec(`UPDATE tidings.task SET state = 'SENT', next_attempt_at = NULL WHERE user_id = 'u-ben' AND state = 'PENDING'`)
	_, _, err := b.Purge(t.Context(), 0, 100)
	b.must(err)
	if got := b.found(store.TaskFilter{User: "u-ben"}); len(got) != 0 {
		t.Errorf("after a purge: %v", got)
	}
}

// A task shows what it is, and no more of it than that.
func TestFoundTask(t *testing.T) {
	b := newBench(t)
	d := b.parked("u-ana", "e1")
	items, _, _, err := b.FindTasks(t.Context(), store.TaskFilter{User: "u-ana"})
	b.must(err)
	if len(items) != 1 {
		t.Fatalf("%d tasks", len(items))
	}
	want := store.TaskItem{Task: d.ID, Notification: d.Notification, User: "u-ana", EventKey: "e1", Channel: "plain", State: tidings.Unknown, NeedsReview: true, InDoubt: true,
		AttemptCount: 1, LastError: d.LastError, CreatedAt: d.CreatedAt}
	if items[0] != want {
		t.Errorf("%+v, not %+v", items[0], want)
	}
	if text := fmt.Sprintf("%+v", items[0]); strings.Contains(text, "body") || strings.Contains(text, "at-u-ana") {
		t.Errorf("it holds content or address: %s", text)
	}
}

// A provider's id is found on the task, and in a receipt that had another one; with or without the channel's receipts.
func TestFindTasksOfAProvider(t *testing.T) {
	b := newBench(t)
	sent := b.task(push, "u-ana", "sent")
	b.finish(b.claimOne(push), tidings.Accepted, "id-of-the-answer")
	b.record("push", receipts("id-of-the-report", sent.Key(), "delivered"), store.ReceiptResult{Matched: 1})
	b.record("sms", receipts("id-of-nobody", "", "delivered"), store.ReceiptResult{Unmatched: 1})
	b.exec(`UPDATE tidings.task SET provider_msg_id = 'shared' WHERE id = $1`, b.task(plain, "u-ana", "plain"))
	b.exec(`UPDATE tidings.task SET provider_msg_id = 'shared', awaits_receipt = true WHERE id = $1`, b.task(sms, "u-ben", "sms"))
	for _, c := range []struct {
		filter store.TaskFilter
		want   []string
	}{
		{store.TaskFilter{ProviderMsgID: "id-of-the-answer"}, []string{"sent push"}},
		{store.TaskFilter{ProviderMsgID: "id-of-the-report"}, []string{"sent push"}},
		{store.TaskFilter{ProviderMsgID: "id-of-the-report", User: "u-ana"}, []string{"sent push"}},
		{store.TaskFilter{ProviderMsgID: "id-of-the-report", User: "u-ben"}, nil},
		{store.TaskFilter{ProviderMsgID: "id-of-nobody"}, nil},
		{store.TaskFilter{ProviderMsgID: "ID-OF-THE-ANSWER"}, nil},
		{store.TaskFilter{ProviderMsgID: "shared", Limit: 1}, []string{"sms sms", "plain plain"}},
		{store.TaskFilter{ProviderMsgID: "shared", User: "u-ana"}, []string{"plain plain"}},
		{store.TaskFilter{ProviderMsgID: "shared", EventKey: "sms"}, []string{"sms sms"}},
		{store.TaskFilter{ProviderMsgID: "' OR true --"}, nil},
		{store.TaskFilter{ProviderMsgID: "%"}, nil},
		{store.TaskFilter{ProviderMsgID: strings.Repeat("ж", 256)}, nil},
	} {
		if got := b.found(c.filter); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, not %v", c.filter, got, c.want)
		}
	}
}

func TestFindTasksRefuses(t *testing.T) {
	b := newBench(t)
	encode := base64.RawURLEncoding.EncodeToString
	for name, f := range map[string]store.TaskFilter{
		"nothing":                     {},
		"an event of nobody":          {EventKey: "e1"},
		"a user that is no id":        {User: "a b"},
		"a user with a zero":          {User: "a\x00"},
		"a user that is too long":     {User: strings.Repeat("x", 129)},
		"an event that is no id":      {User: "u-ana", EventKey: "e\n"},
		"a provider's id with a zero": {ProviderMsgID: "a\x00"},
		"a provider's id of no text":  {ProviderMsgID: "\xff"},
		"a long provider's id":        {ProviderMsgID: strings.Repeat("x", 513)},
		"a cursor of no alphabet":     {User: "u-ana", After: "%%"},
		"a cursor of nothing":         {User: "u-ana", After: encode([]byte(" "))},
		"a cursor of another list":    {User: "u-ana", After: encode([]byte("c-1"))},
		"a cursor without id":         {User: "u-ana", After: encode([]byte("1 x"))},
		"a cursor of no time":         {User: "u-ana", After: encode(fmt.Appendf(nil, "99999999999999999999 %032d", 1))},
	} {
		if _, _, _, err := b.FindTasks(t.Context(), f); tidings.ErrorCode(err) != tidings.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of a user with more notifications than a search looks at it says so.
func TestFindTasksIsPartial(t *testing.T) {
	b := newBench(t)
	b.prefer("u-ana", "push")
	b.exec(`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', 'u-ana', 'event_key', 'e' || g, 'body', 'x', 'ttl_s', 3600)) FROM generate_series(1, $1::int) g))`,
		store.SearchedNotifications)
	_, _, partial, err := b.FindTasks(t.Context(), store.TaskFilter{User: "u-ana"})
	if partial || err != nil {
		t.Errorf("of as many as a search looks at: partial %t, %v", partial, err)
	}
	b.submit("u-ana", "one-more")
	items, next, partial, err := b.FindTasks(t.Context(), store.TaskFilter{User: "u-ana"})
	if !partial || len(items) != 50 || next == "" || err != nil {
		t.Errorf("of one more: partial %t, %d tasks, %v", partial, len(items), err)
	}
	if items, _, partial, err := b.FindTasks(t.Context(), store.TaskFilter{User: "u-ana", EventKey: "one-more"}); partial || len(items) != 1 || err != nil {
		t.Errorf("by its event: partial %t, %d tasks, %v", partial, len(items), err)
	}
}
