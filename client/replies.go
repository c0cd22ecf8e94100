// What the client does with a frame of the server.

package client

import (
	"slices"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// take does what a frame of the server says.
func (c *Client) take(s *session, f *wire.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Rid == "" {
		c.pushed(s, f)
		return
	}
	c.answered(s, f)
	signal(c.wake) // there is room for another request
}

// pushed takes what was not asked for. It is a hint: nothing of it is believed without the log, but for an event that is the next.
func (c *Client) pushed(s *session, f *wire.Frame) {
	if !s.greeted {
		return
	}
	switch f.T {
	case wire.TypePing:
		s.pong = true
		signal(c.wake)
	case wire.TypeEvent:
		if f.Event != nil {
			c.arrived(c.conversation(f.Event.Conv), f.Epoch, f.Event)
		}
	case wire.TypeLag, wire.TypeLeft:
		c.expect(c.conversation(f.Conv), f.Epoch, max(f.Head, f.Seq))
	case wire.TypeJoined:
		v := c.conversation(f.Conv)
		if v.away {
			c.begin(v)
		}
		c.expect(v, f.Epoch, f.Seq)
	case wire.TypeCursor:
		c.readMoved(c.conversation(f.Conv), ReadMoved{f.Conv, f.Epoch, f.Read, f.Unread, f.UnreadMore})
	case wire.TypeDraining:
		s.drainAt = time.Now().Add(time.Duration(f.ReconnectAfterMS) * time.Millisecond)
	}
}

func (c *Client) arrived(v *conversation, epoch int64, e *tidings.Event) {
	if !v.follow || v.log.epoch != epoch || v.log.cursor+1 != e.Seq && v.unsynced || c.full(v) {
		c.expect(v, epoch, e.Seq)
	} else {
		v.hear(epoch, e.Seq)
		c.merged(v, v.log.add(*e))
	}
	c.takeBack(v, epoch, e)
}

// answered takes a reply.
func (c *Client) answered(s *session, f *wire.Frame) {
	if !s.greeted && f.Rid == helloRid {
		c.greeted(s, f)
		return
	}
	r := s.requests[f.Rid]
	if r == nil {
		return // nobody asked
	}
	delete(s.requests, f.Rid)
	if f.T == wire.TypeError && f.Code == tidings.RateLimited {
		s.paused = c.retryAt(f, 0)
		c.release(r)
		return
	}
	switch r.kind {
	case wire.TypeSend:
		c.sendAnswered(r, f)
	case wire.TypeRecall:
		c.recallAnswered(r, f)
	case wire.TypeOutcome:
		c.outcomeAnswered(r, f)
	case wire.TypeSync:
		c.syncAnswered(r, f)
	case wire.TypeAck:
		c.ackAnswered(r, f)
	case wire.TypeRead:
		c.readAnswered(r, f)
	case wire.TypeConversations:
		c.listed(s, f)
	case kindAsk:
		r.ask.reply <- *f // it has room for the one answer
	}
}

// release takes a request back: what it was for has to be asked for again.
func (c *Client) release(r *request) {
	switch r.kind {
	case wire.TypeSend, wire.TypeRecall:
		r.v.land(r.e)
	case wire.TypeOutcome:
		r.v.land(r.e)
		if r.e.err == nil && r.e.sent.Seq > 0 {
			r.v.suspects = append(r.v.suspects, r.e)
		}
	case wire.TypeSync:
		r.v.syncing = false
	case wire.TypeAck:
		r.v.acking = false
	case wire.TypeRead:
		r.v.reading = false
	case wire.TypeConversations:
		if c.session != nil {
			c.session.listing = true
		}
	case kindAsk:
		c.asks = append(c.asks, r.ask)
	}
	if r.v != nil {
		c.look(r.v)
	}
}

// greeted takes the answer to the hello.
func (c *Client) greeted(s *session, f *wire.Frame) {
	if err := f.Err(); err != nil {
		s.refusal = err
		return // the close frame follows
	}
	if f.T != wire.TypeWelcome {
		return
	}
	if c.user != "" && c.user != f.User {
		s.refusal = tidings.Errorf(tidings.InvalidArgument, "the token is of the user %s, the outbox %s belongs to %s", f.User, c.cfg.Outbox, c.user)
		s.fatal = true
		s.cancel()
		return
	}
	if c.user == "" && c.file != nil {
		_ = c.note(line{Op: "user", User: f.User})
	}
	c.user, c.limits, c.session = f.User, sane(f.Limits), s
	s.greeted, s.began, s.listing = true, time.Now(), true
	s.patience = time.Duration(f.PingMS)*time.Millisecond + pongGrace
	for _, v := range c.convs {
		c.look(v)
	}
	c.setState(Connection{State: Online})
}

// sane puts our own limits where a server names none.
func sane(l wire.Limits) wire.Limits {
	ours := wire.NewLimits(0)
	for _, f := range []struct{ theirs, ours *int }{{&l.Frame, &ours.Frame}, {&l.Inflight, &ours.Inflight}, {&l.Page, &ours.Page}} {
		if *f.theirs < 1 {
			*f.theirs = *f.ours
		}
	}
	return l
}

// listed compares the list of conversations with what is known here: it tells what has happened while there was no connection.
func (c *Client) listed(s *session, f *wire.Frame) {
	if f.Err() != nil {
		s.listing, s.listAt = true, c.retryAt(f, 0)
		return
	}
	for _, l := range f.List {
		s.listed[l.Conv] = true
		v := c.conversation(l.Conv)
		if v.away {
			c.begin(v)
		}
		c.expect(v, l.Epoch, l.Head)
		if v.follow && v.log.epoch == l.Epoch {
			v.acked = max(v.acked, l.Delivered)
			v.doubt = v.doubt || !v.unsynced && l.Head < v.log.cursor // perhaps it has lost its end
		}
		if l.Read > 0 {
			c.readMoved(v, ReadMoved{l.Conv, l.Epoch, l.Read, l.Unread, l.UnreadMore})
		}
	}
	if f.More && len(f.List) > 0 {
		s.listing, s.listFrom = true, f.List[len(f.List)-1].Conv
		return
	}
	c.unlisted(s)
}

// unlisted looks into what the list, which has everything that the user ever was a member of, does not name: a restore may have lost it.
func (c *Client) unlisted(s *session) {
	for conv, v := range c.convs {
		if !s.listed[conv] && v.follow && !v.unsynced {
			v.doubt = true
			c.look(v)
		}
	}
	for _, e := range c.box.recent {
		if v := c.convs[e.Conv]; !s.listed[e.Conv] && (v == nil || !v.follow) {
			if v = c.conversation(e.Conv); !v.follow {
				c.suspect(v, 0)
			}
			c.look(v)
		}
	}
}

func (c *Client) syncAnswered(r *request, f *wire.Frame) {
	v := r.v
	v.syncing = false
	c.look(v)
	if r.epoch != v.log.epoch {
		return // of a history that was given up meanwhile
	}
	if err := f.Err(); err != nil {
		c.syncRefused(v, f, err)
		return
	}
	if v.log.epoch == 0 {
		v.log.epoch = f.Epoch
	}
	if f.Epoch != v.log.epoch {
		c.reset(v, f.Epoch)
		return
	}
	before := v.log.cursor
	recalled, ok := v.log.page(f.After, f.Events, f.Withheld)
	v.log.head = max(v.log.head, f.Head)
	if !f.More {
		v.log.complete(f.Head, v.heard[v.log.epoch])
	}
	if !ok || f.More && v.log.cursor == before { // it brings nothing: not at once again
		v.syncAt = time.Now().Add(c.pause(v.syncTries))
		v.syncTries++
	} else {
		v.syncTries = 0
	}
	if v.unsynced || v.doubt {
		_, same := v.heard[v.log.epoch]
		v.unsynced, v.doubt = false, len(v.heard) > 1 || len(v.heard) == 1 && !same // the answer may be older
		c.suspect(v, v.log.epoch)
	}
	c.settleSuspects(v)
	c.merged(v, recalled)
	for i := range f.Events {
		c.takeBack(v, f.Epoch, &f.Events[i])
	}
	c.trimmed(v.conv, f.Epoch, f.MinSeq)
	if !f.More && v.log.cursor >= v.log.head {
		v.answer(nil)
	}
}

func (c *Client) syncRefused(v *conversation, f *wire.Frame, err error) {
	switch {
	case f.Code == tidings.EpochChanged || f.Code == tidings.CursorAhead: // the latter with our epoch: this log has lost its end
		c.reset(v, f.Epoch)
	case f.Retry == "no" && len(v.heard) > 0:
		v.doubt = true // perhaps we are a member since
	case f.Retry == "no":
		known := v.log.epoch != 0
		v.suspects = append(v.suspects, c.box.sentTo(v.conv, 0)...) // a restore may not know the conversation
		v.log, v.told, v.recalls = newLog(Position{}), 0, nil
		v.follow, v.away, v.unsynced, v.doubt = false, true, true, false
		v.answer(err)
		if known {
			c.tell(Dropped{Conv: v.conv, Err: err})
		}
	default:
		v.syncAt = c.retryAt(f, v.syncTries)
		v.syncTries++
	}
}

// answer ends the wait of those who asked for a sync.
func (v *conversation) answer(err error) {
	for _, w := range v.served {
		w <- err // it has room
	}
	v.served = nil
}

// settleSuspects clears messages that the new history has.
func (c *Client) settleSuspects(v *conversation) {
	if len(v.suspects) == 0 {
		return
	}
	here := map[string]*tidings.Event{}
	for _, p := range v.log.run {
		if p.event != nil && p.event.Sender == c.user && p.event.Cmid != "" {
			here[p.event.Cmid] = p.event
		}
	}
	v.suspects = slices.DeleteFunc(v.suspects, func(e *entry) bool {
		event := here[e.Cmid]
		if event != nil {
			c.stands(e, event.Seq, v.log.epoch)
		}
		return event != nil
	})
}

func (c *Client) ackAnswered(r *request, f *wire.Frame) {
	r.v.acking = false
	c.look(r.v)
	switch {
	case r.epoch != r.v.log.epoch: // of a history that was given up meanwhile
	case f.T == wire.TypeAcked && f.Epoch == r.v.log.epoch:
		r.v.acked = max(r.v.acked, r.seq) // a greater stored value is of nobody's interest, a smaller one would be asked for for ever
	case f.Retry == "resync":
		r.v.doubted(f)
	case f.Retry == "no":
		r.v.acked = max(r.v.acked, r.seq) // given up: the next one will be judged anew
	default:
		r.v.ackedAt = c.retryAt(f, 0)
	}
}

// doubted notes that a request was judged by another history, or by one that has lost its end.
func (v *conversation) doubted(f *wire.Frame) {
	v.doubt = v.follow
	v.hear(f.Epoch, 0)
}

func (c *Client) readAnswered(r *request, f *wire.Frame) {
	v := r.v
	v.reading = false
	switch {
	case r.epoch != v.log.epoch:
	case f.T == wire.TypeRead:
		v.read = max(v.read, r.seq)
		c.readMoved(v, ReadMoved{v.conv, f.Epoch, f.Seq, f.Unread, f.UnreadMore})
	case f.Retry == "resync":
		v.doubted(f)
		v.wantRead = 0
	case f.Retry == "no":
		v.wantRead = 0
	default:
		v.syncAt = c.retryAt(f, 0)
	}
	c.look(v)
}

func (c *Client) readMoved(v *conversation, m ReadMoved) {
	if v.moved == m || v.moved.Epoch == m.Epoch && m.Seq < v.moved.Seq {
		return
	}
	v.moved = m
	c.tellRead(v)
}
