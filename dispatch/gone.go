// Switches off addresses that no longer exist.

package dispatch

import (
	"context"
	"log/slog"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// goneQueue is how many addresses may wait to be switched off. More are forgotten: the next message to one finds out again.
const goneQueue = 1024

// goneAddress is an address that its provider says no longer exists.
type goneAddress struct {
	task                tidings.UUID
	user, channel, slot string
	version             int64
}

// gone switches such addresses off, one after the other and apart from the attempts that found them: somebody may hold the
// preference's row.
type gone struct {
	store *store.Store
	log   *slog.Logger
	queue chan goneAddress
}

func newGone(s *store.Store, log *slog.Logger) *gone {
	return &gone{store: s, log: log, queue: make(chan goneAddress, goneQueue)}
}

func (g *gone) add(a goneAddress) {
	select {
	case g.queue <- a:
	default:
		g.log.Warn("too many addresses are gone at once; one is left switched on", "channel", a.channel, "task", a.task)
	}
}

// run works until ctx ends, and then on what waits.
func (g *gone) run(ctx context.Context) {
	for {
		select {
		case a := <-g.queue:
			g.switchOff(ctx, a)
			continue
		default:
		}
		select {
		case a := <-g.queue:
			g.switchOff(ctx, a)
		case <-ctx.Done():
			if len(g.queue) == 0 {
				return
			}
		}
	}
}

// switchOff does it unless the preference was changed since the address was taken from it.
func (g *gone) switchOff(ctx context.Context, a goneAddress) {
	if _, err := g.store.DisableAddress(ctx, a.user, a.channel, a.slot, a.version); err != nil {
		g.log.Error("cannot switch off an address that is gone", "channel", a.channel, "task", a.task, "error", err)
	}
}
