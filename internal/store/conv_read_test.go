// Tests of reading logs and lists.

package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

var people = []string{"ana", "ben", "cat"}

// randomHistory is a conversation of about n events in which people come and go.
func (b *bench) randomHistory(conv string, n int) *history {
	var lines []string
	in := map[string]bool{}
	recalled := map[int]bool{}
	for len(lines) < n {
		who := people[rand.IntN(len(people))]
		switch rand.IntN(6) {
		case 0:
			if in[who] {
				lines = append(lines, "leave "+who)
			} else {
				lines = append(lines, "join "+who)
			}
			in[who] = !in[who]
		case 1:
			if len(lines) == 0 {
				continue
			}
			if target := rand.IntN(len(lines)); strings.HasPrefix(lines[target], "msg ") && !recalled[target] {
				recalled[target] = true
				lines = append(lines, fmt.Sprintf("recall %s %d", strings.Fields(lines[target])[1], target+1))
			}
		default:
			if in[who] {
				lines = append(lines, "msg "+who)
			}
		}
	}
	return b.fill(conv, lines...)
}

// Whatever people came and went, was recalled and purged: pages explain every seq, and all that reads agrees with a look at each
// event alone.
func TestReadingAgreesWithEachEvent(t *testing.T) {
	b := newBench(t)
	for round := range 8 {
		h := b.randomHistory(fmt.Sprintf("c-%d", round), 35)
		if round%2 == 1 {
			b.purgeLog(h, rand.Int64N(h.head()+1)+1)
		}
		for _, user := range people {
			b.readAll(h, user)
		}
	}
}

func (b *bench) readAll(h *history, user string) {
	b.t.Helper()
	ctx := b.t.Context()
	if h.seen(user) == 0 {
		_, err := b.Sync(ctx, user, h.conv, 0, 0, 10)
		b.want(tidings.NotMember, err)
		return
	}
	var got []int64
	after, limit := int64(0), rand.IntN(9)+1
	for more := true; more; {
		p, err := b.Sync(ctx, user, h.conv, epoch, after, limit)
		b.must(err)
		if p.Epoch != epoch || p.Head != h.seen(user) || p.MinSeq != min(h.minSeq, h.seen(user)+1) || p.After != after || len(p.Events) > limit {
			b.t.Fatalf("%s reads %+v of %+v", user, p, h)
		}
		last, trimmed := p.Head, false
		if p.More {
			last = p.Events[len(p.Events)-1].Seq
		}
		explained := map[int64]string{}
		for _, e := range p.Events {
			h.check(b, e)
			explained[e.Seq] = "event"
			got = append(got, e.Seq)
		}
		for _, w := range p.Withheld {
			for seq := w.From; seq <= w.To; seq++ {
				if explained[seq] != "" {
					b.t.Fatalf("%d is explained twice in %+v", seq, p)
				}
				explained[seq] = w.Why
			}
			trimmed = trimmed || w.Why == store.Trimmed
		}
		for seq := after + 1; seq <= last; seq++ {
			want := "event"
			switch {
			case !h.inside(user, seq):
				want = store.NotMemberAt
			case seq < h.minSeq:
				want = store.Trimmed
			}
			if explained[seq] != want {
				b.t.Fatalf("%s: %d is %q, want %q in %+v", user, seq, explained[seq], want, p)
			}
		}
		if int64(len(explained)) != last-after || trimmed != p.Trimmed {
			b.t.Fatalf("(%d, %d] is explained by %+v", after, last, p)
		}
		after, more = last, p.More
	}
	if !slices.Equal(got, h.visible(user)) {
		b.t.Fatalf("%s reads %v, want %v", user, got, h.visible(user))
	}
	for seq := int64(1); seq <= h.head()+1; seq++ {
		_, e, err := b.Fetch(ctx, user, h.conv, epoch, seq)
		switch {
		case !h.inside(user, seq):
			b.want(tidings.NotMember, err)
		case seq < h.minSeq || seq > h.head():
			b.want(tidings.NotFound, err)
		default:
			b.must(err)
			h.check(b, e)
		}
		if seq > h.seen(user) || seq%3 > 0 {
			continue
		}
		r, err := b.Read(ctx, user, h.conv, epoch, seq)
		b.must(err)
		if r.Seq != seq || r.Unread != h.unread(user, seq) || r.UnreadMore || !r.Moved || r.Epoch != epoch {
			b.t.Fatalf("%s has read %+v at %d, want %d unread", user, r, seq, h.unread(user, seq))
		}
		list, more, err := b.Conversations(ctx, user, "", "", 500)
		b.must(err)
		i := slices.IndexFunc(list, func(s store.Summary) bool { return s.Conv == h.conv })
		if i < 0 || more {
			b.t.Fatalf("%s is not in the list of %s", h.conv, user)
		}
		b.checkSummary(h, user, list[i], seq)
	}
}

