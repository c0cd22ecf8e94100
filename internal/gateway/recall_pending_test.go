// However many recalls come while a feed's reader is busy, none of what they take back is pushed.

package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
)

func TestRecallsWhileMuchWaits(t *testing.T) {
	for _, recalls := range []int{1, 2, maxPending, maxPending + 1, maxPending + 20} {
		t.Run(fmt.Sprint(recalls), func(t *testing.T) {
			h := newHub(hubConfig{})
			s := newSession(newGateway(Config{ID: "gw-1"}), nil) // corked: what is pushed stays in its queue
			s.user, s.device = "ben", "b1"
			f, _ := h.feed("c", 7, 0)
			f.seat(h.attach(s), 1)
			f.busy = true // a reader has it
			body, log := "secret", []tidings.Event{}
			said := func(seq int64) tidings.Event {
				return tidings.Event{Conv: "c", Seq: seq, Kind: tidings.KindMsg, Sender: "ana", Body: &body}
			}
			for i := range int64(maxPending + 20) {
				log = append(log, said(i+1))
			}
			h.offer(f, log, nil)
			for i := range recalls {
				h.offer(f, []tidings.Event{{Conv: "c", Seq: int64(len(log)) + int64(i) + 1, Kind: tidings.KindRecall, Sender: "ana", Target: int64(i) + 1}}, nil)
			}
			if len(f.pending) > maxPending || f.target != int64(len(log)+recalls) {
				t.Errorf("%d wait, and it knows of %d", len(f.pending), f.target)
			}
			for i := range log { // as advance does with a page from before the recalls
				h.deliverPendingUnlessAnew(f)
				if e := &log[i]; !f.restart && e.Seq == f.pos+1 {
					h.deliver(f, e, nil)
				}
			}
			if f.restart != (recalls > maxPending) {
				t.Errorf("it begins anew: %t", f.restart)
			}
			for _, i := range s.queue {
				if frame := string(i.event.frame()); i.event.seq <= int64(recalls) && strings.Contains(frame, body) {
					t.Fatalf("pushed %s", frame)
				}
			}
		})
	}
}

// deliverPendingUnlessAnew is what advance begins each round with.
func (h *hub) deliverPendingUnlessAnew(f *feed) {
	if !f.restart {
		h.deliverPending(f)
	}
}
