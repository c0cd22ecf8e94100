// Feeds that read the log.

package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

const (
	logPage    = 100                    // events of one read of the log
	farBehind  = 1000                   // a feed that is further behind jumps to the head, and `lag` tells its sessions
	retryAfter = 500 * time.Millisecond // a feed that could not be read is tried again
)

// feedQueue holds the feeds with something to do, each once.
type feedQueue struct {
	mu      sync.Mutex
	some    sync.Cond
	list    []*feed
	stopped bool
}

func (q *feedQueue) init() { q.some.L = &q.mu }

func (q *feedQueue) add(f *feed) {
	q.mu.Lock()
	q.list = append(q.list, f)
	q.mu.Unlock()
	q.some.Signal()
}

// next waits for a feed; nil when the queue was stopped.
func (q *feedQueue) next() *feed {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.stopped {
		q.some.Wait()
	}
	if q.stopped {
		return nil
	}
	f := q.list[0]
	q.list[0] = nil
	q.list = q.list[1:]
	return f
}

func (q *feedQueue) stop() {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	q.some.Broadcast()
}

// readFeeds is one reader: a feed that it has taken is moved by nobody else.
func (h *hub) readFeeds(ctx context.Context) {
	for f := h.queue.next(); f != nil; f = h.queue.next() {
		if err := h.advance(ctx, f); err != nil && ctx.Err() == nil {
			h.log.Warn("a conversation could not be read; it is tried again", "conversation", f.conv, "error", err)
			h.failed.add(f)
		}
	}
}

// retryFeeds gives feeds that could not be read back to the readers.
func (h *hub) retryFeeds(ctx context.Context) {
	for pause(ctx, retryAfter) {
		for _, f := range h.failed.take() {
			h.queue.add(f)
		}
	}
}

// advance moves a feed as far as is known that its log reaches.
func (h *hub) advance(ctx context.Context, f *feed) error {
	for {
		f.mu.Lock()
		again := f.restart
		if !again {
			h.deliverPending(f)
			if f.target <= f.pos || f.idle() && f.pending == nil {
				f.busy = false
				h.retire(f)
				f.mu.Unlock()
				return nil
			}
		}
		epoch, pos, target := f.epoch, f.pos, f.target
		f.mu.Unlock()
		if again {
			if err := h.restart(ctx, f); err != nil {
				return err
			}
			continue
		}
		asking, cancel := context.WithTimeout(ctx, queryWait)
		epochNow, head, events, err := h.store.Log(asking, f.conv, epoch, pos, logPage)
		cancel()
		if err != nil && tidings.ErrorCode(err) != tidings.NotFound {
			return err
		}
		f.mu.Lock()
		switch {
		case err != nil, epochNow != epoch, head < pos, head-pos > farBehind, head > pos && (len(events) == 0 || events[0].Seq != pos+1):
			f.restart = true // another history, too much, or purged before it was read: with the joins and leaves in it
		case f.target == target:
			f.target = head
		}
		f.mu.Unlock()
		for i := range events {
			f.mu.Lock()
			if !f.restart {
				h.deliver(f, &events[i], nil)
			}
			f.mu.Unlock()
		}
	}
}

// deliverPending delivers what the committer has left, as far as it continues the feed's position.
func (h *hub) deliverPending(f *feed) {
	for len(f.pending) > 0 && f.pending[0].Seq <= f.pos+1 { // what is before a later one was stored elsewhere
		e := f.pending[0]
		f.pending[0], f.pending = tidings.Event{}, f.pending[1:]
		if e.Seq == f.pos+1 {
			h.deliver(f, &e, nil)
		}
	}
	if len(f.pending) == 0 {
		f.pending = nil
	}
}

// restart takes a feed's position and memberships anew, from one snapshot, and tells its sessions by `lag` that there may be more
// than was pushed. Everything that is still queued is voided: a recall of it may have been skipped.
func (h *hub) restart(ctx context.Context, f *feed) error {
	f.mu.Lock()
	f.restart = false // whoever wants another one from here on gets it
	asked := make(map[*user]bool, len(f.seats))
	ids := make([]string, len(f.seats))
	for i, s := range f.seats {
		asked[s.u], ids[i] = true, s.u.id
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	head, epoch, intervals, err := h.store.MembersAmong(ctx, f.conv, ids)
	if err != nil && tidings.ErrorCode(err) != tidings.NotFound && tidings.ErrorCode(err) != tidings.NotMember {
		f.mu.Lock()
		f.restart = true
		f.mu.Unlock()
		return err
	}
	joined := make(map[string]int64, len(intervals))
	for _, i := range intervals {
		if i.LeaveSeq == nil {
			joined[i.User] = i.JoinSeq
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != epoch {
		f.target, f.pending = head, nil
	}
	f.recalledAt.Store(h.recalls.Add(1))
	f.offered.voidAll()
	f.epoch, f.pos, f.lastLeave, f.target = epoch, head, head, max(f.target, head)
	var left []*user
	for i := range f.seats {
		switch s := &f.seats[i]; {
		case !asked[s.u]: // it came while the question was asked
			s.from, f.restart = undecided, true
		case joined[s.u.id] > 0:
			s.from = joined[s.u.id]
			s.u.send(func() []byte { return wire.AppendLag(nil, f.conv, epoch, head) })
		default:
			left = append(left, s.u)
		}
	}
	for _, u := range left {
		f.unseat(u)
		u.send(func() []byte { return wire.AppendLeft(nil, f.conv, epoch, head) })
	}
	return nil
}
