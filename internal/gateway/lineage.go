// The end of all sessions when the database's history is no longer the one that they were served.

package gateway

import (
	"context"

	"github.com/tidings-project/tidings/internal/wire"
)

// mayServe tells whether anything may be written to a socket: the lease is held, and what is known of conversations, and waits for
// receivers, is of the history that the database holds.
func (g *Gateway) mayServe() bool {
	m := g.cfg.Lineage
	return g.hub.held.held() && (m == nil || m.Lost() == nil && m.Breaks() == g.given.Load())
}

// watchLineage gives everything up when the database is not served any more, or has another generation: all sockets are closed with
// 4005, and all feeds begin anew. Until that is done nothing is written to a socket and none is taken.
func (g *Gateway) watchLineage(ctx context.Context) {
	m := g.cfg.Lineage
	if m == nil {
		return
	}
	for {
		changed := m.Changed()
		if breaks := m.Breaks(); breaks != g.given.Load() {
			reason := "the database's history has changed"
			if m.Lost() != nil {
				reason = "the database is not served"
			}
			g.hub.restartAll()
			g.hub.forgetAll(wire.CloseLostLease, reason)
			g.roster.each(func(s *session) { s.close(wire.CloseLostLease, reason) }) // those that have said no hello yet, too
			g.given.Store(breaks)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// restartAll has every feed take its position, epoch and memberships anew before it pushes anything more.
func (h *hub) restartAll() {
	for _, f := range h.feeds.all() {
		f.mu.Lock()
		f.restart = true
		h.ready(f)
		f.mu.Unlock()
	}
}

// forgetAll closes all sessions and has them no longer be the newest connections of their devices: how often a device has connected is
// counted in the database, and an older one counts less.
func (h *hub) forgetAll(code int, reason string) {
	for _, u := range h.users.all() {
		for _, a := range u.sessions() {
			a.close(code, reason)
			h.detach(a.session)
		}
	}
}
