// Queues sends by conversation and decides which go into a transaction together.

package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// committerOptions are the committer's limits; a zero field has the default that stands beside it.
type committerOptions struct {
	Committers  int           // 2: batches in flight at once
	SideWorkers int           // 4: busy conversations that are waited for at once
	BatchSize   int           // 256: messages of one transaction
	QueueLen    int           // 8 192: messages that are not answered yet; one conversation may have a quarter of them
	QueueBytes  int           // 64 MiB of them; one conversation may have a quarter
	LockTimeout time.Duration // 5 s: how long after it was set aside a busy conversation's lock is waited for
	Patience    time.Duration // 10 s: a message that waited longer for its turn is given up unsent

	// Observe, if set, is told of each transaction that was committed: how many messages it had and how long the store took.
	Observe func(messages int, took time.Duration)
}

// outgoing is a send on its way to the log.
type outgoing struct {
	msg  tidings.Message
	done func(tidings.Answer, error) // called exactly once, without locks, in commit order of the conversation
}

// sendFunc is store.Store.Send.
type sendFunc func(ctx context.Context, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error)

// committer writes sends to the log in groups, without a timer: who is idle takes what is there, and while a transaction is on its
// way the next one gathers. So a single message on an idle gateway goes at once, and under load the groups grow by themselves.
//
// A conversation has at most one batch in flight, whatever becomes of it: retries, the wait for a lock and a resubmission all
// happen before the next batch of that conversation is taken. That, and first in, first out, is what keeps the order in which a
// connection sent.
type committer struct {
	send      sendFunc
	renew     func() // has the next send go by a new connection
	committed func([]tidings.Event, *late)
	opts      committerOptions

	mu       sync.Mutex
	backlogs map[string]*backlog // the conversations with messages that are not answered
	ready    turns               // those that wait for a committer
	busy     turns               // those that somebody else has locked: they wait for a side worker
	count    int                 // messages that are not answered yet
	bytes    int                 // and their size
	closed   bool                // nothing is accepted any more
}

// backlog is what one conversation has to send. It stands in ready or busy, or a batch of it is in flight.
type backlog struct {
	conv  string
	sends []waiting // in the order of arrival, without those in flight
	count int       // with those in flight
	bytes int
	aside time.Time // when it was last set aside as busy
}

// waiting is a send that is not answered yet.
type waiting struct {
	*outgoing
	since time.Time // when it was submitted
	doubt bool      // a transaction with it was sent and its answer was lost: it may be stored
}

// turns are conversations that wait, first come, first served. Its condition is on the committer's mutex.
type turns struct {
	sync.Cond
	queue []*backlog
}

func (t *turns) push(b *backlog) {
	t.queue = append(t.queue, b)
	t.Signal()
}

func (t *turns) pop() *backlog {
	b := t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	return b
}

