// A conversation with local members: position, seats, and the offering of events to them.

package gateway

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

const (
	inlineSeats = 64            // a feed with more is fanned out by a reader, not by the committer
	maxPending  = 256           // events that wait for a reader; what is beyond is read from the log
	undecided   = math.MaxInt64 // the from of a seat whose interval is not known at the feed's position
)

// feed is a conversation that has local sessions. It has a position in the log, and the seats of its local members are their
// memberships exactly there: they change with the joins and leaves that the feed passes.
type feed struct {
	conv       string
	recalledAt atomic.Uint64 // what hub.recalls was when something here was last taken back; see shown

	mu        sync.Mutex
	epoch     int64
	pos       int64  // every event up to here was offered, or hinted at by `lag`
	target    int64  // the log reaches at least so far
	lastLeave int64  // up to here somebody may have left
	seats     []seat // in the order of their users' ids
	pending   []tidings.Event
	offered   offered
	busy      bool // it waits for a reader or a reader has it: nobody else moves it
	restart   bool // position and memberships have to be taken anew
	stirred   bool // it is in hub.moved
	lingers   bool // somebody has left with events of it in a queue, of which a recall may yet come
	dead      bool // it is no longer in hub.feeds
}

// seat is a user's open interval.
type seat struct {
	u    *user
	from int64 // the join
}

// find is where the user's seat is or would be.
func (f *feed) find(id string) (int, bool) {
	return slices.BinarySearchFunc(f.seats, id, func(s seat, id string) int { return strings.Compare(s.u.id, id) })
}

// seat gives a user a seat and says whether it is a new one.
func (f *feed) seat(u *user, from int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone {
		return false
	}
	i, found := f.find(u.id)
	switch {
	case !found:
		f.seats = slices.Insert(f.seats, i, seat{u, from})
	case f.seats[i].u != u: // of the same user when it was here before
		f.seats[i] = seat{u, from}
	case f.seats[i].from == undecided || from == undecided:
		f.seats[i].from = from
		return false
	default:
		f.seats[i].from = max(f.seats[i].from, from)
		return false
	}
	u.feeds = append(u.feeds, f)
	return true
}

// unseat takes a user's seat and says whether there was one.
func (f *feed) unseat(u *user) bool {
	i, found := f.find(u.id)
	if !found || f.seats[i].u != u {
		return false
	}
	f.seats = slices.Delete(f.seats, i, i+1)
	f.lingers = f.lingers || len(u.sessions()) > 0
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.feeds, f); i >= 0 {
		u.feeds = slices.Delete(u.feeds, i, i+1)
	}
	for _, a := range u.sessions() {
		delete(a.marks, f.conv)
	}
	return true
}

// feed is the conversation's feed, made at the given position if there is none.
func (h *hub) feed(conv string, epoch, pos int64) (f *feed, made bool) {
	h.feeds.do(conv, func(m map[string]*feed) {
		if f = m[conv]; f == nil {
			f, made = &feed{conv: strings.Clone(conv), epoch: epoch, pos: pos, target: pos, lastLeave: pos}, true
			f.recalledAt.Store(h.recalls.Add(1)) // it does not know of what was before
			m[f.conv] = f
		}
	})
	return f, made
}

// idle says that nobody needs to hear of the conversation. Those who have left keep what waits in their queues, as long as it is not
// recalled.
func (f *feed) idle() bool { return len(f.seats) == 0 && !f.lingers }

// retire ends a feed that nobody needs. It needs f.mu, as ready, deliver and unseat do.
func (h *hub) retire(f *feed) {
	if f.dead || f.busy || !f.idle() {
		return
	}
	f.dead = true
	h.feeds.do(f.conv, func(m map[string]*feed) {
		if m[f.conv] == f {
			delete(m, f.conv)
		}
	})
}

// ready hands the feed to a reader if there is something to do.
func (h *hub) ready(f *feed) {
	if !f.busy && !f.dead && (f.restart || f.target > f.pos) {
		f.busy = true
		h.queue.add(f)
	}
}

// placed is what place did.
type placed struct {
	made  bool // the feed is new: see settle
	stale bool // no seat was given: the feed has passed leaves that the snapshot does not know
	fresh bool // the seat is new
}

// place gives a user the seat of an open interval that was read in a snapshot with the head i.Head. A new feed begins at pos. With
// force a stale snapshot gives an undecided seat, and the feed is restarted to decide it.
func (h *hub) place(u *user, i *store.Interval, pos int64, force bool) (p placed) {
	for {
		f, made := h.feed(i.Conv, i.Epoch, pos)
		f.mu.Lock()
		if f.dead {
			f.mu.Unlock()
			continue
		}
		p.made = made
		from := i.JoinSeq
		switch p.stale = f.epoch != i.Epoch || f.pos > i.Head && f.lastLeave > i.Head; {
		case !p.stale:
			f.target = max(f.target, i.Head)
		case force:
			p.stale, f.restart, from = false, true, undecided
		}
		if !p.stale {
			p.fresh = f.seat(u, from)
			h.ready(f)
		}
		h.retire(f)
		f.mu.Unlock()
		return p
	}
}