func (b *bench) checkSummary(h *history, user string, s store.Summary, read int64) {
	b.t.Helper()
	visible := h.visible(user)
	if s.Epoch != epoch || s.Head != h.seen(user) || s.MinSeq != min(h.minSeq, s.Head+1) || s.Read != read || s.Unread != h.unread(user, read) || s.UnreadMore ||
		s.Left != !h.inside(user, h.head()+1) || (s.Last == nil) != (len(visible) == 0) {
		b.t.Fatalf("%s sees %+v, read %d of %v", user, s, read, visible)
	}
	if s.Last != nil {
		h.check(b, *s.Last)
		if s.Last.Seq != visible[len(visible)-1] || s.At != s.Last.At {
			b.t.Fatalf("the last event is %d of %v", s.Last.Seq, visible)
		}
	}
}

// The refusals of reads, and that no number is judged before the epoch.
func TestReadingRefuses(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fill("c", "join ana", "join ben", "msg ana", "leave ben", "msg ana")
	for _, refused := range []struct {
		user, conv         string
		epoch, after, head int64
		limit              int
		want               tidings.Code
	}{
		{"ana", "absent", 0, 0, 0, 10, tidings.NotMember},
		{"eve", "c", 0, 0, 0, 10, tidings.NotMember},
		{"eve", "c", 5, 99, 0, 10, tidings.NotMember},
		{"ana", "c", 5, -1, 0, 10, tidings.EpochChanged},
		{"ana", "c", 5, 99, 0, 10, tidings.EpochChanged},
		{"ana", "c", epoch, -1, 0, 10, tidings.InvalidArgument},
		{"ana", "c", epoch, 0, 0, 0, tidings.InvalidArgument},
		{"ana", "c", 0, 6, 5, 10, tidings.CursorAhead},
		{"ana", "c", epoch, 1 << 52, 5, 10, tidings.CursorAhead},
		{"ben", "c", epoch, 5, 4, 10, tidings.CursorAhead},
		{"a\x00", "c", 0, 0, 0, 10, tidings.InvalidArgument},
	} {
		_, err := b.Sync(ctx, refused.user, refused.conv, refused.epoch, refused.after, refused.limit)
		b.want(refused.want, err)
		var e *tidings.Error
		if errors.As(err, &e) && (e.Head != refused.head || (e.Epoch == epoch) != (e.Code == tidings.EpochChanged || e.Code == tidings.CursorAhead)) {
			t.Errorf("%+v is refused with head %d and epoch %d", refused, e.Head, e.Epoch)
		}
	}
	for _, refused := range []struct {
		user, conv string
		epoch, seq int64
		want       tidings.Code
	}{
		{"ana", "absent", 0, 1, tidings.NotMember},
		{"eve", "c", 5, 1, tidings.NotMember},
		{"ana", "c", 5, 0, tidings.EpochChanged},
		{"ana", "c", epoch, 0, tidings.InvalidArgument},
		{"ana", "c", epoch, -3, tidings.InvalidArgument},
		{"ana", "c", epoch, 6, tidings.NotFound},
		{"ben", "c", epoch, 1, tidings.NotMember},
		{"ben", "c", epoch, 5, tidings.NotMember},
		{"ben", "c", epoch, 6, tidings.NotMember},
	} {
		_, _, err := b.Fetch(ctx, refused.user, refused.conv, refused.epoch, refused.seq)
		b.want(refused.want, err)
	}
	// Absent and forbidden look the same.
	_, absent := b.Sync(ctx, "eve", "absent", 0, 0, 10)
	_, forbidden := b.Sync(ctx, "eve", "c", 0, 0, 10)
	if strings.ReplaceAll(absent.Error(), "absent", "c") != forbidden.Error() {
		t.Errorf("%q and %q differ", absent, forbidden)
	}
}

