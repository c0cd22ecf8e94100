// Tests of queued answers whose content was recalled.

package gateway

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// A receiver that asks and does not read, and in whose queue answers with messages wait when these are recalled, does not get them from
// there: not where they are recalled, and not at another gateway. Asked again, the same is answered without them.
func TestASlowReaderOfAnswersGetsNoRecalledBody(t *testing.T) {
	t.Parallel()
	patient := func(c *Config) { c.SendWait, c.QueueBytes = patience, 1<<20 }
	h := newHouse(t, patient)
	other := houseOn(t, h.store, "gw-2", patient)
	h.conversation("c", "ana", "ben", "cid")
	h.conversation("d", "ana", "ben", "cid")
	ana := h.login("ana", "a1")
	body := strings.Repeat("secret ", 16<<10/7)
	var first, last int64
	for i := range 12 {
		f := ana.ask("send", `"conv":"c","cmid":"m%d","body":%q`, i, body)
		if last = f.Seq; i == 0 {
			first = f.Seq
		}
	}
	ana.ask("send", `"conv":"d","cmid":"kept","body":"kept"`)
	slow := map[*house]*peer{h: h.login("ben", "b1"), other: other.login("cid", "c1")}
	waits := map[*house][]string{} // the rids of the answers in the queue
	for at, p := range slow {
		user := map[*house]string{h: "ben", other: "cid"}[at]
		s := at.roster.of(user)[0]
		if err := p.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if err := s.conn.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		ask := func(kind, fields string, args ...any) {
			p.rids++
			p.text(`{"t":%q,"rid":"%s-%d"%s}`, kind, kind, p.rids, fmt.Sprintf(fields, args...))
		}
		for range 8 { // what the sockets take, and more
			ask("sync", `,"conv":"c","limit":5`)
		}
		ask("fetch", `,"conv":"c","seq":%d`, last)
		ask("conversations", ``)
		ask("sync", `,"conv":"d"`)
		for range 40 {
			ask("sync", `,"conv":"c","limit":5`)
		}
		eventually(t, "the answers are queued", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.replies > s.g.cfg.QueueBytes/2 && s.steps == 0
		})
	}
	end := int64(0)
	for seq := first; seq <= last; seq++ {
		f := ana.ask("recall", `"conv":"c","target":%d,"cmid":"r%d"`, seq, seq)
		if f.T != wire.TypeRecalled {
			t.Fatalf("the recall is answered with %s", f.raw)
		}
		end = f.Seq
	}
	for at := range slow {
		eventually(t, "the recalls are known", func() bool {
			f, _ := at.hub.feeds.get("c")
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.pos >= end
		})
	}
	for at, user := range map[*house]string{h: "ben", other: "cid"} {
		s := at.roster.of(user)[0]
		s.mu.Lock()
		for _, i := range s.queue {
			if i.shown != nil {
				waits[at] = append(waits[at], i.shown.rid)
			}
		}
		s.mu.Unlock()
		for _, kind := range []string{"sync-", "fetch-", "conversations-"} {
			if !slices.ContainsFunc(waits[at], func(rid string) bool { return strings.HasPrefix(rid, kind) }) {
				t.Errorf("what waits for %s is %s", user, waits[at])
			}
		}
	}
	for at, p := range slow {
		if err := p.conn.(*net.TCPConn).SetReadBuffer(1 << 20); err != nil {
			t.Fatal(err)
		}
		refused, answered := 0, 0
		for answered < 51 {
			f := p.next()
			if f.Rid == "" {
				continue
			}
			answered++
			waited := slices.Contains(waits[at], f.Rid)
			if f.Rid == "sync-11" { // of another conversation
				if !waited || f.T != wire.TypeEvents || !strings.Contains(f.raw, "kept") {
					t.Errorf("waited: %t, answered with %.300s", waited, f.raw)
				}
				continue
			}
			if waited && (f.T != wire.TypeError || f.Code != tidings.Unavailable || f.Stored != "unchanged" || f.Retry != "same" || f.RetryAfterMS != 100) {
				t.Errorf("%s waited, and is answered with %.300s", f.Rid, f.raw)
			}
			if f.T == wire.TypeError {
				refused++
			}
		}
		if refused < len(waits[at])-1 {
			t.Errorf("%d were refused of %d", refused, len(waits[at]))
		}
		for kind, fields := range map[string]string{"sync": `"conv":"c"`, "fetch": fmt.Sprintf(`"conv":"c","seq":%d`, last), "conversations": ``} {
			if f := p.ask(kind, fields); f.T == wire.TypeError || strings.Contains(f.raw, "secret") {
				t.Errorf("%s is answered with %.300s", kind, f.raw)
			}
		}
	}
}

// What is known of recalls is known of the conversations that have a feed, since it was made.
func TestAnAnswerStandsAsLongAsRecallsAreHeardOf(t *testing.T) {
	h, body := newHub(hubConfig{}), "b"
	msg := func(conv string, seq int64) tidings.Event {
		return tidings.Event{Conv: conv, Seq: seq, Kind: tidings.KindMsg, Body: &body}
	}
	answer := func(asked int64, convs ...string) *shown {
		r := &shown{since: h.recalls.Load(), asked: asked}
		for _, conv := range convs {
			r.of(msg(conv, 1))
		}
		return r
	}
	if (&shown{}).of(tidings.Event{Conv: "c", Kind: tidings.KindJoin}, tidings.Event{Conv: "c", Kind: tidings.KindMsg, Recalled: true}) != nil {
		t.Error("it shows no message, and is judged")
	}
	unknown := answer(5, "c")
	if !h.stands(unknown, 5+unheard) || h.stands(unknown, 6+unheard) {
		t.Error("without a feed")
	}
	c, _ := h.feed("c", 7, 1)
	h.feed("d", 7, 1)
	if h.stands(unknown, 5) {
		t.Error("a recall before the feed was made would not be known")
	}
	both, other := answer(5, "d", "c"), answer(5, "d")
	if !h.stands(both, 1<<60) || !h.stands(other, 1<<60) {
		t.Error("nothing was recalled")
	}
	h.offer(c, []tidings.Event{{Conv: "c", Seq: 9, Kind: tidings.KindRecall, Target: 1}}, nil)
	if h.stands(both, 5) || !h.stands(other, 5) || !h.stands(answer(5, "c"), 5) {
		t.Error("something was recalled")
	}
	again := answer(5, "c")
	c.mu.Lock()
	c.busy = false
	h.retire(c)
	c.mu.Unlock()
	if h.stands(again, 6+unheard) || !h.stands(other, 5) {
		t.Error("the feed is gone")
	}
	h.feed("c", 7, 9)
	if h.stands(again, 5) {
		t.Error("the feed was made anew")
	}
}
