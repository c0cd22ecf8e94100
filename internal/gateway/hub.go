// The hub: what runs in it, and its doors to the committer, the sessions and the bus.

package gateway

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// hubConfig is what a hub needs. Durations of 0 are the defaults.
type hubConfig struct {
	gateway string // the id of this gateway; a process that starts anew may keep it
	store   *store.Store
	bus     *bus.Bus // the hub runs it
	log     *slog.Logger

	leaseFor     time.Duration // how long a gateway that says nothing keeps its routes (15 s); renewed every third of it
	compareEvery time.Duration // in which time every position and membership is compared with the database (60 s)
	lagAfter     time.Duration // how long a device may leave a pushed event unacknowledged before its first `lag` (5 s)
}

const (
	feedReaders = 4               // feeds that are read and fanned out at a time
	queryWait   = 3 * time.Second // for an answer of the database to a question of the hub's own
)

// hub knows the local sessions, feeds them with the events of their conversations, and keeps the gateway's routes and lease.
//
// Locks are taken in the order feed.mu, a shard of users or feeds, user.mu, and no query runs under any of them.
type hub struct {
	hubConfig
	held *lease

	users shards[*user] // those with local sessions, by id
	feeds shards[*feed] // by conversation
	queue feedQueue     // feeds with something to do
	moved moved         // feeds whose devices have to be looked at for lag

	recalls atomic.Uint64 // counts what makes feed.recalledAt move

	idle    todo[*user]       // users whose last session ended
	closing todo[store.Route] // routes of sessions that ended
	joins   joins             // users of whom a wake-up said that they joined an unknown conversation
	failed  todo[*feed]       // feeds that could not be read

	behind, walk, woken signal                       // catch up with heads; with memberships; posted events wait
	orphans             map[tidings.UUID]store.Route // of keepLease: routes without a session at its last look
	heard               chan struct{}
	hearOnce            sync.Once
}

func newHub(cfg hubConfig) *hub {
	orDefault := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orDefault(&cfg.leaseFor, 15*time.Second)
	orDefault(&cfg.compareEvery, 60*time.Second)
	orDefault(&cfg.lagAfter, 5*time.Second)
	h := &hub{hubConfig: cfg, held: newLease(), users: newShards[*user](), feeds: newShards[*feed](), heard: make(chan struct{}),
		behind: newSignal(), walk: newSignal(), woken: newSignal()}
	h.queue.init()
	h.idle.init()
	h.closing.init()
	h.failed.init()
	h.joins.init()
	return h
}

// run keeps the hub working until ctx ends, and then gives up the lease and the routes. Sessions are subscribed only while it
// runs; ready is called once, when the lease is held and the bus is heard.
func (h *hub) run(ctx context.Context, ready func()) {
	var parts, listening sync.WaitGroup
	hearing, deafen := context.WithCancel(context.WithoutCancel(ctx))
	defer deafen()
	listening.Go(func() { h.bus.Run(hearing, bus.Handler{Heard: h.hear, CatchUp: h.catchUp, Woken: h.woken.give}) })
	for range feedReaders {
		parts.Go(func() { h.readFeeds(ctx) })
	}
	for _, part := range []func(context.Context){h.reapUsers, h.closeRoutes, h.joinUsers, h.retryFeeds, h.catchUpHeads, h.walkMembers,
		h.compareSlices, h.hintLag, h.drainPosted, h.expectGateways, h.watchLease, h.sweep, func(ctx context.Context) { h.keepLease(ctx, ready) }} {
		parts.Go(func() { part(ctx) })
	}
	<-ctx.Done()
	h.queue.stop()
	parts.Wait()
	h.leave()
	deafen() // says goodbye after the last wake-up
	listening.Wait()
}

// subscribe makes the session receive the events of its user's conversations. An older session of the same device is closed
// with 4404; when the session is itself the older one, it is. After an error the session is not subscribed.
func (h *hub) subscribe(ctx context.Context, s *session) error {
	u := h.attach(s)
	if u == nil {
		s.close(wire.CloseReplaced, "the device has a newer connection")
		return nil
	}
	if err := h.load(ctx, u); err != nil {
		h.detach(s)
		return err
	}
	return nil
}

// unsubscribe ends that and removes the session's route in the background. It never blocks and may be called twice, and also for
// a session that has a route but was never subscribed.
func (h *hub) unsubscribe(s *session) {
	h.detach(s)
	if !s.connection.IsZero() && s.version > 0 {
		h.closing.add(h.route(s))
	}
}

// committed takes events that this gateway has just stored, in the order of their seqs per conversation: they go to local
// sessions at once and other gateways are told. One without a kind says only that the log reaches so far: its content may have changed
// since it was stored, and is read. See session.push for l.
func (h *hub) committed(events []tidings.Event, l *late) {
	wakes := make([]bus.Wake, 0, len(events))
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Conv == events[0].Conv {
			n++
		}
		wake := bus.Wake{Conv: events[0].Conv, Head: events[n-1].Seq}
		if f, ok := h.feeds.get(wake.Conv); ok {
			wake.Epoch = h.offer(f, events[:n], l)
		}
		wakes = append(wakes, wake)
		events = events[n:]
	}
	h.bus.Publish(wakes...)
}

// cursorMoved tells the user's other sessions, here and elsewhere, how far the user has read. except is the session that
// already has it as a reply, or nil.
func (h *hub) cursorMoved(user, conv string, epoch, read, unread int64, more bool, except *session) {
	c := bus.Cursor{User: user, Conv: conv, Epoch: epoch, Read: read, Unread: unread, More: more}
	h.pushCursor(&c, except)
	h.bus.Tell(bus.Item{Cursor: &c})
}

func (h *hub) pushCursor(c *bus.Cursor, except *session) {
	for _, s := range h.sessionsOf(c.User) {
		if s != except {
			s.send(wire.AppendCursor(nil, wire.ReadState{Conv: c.Conv, Epoch: c.Epoch, Seq: c.Read, Unread: c.Unread, UnreadMore: c.More}))
		}
	}
}

// hear takes what another gateway told.
func (h *hub) hear(items []bus.Item) {
	for _, i := range items {
		switch {
		case i.Wake != nil:
			h.wake(i.Wake)
		case i.Cursor != nil:
			h.pushCursor(i.Cursor, nil)
		case i.Displaced != nil:
			if i.Displaced.Gateway == h.gateway {
				h.displace(i.Displaced.User, i.Displaced.Connection)
			}
		}
	}
}

// wake takes that a conversation has grown.
func (h *hub) wake(w *bus.Wake) {
	if h.aim(w.Conv, w.Epoch, w.Head) {
		return // its feed reads the joins
	}
	for _, name := range w.Joined {
		if u, ok := h.users.get(name); ok {
			h.joins.add(w.Conv, u)
		}
	}
}

// catchUp is called by the bus when wake-ups may have been lost. A silent sender is caught up with again and again; memberships
// are walked through the first time, and when it is over.
func (h *hub) catchUp(_ string, again bool) {
	h.hearOnce.Do(func() { close(h.heard) })
	h.behind.give()
	if !again {
		h.walk.give()
	}
}
