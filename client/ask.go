// Requests of the application that wait for an answer: list, fetch, outcome.

package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// maxAsks is how many requests of the application may wait for the connection.
const maxAsks = 1000

// ask is a request of the application. It waits until there is a connection, and is asked again after one that was lost.
type ask struct {
	ctx   context.Context
	req   wire.Request
	reply chan wire.Frame
}

func (c *Client) ask(ctx context.Context, req wire.Request) (wire.Frame, error) {
	a := &ask{ctx: ctx, req: req, reply: make(chan wire.Frame, 1)}
	c.mu.Lock()
	c.asks = slices.DeleteFunc(c.asks, func(a *ask) bool { return a.ctx.Err() != nil })
	if len(c.asks) >= maxAsks {
		c.mu.Unlock()
		return wire.Frame{}, tidings.Errorf(tidings.RateLimited, "%d requests wait for the connection", maxAsks)
	}
	c.asks = append(c.asks, a)
	c.mu.Unlock()
	signal(c.wake)
	select {
	case f := <-a.reply:
		return f, f.Err()
	case <-ctx.Done():
		return wire.Frame{}, tidings.Errorf(tidings.Unavailable, "ask the server (%s): %w", req.T, ctx.Err())
	case <-c.ctx.Done():
		return wire.Frame{}, fmt.Errorf("ask the server (%s): %w", req.T, errClosed)
	}
}

// Outcome is what became of a message of the user.
type Outcome struct {
	Stored string // yes, no (not now: a transmission may still be under way) or purged
	Seq    int64  // of yes and purged
	Epoch  int64
}

// Outcome asks what became of a message of the user, whichever device sent it.
func (c *Client) Outcome(ctx context.Context, conv, cmid string) (Outcome, error) {
	f, err := c.ask(ctx, wire.Request{T: wire.TypeOutcome, Conv: conv, Cmid: cmid})
	return Outcome{f.Stored, f.Seq, f.Epoch}, err
}

// Fetch asks for one event. at.Epoch 0 is the current history.
func (c *Client) Fetch(ctx context.Context, conv string, at Position) (tidings.Event, error) {
	f, err := c.ask(ctx, wire.Request{T: wire.TypeFetch, Conv: conv, Epoch: at.Epoch, Seq: at.Seq})
	if err == nil && f.Event == nil {
		err = fmt.Errorf("fetch an event: the answer has none")
	}
	if err != nil {
		return tidings.Event{}, err
	}
	return *f.Event, nil
}

// Summary is one entry of the user's list of conversations.
type Summary struct {
	Conv       string
	Epoch      int64
	Head       int64 // the newest seq that the user can see
	MinSeq     int64 // the oldest one that is kept
	Delivered  int64 // how far this device has stored the log
	Read       int64 // how far the user has read
	Unread     int64
	UnreadMore bool           // there are more than Unread
	Last       *tidings.Event // the newest event
	At         int64          // when it was stored, in milliseconds since 1970
	Left       bool           // the user is a member no longer
}

// Conversations asks for the whole list, ordered by conv.
func (c *Client) Conversations(ctx context.Context) (list []Summary, err error) {
	for after := ""; ; {
		f, err := c.ask(ctx, wire.Request{T: wire.TypeConversations, AfterConv: after, Limit: wire.MaxPage})
		if err != nil {
			return nil, err
		}
		for _, s := range f.List {
			list = append(list, Summary{s.Conv, s.Epoch, s.Head, s.MinSeq, s.Delivered, s.Read, s.Unread, s.UnreadMore, s.Last, s.At, s.Left})
		}
		if !f.More || len(f.List) == 0 {
			return list, nil
		}
		after = f.List[len(f.List)-1].Conv
	}
}

// Follow follows a conversation from a position on, if it is not followed yet. It does not wait; Sync does.
func (c *Client) Follow(conv string, after Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.conversation(conv)
	if !v.follow {
		v.followFrom(after)
		c.look(v)
	}
}

// Sync follows a conversation, from its beginning if it was not followed, and waits until the copy is as far as the log was at some instant after the call. The
// events come to Handle; it has not had all of them when Sync returns. NOT_MEMBER: the user cannot see such a conversation.
func (c *Client) Sync(ctx context.Context, conv string) error {
	done := make(chan error, 1)
	c.mu.Lock()
	v := c.conversation(conv)
	if !v.follow {
		v.followFrom(Position{})
	}
	v.waiters = append(v.waiters, done)
	c.look(v)
	c.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		is := func(w chan error) bool { return w == done }
		v.waiters, v.served = slices.DeleteFunc(v.waiters, is), slices.DeleteFunc(v.served, is)
		return tidings.Errorf(tidings.Unavailable, "sync %s: %w", conv, ctx.Err())
	case <-c.ctx.Done():
		return errClosed
	}
}

// note writes a line of the outbox that need not be on the disk at once. A file that fails refuses the next message.
func (c *Client) note(l line) error {
	if c.file == nil {
		return nil
	}
	_, err := c.file.append(l)
	return err
}

// tidy rewrites the file of the outbox when most of it is over. One that cannot be rewritten goes on as it is. It keeps the lock,
// so that no note is lost between the state and the new file.
func (c *Client) tidy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file.crowded(len(c.box.waiting) + len(c.box.sent)) {
		_ = c.compact()
	}
}

// compact rewrites the file. It needs the lock.
func (c *Client) compact() error {
	err := c.file.compact(c.outboxState())
	if err == nil {
		c.stained = false
	}
	return err
}

func (c *Client) outboxState() outboxState {
	s := outboxState{User: c.user, Waiting: c.box.list()}
	for _, e := range c.box.recent {
		s.Sent = append(s.Sent, sentEntry{e.Entry, e.sent})
	}
	return s
}
