// Tests of what operators see of conversations.

package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestFindConversations(t *testing.T) {
	b := newBench(t)
	long := "p-" + strings.Repeat("x", tidings.MaxID-2)
	b.fill("p-1", "join ana", "join ben", "leave ben", "msg ana")
	b.fill("p-10", "join ana")
	b.fill("p-2", "join ben", "leave ben", "join ben", "leave ben", "join ben")
	b.fill("q", "msg ana")
	b.fill(long, "join ben")
	b.fill("p-1~", "join cat")
	find := func(f store.ConversationFilter) (convs []string) {
		t.Helper()
		for range 20 {
			items, more, err := b.FindConversations(t.Context(), f)
			b.must(err)
			for _, i := range items {
				convs = append(convs, i.Conv)
			}
			if !more {
				return convs
			}
			f.After = convs[len(convs)-1]
		}
		t.Fatal("the pages do not end")
		return nil
	}
	for _, c := range []struct {
		filter store.ConversationFilter
		want   []string
	}{
		{store.ConversationFilter{}, []string{"p-1", "p-10", "p-1~", "p-2", long, "q"}},
		{store.ConversationFilter{Conv: "p-1"}, []string{"p-1", "p-10", "p-1~"}},
		{store.ConversationFilter{Conv: long}, []string{long}},
		{store.ConversationFilter{Conv: "p-%"}, nil},
		{store.ConversationFilter{Conv: "P"}, nil},
		{store.ConversationFilter{User: "ben"}, []string{"p-1", "p-2", long}},
		{store.ConversationFilter{User: "ben", Conv: "p-2"}, []string{"p-2"}},
		{store.ConversationFilter{User: "absent"}, nil},
	} {
		for limit := range 4 {
			c.filter.Limit = limit
			if slices.Contains([]string{"p-%", "%"}, c.filter.Conv) {
				if _, _, err := b.FindConversations(t.Context(), c.filter); tidings.ErrorCode(err) != tidings.InvalidArgument {
					t.Errorf("%+v: %v", c.filter, err)
				}
				continue
			}
			if got := find(c.filter); !slices.Equal(got, c.want) {
				t.Errorf("%+v: %v, not %v", c.filter, got, c.want)
			}
		}
	}
	items, _, err := b.FindConversations(t.Context(), store.ConversationFilter{Conv: "p-1", Limit: 1})
	b.must(err)
	if i := items[0]; i.Epoch != epoch || i.Head != 4 || i.MinSeq != 1 || i.Members != 1 || i.RetentionMS != nil || i.CreatedAt.IsZero() {
		t.Errorf("%+v", i)
	}
	for name, f := range map[string]store.ConversationFilter{"user": {User: "a b"}, "conv": {Conv: "\x00"}, "after": {After: "ä"}} {
		if _, _, err := b.FindConversations(t.Context(), f); tidings.ErrorCode(err) != tidings.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShowConversation(t *testing.T) {
	b := newBench(t)
	h := b.fill("c", "join ana", "join ben", "join zoe", "leave ben", "join ben", "leave ana", "msg ben", "leave ben", "join ben")
	b.exec(`UPDATE tidings.conversation SET retention_ms = 5000, recall_window_ms = 7, notify_after_ms = 9, preview = true`)
	b.exec(`INSERT INTO tidings.read VALUES ('c', 'ben', 7)`)
	b.exec(`INSERT INTO tidings.delivered VALUES ('c', 'ben', 'phone', 1, 5), ('c', 'ben', 'laptop', 2, 7), ('c', 'ana', 'phone', 1, 6)`)
	b.purgeLog(h, 10)
	d, err := b.ShowConversation(t.Context(), "c")
	b.must(err)
	if d.Head != 9 || d.MinSeq != 10 || d.Members != 2 || *d.RetentionMS != 5000 || d.RecallWindowMS != 7 || *d.NotifyAfterMS != 9 || !d.Preview || d.MoreMembers {
		t.Errorf("%+v", d)
	}
	var got []string
	for _, m := range d.Memberships {
		left := int64(0)
		if m.LeaveSeq != nil {
			left = *m.LeaveSeq
		}
		got = append(got, fmt.Sprintf("%s %d-%d read %d %v %v", m.User, m.JoinSeq, left, m.Read, m.Devices, m.Cursors))
	}
	want := []string{"ben 9-0 read 7 [laptop phone] [7 5]", "zoe 3-0 read 0 [] []", "ana 1-6 read 0 [phone] [6]", "ben 2-4 read 7 [laptop phone] [7 5]", "ben 5-8 read 7 [laptop phone] [7 5]"}
	if !slices.Equal(got, want) {
		t.Errorf("memberships\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	b.exec(`INSERT INTO tidings.member SELECT 'c', 'u' || g, 10 + g, CASE WHEN g > 150 THEN 1000 END FROM generate_series(1, 400) g`)
	d, err = b.ShowConversation(t.Context(), "c")
	b.must(err)
	in := slices.IndexFunc(d.Memberships, func(m store.MembershipDetail) bool { return m.LeaveSeq != nil })
	if len(d.Memberships) != 200 || !d.MoreMembers || in != 152 || d.Members != 152 {
		t.Errorf("%d memberships, the first %d of those who are in, of %d; more: %t", len(d.Memberships), in, d.Members, d.MoreMembers)
	}
	b.exec(`UPDATE tidings.member SET leave_seq = NULL WHERE user_id LIKE 'u%'`)
	b.exec(`INSERT INTO tidings.delivered SELECT 'c', 'ben', 'd' || g, 1, g FROM generate_series(1, 100) g`)
	d, err = b.ShowConversation(t.Context(), "c")
	b.must(err)
	if d.Memberships[0].User != "ben" || len(d.Memberships[0].Devices) != 20 || len(d.Memberships) != 200 || !d.MoreMembers || d.Members != 402 {
		t.Errorf("of %d members %d are shown, the first with %d devices; more: %t", d.Members, len(d.Memberships), len(d.Memberships[0].Devices), d.MoreMembers)
	}
	if d, err := b.ShowConversation(t.Context(), "empty"); tidings.ErrorCode(err) != tidings.NotFound {
		t.Errorf("one that is not there: %+v, %v", d, err)
	}
	b.exec(`INSERT INTO tidings.conversation (conv_id, epoch) VALUES ('empty', 7)`)
	if d, err := b.ShowConversation(t.Context(), "empty"); err != nil || d.Head != 0 || d.MinSeq != 1 || d.Memberships == nil || len(d.Memberships) != 0 {
		t.Errorf("one without anything: %+v, %v", d, err)
	}
	_, err = b.ShowConversation(t.Context(), "c c")
	b.want(tidings.InvalidArgument, err)
}

func TestShowLog(t *testing.T) {
	b := newBench(t)
	h := b.fill("c", "join ana", "join ben", "msg ana", "msg ben", "recall ben 4", "leave ben", "msg ana", "join ben")
	b.fill("other", "join ana", "msg ana")
	show := func(f store.LogFilter) (string, store.LogPart) {
		t.Helper()
		p, err := b.ShowLog(t.Context(), "c", f)
		b.must(err)
		var seqs []int64
		for _, e := range p.Events {
			seqs = append(seqs, e.Seq)
		}
		return fmt.Sprint(seqs, p.More), p
	}
	for _, c := range []struct {
		filter store.LogFilter
		want   string
	}{
		{store.LogFilter{}, "[1 2 3 4 5 6 7 8] false"},
		{store.LogFilter{Limit: 8}, "[1 2 3 4 5 6 7 8] false"},
		{store.LogFilter{Limit: 3}, "[1 2 3] true"},
		{store.LogFilter{After: 3, Limit: 3}, "[4 5 6] true"},
		{store.LogFilter{After: 5, Limit: 3}, "[6 7 8] false"},
		{store.LogFilter{After: 8}, "[] false"},
		{store.LogFilter{After: tidings.MaxNumber}, "[] false"},
		{store.LogFilter{Before: 9, Limit: 3}, "[6 7 8] true"},
		{store.LogFilter{Before: tidings.MaxNumber, Limit: 3}, "[6 7 8] true"},
		{store.LogFilter{Before: 3, Limit: 3}, "[1 2] false"},
		{store.LogFilter{Before: 1}, "[] false"},
		{store.LogFilter{After: 2, Before: 6, Limit: 2}, "[4 5] true"},
		{store.LogFilter{After: 3, Before: 6, Limit: 2}, "[4 5] false"},
		{store.LogFilter{After: 6, Before: 3}, "[] false"},
		{store.LogFilter{Epoch: epoch, Limit: 1}, "[1] true"},
	} {
		if got, p := show(c.filter); got != c.want || p.Epoch != epoch || p.Head != 8 || p.MinSeq != 1 {
			t.Errorf("%+v: %s, not %s; %+v", c.filter, got, c.want, p)
		}
	}
	for _, bodies := range []bool{false, true} {
		_, p := show(store.LogFilter{Bodies: bodies})
		for _, e := range p.Events {
			s := h.steps[e.Seq-1]
			readable := bodies && s.kind == "msg" && e.Seq != 4
			if e.Kind != s.kind || e.Sender != s.user || e.Target != s.target || (e.RecalledBy != 0) != (e.Seq == 4) || e.At == 0 || (e.Cmid != "") != (s.kind == "msg" || s.kind == "recall") ||
				(e.Body != nil) != readable || (e.Data != nil) != readable || readable && *e.Body != fmt.Sprint("body ", e.Seq) {
				t.Errorf("bodies %t: %+v at %+v", bodies, e, s)
			}
		}
	}

	b.purgeLog(h, 7)
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) VALUES ('c', 3, 'msg', gen_random_uuid(), 'ana', 'c3', 'left over by a purge')`)
	for _, f := range []store.LogFilter{{Bodies: true}, {Before: 9, Bodies: true}} {
		if got, p := show(f); got != "[7 8] false" || p.MinSeq != 7 {
			t.Errorf("of a purged log: %s, %+v", got, p)
		}
	}
	b.must(b.EnsureLineage(t.Context()))
	_, err := b.EraseUser(t.Context(), "ana", "op")
	b.must(err)
	if _, p := show(store.LogFilter{Bodies: true, Limit: 1}); p.Events[0].Seq != 7 || p.Events[0].Body != nil || p.Events[0].RecalledBy == 0 {
		t.Errorf("after an erasure: %+v", p.Events)
	}
	for code, f := range map[tidings.Code]store.LogFilter{tidings.EpochChanged: {Epoch: 7}, tidings.InvalidArgument: {After: -1}} {
		_, err := b.ShowLog(t.Context(), "c", f)
		b.want(code, err)
	}
	_, err = b.ShowLog(t.Context(), "absent", store.LogFilter{})
	b.want(tidings.NotFound, err)
	_, err = b.ShowLog(t.Context(), "c%", store.LogFilter{})
	b.want(tidings.InvalidArgument, err)
}

// A page of long messages is cut, from whichever side it is read.
func TestShowLogIsCut(t *testing.T) {
	b := newBench(t)
	b.fill("c")
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) SELECT 'c', n, 'msg', gen_random_uuid(), 'ana', 'm' || n, repeat('x', 16384) FROM generate_series(1, 150) n`)
	b.exec(`UPDATE tidings.conversation SET next_seq = 151`)
	for _, c := range []struct {
		filter store.LogFilter
		first  int64
		n      int
	}{
		{store.LogFilter{Limit: 200, Bodies: true}, 1, 64},
		{store.LogFilter{Limit: 200, Before: 151, Bodies: true}, 87, 64},
		{store.LogFilter{Limit: 200, After: 100, Bodies: true}, 101, 50},
		{store.LogFilter{Limit: 200}, 1, 150},
	} {
		p, err := b.ShowLog(t.Context(), "c", c.filter)
		b.must(err)
		if len(p.Events) != c.n || p.Events[0].Seq != c.first || p.More != (c.n == 64) {
			t.Errorf("%+v: %d events from %d on, more: %t", c.filter, len(p.Events), p.Events[0].Seq, p.More)
		}
	}
}
