// Tests of recalls against the real gateway.

package client_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

// recalled are the seqs that were told as recalled.
func (h *heard) recalled() (seqs []int64) {
	for _, u := range h.updates() {
		if r, ok := u.(client.Recalled); ok && r.Event.Body == nil && r.Event.Data == nil {
			seqs = append(seqs, r.Event.Seq)
		}
	}
	return seqs
}

func (h *house) send(c *client.Client, conv, body string) client.Sent {
	h.t.Helper()
	p, err := c.Send(client.Message{Conv: conv, Body: body, Data: []byte(`{"also":"` + body + `"}`)})
	if err != nil {
		h.t.Fatal(err)
	}
	s, err := p.Wait(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func at(s client.Sent) client.Position { return client.Position{Epoch: s.Epoch, Seq: s.Seq} }

// A recall takes the content from every copy, also from the outbox of whoever has sent it, whichever device recalls.
func TestARealGatewayRecalls(t *testing.T) {
	h := newHouse(t)
	h.create("c-g", "u-ana", "u-ben")
	outbox := filepath.Join(t.TempDir(), "outbox")
	cut := &cutter{}
	ana, anaHeard := h.client("u-ana", "d-a", func(c *client.Config) { c.Outbox, c.Dial = outbox, cut.dial })
	other, otherHeard := h.client("u-ana", "d-other")
	_, benHeard := h.client("u-ben", "d-b")
	everybody := func(seqs ...int64) {
		t.Helper()
		for _, who := range []*heard{anaHeard, otherHeard, benHeard} {
			eventually(t, "everybody has heard of the recall", func() bool { return slices.Equal(who.recalled(), seqs) }, who)
		}
	}
	arrived := func(seq int64) {
		t.Helper()
		for _, who := range []*heard{anaHeard, otherHeard, benHeard} {
			eventually(t, "everybody has it", func() bool {
				e := who.events()
				return len(e) > 0 && e[len(e)-1].Seq >= seq
			}, who)
		}
	}
	done := func(c *client.Client, r client.Recall) client.Sent {
		t.Helper()
		p, err := c.Recall(r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const first, second, third = "the first secret", "the second secret", "the third secret"
	one := h.send(ana, "c-g", first)
	arrived(one.Seq)
	if s := done(ana, client.Recall{Conv: "c-g", Target: client.Position{Seq: one.Seq}, Cmid: "r-1"}); s.Seq != 4 || s.Epoch != one.Epoch || s.Dup {
		t.Errorf("the recall is answered with %+v", s)
	}
	everybody(3)
	if s := done(other, client.Recall{Conv: "c-g", Target: at(one), Cmid: "r-1"}); s.Seq != 4 || !s.Dup {
		t.Errorf("the same recall is answered with %+v", s)
	}

	two := h.send(ana, "c-g", second)
	arrived(two.Seq)
	done(other, client.Recall{Conv: "c-g", Target: at(two)})
	everybody(3, 5)

	three := h.send(ana, "c-g", third)
	arrived(three.Seq)
	cut.cut()
	p, err := ana.Recall(client.Recall{Conv: "c-g", Target: at(three)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Errorf("a recall over a lost connection: %v", err)
	}
	everybody(3, 5, 7)

	for _, c := range []*client.Client{ana, other} {
		events, _ := c.Events("c-g", 1, 100)
		for _, e := range events {
			if e.Body != nil || e.Data != nil {
				t.Errorf("the copy has %+v", e)
			}
		}
	}
	eventually(t, "the bodies leave the file", func() bool {
		b, err := os.ReadFile(outbox)
		return err == nil && !strings.Contains(string(b), "secret")
	})
}

func TestARealGatewayRefusesRecalls(t *testing.T) {
	h := newHouse(t)
	h.create("c-g", "u-ana", "u-ben")
	ana, _ := h.client("u-ana", "d-a")
	ben, _ := h.client("u-ben", "d-b")
	m := h.send(ana, "c-g", "stays")
	gone := h.send(ana, "c-g", "goes")
	refused := func(c *client.Client, r client.Recall, want tidings.Code) {
		t.Helper()
		p, err := c.Recall(r)
		if err == nil {
			_, err = p.Wait(t.Context())
		}
		if tidings.ErrorCode(err) != want {
			t.Errorf("%+v: %v, not %s", r, err, want)
		}
	}
	refused(ana, client.Recall{Conv: "c-g", Target: at(gone), Cmid: "r-1"}, "")
	refused(ana, client.Recall{Conv: "c-g", Target: at(gone), Cmid: "r-2"}, tidings.AlreadyRecalled)
	refused(ana, client.Recall{Conv: "c-g", Target: at(m), Cmid: "r-1"}, tidings.IdempotencyMismatch)
	refused(ben, client.Recall{Conv: "c-g", Target: at(m)}, tidings.NotSender)
	refused(ana, client.Recall{Conv: "c-g", Target: client.Position{Epoch: m.Epoch, Seq: 1}}, tidings.InvalidArgument)
	refused(ana, client.Recall{Conv: "c-g", Target: client.Position{Epoch: m.Epoch, Seq: 99}}, tidings.NotFound)
	refused(ana, client.Recall{Conv: "c-other", Target: at(m)}, tidings.NotMember)
	refused(ana, client.Recall{Conv: "c-g", Target: client.Position{Epoch: m.Epoch + 1, Seq: m.Seq}}, tidings.EpochChanged)
	if _, err := h.store.Pool().Exec(t.Context(), `UPDATE tidings.conversation SET recall_window_ms = 0`); err != nil {
		t.Fatal(err)
	}
	refused(ana, client.Recall{Conv: "c-g", Target: at(m)}, tidings.RecallWindowExpired)
	if list := append(ana.Waiting(), ben.Waiting()...); len(list) > 0 {
		t.Errorf("still in the outbox: %+v", list)
	}
	events, _ := ana.Events("c-g", m.Seq, 1)
	if len(events) != 1 || events[0].Body == nil {
		t.Errorf("the message that stays is %+v", events)
	}
}
