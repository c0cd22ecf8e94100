// What a session does with each request.

package gateway

import (
	"context"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// stepsAtOnce is how many requests of one session are at the database at once, beside sends and acks. More would let one connection
// take the place of others.
const stepsAtOnce = 2

// handle takes a frame on the reader's goroutine: it does what is quick and hands on the rest. Sends go to the committer from
// here, in the order in which they came.
func (s *session) handle(frame []byte, meter *meter) {
	req, err := wire.Decode(frame)
	if err == wire.ErrUTF8 {
		s.close(wire.CloseUTF8, "the frame is not UTF-8")
		return
	}
	if s.at() == fresh {
		s.first(req, err)
		return
	}
	wait := meter.take(s.g.clock())
	if req.T == wire.TypePong && err == nil {
		return // it has been seen
	}
	if s.flight.Add(1) > wire.MaxInflight {
		s.answerError(req.Rid, req.T, &tidings.Error{Code: tidings.RateLimited, Message: "too many requests wait for their answers", RetryAfter: time.Second / 10})
		return
	}
	switch {
	case wait > 0:
		err = &tidings.Error{Code: tidings.RateLimited, Message: "too many requests in a short time", RetryAfter: wait}
	case err == nil && s.at() >= leaving:
		err = unavailable("the gateway is stopping")
	}
	if err != nil {
		s.answerError(req.Rid, req.T, err)
		return
	}
	switch req.T {
	case wire.TypeSend:
		s.submit(req)
	case wire.TypeAck:
		s.ack(req)
	case wire.TypeRefresh:
		if !s.refreshing.CompareAndSwap(false, true) {
			s.answerError(req.Rid, req.T, &tidings.Error{Code: tidings.RateLimited, Message: "a refresh is under way", RetryAfter: time.Second})
			return
		}
		s.g.greeters.do(func() { s.refresh(req) })
	case wire.TypeSync, wire.TypeFetch, wire.TypeConversations, wire.TypeOutcome, wire.TypeRead, wire.TypeRecall:
		s.ask(req)
	case wire.TypeHello:
		s.answerError(req.Rid, req.T, tidings.Errorf(tidings.InvalidArgument, "hello was said before"))
	default:
		s.answerError(req.Rid, req.T, tidings.Errorf(tidings.InvalidArgument, "this server does not take requests of this type"))
	}
}

// first takes the first frame, which has to be a hello, and waits until it was answered: what follows is judged by who it is.
func (s *session) first(req wire.Request, err error) {
	switch {
	case req.T != wire.TypeHello:
		s.close(wire.CloseNotHello, "the first frame is no hello")
		return
	case err != nil:
		s.refuse(req.Rid, req.T, err, wire.CloseNotHello)
		return
	case !s.advance(serving):
		return
	}
	s.greeted = make(chan bool, 1)
	s.g.greeters.do(func() { s.hello(req) })
	<-s.greeted
	s.greeted = nil
}

// submit hands a send to the committer.
func (s *session) submit(req wire.Request) {
	m, err := req.Message(s.user, s.device)
	if err == nil {
		rid, conv := req.Rid, req.Conv
		err = s.g.committer.submit(&outgoing{msg: m, done: func(a tidings.Answer, err error) { s.sent(rid, conv, a, err) }})
	}
	if err != nil {
		s.answerError(req.Rid, req.T, err)
	}
}

// sent answers a send when it is in the log, or why not.
func (s *session) sent(rid, conv string, a tidings.Answer, err error) {
	if err == nil && a.Code != "" {
		// Without the epoch, which would tell a conversation that is forbidden from one that is absent.
		err = &tidings.Error{Code: a.Code, Message: tidings.Codes[a.Code].When, Seq: a.Seq}
	}
	if err != nil {
		s.answerError(rid, wire.TypeSend, err)
		return
	}
	s.answer(wire.AppendSent(nil, rid, conv, a))
}

// ask lets a request wait for a turn at the database.
func (s *session) ask(req wire.Request) {
	if !s.g.admit() {
		s.answerError(req.Rid, req.T, errBusy)
		return
	}
	s.mu.Lock()
	if s.phase >= closing {
		s.mu.Unlock()
		s.g.waiting.Add(-1)
		return
	}
	s.pending = append(s.pending, req)
	wake := s.wantsStep()
	s.mu.Unlock()
	if wake {
		s.g.readers.do(s.step)
	}
}

// wantsStep counts a turn, which the caller has to start, when a request waits and its answer has room. It needs the lock.
func (s *session) wantsStep() bool {
	if s.steps >= min(stepsAtOnce, len(s.pending)) || s.replies > s.g.cfg.QueueBytes/2 {
		return false
	}
	s.steps++
	return true
}

// step is one turn: one request. The next one of the session waits behind those of others.
func (s *session) step() {
	s.mu.Lock()
	s.steps--
	if len(s.pending) == 0 || s.replies > s.g.cfg.QueueBytes/2 {
		s.mu.Unlock() // the writer makes the next turn when there is room again
		return
	}
	req := s.pending[0]
	if s.pending = s.pending[1:]; len(s.pending) == 0 {
		s.pending = nil
	}
	s.steps++
	s.mu.Unlock()
	s.g.waiting.Add(-1)
	if req.T == wire.TypeOutcome || req.T == wire.TypeRecall { // it waits for whoever holds the conversation: readers must not
		s.g.lockers.do(func() { s.turn(req) })
		return
	}
	s.turn(req)
}

// turn serves the request of a turn and makes the next one.
func (s *session) turn(req wire.Request) {
	if frame, shows, err := s.serve(req); err != nil {
		s.answerError(req.Rid, req.T, err)
	} else {
		s.flight.Add(-1)
		s.queueReply(frame, shows)
	}
	s.mu.Lock()
	s.steps--
	wake := s.wantsStep()
	s.mu.Unlock()
	if wake {
		s.g.readers.do(s.step)
	}
}

// serve asks the database and returns the reply, and which messages it shows.
func (s *session) serve(req wire.Request) (frame []byte, shows *shown, err error) {
	ctx, cancel := s.g.requestContext(s.g.ctx)
	defer cancel()
	st, shows := s.g.cfg.Store, s.asking(&req)
	switch req.T {
	case wire.TypeSync:
		p, err := st.Sync(ctx, s.user, req.Conv, req.Epoch, req.After, req.Limit)
		if err != nil {
			if req.Epoch != 0 && tidings.ErrorCode(err) == tidings.CursorAhead {
				s.g.metrics.ahead.Inc() // whoever is ahead in the current epoch has been told of what is not there
			}
			return nil, nil, err
		}
		page := pageOf(req.Conv, p)
		return wire.AppendEvents(nil, req.Rid, &page), shows.of(page.Events...), nil
	case wire.TypeFetch:
		epoch, event, err := st.Fetch(ctx, s.user, req.Conv, req.Epoch, req.Seq)
		if err != nil {
			return nil, nil, err
		}
		return wire.AppendFetched(nil, req.Rid, epoch, &event), shows.of(event), nil
	case wire.TypeConversations:
		list, more, err := st.Conversations(ctx, s.user, s.device, req.AfterConv, req.Limit)
		if err != nil {
			return nil, nil, err
		}
		for i := range list {
			if list[i].Last != nil {
				shows.of(*list[i].Last)
			}
		}
		return wire.AppendConversations(nil, req.Rid, summariesOf(list), more), shows.of(), nil
	case wire.TypeOutcome:
		o, err := st.Outcome(ctx, req.Conv, s.user, req.Cmid)
		if err != nil {
			return nil, nil, err
		}
		return wire.AppendOutcome(nil, req.Rid, wire.Outcome{Conv: req.Conv, Cmid: req.Cmid, Epoch: o.Epoch, Stored: o.Stored, Seq: o.Seq}), nil, nil
	case wire.TypeRecall:
		frame, err = s.recall(ctx, req)
		return frame, nil, err
	default:
		r, err := st.Read(ctx, s.user, req.Conv, req.Epoch, req.Seq)
		if err != nil {
			return nil, nil, err
		}
		if r.Moved {
			s.g.hub.cursorMoved(s.user, req.Conv, r.Epoch, r.Seq, r.Unread, r.UnreadMore, s)
		}
		return wire.AppendRead(nil, req.Rid, wire.ReadState{Conv: req.Conv, Epoch: r.Epoch, Seq: r.Seq, Unread: r.Unread, UnreadMore: r.UnreadMore}), nil, nil
	}
}

// recall takes a message back and tells of it before it answers.
func (s *session) recall(ctx context.Context, req wire.Request) ([]byte, error) {
	a, err := s.g.cfg.Store.Recall(ctx, store.Recall{Conv: req.Conv, User: s.user, Device: s.device, Cmid: req.Cmid, Epoch: req.Epoch, Target: req.Target}, false)
	if err == nil {
		err = a.Refusal()
	}
	if err != nil {
		return nil, err
	}
	event := tidings.Event{Conv: req.Conv, Seq: a.Seq, Target: req.Target}
	if !a.Dup { // otherwise another device may have asked for it, and after a lost answer nobody may have been told
		event.Kind, event.Sender, event.SDev, event.Cmid, event.At = tidings.KindRecall, s.user, s.device, req.Cmid, a.At
	}
	s.g.hub.committed([]tidings.Event{event}, nil)
	return wire.AppendRecalled(nil, req.Rid, req.Conv, a.Epoch, a.Seq, a.Dup), nil
}

func pageOf(conv string, p store.Page) wire.Page {
	page := wire.Page{Conv: conv, Epoch: p.Epoch, Head: p.Head, MinSeq: p.MinSeq, After: p.After, Events: p.Events, Trimmed: p.Trimmed, More: p.More,
		Withheld: make([]wire.Withheld, len(p.Withheld))}
	for i, w := range p.Withheld {
		page.Withheld[i] = wire.Withheld(w)
	}
	return page
}

func summariesOf(list []store.Summary) []wire.Summary {
	out := make([]wire.Summary, len(list))
	for i, s := range list {
		out[i] = wire.Summary(s)
	}
	return out
}

// ackRequest is an ack on its way to the database.
type ackRequest struct {
	s   *session
	rid string
	ack store.Ack
}

func (s *session) ack(req wire.Request) {
	if !s.g.admit() {
		s.answerError(req.Rid, req.T, errBusy)
		return
	}
	s.g.acks.add(ackRequest{s, req.Rid, store.Ack{Conv: req.Conv, User: s.user, Device: s.device, InstallNo: s.installNo, Epoch: req.Epoch, Seq: req.Seq}})
}

// storeAcks writes the acks of all sessions that have come meanwhile in one batch, and answers each with the stored value.
func (g *Gateway) storeAcks(batch []ackRequest) {
	acks := make([]store.Ack, len(batch))
	for i, a := range batch {
		acks[i] = a.ack
	}
	ctx, cancel := g.requestContext(g.ctx)
	defer cancel()
	acked, err := g.cfg.Store.Ack(ctx, acks)
	g.waiting.Add(-int64(len(batch)))
	for i, a := range batch {
		switch {
		case err != nil:
			a.s.answerError(a.rid, wire.TypeAck, err)
		case acked[i].Code == tidings.InstallReplaced:
			a.s.refuse(a.rid, wire.TypeAck, &tidings.Error{Code: tidings.InstallReplaced, Message: "a newer install of this device is current"}, wire.CloseInstalled)
		case acked[i].Code != "":
			code := acked[i].Code
			a.s.answerError(a.rid, wire.TypeAck, &tidings.Error{Code: code, Message: tidings.Codes[code].When, Epoch: acked[i].Epoch, Head: acked[i].Head})
		default:
			g.hub.acked(a.s, a.ack.Conv, acked[i].Seq)
			a.s.answer(wire.AppendAcked(nil, a.rid, a.ack.Conv, acked[i].Epoch, acked[i].Seq))
		}
	}
}

// errBusy refuses a request because Config.MaxWaiting of them wait.
var errBusy = &tidings.Error{Code: tidings.RateLimited, Message: "the gateway has more to do than it can", RetryAfter: time.Second}

// admit counts a request that will wait, or says that too many do.
func (g *Gateway) admit() bool {
	if g.waiting.Add(1) > int64(g.cfg.MaxWaiting) {
		g.waiting.Add(-1)
		return false
	}
	return true
}
