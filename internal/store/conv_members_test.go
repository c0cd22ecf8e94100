// Tests of creation, joins and leaves.

package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestCreateConversation(t *testing.T) {
	b := newTalk(t, 0)
	week := 7 * 24 * time.Hour
	c := store.Conversation{Conv: "c-1", RecallWindow: time.Minute, Retention: &week, Members: []string{"u-ben", "u-ana"}}
	for i, want := range []bool{true, false} {
		created, err := b.CreateConversation(t.Context(), c)
		b.must(err)
		if created != want {
			t.Errorf("call %d: created %t", i+1, created)
		}
	}
	if want := []string{"1 join u-ben", "2 join u-ana"}; !slices.Equal(b.log("c-1"), want) {
		t.Errorf("log %q", b.log("c-1"))
	}
	if got := one[string](b, `SELECT concat_ws(' ', next_seq, min_seq, epoch = (SELECT generation FROM tidings.lineage), recall_window_ms, retention_ms) FROM tidings.conversation`); got != "3 1 t 60000 604800000" {
		t.Errorf("the row is %s", got)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', user_id, join_seq, leave_seq), ', ' ORDER BY join_seq) FROM tidings.member`); got != "u-ben 1, u-ana 2" {
		t.Errorf("the members are %s", got)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', conv_id, seq, user_id), ', ' ORDER BY seq) FROM tidings.posted`); got != "c-1 1 u-ben, c-1 2 u-ana" {
		t.Errorf("posted are %s", got)
	}

	// What happens later does not change what it was created with.
	_, err := b.Join(t.Context(), "c-1", "u-cyd", "")
	b.must(err)
	_, err = b.Leave(t.Context(), "c-1", "u-ben", "")
	b.must(err)
	_, err = b.Join(t.Context(), "c-1", "u-ben", "")
	b.must(err)
	same := func(name string, want tidings.Code, change func(*store.Conversation)) {
		t.Helper()
		other := c
		change(&other)
		created, err := b.CreateConversation(t.Context(), other)
		if tidings.ErrorCode(err) != want || created {
			t.Errorf("%s: %t, %v", name, created, err)
		}
	}
	same("equal", "", func(*store.Conversation) {})
	same("in another order", "", func(c *store.Conversation) { c.Members = []string{"u-ana", "u-ben"} })
	same("another window", tidings.Conflict, func(c *store.Conversation) { c.RecallWindow = 0 })
	same("no retention", tidings.Conflict, func(c *store.Conversation) { c.Retention = nil })
	same("another member", tidings.Conflict, func(c *store.Conversation) { c.Members = []string{"u-ana", "u-cyd"} })
	same("one less", tidings.Conflict, func(c *store.Conversation) { c.Members = []string{"u-ben"} })
	same("one more, who joined later", tidings.Conflict, func(c *store.Conversation) { c.Members = []string{"u-ben", "u-ana", "u-cyd"} })
	same("none", tidings.Conflict, func(c *store.Conversation) { c.Members = nil })
	b.exec(`UPDATE tidings.conversation SET min_seq = 3`)
	b.exec(`DELETE FROM tidings.event WHERE seq < 3`)
	same("equal after a purge", "", func(*store.Conversation) {})
	same("another member after a purge", tidings.Conflict, func(c *store.Conversation) { c.Members = []string{"u-ana", "u-cyd"} })

	for name, bad := range map[string]store.Conversation{
		"no id": {}, "a bad id": {Conv: "a/b"}, "a bad member": {Conv: "c-2", Members: []string{""}}, "twice": {Conv: "c-2", Members: []string{"u", "u"}},
		"a negative window": {Conv: "c-2", RecallWindow: -1}, "no time": {Conv: "c-2", Retention: new(time.Duration)},
	} {
		if created, err := b.CreateConversation(t.Context(), bad); tidings.ErrorCode(err) != tidings.InvalidArgument || created {
			t.Errorf("%s: %t, %v", name, created, err)
		}
	}
	created, err := b.CreateConversation(t.Context(), store.Conversation{Conv: "c-empty"})
	b.must(err)
	if !created || len(b.log("c-empty")) != 0 {
		t.Errorf("one without members: %t, %q", created, b.log("c-empty"))
	}
	b.exec(`DELETE FROM tidings.lineage`)
	_, err = b.CreateConversation(t.Context(), store.Conversation{Conv: "c-2"})
	b.want(tidings.Unavailable, err)
}

func TestConcurrentCreation(t *testing.T) {
	b := newTalk(t, 0)
	const n = 16
	created := make([]bool, n)
	atOnce(n, func(i int) {
		var err error
		if created[i], err = b.CreateConversation(t.Context(), store.Conversation{Conv: "c-1", Members: []string{"u-ana", "u-ben"}}); err != nil {
			t.Error(err)
		}
	})
	if firsts := len(slices.DeleteFunc(created, func(c bool) bool { return !c })); firsts != 1 || len(b.log("c-1")) != 2 {
		t.Errorf("%d made it; log %q", firsts, b.log("c-1"))
	}
}