// aim tells a feed how far its log reaches, 0 as epoch being any. It says whether there is a feed.
func (h *hub) aim(conv string, epoch, head int64) bool {
	f, ok := h.feeds.get(conv)
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch != 0 && epoch != f.epoch {
		f.restart = true
	} else {
		f.target = max(f.target, head)
	}
	h.ready(f)
	return !f.dead
}

// offer takes events that were stored here and returns the feed's epoch. Those that continue what the feed has offered are pushed at
// once when the feed is small. The others wait for a reader: what was stored between them elsewhere may be a leave. What a recall takes
// back is not written from here on, although the turn of the recall itself may come later. See session.push for l.
func (h *hub) offer(f *feed, events []tidings.Event, l *late) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.busy && !f.restart && len(f.seats) <= inlineSeats {
		for len(events) > 0 && events[0].Seq == f.pos+1 && events[0].Kind != "" {
			h.deliver(f, &events[0], l)
			events = events[1:]
		}
	}
	for i := range events {
		e := &events[i]
		if e.Target != 0 {
			h.takeBack(f, e.Target)
		}
		switch {
		case e.Kind == "" || e.Seq <= f.pos: // it is read, or was
		case len(f.pending) < maxPending || e.Kind == tidings.KindRecall && f.makeRoom():
			f.pending = append(f.pending, *e)
		}
		f.target = max(f.target, e.Seq)
	}
	h.ready(f) // it may have been told of more, too
	h.retire(f)
	return f.epoch
}

// takeBack has nobody get the body of a recalled message from here any more: not of what is queued, nor of what waits to be.
func (h *hub) takeBack(f *feed, seq int64) {
	f.recalledAt.Store(h.recalls.Add(1))
	f.offered.void(seq)
	for i := range f.pending {
		if e := &f.pending[i]; e.Seq == seq {
			*e = emptied(e)
		}
	}
}

// emptied is a message as it is when it was recalled.
func emptied(e *tidings.Event) tidings.Event {
	empty := *e
	empty.Recalled, empty.Body, empty.Data = true, nil, nil
	return empty
}

// makeRoom makes room for one more recall: the newest event that is none is read from the log. Where all are recalls, of which none may
// be forgotten, the feed begins anew behind them. It says yes or no.
func (f *feed) makeRoom() bool {
	for i := len(f.pending) - 1; i >= 0; i-- {
		if f.pending[i].Kind != tidings.KindRecall {
			f.pending = slices.Delete(f.pending, i, i+1)
			return true
		}
	}
	f.pending, f.restart = nil, true
	return false
}

// recalled tells whether a recall of the event waits for its turn.
func (f *feed) recalled(seq int64) bool {
	for i := range f.pending {
		if e := &f.pending[i]; e.Kind == tidings.KindRecall && e.Target == seq {
			return true
		}
	}
	return false
}

// deliver passes one event, the next of the log, and pushes it to those who are members there; see session.push for l.
func (h *hub) deliver(f *feed, e *tidings.Event, l *late) {
	f.pos = e.Seq
	f.target = max(f.target, e.Seq)
	switch e.Kind {
	case tidings.KindJoin:
		if u, ok := h.users.get(e.Sender); ok && f.seat(u, e.Seq) {
			u.send(func() []byte { return wire.AppendJoined(nil, f.conv, f.epoch, e.Seq) })
		}
	case tidings.KindMsg:
		if e.Body != nil && f.recalled(e.Seq) {
			empty := emptied(e)
			e = &empty
		}
	case tidings.KindRecall:
		h.takeBack(f, e.Target) // before the recall is offered
	}
	if len(f.seats) > 0 {
		shared := newEntry(e.Seq, wire.AppendEvent(nil, f.epoch, e))
		for _, s := range f.seats {
			if s.from <= e.Seq {
				for _, a := range s.u.sessions() {
					a.push(shared, l)
				}
			}
		}
		if e.Body != nil {
			f.offered.add(shared)
		}
		h.moved.add(f)
	}
	if e.Kind == tidings.KindLeave {
		f.lastLeave = e.Seq
		// An interval that begins later is one that the user came back to.
		if i, found := f.find(e.Sender); found && (f.seats[i].from <= e.Seq) {
			u := f.seats[i].u
			f.unseat(u)
			u.send(func() []byte { return wire.AppendLeft(nil, f.conv, f.epoch, e.Seq) })
		}
	}
}