// Pages that are read while others write, come and go, and while a prefix is purged explain every seq: the state and the events are of
// one moment.
func TestSyncDuringWrites(t *testing.T) {
	b := newBench(t)
	b.fill("c", "join ana", "join ben")
	const head = 200
	run := func(stop func() bool, statements ...string) error {
		for i := 0; !stop(); i++ {
			if _, err := b.pool.Exec(t.Context(), statements[i%len(statements)]); err != nil {
				return err
			}
		}
		return nil
	}
	const next = `WITH c AS (UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = 'c' RETURNING next_seq - 1 AS seq)`
	var written atomic.Int64
	enough := func() bool { return written.Add(1) > head }
	over := func() bool { return written.Load() > head }
	failed := make([]error, 5)
	atOnce(5, func(i int) {
		switch i {
		case 0:
			failed[i] = run(enough, next+` INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
				SELECT 'c', c.seq, 'msg', gen_random_uuid(), 'ana', 'c' || c.seq, 'x' FROM c`)
		case 1:
			failed[i] = run(over, next+`, m AS (UPDATE tidings.member SET leave_seq = c.seq FROM c WHERE user_id = 'ben' AND leave_seq IS NULL)
				INSERT INTO tidings.event (conv_id, seq, kind, sender_user) SELECT 'c', c.seq, 'leave', 'ben' FROM c`,
				next+`, m AS (INSERT INTO tidings.member SELECT 'c', 'ben', c.seq, NULL FROM c)
				INSERT INTO tidings.event (conv_id, seq, kind, sender_user) SELECT 'c', c.seq, 'join', 'ben' FROM c`)
		case 2:
			failed[i] = run(over, `WITH c AS (UPDATE tidings.conversation SET min_seq = least(min_seq + 2, next_seq) WHERE conv_id = 'c' RETURNING min_seq)
				DELETE FROM tidings.event e USING c WHERE e.conv_id = 'c' AND e.seq < c.min_seq`)
		default:
			user, seen := []string{"ana", "ben"}[i-3], int64(0)
			for !over() && failed[i] == nil {
				p, err := b.Sync(t.Context(), user, "c", epoch, seen, 7)
				if failed[i] = err; p.More {
					seen = p.Events[len(p.Events)-1].Seq
				} else {
					seen = max(seen, p.Head)
				}
				if rand.IntN(10) == 0 {
					seen = 0
				}
			}
		}
	})
	b.must(errors.Join(failed...))
}

// A damaged log is an error, not a page with a hole.
func TestSyncNoticesAHole(t *testing.T) {
	b := newBench(t)
	b.fill("c", "join ana", "msg ana", "msg ana", "msg ana")
	b.exec(`DELETE FROM tidings.event WHERE conv_id = 'c' AND seq = 3`)
	_, err := b.Sync(t.Context(), "ana", "c", 0, 0, 10)
	b.want(tidings.Internal, err)
	_, err = b.Sync(t.Context(), "ana", "c", 0, 3, 10)
	b.must(err)
}

