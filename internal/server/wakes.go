// Tells workers and gateways that something is due.

package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/outbox"
)

const wakeTimeout = 2 * time.Second

// wakes tells the workers that something is due. However many requests ask, one NOTIFY is on its way at a time and at most one
// more follows: each takes a lock of the whole database cluster.
type wakes struct {
	store *store.Store
	log   *slog.Logger
	due   chan struct{} // one; a second one says nothing more
}

func newWakes(s *store.Store, log *slog.Logger) *wakes {
	return &wakes{store: s, log: log, due: make(chan struct{}, 1)}
}

func (w *wakes) wake() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// run sends wake-ups until ctx ends. A lost one costs a worker's polling interval.
func (w *wakes) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.due:
		}
		sending, cancel := context.WithTimeout(ctx, wakeTimeout)
		if err := outbox.Wake(sending, w.store.Pool()); err != nil && ctx.Err() == nil {
			w.log.Warn("the workers were not woken; they poll", "error", err)
		}
		cancel()
	}
}
