// Chooses what is sent next on a connection.

package client

import (
	"errors"
	"strconv"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// atOnce is how many frames are made before they are written: what comes meanwhile is seen soon.
const atOnce = 64

// longestRid stands for any rid where a frame is measured before it is sent.
const longestRid = "9007199254740991"

// outgoing returns what is to be sent now; if that is nothing, when to look again.
func (c *Client) outgoing(s *session, now time.Time) (frames [][]byte, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := out{c: c, s: s, now: now, next: now.Add(time.Minute)}
	if s.pong {
		s.pong = false
		o.frames = append(o.frames, wire.AppendRequest(nil, &wire.Request{T: wire.TypePong}))
	}
	o.oldest()
	if !s.greeted {
		return o.frames, o.next
	}
	if !s.drainAt.IsZero() {
		o.at(s.drainAt.Add(drainGrace))
		if now.After(s.drainAt.Add(drainGrace)) {
			s.fault = errors.New("the server stops, and has not closed the connection")
			s.cancel()
		}
	}
	if now.Before(s.paused) {
		o.at(s.paused)
		return o.frames, o.next
	}
	o.list()
	for len(c.asks) > 0 && o.room() {
		a := c.asks[0]
		c.asks = c.asks[1:]
		if a.ctx.Err() == nil {
			o.send(&a.req, &request{kind: kindAsk, ask: a})
		}
	}
	rest := c.due
	c.due = nil
	for i, v := range rest {
		if !o.room() {
			c.due = append(c.due, rest[i:]...)
			break
		}
		v.isDue = o.conversation(v)
		if v.isDue {
			c.due = append(c.due, v)
		}
	}
	return o.frames, o.next
}

// out collects frames.
type out struct {
	c      *Client
	s      *session
	now    time.Time
	next   time.Time
	frames [][]byte
}

func (o *out) at(t time.Time) {
	if t.Before(o.next) {
		o.next = t
	}
}

// room tells whether one more request may be sent. When not, an answer or the next round makes some.
func (o *out) room() bool {
	return len(o.frames) < atOnce && len(o.s.requests) < max(o.c.limits.Inflight, 1)
}

func (o *out) send(req *wire.Request, r *request) {
	o.s.rids++
	req.Rid = strconv.FormatInt(o.s.rids, 10)
	r.at = o.now
	o.s.requests[req.Rid] = r
	o.frames = append(o.frames, wire.AppendRequest(nil, req))
}

// oldest gives the connection up when a request has waited too long for its answer.
func (o *out) oldest() {
	if len(o.s.requests) == 0 {
		return
	}
	if o.now.Before(o.s.lookAt) {
		o.at(o.s.lookAt)
		return
	}
	o.s.lookAt = o.now.Add(min(time.Second, o.c.cfg.RequestTimeout))
	o.at(o.s.lookAt)
	for _, r := range o.s.requests {
		if o.now.Sub(r.at) >= o.c.cfg.RequestTimeout {
			o.s.fault = errors.New("the server has not answered a request of the type " + r.kind + " in time")
			o.s.cancel()
		}
	}
}

// list asks for the conversations, a page at a time.
func (o *out) list() {
	if o.s.listing && !o.wait(o.s.listAt) {
		o.s.listing = false
		o.send(&wire.Request{T: wire.TypeConversations, AfterConv: o.s.listFrom, Limit: o.c.limits.Page}, &request{kind: wire.TypeConversations})
	}
}

// conversation sends what one conversation has to say. It returns whether it has to be looked at again without being woken.
func (o *out) conversation(v *conversation) (again bool) {
	for _, part := range []func(*conversation) bool{o.sync, o.queue, o.suspects, o.ack, o.read} {
		again = part(v) || again
	}
	return again
}

// wait tells that something has to wait, until t or for room.
func (o *out) wait(t time.Time) bool {
	if o.now.Before(t) {
		o.at(t)
		return true
	}
	return !o.room()
}

func (o *out) sync(v *conversation) (again bool) {
	if !o.c.wantsSync(v) {
		return false
	}
	if o.wait(v.syncAt) {
		return true
	}
	limit := int64(o.c.limits.Page)
	if gap := v.log.gap(); !v.unsynced && !v.doubt && gap > 0 {
		limit = min(limit, gap)
	}
	if o.c.full(v) {
		limit = 1 // only the epoch is of interest
	}
	v.syncing = true
	clear(v.heard)
	v.served, v.waiters = append(v.served, v.waiters...), nil
	o.send(&wire.Request{T: wire.TypeSync, Conv: v.conv, Epoch: v.log.epoch, After: v.log.cursor, Limit: int(limit)},
		&request{kind: wire.TypeSync, v: v, epoch: v.log.epoch})
	return false
}

// queue sends what waits in its order, as much at once as the configuration allows.
func (o *out) queue(v *conversation) (again bool) {
	if v.hold = v.hold && v.flying > 0; v.hold {
		return false
	}
	for i := 0; i < len(v.queue) && v.flying < o.c.cfg.Pipeline; i++ {
		e := v.queue[i]
		if e.flying || e.asked {
			continue
		}
		if o.wait(v.sendAt) {
			return true
		}
		switch old := time.Duration(o.c.limits.ResendMS) * time.Millisecond; {
		case e.verdict != nil:
			v.fly(e)
			o.send(&wire.Request{T: wire.TypeOutcome, Conv: e.Conv, Cmid: e.Cmid}, &request{kind: wire.TypeOutcome, v: v, e: e})
		case e.recall(): // of any age: whatever the server has forgotten, it can do no harm
			v.fly(e)
			o.send(&wire.Request{T: wire.TypeRecall, Conv: e.Conv, Epoch: e.Target.Epoch, Target: e.Target.Seq, Cmid: e.Cmid}, &request{kind: wire.TypeRecall, v: v, e: e})
		case old > 0 && !e.aged && o.now.Sub(e.At) > old:
			o.c.askApplication(e, nil)
		default:
			if err := e.fits(o.c.limits.Frame); err != nil {
				o.c.refuse(v, e, err, e.doubted)
				return o.queue(v) // of which it may be no part any more
			}
			v.fly(e)
			o.send(sendRequest(&e.Message), &request{kind: wire.TypeSend, v: v, e: e})
		}
	}
	return false
}

func (v *conversation) fly(e *entry) {
	e.flying = true
	v.flying++
}

func (v *conversation) land(e *entry) {
	if e.flying {
		e.flying = false
		v.flying--
	}
}

// fits refuses a message whose frame is too large for the server. Escapes make it longer than the text.
func (m *Message) fits(limit int) error {
	if 6*len(m.Body)+len(m.Data)+1024 <= limit {
		return nil // an escape takes six bytes, the rest of the frame less than 1024
	}
	r := sendRequest(m)
	r.Rid = longestRid
	if size := len(wire.AppendRequest(nil, r)); size > limit {
		return tidings.Errorf(tidings.TooLarge, "the message takes %d bytes in a frame, at most %d are allowed", size, limit)
	}
	return nil
}

func sendRequest(m *Message) *wire.Request {
	return &wire.Request{T: wire.TypeSend, Conv: m.Conv, Cmid: m.Cmid, Body: &m.Body, Data: m.Data}
}

// suspects asks what became of messages that another history had, once this history is known.
func (o *out) suspects(v *conversation) (again bool) {
	if v.follow && (v.unsynced || v.log.cursor < v.log.head) {
		return false
	}
	for len(v.suspects) > 0 {
		if o.wait(v.sendAt) {
			return true
		}
		e := v.suspects[0]
		v.suspects = v.suspects[1:]
		o.send(&wire.Request{T: wire.TypeOutcome, Conv: e.Conv, Cmid: e.Cmid}, &request{kind: wire.TypeOutcome, v: v, e: e})
	}
	return false
}

func (o *out) ack(v *conversation) (again bool) {
	if !o.c.wantsAck(v) {
		return false
	}
	if o.wait(v.ackedAt.Add(o.c.cfg.AckEvery)) {
		return true
	}
	v.acking, v.ackedAt = true, o.now
	o.send(&wire.Request{T: wire.TypeAck, Conv: v.conv, Epoch: v.log.epoch, Seq: v.told}, &request{kind: wire.TypeAck, v: v, epoch: v.log.epoch, seq: v.told})
	return false
}

func (o *out) read(v *conversation) (again bool) {
	if v.reading || v.wantRead <= v.read || v.doubt || v.follow && v.unsynced {
		return false
	}
	if o.wait(v.syncAt) {
		return true
	}
	v.reading = true
	o.send(&wire.Request{T: wire.TypeRead, Conv: v.conv, Epoch: v.log.epoch, Seq: v.wantRead}, &request{kind: wire.TypeRead, v: v, epoch: v.log.epoch, seq: v.wantRead})
	return false
}
