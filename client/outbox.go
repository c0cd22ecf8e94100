// The outbox in memory: entries and their states.

package client

import (
	"context"
	"slices"
	"time"

	"github.com/tidings-project/tidings"
)

// Entry is a message of the outbox or, when it has a Target, a recall.
type Entry struct {
	Message           // of a recall Conv and Cmid alone
	Target  Position  // of a recall: where the message stands that is taken back
	At      time.Time // when it was queued, by the clock of this machine

	// InDoubt tells, in what Waiting returns, that some transmission has no answer: the server may have the message. One that an
	// earlier process left in the file counts as such, because nobody knows. Without it nothing of the message is stored.
	InDoubt bool
}

// Sent is what the server says of a message that is stored, or of a recall. Mid and At are empty when it was learned by a question,
// and for a recall.
type Sent struct {
	Seq   int64 // of the event; 0 for a recall whose message the server no longer had
	Mid   string
	Epoch int64
	At    int64 // milliseconds since 1970 by the database's clock
	Dup   bool  // an earlier transmission had stored it
}

// Pending is a message or a recall on its way.
type Pending struct {
	Entry
	e *entry
	c *Client
}

// Wait returns the final answer: Sent or the refusal. An entry that the application was Asked about has none until it decides,
// and none has one while the client is offline or Stopped: give Wait a context that ends.
func (p *Pending) Wait(ctx context.Context) (Sent, error) {
	err := errClosed
	select {
	case <-p.e.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.c.ctx.Done():
	}
	select {
	case <-p.e.done: // also when something else has happened at the same time
		return p.e.sent, p.e.err
	default:
		return Sent{}, tidings.Errorf(tidings.OutcomeUnknown, "wait for the answer to %s: %w", p.Cmid, err)
	}
}

type key struct{ conv, cmid string }

// entry is an Entry and what happens to it. Everything is under Client.mu, except what a closed channel protects.
type entry struct {
	Entry
	order   int64
	stored  chan struct{} // closed when the file has it, or has failed
	storing error
	done    chan struct{} // closed at the final answer
	sent    Sent
	err     error

	flying  bool  // a request about it has no answer yet
	doubted bool  // some transmission has no answer, or the answer that it is unknown
	verdict error // a refusal that counts if the server does not have it; outcome is asked first
	asked   bool  // the application decides
	aged    bool  // it was told to send it at any age
}

// recall tells an entry that is a recall from a message.
func (e *Entry) recall() bool { return e.Target.Seq > 0 }

func newEntry(e Entry) *entry {
	return &entry{Entry: e, stored: make(chan struct{}), done: make(chan struct{})}
}

func (e *entry) end(s Sent, err error) {
	e.sent, e.err = s, err
	close(e.done)
}

// resume lets an entry be sent again by the application's will.
func (e *entry) resume() { e.asked, e.aged, e.verdict = false, true, nil }

// maxSent is how many messages that were sent are remembered, so that it is noticed when a restore loses them.
const maxSent = 1000

// outbox is what is to be sent, and the newest of what was. It is under Client.mu.
type outbox struct {
	waiting map[key]*entry
	sent    map[key]*entry
	recent  []*entry // those of sent, oldest first
	untold  int      // ended, and Handle does not know yet
	orders  int64
}

func newOutbox() outbox {
	return outbox{waiting: map[key]*entry{}, sent: map[key]*entry{}}
}

// add takes an entry in. fresh is false when it is there already, waiting or sent.
func (o *outbox) add(one Entry, limit int) (e *entry, fresh bool, err error) {
	k := key{one.Conv, one.Cmid}
	if e = o.waiting[k]; e == nil {
		e = o.sent[k]
	}
	switch {
	case e != nil && (e.Target != one.Target || e.Body != one.Body || string(e.Data) != string(one.Data)):
		return nil, false, tidings.Errorf(tidings.IdempotencyMismatch, "something else has the cmid %s", one.Cmid)
	case e != nil:
		return e, false, nil
	case len(o.waiting)+o.untold >= limit:
		return nil, false, tidings.Errorf(tidings.RateLimited, "the outbox is full: %d entries wait", limit)
	}
	one.Data = slices.Clone(one.Data)
	e = newEntry(one)
	o.put(e)
	return e, true, nil
}

func (o *outbox) put(e *entry) {
	o.orders++
	e.order = o.orders
	o.waiting[key{e.Conv, e.Cmid}] = e
}

func (o *outbox) forget(e *entry) {
	k := key{e.Conv, e.Cmid}
	if o.waiting[k] == e {
		delete(o.waiting, k)
	}
}

// keep remembers a message that was sent.
func (o *outbox) keep(e *entry) {
	o.forget(e)
	o.sent[key{e.Conv, e.Cmid}] = e
	o.recent = append(o.recent, e)
	for len(o.recent) > maxSent {
		o.unkeep(o.recent[0])
	}
}

func (o *outbox) unkeep(e *entry) {
	k := key{e.Conv, e.Cmid}
	if o.sent[k] != e {
		return
	}
	delete(o.sent, k)
	if i := slices.Index(o.recent, e); i >= 0 {
		o.recent = slices.Delete(o.recent, i, i+1)
	}
}

// sentTo are the remembered messages of a conversation which were stored in another history than epoch.
func (o *outbox) sentTo(conv string, epoch int64) (list []*entry) {
	for _, e := range o.recent {
		if e.Conv == conv && e.sent.Epoch != epoch {
			list = append(list, e)
		}
	}
	return list
}

func (o *outbox) inOrder() []*entry {
	list := make([]*entry, 0, len(o.waiting))
	for _, e := range o.waiting {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *entry) int { return int(a.order - b.order) })
	return list
}

func (o *outbox) list() []Entry {
	var list []Entry
	for _, e := range o.inOrder() {
		one := e.Entry
		one.InDoubt = e.doubted || e.flying
		list = append(list, one)
	}
	return list
}

// load takes in what the file had. Nobody knows which of it has been transmitted.
func (c *Client) load(stored outboxState) {
	for i := range stored.Waiting {
		e := newEntry(stored.Waiting[i])
		e.doubted = true
		close(e.stored)
		c.box.put(e)
		v := c.conversation(e.Conv)
		v.enqueue(e)
		c.look(v)
	}
	for _, s := range stored.Sent {
		e := newEntry(s.Entry)
		close(e.stored)
		e.end(s.Sent, nil)
		c.box.keep(e)
	}
}
