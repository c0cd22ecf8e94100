// A session: its queue and its end.

package gateway

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/internal/wire"
)

// session is one WebSocket. Its reader goroutine owns it and ends last. A second goroutine exists only while there is something to
// write, and no session has a timer: Gateway.tick looks at all of them. Instants are of Gateway.clock.
type session struct {
	g    *Gateway
	conn net.Conn
	born int64

	// Set by hello before the session is shown to anybody else.
	user, device       string
	installNo, version int64
	connection         tidings.UUID

	claims  atomic.Pointer[token.Claims]
	greeted chan bool    // hello was answered, and whether the session goes on
	seen    atomic.Int64 // when the last message arrived
	partial atomic.Int64 // since when a message is incomplete; 0: none is
	flight  atomic.Int32 // requests that are not answered yet

	refreshing atomic.Bool // a refresh waits among the hellos

	// Of the ticker alone.
	nextPing, pinged int64

	mu       sync.Mutex
	phase    phase
	queue    []item
	oldest   int64  // since when the first frame that is not written waits; 0: there is none
	pushes   int    // bytes of events that are not written yet
	replies  int    // bytes of everything else
	echo     []byte // the payload of the newest ping that was not answered: older ones need no answer
	echoes   bool
	corked   bool // the welcome is not there yet, what waits goes out behind it
	writing  bool // the writer runs
	gone     bool // the reader ends: no writer may begin
	code     int  // of the close frame; 0: none is written
	reason   string
	closedAt int64

	pending []wire.Request // those that wait for a step
	steps   int            // turns of this session that wait or run
}

// phase is how far a session has come. It never goes back.
type phase uint8

const (
	fresh   phase = iota // no hello yet
	serving              // hello has come
	leaving              // new requests are refused: the gateway stops
	closing              // nothing is served or queued any more
	closed               // the close frame was written
)

// item is a frame in a session's queue: an event, which others share, or bytes of its own.
type item struct {
	frame []byte
	event *entry
	shown *shown // of a reply with messages
	at    int64  // when it was queued
	size  int32
}

// newSession makes a session on conn. What it sends waits until uncork.
func newSession(g *Gateway, conn net.Conn) *session {
	now := g.clock()
	s := &session{g: g, conn: conn, connection: newConnection(), born: now, corked: true, nextPing: now + int64(g.cfg.PingEvery)}
	s.seen.Store(now)
	return s
}

// A burst, such as a batch of the longest messages, is no fault of a receiver that reads: for burstTime more than Config.QueueBytes
// may wait for it, up to burstSize times as much. What waits is shared with the other receivers.
const (
	burstTime = int64(time.Second)
	burstSize = 16
)

// late are sessions whose writers begin when all that belongs together is queued, so that it goes out in one write.
type late []*session

func (l late) begin() {
	for _, s := range l {
		s.mu.Lock()
		if len(s.queue) > 0 {
			s.startWriter()
		}
		s.mu.Unlock()
	}
}

// push queues an event. It never waits: a receiver that leaves Config.QueueBytes of events waiting is disconnected and will sync.
// With l the writer is left to l.begin.
func (s *session) push(e *entry, l *late) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase >= closing:
	case s.pushes+e.size > s.g.cfg.QueueBytes && (s.g.clock()-s.oldest > burstTime || s.pushes+e.size > burstSize*s.g.cfg.QueueBytes):
		s.end(wire.CloseSlow, "too much is waiting to be read", false)
	default:
		s.pushes += e.size
		s.enqueue(item{event: e, size: int32(e.size)})
		if l == nil {
			s.startWriter()
		} else if !s.writing {
			*l = append(*l, s)
		}
	}
}

// send queues a frame, which is the session's from then on. It never waits.
func (s *session) send(frame []byte) { s.queueReply(frame, nil) }

// queueReply is send for a frame that shows messages, if shows is not nil.
func (s *session) queueReply(frame []byte, shows *shown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase >= closing:
	case s.replies+len(frame) > 2*s.g.cfg.QueueBytes:
		// Requests with large answers do not begin while half of Config.QueueBytes waits: only one who sends many small ones and
		// reads no answer comes here.
		s.end(wire.CloseSlow, "too much is waiting to be read", false)
	default:
		s.replies += len(frame)
		s.enqueue(item{frame: frame, shown: shows, size: int32(len(frame))})
		s.startWriter()
	}
}

// answer is send for the reply to a request.
func (s *session) answer(frame []byte) {
	s.flight.Add(-1)
	s.send(frame)
}

// answerError is answer for a refusal of the request rid of type t.
func (s *session) answerError(rid, t string, err error) {
	s.g.report(err, t)
	s.answer(wire.AppendError(nil, rid, t, err))
}

// pong answers a ping of the WebSocket protocol.
func (s *session) pong(payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase < closing {
		s.echo, s.echoes = append(s.echo[:0], payload...), true
		s.startWriter()
	}
}

// uncork lets what waits go out.
func (s *session) uncork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.corked = false
	if len(s.queue) > 0 {
		s.startWriter()
	}
}

// close ends the session. What waits is dropped, the close frame is written, and the socket is closed when the peer has seen it
// or Config.CloseWait is over. Only the first close counts.
func (s *session) close(code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(code, reason, false)
}

// refuse is close with an error frame before the close frame.
func (s *session) refuse(rid, t string, err error, code int) {
	s.g.report(err, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase >= closing {
		return
	}
	s.drop()
	frame := wire.AppendError(nil, rid, t, err)
	s.replies += len(frame)
	s.enqueue(item{frame: frame, size: int32(len(frame))})
	s.end(code, string(tidings.ErrorCode(err)), true)
}

// finish is close after what waits was written.
func (s *session) finish(code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(code, reason, true)
}

// end needs the lock, as all that follow here do.
func (s *session) end(code int, reason string, flush bool) {
	if s.phase >= closing {
		return
	}
	s.phase, s.code, s.reason, s.closedAt, s.corked = closing, code, reason, s.g.clock(), false
	s.g.waiting.Add(-int64(len(s.pending)))
	s.pending = nil
	if !flush {
		s.drop()
	}
	if code != 0 {
		s.g.metrics.closed(code)
	}
	s.startWriter()
}

func (s *session) enqueue(i item) {
	i.at = s.g.clock()
	if s.oldest == 0 {
		s.oldest = i.at
	}
	if s.queue == nil {
		s.queue = make([]item, 0, 2) // an event and the answer to its sender
	}
	s.queue = append(s.queue, i)
	s.g.metrics.queued.Add(int64(i.size))
}

func (s *session) startWriter() {
	if !s.writing && !s.corked && !s.gone {
		s.writing = true
		s.g.sessions.Go(s.write)
	}
}

// drop empties the queue.
func (s *session) drop() {
	for _, i := range s.queue {
		if i.event != nil {
			s.g.metrics.dropped.Inc()
		}
		s.settle(i)
	}
	s.queue, s.oldest = nil, 0
}

// settle takes an item from the account.
func (s *session) settle(i item) {
	if i.event != nil {
		s.pushes -= int(i.size)
	} else {
		s.replies -= int(i.size)
	}
	s.g.metrics.queued.Add(-int64(i.size))
}

// at is the session's phase.
func (s *session) at() phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// advance moves a session of an earlier phase to a later one and reports whether it did.
func (s *session) advance(to phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase >= to {
		return false
	}
	s.phase = to
	return true
}
