// The trouble of one connection: what is lost, and what comes in another order.

package front

import (
	"sync"
	"time"

	"github.com/tidings-project/tidings/cmd/tidings/internal/relay"
	"github.com/tidings-project/tidings/internal/wire"
)

// holdFor is how long an event is held at most for another to overtake it.
const holdFor = 3 * time.Second

// traffic is what a gateway says over one link.
type traffic struct {
	line *line
	link *relay.Link

	mu    sync.Mutex
	held  []byte // an event that is to be overtaken
	seq   int64  // of held
	timer *time.Timer
	ended bool
}

// down is a relay.Down.
func (t *traffic) down(frame []byte) (instead [][]byte, cut bool) {
	f, err := wire.DecodeFrame(frame)
	switch {
	case err != nil: // it is the client's business
	case f.T == wire.TypeSent && t.line.loses():
		t.line.tell("the reply to %s, that its message is stored at seq %d, was lost", t.line.device, f.Seq)
		return nil, true
	case f.T == wire.TypeEvent && f.Event != nil:
		return t.overtake(frame, f.Event.Seq), false
	}
	return [][]byte{frame}, false
}

// overtake holds the first event of a pair and lets the second one pass it, twice.
func (t *traffic) overtake(frame []byte, seq int64) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := t.held; first != nil {
		t.held = nil
		t.timer.Stop()
		t.line.tell("%s got event %d twice, and event %d after it", t.line.device, seq, t.seq)
		return [][]byte{frame, frame, first}
	}
	if !t.line.shuffles() {
		return [][]byte{frame}
	}
	t.held, t.seq = frame, seq
	t.timer = time.AfterFunc(holdFor, t.letGo)
	return nil
}

// letGo delivers an event that none has overtaken.
func (t *traffic) letGo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if frame := t.held; frame != nil && !t.ended {
		t.held = nil
		_ = t.link.Say(frame) // a connection that has ended
	}
}

// end gives up what is held.
func (t *traffic) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
	}
}
