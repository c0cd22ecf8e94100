// Tests of recalls at sessions and feeds.

package gateway

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

func TestRecallOverTheSocket(t *testing.T) {
	h := newHouse(t)
	other := houseOn(t, h.store, "gw-2")
	h.conversation("c", "ana", "ben", "cid")
	ana, ben, cid := h.login("ana", "a1"), h.login("ben", "b1"), other.login("cid", "c1")
	epoch := ana.ask("send", `"conv":"c","cmid":"m1","body":"one"`).Epoch
	ana.ask("send", `"conv":"c","cmid":"m2","body":"two"`)
	got := ana.ask("recall", `"conv":"c","epoch":%d,"target":4,"cmid":"r1"`, epoch)
	if got.T != "recalled" || got.Conv != "c" || got.Epoch != epoch || got.Seq != 6 || got.Dup {
		t.Fatalf("the recall is answered with %s", got.raw)
	}
	for _, p := range []*peer{ben, cid} { // here at once, there by the wake-up
		for f := p.want("event"); ; f = p.want("event") {
			if e := f.Event; e.Kind == tidings.KindRecall {
				if e.Seq != 6 || e.Target != 4 || e.Sender != "ana" || e.SDev != "a1" || e.Cmid != "r1" || e.At == 0 || e.Body != nil || f.Epoch != epoch {
					t.Errorf("the push is %s", f.raw)
				}
				break
			}
		}
	}
	f := ben.ask("fetch", `"conv":"c","seq":6`)
	if pushed := wire.AppendEvent(nil, epoch, f.Event); !strings.Contains(string(pushed), `"kind":"recall"`) || f.Event.Cmid != "r1" || f.Event.SDev != "a1" {
		t.Errorf("the recall is read as %s", f.raw)
	}
	if f := ben.ask("fetch", `"conv":"c","seq":4`); f.Event == nil || !f.Event.Recalled || f.Event.Body != nil {
		t.Errorf("the message is read as %s", f.raw)
	}
	if f := h.login("ana", "a2").ask("recall", `"conv":"c","target":4,"cmid":"r1"`); f.T != "recalled" || f.Seq != 6 || !f.Dup {
		t.Errorf("the repetition is answered with %s", f.raw)
	}

	eve := h.login("eve", "e1")
	for _, c := range []struct {
		p      *peer
		fields string
		code   tidings.Code
		stored string
		epoch  int64
	}{
		{eve, `"conv":"c","target":4,"cmid":"r"`, tidings.NotMember, "no", 0},
		{eve, `"conv":"c","epoch":7,"target":4,"cmid":"r"`, tidings.NotMember, "no", 0},
		{ana, `"conv":"none","target":4,"cmid":"r"`, tidings.NotMember, "no", 0},
		{ana, `"conv":"c","target":5,"cmid":"r1"`, tidings.IdempotencyMismatch, "no", 0},
		{ana, `"conv":"c","epoch":7,"target":5,"cmid":"r"`, tidings.EpochChanged, "", epoch},
		{ana, `"conv":"c","target":7,"cmid":"r"`, tidings.NotFound, "no", 0},
		{ana, `"conv":"c","target":1,"cmid":"r"`, tidings.InvalidArgument, "no", 0},
		{ben, `"conv":"c","target":5,"cmid":"r"`, tidings.NotSender, "no", 0},
		{ana, `"conv":"c","target":4,"cmid":"r"`, tidings.AlreadyRecalled, "no", 0},
		{ana, `"conv":"c","target":0,"cmid":"r"`, tidings.InvalidArgument, "unchanged", 0}, // the log is not asked
		{ana, `"conv":"c","target":5`, tidings.InvalidArgument, "unchanged", 0},
	} {
		if f := c.p.refused(c.code, "recall", c.fields); f.Stored != c.stored || f.Epoch != c.epoch {
			t.Errorf("%s: %s", c.fields, f.raw)
		}
	}
	h.exec(`UPDATE tidings.conversation SET recall_window_ms = 0`)
	ana.refused(tidings.RecallWindowExpired, "recall", `"conv":"c","target":5,"cmid":"r"`)
	if f := ana.ask("recall", `"conv":"c","target":4,"cmid":"r1"`); !f.Dup {
		t.Errorf("after the window the repetition is answered with %s", f.raw)
	}
}