func TestJoinAndLeave(t *testing.T) {
	b := newTalk(t, 1)
	b.exec(`DELETE FROM tidings.posted`)
	epoch := one[int64](b, `SELECT generation FROM tidings.lineage`)
	step := func(change func(string, string, string) (store.Membership, error), user, actor string, seq int64, changed bool) {
		t.Helper()
		got, err := change("c-1", user, actor)
		b.must(err)
		if want := (store.Membership{Epoch: epoch, Seq: seq, Changed: changed}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	join := func(conv, user, actor string) (store.Membership, error) {
		return b.Join(t.Context(), conv, user, actor)
	}
	leave := func(conv, user, actor string) (store.Membership, error) {
		return b.Leave(t.Context(), conv, user, actor)
	}
	step(leave, "u-cyd", "", 0, false)
	step(join, "u-cyd", "u-ana", 3, true)
	step(join, "u-cyd", "", 3, false)
	step(leave, "u-cyd", "u-cyd", 4, true)
	step(leave, "u-cyd", "", 4, false)
	step(join, "u-cyd", "", 5, true)
	step(join, "u-ana", "", 1, false)
	if want := []string{"1 join u-ana", "2 join u-ben", "3 join u-cyd", "4 leave u-cyd", "5 join u-cyd"}; !slices.Equal(b.log("c-1"), want) {
		t.Errorf("log %q", b.log("c-1"))
	}
	if got := one[string](b, `SELECT string_agg(concat_ws('-', join_seq, leave_seq), ', ' ORDER BY join_seq) FROM tidings.member WHERE user_id = 'u-cyd'`); got != "3-4, 5" {
		t.Errorf("the intervals are %s", got)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', seq, actor_user), ', ' ORDER BY seq) FROM tidings.event WHERE seq > 2`); got != "3 u-ana, 4 u-cyd, 5" {
		t.Errorf("the actors are %s", got)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', seq, user_id), ', ' ORDER BY seq) FROM tidings.posted`); got != "3 u-cyd, 4, 5 u-cyd" {
		t.Errorf("posted are %s", got)
	}
	for _, change := range []func(string, string, string) (store.Membership, error){join, leave} {
		_, err := change("c-none", "u-ana", "")
		b.want(tidings.NotFound, err)
		_, err = change("c-1", "u ana", "")
		b.want(tidings.InvalidArgument, err)
		_, err = change("c-1", "u-ana", "a/b")
		b.want(tidings.InvalidArgument, err)
	}
	b.whole()
}

// Joins, leaves and sends at once: every change is one event and the intervals are what the events say.
func TestConcurrentMembers(t *testing.T) {
	b := newTalk(t, 1)
	const n, rounds = 8, 10
	changed := make([]int, n)
	atOnce(n, func(i int) {
		user := fmt.Sprintf("u-%d", i/4) // four sessions change the same user
		for r := range rounds {
			change := b.Join
			if (r+i)%2 == 0 {
				change = b.Leave
			}
			m, err := change(t.Context(), "c-1", user, "")
			if err != nil {
				t.Error(err)
			}
			if m.Changed {
				changed[i]++
			}
			if _, err := b.Send(t.Context(), []tidings.Message{said("c-1", fmt.Sprintf("m-%d-%d", i, r))}, time.Minute); err != nil {
				t.Error(err)
			}
		}
	})
	total := 0
	for _, c := range changed {
		total += c
	}
	if got := one[int](b, `SELECT count(*) FROM tidings.event WHERE kind IN ('join', 'leave') AND seq > 2`); got != total || total == 0 {
		t.Errorf("%d events for %d changes", got, total)
	}
	// From the events: each join with the leave after it.
	if differ := one[int](b, `WITH said AS (
			SELECT e.sender_user AS user_id, e.kind, e.seq AS join_seq, lead(e.seq) OVER w AS leave_seq, lead(e.kind) OVER w AS next FROM tidings.event e
			WHERE e.kind <> 'msg' WINDOW w AS (PARTITION BY e.sender_user ORDER BY e.seq)), pairs AS (
			SELECT user_id, join_seq, leave_seq FROM said WHERE kind = 'join' AND next IS DISTINCT FROM 'join')
		SELECT count(*) FROM pairs p FULL JOIN tidings.member m USING (user_id, join_seq) WHERE p.leave_seq IS DISTINCT FROM m.leave_seq OR p.user_id IS NULL OR m.conv_id IS NULL`); differ > 0 {
		t.Errorf("%d intervals differ from the events", differ)
	}
	b.whole()
}

func TestHeldConversationRefusesMembers(t *testing.T) {
	b := newTalk(t, 1)
	release := b.hold("c-1")
	done := make(chan error)
	go func() {
		_, err := b.Join(t.Context(), "c-1", "u-cyd", "")
		done <- err
	}()
	b.waiting(1)
	b.want(tidings.Unavailable, <-done) // after lockWait
	release()
	if len(b.log("c-1")) != 2 {
		t.Errorf("log %q", b.log("c-1"))
	}
}
