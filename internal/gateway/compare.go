// Compares positions and memberships with the database: the net below lost wake-ups.

package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// headsSlice is how many positions one query reads.
const headsSlice = 500

// catchUpHeads compares the positions of all feeds with the log whenever wake-ups may have been lost.
func (h *hub) catchUpHeads(ctx context.Context) {
	for h.behind.wait(ctx) {
		h.compareHeads(ctx, h.feeds.all())
	}
}

// walkMembers compares the memberships of all local users whenever a wake-up about a join may have been lost.
func (h *hub) walkMembers(ctx context.Context) {
	for h.walk.wait(ctx) {
		h.compareMembers(ctx, h.users.all())
	}
}

// compareSlices is the net below everything: within compareEvery each position and each membership is compared once.
func (h *hub) compareSlices(ctx context.Context) {
	for i := 0; pause(ctx, h.compareEvery/shardCount); i = (i + 1) % shardCount {
		h.compareMembers(ctx, h.users.part(i))
		feeds := h.feeds.part(i)
		h.compareHeads(ctx, feeds)
		for _, f := range feeds {
			f.mu.Lock()
			if f.offered.forget(); len(f.offered.entries) == 0 {
				f.lingers = false
				h.retire(f)
			}
			f.mu.Unlock()
		}
	}
}

func (h *hub) compareHeads(ctx context.Context, feeds []*feed) {
	for slice := range slices.Chunk(feeds, headsSlice) {
		convs := make([]string, len(slice))
		for i, f := range slice {
			convs[i] = f.conv
		}
		if err := h.aimAll(ctx, convs); err != nil {
			if ctx.Err() == nil {
				h.log.Warn("positions could not be compared; it is tried again", "error", err)
				h.behind.later(ctx)
			}
			return
		}
	}
}

// aimAll tells feeds how far their logs reach.
func (h *hub) aimAll(ctx context.Context, convs []string) error {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	heads, err := h.store.Heads(ctx, convs)
	for _, i := range heads {
		h.aim(i.Conv, i.Epoch, i.Head)
	}
	return err
}

// later gives the signal again after a while in which the database may have come back.
func (s signal) later(ctx context.Context) {
	if pause(ctx, retryAfter) {
		s.give()
	}
}

// usersSlice is of how many users one query reads the memberships.
const usersSlice = 100

func (h *hub) compareMembers(ctx context.Context, users []*user) {
	for slice := range slices.Chunk(users, usersSlice) {
		if err := h.compareUsers(ctx, slice); err != nil {
			if ctx.Err() == nil {
				h.log.Warn("memberships could not be compared; it is tried again", "error", err)
				h.walk.later(ctx)
			}
			return
		}
	}
}

// compareUsers compares the seats of users with the database. What they sit in is read before the database is.
func (h *hub) compareUsers(ctx context.Context, users []*user) error {
	seated := make(map[*user][]*feed, len(users))
	var ids []string
	for _, u := range users {
		u.mu.Lock()
		if u.loaded { // the others are about to be
			seated[u] = slices.Clone(u.feeds)
			ids = append(ids, u.id)
		}
		u.mu.Unlock()
	}
	if len(ids) == 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, queryWait)
	all, err := h.store.MembershipsOf(asking, ids...)
	cancel()
	if err != nil {
		return err
	}
	memberships := make(map[string][]store.Interval, len(ids))
	for _, m := range all {
		memberships[m.User] = append(memberships[m.User], m)
	}
	for u, feeds := range seated {
		if err := h.compareUser(ctx, u, feeds, memberships[u.id]); err != nil {
			return err
		}
	}
	return nil
}

// compareUser compares the seats of a user with the memberships.
func (h *hub) compareUser(ctx context.Context, u *user, seated []*feed, memberships []store.Interval) error {
	var made []string
	is := make(map[string]bool, len(memberships))
	for i := range memberships {
		m := &memberships[i]
		is[m.Conv] = true
		if slices.ContainsFunc(seated, func(f *feed) bool { return f.conv == m.Conv }) {
			continue
		}
		pos := beforeJoin(m.Head, m.JoinSeq)
		p := h.place(u, m, pos, true)
		if p.made {
			made = append(made, m.Conv)
		}
		if p.fresh {
			u.send(func() []byte { return wire.AppendJoined(nil, m.Conv, m.Epoch, m.JoinSeq) })
		}
		if p.fresh && (!p.made || pos == m.Head) { // events since the join were not pushed
			u.send(func() []byte { return wire.AppendLag(nil, m.Conv, m.Epoch, m.Head) })
		}
	}
	for _, f := range seated {
		if !is[f.conv] {
			if err := h.compareSeat(ctx, u, f); err != nil {
				return err
			}
		}
	}
	return h.settle(ctx, made)
}

// compareSeat takes a seat that the database does not know. Usually the feed has yet to read the leave, and is told to.
func (h *hub) compareSeat(ctx context.Context, u *user, f *feed) error {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	head, epoch, in, err := h.store.MembersAmong(ctx, f.conv, []string{u.id})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(in) > 0 || f.dead:
	case epoch != f.epoch:
		f.restart = true
	case f.pos < head:
		f.target = max(f.target, head)
	case f.pos == head && f.unseat(u):
		u.send(func() []byte { return wire.AppendLeft(nil, f.conv, epoch, head) })
	}
	h.ready(f)
	h.retire(f)
	return nil
}

// expectGateways tells the bus which gateways live, so that one of which nothing was ever heard is noticed too.
func (h *hub) expectGateways(ctx context.Context) {
	for pause(ctx, 2*time.Second) {
		asking, cancel := context.WithTimeout(ctx, queryWait)
		all, err := h.store.Gateways(asking)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn("the other gateways could not be looked up; it is tried again", "error", err)
			}
			continue
		}
		all = slices.DeleteFunc(all, func(g store.GatewayState) bool { return g.Left <= 0 })
		alive := make([]string, len(all))
		for i, g := range all {
			alive[i] = g.Gateway
		}
		h.bus.Expect(alive)
	}
}