// A receiver that does not read, and whose queue holds a message when it is recalled, never gets its body: not here, where it is recalled, and not at
// another gateway. The same holds for one who leaves meanwhile.
func TestASlowReceiverNeverGetsARecalledBody(t *testing.T) {
	const secret, before = "to be recalled", 12
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprint("leaves: ", leaves), func(t *testing.T) {
			t.Parallel()
			patient := func(c *Config) { c.SendWait, c.QueueBytes = patience, 1<<20 }
			h := newHouse(t, patient)
			other := houseOn(t, h.store, "gw-2", patient)
			h.conversation("c", "ana", "ben", "cid")
			ana := h.login("ana", "a1")
			slow := map[*house]*peer{h: h.login("ben", "b1"), other: other.login("cid", "c1")}
			for at, p := range slow {
				if err := p.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
					t.Fatal(err)
				}
				for _, user := range []string{"ben", "cid"} {
					for _, s := range at.roster.of(user) {
						if err := s.conn.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			body := quote(strings.Repeat("x", 16<<10))
			for i := range before { // what the sockets take, and more
				if f := ana.ask("send", `"conv":"c","cmid":"m%d","body":%s`, i, body); f.T != "sent" {
					t.Fatalf("answered with %s", f.raw)
				}
			}
			target := ana.ask("send", `"conv":"c","cmid":"secret","body":%q`, secret).Seq
			kept := ana.ask("send", `"conv":"c","cmid":"kept","body":"kept"`).Seq
			for at := range slow {
				eventually(t, "the events are queued", func() bool {
					f, ok := at.hub.feeds.get("c")
					if !ok {
						return false
					}
					f.mu.Lock()
					defer f.mu.Unlock()
					return f.pos >= kept
				})
			}
			end := kept
			if leaves {
				for _, user := range []string{"ben", "cid"} {
					m, err := h.store.Leave(t.Context(), "c", user, "")
					if err != nil {
						t.Fatal(err)
					}
					end = m.Seq
				}
				for at := range slow {
					eventually(t, "the leave is known", func() bool {
						f, ok := at.hub.feeds.get("c")
						if !ok {
							return true
						}
						f.mu.Lock()
						defer f.mu.Unlock()
						return f.pos >= end
					})
				}
			}
			runtime.GC()
			recalled := ana.ask("recall", `"conv":"c","target":%d,"cmid":"r"`, target)
			if recalled.T != "recalled" {
				t.Fatalf("the recall is answered with %s", recalled.raw)
			}
			for at := range slow {
				eventually(t, "the recall is known", func() bool {
					f, ok := at.hub.feeds.get("c")
					if !ok {
						return false
					}
					f.mu.Lock()
					defer f.mu.Unlock()
					return f.pos >= recalled.Seq
				})
			}
			for _, p := range slow {
				if err := p.conn.(*net.TCPConn).SetReadBuffer(1 << 20); err != nil {
					t.Fatal(err)
				}
				seen := map[int64]bool{}
				for f := p.want("event"); ; f = p.want("event") {
					if strings.Contains(f.raw, secret) {
						t.Errorf("%s", f.raw)
					}
					seen[f.Event.Seq] = true
					if f.Event.Kind == tidings.KindRecall || leaves && f.Event.Kind == tidings.KindLeave {
						break
					}
				}
				if !seen[kept] || seen[target] {
					t.Errorf("it was pushed %d events, %d among them: %t, %d: %t", len(seen), kept, seen[kept], target, seen[target])
				}
			}
		})
	}
}

