// What the client knows of one conversation, and what it has to do for it.

package client

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidings-project/tidings/internal/wire"
)

// conversation is what the client knows of one conversation and has to do for it. It is under Client.mu.
type conversation struct {
	conv   string
	follow bool
	away   bool // the server does not know us as a member; a joined begins anew
	isDue  bool // it is in Client.due

	log       log
	resets    int   // how often the log was dropped
	told      int64 // how far Handle has had the log
	telling   int64 // what it is having
	dropped   bool  // Handle has to hear of the new history
	recalls   []int64
	inNews    bool
	unsynced  bool            // nothing is known of this history yet
	doubt     bool            // something spoke of another history
	syncing   bool            // a sync has no answer
	heard     map[int64]int64 // what was spoken of since it was sent, and what its answer may not know of yet: the greatest seq of each history
	syncTries int             // failures in a row
	syncAt    time.Time       // not before
	waiters   []chan error    // of calls of Sync that no request was sent for yet
	served    []chan error    // and of those one was sent for

	queue     []*entry // what is to be sent, in order: recalls first
	flying    int      // of them, how many are under way
	sendTries int
	sendAt    time.Time
	hold      bool     // nothing is sent until everything under way is answered
	suspects  []*entry // sent messages that may be gone

	acked   int64 // the server knows
	acking  bool
	ackedAt time.Time

	wantRead, read int64
	reading        bool
	moved          ReadMoved // the newest one
	movedInNews    bool
}

// conversation returns what is known of conv, which may be nothing. It needs the lock.
func (c *Client) conversation(conv string) *conversation {
	v := c.convs[conv]
	if v == nil {
		v = &conversation{conv: conv, heard: map[int64]int64{}}
		c.convs[conv] = v
		c.begin(v)
	}
	return v
}

// begin asks the application where it follows a conversation from.
func (c *Client) begin(v *conversation) {
	at, yes := Position{}, true
	if c.cfg.Start != nil {
		at, yes = c.cfg.Start(v.conv)
	}
	v.followFrom(at)
	v.follow = yes
}

func (v *conversation) followFrom(at Position) {
	v.follow, v.away, v.unsynced, v.log, v.told, v.telling = true, false, true, newLog(at), at.Seq, 0
}

// hear notes that seq was spoken of in the history epoch.
func (v *conversation) hear(epoch, seq int64) { v.heard[epoch] = max(v.heard[epoch], seq) }

// look puts a conversation among those that may have something to send. It needs the lock.
func (c *Client) look(v *conversation) {
	if !v.isDue {
		v.isDue = true
		c.due = append(c.due, v)
	}
	signal(c.wake)
}

// expect notes that a conversation has reached head in the history epoch.
func (c *Client) expect(v *conversation, epoch, head int64) {
	if !v.follow {
		c.suspect(v, epoch)
		return
	}
	v.hear(epoch, head)
	switch {
	case v.log.epoch == epoch:
		v.log.head = max(v.log.head, head)
	case v.log.epoch != 0: // otherwise a sync is due anyway
		v.doubt = true
	}
	c.look(v)
}

// full tells that so much waits for Handle that no more is taken.
func (c *Client) full(v *conversation) bool { return v.log.cursor-v.told >= int64(c.cfg.Window) }

// wantsSync tells whether a sync would bring something.
func (c *Client) wantsSync(v *conversation) bool {
	return v.follow && !v.syncing && (v.doubt || !c.full(v) && (v.unsynced || v.log.cursor < v.log.head || len(v.waiters)+len(v.served) > 0))
}

// reset forgets a history and expects another one.
func (c *Client) reset(v *conversation, epoch int64) {
	for _, e := range c.box.recent {
		if e.Conv == v.conv && !slices.Contains(v.suspects, e) {
			v.suspects = append(v.suspects, e)
		}
	}
	c.endRecalls(v, epoch)
	v.log, v.told, v.telling, v.acked, v.recalls = newLog(Position{Epoch: epoch}), 0, 0, 0, nil
	v.resets++
	v.unsynced, v.doubt, v.dropped, v.syncTries = true, false, true, 0
	v.read, v.wantRead = 0, 0
	c.tellLog(v)
	c.look(v)
}

// suspect looks for messages that were sent in another history than epoch.
func (c *Client) suspect(v *conversation, epoch int64) {
	for _, e := range c.box.sentTo(v.conv, epoch) {
		if !slices.Contains(v.suspects, e) {
			v.suspects = append(v.suspects, e)
		}
	}
	if len(v.suspects) > 0 {
		c.look(v)
	}
}

// merged follows up on what a push or a page has changed.
func (c *Client) merged(v *conversation, recalled []int64) {
	for _, seq := range recalled {
		if seq <= max(v.told, v.telling) && !slices.Contains(v.recalls, seq) {
			v.recalls = append(v.recalls, seq)
		}
	}
	if c.cfg.Handle == nil {
		v.told, v.recalls, v.dropped = v.log.cursor, nil, false
		v.log.forget(v.told, c.cfg.Keep)
	} else if v.told < v.log.cursor || len(v.recalls) > 0 {
		c.tellLog(v)
	}
	if c.wantsSync(v) || !v.isDue && c.wantsAck(v) { // most pushes bring nothing to say
		c.look(v)
	}
}

// wantsAck tells whether the server has to hear how far the log is stored.
func (c *Client) wantsAck(v *conversation) bool {
	return c.cfg.AckEvery >= 0 && v.follow && !v.acking && !v.unsynced && !v.doubt && v.told > v.acked
}

// enqueue puts an entry into the queue. A recall, whose time is short, does not wait behind messages.
func (v *conversation) enqueue(e *entry) {
	at := len(v.queue)
	if e.recall() {
		if i := slices.IndexFunc(v.queue, func(e *entry) bool { return !e.recall() }); i >= 0 {
			at = i
		}
	}
	v.queue = slices.Insert(v.queue, at, e)
}

// drop takes an entry out of the queue.
func (v *conversation) drop(e *entry) {
	if i := slices.Index(v.queue, e); i >= 0 {
		v.queue = slices.Delete(v.queue, i, i+1)
	}
}

// pause is the time before try number n (from 0) is repeated: anything up to a bound that doubles ("full jitter",
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
func (c *Client) pause(n int) time.Duration {
	limit := c.cfg.BackoffMin << min(n, 20)
	if limit <= 0 || limit > c.cfg.BackoffMax {
		limit = c.cfg.BackoffMax
	}
	return rand.N(limit) + 1
}

// retryAt says when a refused request may be repeated: the server's word comes first.
func (c *Client) retryAt(f *wire.Frame, tries int) time.Time {
	if f.RetryAfterMS > 0 {
		return time.Now().Add(time.Duration(f.RetryAfterMS) * time.Millisecond)
	}
	return time.Now().Add(c.pause(tries))
}