// A page is bounded by events and by bytes; its JSON has lists where there is nothing.
func TestPageIsBounded(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fill("c", "join ana")
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
		SELECT 'c', n, 'msg', gen_random_uuid(), 'ana', 'c' || n, repeat('x', 16384) FROM generate_series(2, 1001) n`)
	b.exec(`UPDATE tidings.conversation SET next_seq = 1002 WHERE conv_id = 'c'`)
	p, err := b.Sync(ctx, "ana", "c", 0, 0, 1000)
	b.must(err)
	if !p.More || len(p.Events) != 65 { // 1 MiB of bodies, and the join
		t.Fatalf("a page of %d long messages, more %t", len(p.Events), p.More)
	}
	b.exec(`UPDATE tidings.event SET body = 'x' WHERE conv_id = 'c' AND kind = 'msg'`)
	p, err = b.Sync(ctx, "ana", "c", 0, 0, 1000)
	b.must(err)
	if !p.More || len(p.Events) != store.MaxPage {
		t.Fatalf("a page of %d messages, more %t", len(p.Events), p.More)
	}
	p, err = b.Sync(ctx, "ana", "c", 0, 501, 500)
	b.must(err)
	if p.More || len(p.Events) != 500 {
		t.Fatalf("the last page has %d events, more %t", len(p.Events), p.More)
	}
	p, err = b.Sync(ctx, "ana", "c", 0, 1001, 10)
	b.must(err)
	text, err := json.Marshal(p)
	b.must(err)
	if want := `{"conv":"c","epoch":77,"head":1001,"min_seq":1,"after":1001,"events":[],"withheld":[],"trimmed":false,"more":false}`; string(text) != want {
		t.Fatalf("the end of the log is %s", text)
	}
}

// Lists go from page to page by conversation, and a device finds its own cursor.
func TestConversationsPage(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for i := range 7 {
		b.fill(fmt.Sprintf("c%d", i), "join ana", "join ben", "msg ben")
	}
	b.fill("d-left", "join ana", "msg ana", "leave ana", "join ben", "msg ben")
	b.fill("e-other", "join ben")
	h, err := b.Hello(ctx, "ana", "ana-d", "i1", "g", connection(1))
	b.must(err)
	_, err = b.Ack(ctx, []store.Ack{{Conv: "c2", User: "ana", Device: "ana-d", InstallNo: h.InstallNo, Seq: 2}})
	b.must(err)
	var names []string
	after, pages := "", 0
	for more := true; more; pages++ {
		var list []store.Summary
		list, more, err = b.Conversations(ctx, "ana", "ana-d", after, 3)
		b.must(err)
		for _, s := range list {
			names = append(names, s.Conv)
			if want := map[string]int64{"c2": 2}[s.Conv]; s.Delivered != want {
				t.Errorf("delivered of %s is %d", s.Conv, s.Delivered)
			}
			if s.Conv == "d-left" && (!s.Left || s.Head != 3 || s.Unread != 0 || s.Last.Kind != tidings.KindLeave) {
				t.Errorf("who has left sees %+v", s)
			}
			after = s.Conv
		}
	}
	if want := []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "d-left"}; !slices.Equal(names, want) || pages != 3 {
		t.Fatalf("%d pages of %v", pages, names)
	}
	// Another device, and a new install of this one, have nothing.
	for _, device := range []string{"other", ""} {
		list, _, err := b.Conversations(ctx, "ana", device, "c1", 1)
		b.must(err)
		if list[0].Delivered != 0 {
			t.Errorf("delivered to %q: %d", device, list[0].Delivered)
		}
	}
	_, err = b.Hello(ctx, "ana", "ana-d", "i2", "g", connection(2))
	b.must(err)
	list, _, err := b.Conversations(ctx, "ana", "ana-d", "c1", 1)
	b.must(err)
	if list[0].Conv != "c2" || list[0].Delivered != 0 {
		t.Errorf("delivered to a new install: %+v", list[0])
	}
	list, more, err := b.Conversations(ctx, "eve", "", "", 10)
	b.must(err)
	if list == nil || len(list) > 0 || more {
		t.Errorf("who is in no conversation sees %v", list)
	}
	_, _, err = b.Conversations(ctx, "ana", "", "", 0)
	b.want(tidings.InvalidArgument, err)
}

// Unread messages are counted exactly up to 1 000.
func TestUnreadIsCountedToAThousand(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fill("c", "join ana", "join ben")
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
		SELECT 'c', n, 'msg', gen_random_uuid(), 'ben', 'c' || n, 'x' FROM generate_series(3, 1003) n`)
	b.exec(`UPDATE tidings.conversation SET next_seq = 1004 WHERE conv_id = 'c'`)
	for read, want := range map[int64]int64{2: 1001, 3: 1000, 4: 999, 1003: 0} {
		b.exec(`DELETE FROM tidings.read`)
		r, err := b.Read(ctx, "ana", "c", 0, read)
		b.must(err)
		list, _, err := b.Conversations(ctx, "ana", "", "", 10)
		b.must(err)
		if r.Unread != min(want, 1000) || r.UnreadMore != (want > 1000) || list[0].Unread != r.Unread || list[0].UnreadMore != r.UnreadMore {
			t.Errorf("after %d: %+v and %+v, want %d", read, r, list[0], want)
		}
	}
}
