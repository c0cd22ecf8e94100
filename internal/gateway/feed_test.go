// Tests of a feed's entries.

package gateway

import (
	"testing"

	"github.com/tidings-project/tidings"
)

// A message that a lost answer left in doubt is told of beside later ones. What was stored between them elsewhere may be a leave, so
// nothing behind it is pushed before it was read.
func TestOfferPassesOverNothing(t *testing.T) {
	h := newHub(hubConfig{})
	s := newSession(newGateway(Config{ID: "gw-1"}), nil) // corked: what is pushed stays in its queue
	s.user, s.device = "ben", "b1"
	f, _ := h.feed("c", 7, 2)
	f.seat(h.attach(s), 1)
	said := func(seq int64) tidings.Event {
		return tidings.Event{Conv: "c", Seq: seq, Kind: tidings.KindMsg, Sender: "ana", Body: new(string)}
	}
	h.offer(f, []tidings.Event{said(3), said(4), said(6)}, nil)
	if f.pos != 4 || f.target != 6 || !f.busy || len(f.pending) != 1 || len(s.queue) != 2 {
		t.Errorf("the feed is at %d, knows of %d, reads: %v, keeps %d, has pushed %d", f.pos, f.target, f.busy, len(f.pending), len(s.queue))
	}
}