// newCommitter makes a committer that writes to st. After each commit it calls committed with the events that were stored, in the
// order of seq within a conversation, and then each message's done. Both run on the committer's goroutines and hold up the
// conversations of the batch: they must not wait for anything. Writers of sessions that committed leaves to late begin after them.
func newCommitter(st *store.Store, committed func([]tidings.Event, *late), opts committerOptions) *committer {
	setDefault(&opts.Committers, 2)
	setDefault(&opts.SideWorkers, 4)
	setDefault(&opts.BatchSize, 256)
	setDefault(&opts.QueueLen, 8192)
	setDefault(&opts.QueueBytes, 64<<20)
	setDefault(&opts.LockTimeout, 5*time.Second)
	setDefault(&opts.Patience, 10*time.Second)
	c := &committer{send: st.Send, renew: st.Pool().Reset, committed: committed, opts: opts, backlogs: map[string]*backlog{}}
	c.ready.L, c.busy.L = &c.mu, &c.mu
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// submit takes a message that was checked, never waits, and calls m.done unless it returns an error: RATE_LIMITED when the
// conversation has its share of the queue, UNAVAILABLE when the queue is full or the committer is stopping.
func (c *committer) submit(m *outgoing) error {
	size := sizeOf(&m.msg)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backlogs[m.msg.Conv]
	if b == nil {
		b = &backlog{conv: m.msg.Conv}
	}
	switch {
	case c.closed:
		return &tidings.Error{Code: tidings.Unavailable, Message: "the gateway is stopping", RetryAfter: time.Second}
	case b.count >= max(1, c.opts.QueueLen/4) || b.bytes+size > c.opts.QueueBytes/4:
		return &tidings.Error{Code: tidings.RateLimited, Message: "too many messages of this conversation wait", RetryAfter: time.Second}
	case c.count >= c.opts.QueueLen || c.bytes+size > c.opts.QueueBytes:
		return &tidings.Error{Code: tidings.Unavailable, Message: "too many messages wait", RetryAfter: time.Second}
	}
	if b.count == 0 {
		c.backlogs[b.conv] = b
		c.ready.push(b)
	}
	b.sends = append(b.sends, waiting{outgoing: m, since: time.Now()})
	b.count, b.bytes = b.count+1, b.bytes+size
	c.count, c.bytes = c.count+1, c.bytes+size
	return nil
}

// sizeOf is what a waiting message counts in QueueBytes: its texts and roughly what surrounds them.
func sizeOf(m *tidings.Message) int {
	return 256 + len(m.Conv) + len(m.Sender) + len(m.Device) + len(m.Cmid) + len(m.Body) + len(m.Data)
}

// run writes until ctx ends, then accepts nothing more, finishes what waits and returns when every done was called. A store that
// fails does not hold it up for longer than Patience and the store's own deadlines.
func (c *committer) run(ctx context.Context) {
	var workers sync.WaitGroup
	work := func(take func() ([]*part, time.Duration)) {
		// A transaction that was begun is finished: stopping in its midst would leave an unknown outcome.
		ctx := context.WithoutCancel(ctx)
		for batch, wait := take(); batch != nil; batch, wait = take() {
			c.commit(ctx, batch, wait)
			c.release(batch)
		}
	}
	for range c.opts.Committers {
		workers.Go(func() { work(c.takeReady) })
	}
	for range c.opts.SideWorkers {
		workers.Go(func() { work(c.takeBusy) })
	}
	<-ctx.Done()
	c.mu.Lock()
	c.closed = true
	c.endIfDone()
	c.mu.Unlock()
	workers.Wait()
}

// endIfDone wakes the workers to end when nothing can come any more. c.mu is held.
func (c *committer) endIfDone() {
	if c.closed && c.count == 0 {
		c.ready.Broadcast()
		c.busy.Broadcast()
	}
}

// part is what a batch has of one conversation.
type part struct {
	of     *backlog
	sends  []waiting // in the order of arrival
	left   []waiting // those that have to be sent once more, in the same order
	locked bool      // the conversation was locked by somebody else
	count  int       // how many were answered
	bytes  int       // and their size
}

// takeReady waits for conversations and takes up to BatchSize messages of them. It returns nil when nothing can come any more.
func (c *committer) takeReady() (batch []*part, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.await(&c.ready) {
		return nil, 0
	}
	for room := c.opts.BatchSize; room > 0 && len(c.ready.queue) > 0; {
		p := c.ready.pop().part(room)
		batch = append(batch, p)
		room -= len(p.sends)
	}
	return batch, 0
}

// takeBusy waits for a busy conversation and takes up to BatchSize messages of it. What is left until LockTimeout is shared with
// those behind it, so that however many are held for long, one that is held for a moment has its turn in time. A turn that comes
// late is short.
func (c *committer) takeBusy() (batch []*part, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.await(&c.busy) {
		return nil, 0
	}
	b := c.busy.pop()
	rounds := 1 + len(c.busy.queue)/c.opts.SideWorkers
	share := (c.opts.LockTimeout - time.Since(b.aside)) / time.Duration(rounds)
	return []*part{b.part(c.opts.BatchSize)}, max(share, c.opts.LockTimeout/shortTurn, time.Millisecond)
}

// shortTurn is the part of LockTimeout that a turn has at least.
const shortTurn = 50

// await waits until there is a turn to take; false: until the end of all work. c.mu is held.
func (c *committer) await(t *turns) bool {
	for len(t.queue) == 0 {
		if c.closed && c.count == 0 {
			return false
		}
		t.Wait()
	}
	return true
}

// part takes the first messages of a backlog, at most room.
func (b *backlog) part(room int) *part {
	n := min(room, len(b.sends))
	p := &part{of: b, sends: b.sends[:n:n]}
	b.sends = b.sends[n:]
	return p
}

// release ends a batch: what is left goes back to the front of its conversation, which waits for its next turn if it has messages.
func (c *committer) release(batch []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range batch {
		b := p.of
		if len(p.left) > 0 {
			b.sends = append(p.left, b.sends...)
		}
		b.count, b.bytes = b.count-p.count, b.bytes-p.bytes
		c.count, c.bytes = c.count-p.count, c.bytes-p.bytes
		switch {
		case len(b.sends) == 0:
			delete(c.backlogs, b.conv)
		case p.locked:
			b.aside = time.Now()
			c.busy.push(b)
		default:
			c.ready.push(b)
		}
	}
	c.endIfDone()
}
