// The gateway's lease: without it nothing is written to a socket.

package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings/internal/wire"
)

// lease is the gateway's right to write to its sessions. Its end is counted from before the statement that renewed it, on the
// monotonic clock: a process that was stopped finds it over before it writes a byte.
type lease struct {
	began    time.Time    // what the deadline is counted from
	until    atomic.Int64 // nanoseconds after began; 0 when not held
	draining atomic.Bool  // to be said with the next renewal
}

func newLease() *lease { return &lease{began: time.Now()} }

// held tells whether the gateway may write. Each write of a session asks first.
func (l *lease) held() bool { return int64(time.Since(l.began)) < l.until.Load() }

// now is the present as extend takes it.
func (l *lease) now() time.Duration { return time.Since(l.began) }

// extend makes the lease end length after from, which was read before the statement that renewed it was sent.
func (l *lease) extend(from, length time.Duration) { l.until.Store(int64(from + length)) }

// drain says with the next renewal that the gateway stops.
func (h *hub) drain() { h.held.draining.Store(true) }

// keepLease renews the lease every third of it. When it is lost and cannot be renewed at once, all sessions are closed with 4005.
func (h *hub) keepLease(ctx context.Context, ready func()) {
	var renewed time.Duration // when the newest renewal was sent
	failing, had := false, false
	for {
		if !h.held.held() || failing || h.held.now()-renewed >= h.leaseFor/3 {
			from := h.held.now()
			err := h.renewLease(ctx, from)
			switch {
			case err == nil && !had:
				had = true
				select {
				case <-ctx.Done():
					return
				case <-h.heard:
					ready()
				}
				fallthrough
			case err == nil:
				renewed = from
			case ctx.Err() == nil && !failing:
				h.log.Warn("the gateway's lease could not be renewed; it is tried again", "error", err)
			}
			failing = err != nil
			if had && failing && !h.held.held() {
				h.closeAll(wire.CloseLostLease, "the gateway lost its lease")
			}
		}
		if !pause(ctx, h.leaseFor/15) {
			return
		}
	}
}

// renewLease renews the lease and looks whether the routes are still this gateway's. A lease that had been lost is held again only
// after that: until then another gateway may have taken the devices.
func (h *hub) renewLease(ctx context.Context, from time.Duration) error {
	renewing, cancel := context.WithTimeout(ctx, h.leaseFor/5)
	defer cancel()
	if err := h.store.RenewLease(renewing, h.gateway, h.leaseFor, h.held.draining.Load()); err != nil {
		return err
	}
	if h.held.held() { // it was renewed before it was over: nobody can have swept
		h.held.extend(from, h.leaseFor)
	}
	// It has a time of its own: a slow renewal must not keep lost routes from being registered again, each time anew.
	checking, cancel := context.WithTimeout(ctx, h.leaseFor/5)
	defer cancel()
	if err := h.checkRoutes(checking); err != nil {
		return err
	}
	h.held.extend(from, h.leaseFor)
	return nil
}

// sweep removes the routes of gateways whose lease has ended. It may wait for locks, and keepLease must not.
func (h *hub) sweep(ctx context.Context) {
	for pause(ctx, h.leaseFor/3) {
		if _, err := h.store.SweepRoutes(ctx); err != nil && ctx.Err() == nil {
			h.log.Warn("the routes of gateways that have ended could not be removed; it is tried again", "error", err)
		}
	}
}

// watchLease closes all sessions when the lease stays lost: a renewal may hang for longer than a failing one. It looks twice, so
// that a process that was stopped has the time to renew.
func (h *hub) watchLease(ctx context.Context) {
	had, lost := false, false
	for pause(ctx, h.leaseFor/5) {
		held := h.held.held()
		if lost && !held {
			h.closeAll(wire.CloseLostLease, "the gateway lost its lease")
		}
		had = had || held
		lost = had && !held
	}
}

// leave gives up the routes and the lease of a gateway that ends.
func (h *hub) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), h.leaseFor/5)
	defer cancel()
	h.held.until.Store(0)
	if err := h.store.EndGateway(ctx, h.gateway); err != nil {
		h.log.Warn("the gateway's routes stay until its lease is over", "error", err)
	}
}