// A recall that this gateway knows takes back what is on its way to a reader, too, whatever the order in which they came here.
func TestARecallOvertakesItsMessage(t *testing.T) {
	for what, order := range map[string][][]int64{"in order": {{4}, {5}}, "the recall first": {{5}, {4}}, "in a row": {{4, 5}}} {
		t.Run(what, func(t *testing.T) {
			h := newHub(hubConfig{})
			s := newSession(newGateway(Config{ID: "gw-1"}), nil) // corked: what is pushed stays in its queue
			s.user, s.device = "ben", "b1"
			f, _ := h.feed("c", 7, 2)
			f.seat(h.attach(s), 1)
			f.busy = true // a reader has it
			body := "secret"
			events := map[int64]tidings.Event{4: {Conv: "c", Seq: 4, Kind: tidings.KindMsg, Sender: "ana", Body: &body}, 5: {Conv: "c", Seq: 5, Kind: tidings.KindRecall, Sender: "ana", Target: 4}}
			for _, seqs := range order {
				var batch []tidings.Event
				for _, seq := range seqs {
					batch = append(batch, events[seq])
				}
				h.offer(f, batch, nil)
			}
			read := []tidings.Event{{Conv: "c", Seq: 3, Kind: tidings.KindMsg, Sender: "ana", Body: new(string)}, events[4]} // from before the recall
			for i := range read {
				h.deliver(f, &read[i], nil)
			}
			h.deliverPending(f)
			var all string
			for _, i := range s.queue {
				all += string(i.event.frame())
			}
			if strings.Contains(all, body) || !strings.Contains(all, `"seq":4,"kind":"msg","sender":"ana","recalled":true`) || f.pos != 5 || f.pending != nil {
				t.Errorf("the feed is at %d and has pushed %s", f.pos, all)
			}
		})
	}
	f := feed{busy: true}
	h := newHub(hubConfig{})
	for i := range int64(maxPending + 1) {
		h.offer(&f, []tidings.Event{{Conv: "c", Seq: i + 1, Kind: tidings.KindMsg, Body: new(string)}}, nil)
	}
	h.offer(&f, []tidings.Event{{Conv: "c", Seq: maxPending + 2, Kind: tidings.KindRecall, Target: 7}}, nil)
	if len(f.pending) != maxPending || !f.recalled(7) || f.target != maxPending+2 {
		t.Errorf("of %d events that wait none recalls 7", len(f.pending))
	}
}

// A message that was stored by a commit whose answer was lost can be recalled before anybody was told of it. It is told of as the log
// has it by then, here and elsewhere, not as it was sent.
func TestALostAnswerPushesNoRecalledBody(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	create(t, st, "c", "ana", "ben", "eve")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	ben, eve := one.connect("ben", "b1"), two.connect("eve", "e1")
	send, calls := one.g.committer.send, 0
	one.g.committer.send = func(ctx context.Context, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
		answers, err := send(ctx, batch, wait)
		if calls++; calls > 1 || err != nil {
			return answers, err
		}
		if a, err := st.Recall(ctx, store.Recall{Conv: "c", User: "ana", Cmid: "r", Target: answers[0].Seq}, false); err != nil || a.Code != "" {
			t.Errorf("%+v, %v", a, err)
		}
		return nil, lost
	}
	seq := one.say("c", "ana", "taken back at once")
	for _, e := range []*ear{ben, eve} {
		e.awaitSeq("c", seq, caughtUpWithin)
		e.awaitSeq("c", seq+1, caughtUpWithin)
		e.mu.Lock()
		for _, f := range e.frames {
			if f.Event != nil && f.Event.Seq == seq && (f.Event.Body != nil || !f.Event.Recalled) {
				t.Errorf("%s was pushed %+v", e.device, f.Event)
			}
		}
		e.mu.Unlock()
	}
}
