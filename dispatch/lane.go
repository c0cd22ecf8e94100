// A channel within a worker: its claims and takeovers.

package dispatch

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/store"
)

// lane is a channel within a worker: its slots, its circuit and its place in the queue.
type lane struct {
	w        *Worker
	cfg      Channel
	contract channel.Contract
	claim    store.Lane
	slots    *slots
	circuit  circuit
	woken    chan struct{} // one wake-up; a second one says nothing more
	metrics  laneMetrics
	receipts bool // the provider reports by itself
	loops    int  // that claim beside each other
	atOnce   int  // tasks of one claim at most
}

// manySlots is from where on one claim at a time cannot keep the slots of a fast channel filled.
const manySlots = 256

type claimFunc func(ctx context.Context, l store.Lane, slots int, claimID store.ClaimID) ([]store.Claimed, error)

func newLane(w *Worker, c Channel) *lane {
	l := &lane{w: w, cfg: c, contract: c.Channel.Contract(), slots: newSlots(c.Concurrency), woken: make(chan struct{}, 1), metrics: w.metrics.lane(c.Name),
		loops: 1 + min(c.Concurrency/manySlots, 1),
		// A quarter of many slots: the next claim is on its way while the ends of the last are written, and what a statement costs
		// whatever its size is small beside its rows (250 tasks cost a sixth less each than 125 do).
		atOnce: max(c.Concurrency/4, min(c.Concurrency, 64))}
	_, l.receipts = c.Channel.(channel.ReceiptParser)
	l.claim = store.Lane{Channel: c.Name, Worker: w.cfg.Worker, Renderer: c.Channel.Renderer(), Lease: c.Lease, Timeout: c.Timeout}
	if k := l.contract.Key; k != nil {
		// A call may begin late within its lease, and the key has to be known until it has ended.
		l.claim.KeyWindow = max(0, k.Window-c.Lease)
	}
	if q := l.contract.Query; q != nil {
		l.claim.Query, l.claim.Settle, l.claim.Horizon, l.claim.AbsenceProves = true, q.Settle, q.Horizon, q.AbsenceProves
	}
	return l
}

func (l *lane) wake() {
	select {
	case l.woken <- struct{}{}:
	default: // one is waiting already
	}
}

// claimLoop takes due tasks whenever there are free slots.
func (l *lane) claimLoop(ctx context.Context) {
	var mark store.Watermark
	idle := newPause(5*time.Millisecond, l.w.cfg.PollInterval)
	for {
		free, ok := l.slots.wait(ctx)
		if !ok {
			return
		}
		if l.circuit.wait(time.Now()) > 0 {
			free = 0
		} else {
			free = l.circuit.limit(min(free, l.atOnce))
		}
		if free == 0 {
			l.sleep(ctx, l.w.cfg.PollInterval, false)
			continue
		}
		n, err := l.take(ctx, free, func(ctx context.Context, s store.Lane, slots int, id store.ClaimID) ([]store.Claimed, error) {
			return l.w.store.Claim(ctx, s, slots, id, &mark)
		})
		switch {
		case err != nil:
			l.w.log.Error("cannot claim", "channel", l.cfg.Name, "error", err)
			l.sleep(ctx, idle.next(), false)
		case n == free:
			idle.reset()
		default:
			if n > 0 {
				idle.reset()
			}
			l.sleep(ctx, idle.next(), true)
		}
	}
}

// reclaimLoop takes over expired leases. It looks several times per lease, and not more often than an idle claim does.
func (l *lane) reclaimLoop(ctx context.Context) {
	every := min(max(l.cfg.Lease/10, l.w.cfg.PollInterval), 5*time.Second)
	for {
		if !pauseFor(ctx, every) {
			return
		}
		for {
			free, ok := l.slots.wait(ctx)
			if !ok {
				return
			}
			if l.circuit.wait(time.Now()) > 0 {
				break
			}
			if free = l.circuit.limit(free); free == 0 {
				break
			}
			n, err := l.take(ctx, free, l.w.store.Reclaim)
			if err != nil {
				l.w.log.Error("cannot take over expired leases", "channel", l.cfg.Name, "error", err)
			}
			if err != nil || n < free {
				break
			}
		}
	}
}

func (l *lane) claimAll(ctx context.Context, s store.Lane, slots int, id store.ClaimID) ([]store.Claimed, error) {
	return l.w.store.Claim(ctx, s, slots, id, nil)
}

// take claims up to free tasks and starts their calls, all at once. It returns how many tasks were taken or settled.
func (l *lane) take(ctx context.Context, free int, claim claimFunc) (int, error) {
	if err := l.w.lineage.Lost(); err != nil {
		l.circuit.untried()
		return 0, err
	}
	free = l.slots.acquire(free)
	if free == 0 {
		l.circuit.untried()
		return 0, nil
	}
	var id store.ClaimID
	_, _ = rand.Read(id[:]) // never fails
	sent := time.Now()
	rows, err := claim(ctx, l.claim, free, id)
	l.metrics.claims.Observe(time.Since(sent).Seconds())
	if err != nil {
		if !store.Refused(err) {
			l.release(ctx, id, sent)
		}
		l.slots.release(free)
		l.circuit.untried()
		return 0, err
	}
	calls := rows[:0:0]
	for _, row := range rows {
		if row.State == tidings.Sending {
			calls = append(calls, row)
		} else if row.Stop != "" {
			l.metrics.outcome(row.Stop)
		}
		if row.Lost {
			l.metrics.leasesExpired.Inc()
		}
	}
	l.slots.release(free - len(calls))
	if len(calls) == 0 {
		l.circuit.untried()
	} else {
		l.call(calls, sent)
	}
	return len(rows), nil
}

// release gives back what a claim took whose answer was lost. It tries until it succeeds or the leases have ended.
func (l *lane) release(ctx context.Context, id store.ClaimID, sent time.Time) {
	pause := newPause(50*time.Millisecond, 2*time.Second)
	for time.Since(sent) < l.cfg.Lease {
		n, err := l.w.store.Release(ctx, l.cfg.Name, id)
		if err == nil {
			l.w.log.Warn("a claim's answer was lost; what it took was given back", "channel", l.cfg.Name, "tasks", n)
			return
		}
		if !pauseFor(ctx, pause.next()) {
			break
		}
	}
	l.w.log.Error("a claim's answer was lost and could not be given back: its leases end by themselves", "channel", l.cfg.Name)
}

// sleep waits for d or, when wakeable, for a wake-up; it ends with ctx.
func (l *lane) sleep(ctx context.Context, d time.Duration, wakeable bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	woken := l.woken
	if !wakeable {
		woken = nil
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-woken:
	}
}

// drain waits until no call is open and every end is written down, or ctx ends; it returns how many are still open.
func (l *lane) drain(ctx context.Context) int { return l.slots.idle(ctx) }
