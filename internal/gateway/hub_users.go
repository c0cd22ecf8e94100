// Users with local sessions, and their seats.

package gateway

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// user is a user with local sessions.
type user struct {
	id       string
	attached atomic.Pointer[[]*attached] // replaced, never changed, so that a fan-out reads it without a lock
	loading  sync.Mutex                  // one session at a time asks for the memberships

	mu     sync.Mutex // for everything below and for what replaces attached
	feeds  []*feed    // where the user has a seat
	loaded bool       // the seats are those of the database; wake-ups and join events keep them so
	gone   bool       // it is no longer in hub.users
}

// attached is a session as the hub sees it.
type attached struct {
	*session
	marks map[string]*mark // how far the device has got, by conversation; under user.mu
}

func (u *user) sessions() []*attached {
	if list := u.attached.Load(); list != nil {
		return *list
	}
	return nil
}

// send gives each session a frame of its own.
func (u *user) send(frame func() []byte) {
	for _, a := range u.sessions() {
		a.send(frame())
	}
}

// attach adds a session to its user. It returns nil if the device has a newer one.
func (h *hub) attach(s *session) (u *user) {
	var older []*attached
	h.users.do(s.user, func(m map[string]*user) {
		if u = m[s.user]; u == nil {
			u = &user{id: s.user}
			m[s.user] = u
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		list := []*attached{{session: s}}
		for _, a := range u.sessions() {
			switch {
			case a.device != s.device:
				list = append(list, a)
			case a.version > s.version:
				list = nil
			default:
				older = append(older, a)
			}
			if list == nil {
				u, older = nil, nil
				return
			}
		}
		u.attached.Store(&list)
	})
	for _, a := range older {
		h.replace(a.session)
	}
	return u
}

// detach removes a session from its user. The user's seats are removed in the background.
func (h *hub) detach(s *session) {
	h.users.do(s.user, func(m map[string]*user) {
		u := m[s.user]
		if u == nil {
			return
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		rest := slices.DeleteFunc(slices.Clone(u.sessions()), func(a *attached) bool { return a.session == s })
		if len(rest) == len(u.sessions()) {
			return
		}
		u.attached.Store(&rest)
		if len(rest) == 0 {
			h.idle.add(u)
		}
	})
}

// sessionsOf are the user's local sessions.
func (h *hub) sessionsOf(id string) []*session {
	u, ok := h.users.get(id)
	if !ok {
		return nil
	}
	list := u.sessions()
	all := make([]*session, len(list))
	for i, a := range list {
		all[i] = a.session
	}
	return all
}

// reapUsers forgets users whose last session has ended, and the feeds that nobody needs any more.
func (h *hub) reapUsers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.idle.due:
		}
		for _, u := range h.idle.take() {
			h.reap(u)
		}
	}
}

func (h *hub) reap(u *user) {
	var feeds []*feed
	h.users.do(u.id, func(m map[string]*user) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.sessions()) > 0 || u.gone {
			return
		}
		u.gone = true
		delete(m, u.id)
		feeds, u.feeds = u.feeds, nil
	})
	for _, f := range feeds {
		f.mu.Lock()
		f.unseat(u)
		h.retire(f)
		f.mu.Unlock()
	}
}

// load gives a user's seats to the feeds, from one snapshot of the memberships.
func (h *hub) load(ctx context.Context, u *user) error {
	u.loading.Lock()
	defer u.loading.Unlock()
	u.mu.Lock()
	loaded := u.loaded
	u.mu.Unlock()
	if loaded {
		return nil
	}
	const tries = 3
	for try := range tries {
		memberships, err := h.store.MembershipsOf(ctx, u.id)
		if err != nil {
			return err
		}
		var made []string
		stale := false
		for i := range memberships {
			p := h.place(u, &memberships[i], memberships[i].Head, try == tries-1)
			stale = stale || p.stale
			if p.made {
				made = append(made, memberships[i].Conv)
			}
		}
		if err := h.settle(ctx, made); err != nil {
			return err
		}
		if !stale {
			break
		}
	}
	u.mu.Lock()
	u.loaded = true
	u.mu.Unlock()
	return nil
}

// settle looks at the heads of conversations whose feeds have just been made: an event that was stored after the snapshot they
// began with, and before they could be woken, was missed.
func (h *hub) settle(ctx context.Context, made []string) error {
	for slice := range slices.Chunk(made, headsSlice) {
		if err := h.aimAll(ctx, slice); err != nil {
			return err
		}
	}
	return nil
}
