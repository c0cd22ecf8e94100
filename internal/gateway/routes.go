// Which connection a device is at: displaced, orphaned and swept routes.

package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

const closeSlice = 500 // routes that one statement removes

func (h *hub) route(s *session) store.Route {
	return store.Route{User: s.user, Device: s.device, Gateway: h.gateway, Connection: s.connection, Version: s.version}
}

// displaced tells that a newer connection of the device has taken the route of an older one (HelloState.OldGateway and
// OldConnection): the older one is closed with 4404, wherever it is.
func (h *hub) displaced(user, gateway string, connection tidings.UUID) {
	if gateway == h.gateway {
		h.displace(user, connection)
		return
	}
	h.bus.Tell(bus.Item{Displaced: &bus.Displaced{Gateway: gateway, User: user, Connection: connection}})
}

// displace closes a local connection that has lost its route.
func (h *hub) displace(user string, connection tidings.UUID) {
	for _, s := range h.sessionsOf(user) {
		if s.connection == connection {
			h.replace(s)
		}
	}
}

// replace closes a session whose device is served by a newer connection.
func (h *hub) replace(s *session) {
	h.detach(s)
	s.close(wire.CloseReplaced, "the device has a newer connection")
}

// closeAll closes all sessions.
func (h *hub) closeAll(code int, reason string) {
	for _, u := range h.users.all() {
		for _, a := range u.sessions() {
			a.close(code, reason)
		}
	}
}

// closeRoutes removes the routes of sessions that have ended.
func (h *hub) closeRoutes(ctx context.Context) {
	for h.closing.due.wait(ctx) {
		for slice := range slices.Chunk(h.closing.take(), closeSlice) {
			if err := h.store.CloseRoutes(ctx, slice); err != nil {
				h.log.Warn("routes of closed connections could not be removed; it is tried again", "routes", len(slice), "error", err)
				h.closing.add(slice...)
				if !pause(ctx, retryAfter) {
					return
				}
			}
		}
	}
}

// checkRoutes compares this gateway's routes with its sessions, by one aggregate when nothing differs. A session that has lost its
// route gets it back, unless the device has a newer connection: then it is closed. A route without a session is removed when it is
// found so twice in a row: the first time its session may be about to begin.
func (h *hub) checkRoutes(ctx context.Context) error {
	var n, sum int64
	for _, u := range h.users.all() {
		for _, a := range u.sessions() {
			n++
			sum += store.RouteSum(a.connection)
		}
	}
	inDB, sumInDB, err := h.store.RoutesSum(ctx, h.gateway)
	if err != nil || n == inDB && sum == sumInDB {
		h.orphans = nil
		return err
	}
	routes, err := h.store.RoutesOf(ctx, h.gateway)
	if err != nil {
		return err
	}
	left := make(map[tidings.UUID]store.Route, len(routes))
	for _, r := range routes {
		left[r.Connection] = r
	}
	for _, u := range h.users.all() {
		for _, a := range u.sessions() {
			if _, ok := left[a.connection]; ok {
				delete(left, a.connection)
				continue
			}
			if err := ctx.Err(); err != nil { // RegisterRoute has a deadline of its own
				return fmt.Errorf("register routes again: %w", err)
			}
			current, err := h.store.RegisterRoute(ctx, h.route(a.session))
			switch {
			case err != nil:
				return err
			case !current:
				h.replace(a.session)
			}
		}
	}
	var twice []store.Route
	for id, r := range left {
		if _, before := h.orphans[id]; before {
			twice = append(twice, r)
		}
	}
	h.orphans = left
	return h.store.CloseRoutes(ctx, twice)
}
