// Puts events on the bus that others than gateways appended.

package gateway

import (
	"context"
	"time"

	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
)

const (
	postedEvery = 100 * time.Millisecond // between two looks at what applications have posted
	postedPage  = 500
	postedWait  = 2 * time.Second // for the bus to take them
)

// drainPosted tells of events that were appended by other than a gateway. One gateway does it at a time; rows are deleted after
// they are on the bus, so none is skipped however late it was committed.
func (h *hub) drainPosted(ctx context.Context) {
	ticker := time.NewTicker(postedEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-h.woken:
		}
		n, err := h.store.TakePosted(ctx, postedPage, func(posted []store.Posted) error { return h.tell(ctx, posted) })
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			h.log.Warn("posted events could not be told of; it is tried again", "error", err)
		case n == postedPage:
			h.woken.give()
		}
		if failing = err != nil; failing {
			pause(ctx, postedWait) // another gateway has its turn: the bus of this one may be what fails
		}
	}
}

// tell wakes this gateway and the others for posted events.
func (h *hub) tell(ctx context.Context, posted []store.Posted) error {
	var wakes []bus.Wake
	for _, p := range posted { // in the order of conversations
		if len(wakes) == 0 || wakes[len(wakes)-1].Conv != p.Conv {
			wakes = append(wakes, bus.Wake{Conv: p.Conv})
		}
		w := &wakes[len(wakes)-1]
		w.Head = max(w.Head, p.Seq)
		if p.User != "" {
			w.Joined = append(w.Joined, p.User)
		}
	}
	for i := range wakes {
		h.wake(&wakes[i])
	}
	h.bus.Publish(wakes...)
	ctx, cancel := context.WithTimeout(ctx, postedWait)
	defer cancel()
	return h.bus.Flush(ctx)
}
