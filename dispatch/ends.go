// Writes the ends of attempts down, many at a time.

package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// endsBatch is the largest number of ends that are written down by one statement.
const endsBatch = 1000

// ending is the end of an attempt on its way to the database.
type ending struct {
	store.Finish
	lane *lane
	free bool // the slot becomes free with it
	late bool // the attempt was ended before without its adapter
}

// ends writes the ends of attempts down, together as they arrive and without waiting: what arrives during one flush goes into the next.
// It is bounded by the slots of the lanes, which are held until an end is written.
type ends struct {
	store   *store.Store
	lineage *store.LineageMemory
	log     *slog.Logger
	mu      sync.Mutex
	queue   []ending
	some    chan struct{} // one signal that the queue is not empty
}

func newEnds(s *store.Store, m *store.LineageMemory, log *slog.Logger) *ends {
	return &ends{store: s, lineage: m, log: log, some: make(chan struct{}, 1)}
}

func (e *ends) add(x ending) {
	e.mu.Lock()
	e.queue = append(e.queue, x)
	e.mu.Unlock()
	select {
	case e.some <- struct{}{}:
	default:
	}
}

// run writes until ctx ends; what is queued then is written once more if the database takes it.
func (e *ends) run(ctx context.Context) {
	for {
		select {
		case <-e.some:
			e.flush(ctx)
		case <-ctx.Done():
			e.flush(ctx)
			return
		}
	}
}

// flush writes what is queued. Only when ctx has ended does it give up: such attempts end by their leases.
func (e *ends) flush(ctx context.Context) {
	for {
		e.mu.Lock()
		batch := e.queue
		if len(batch) > endsBatch {
			batch = batch[:endsBatch:endsBatch]
		}
		batch = oncePerAttempt(batch)
		e.queue = e.queue[len(batch):]
		e.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		e.write(ctx, batch)
	}
}

// oncePerAttempt cuts the batch before a late end whose attempt's first end is in it: one statement ends an attempt once.
func oncePerAttempt(batch []ending) []ending {
	for i := range batch {
		if batch[i].late && slices.ContainsFunc(batch[:i], func(x ending) bool { return x.Token == batch[i].Token }) {
			return batch[:i:i]
		}
	}
	return batch
}

// write writes one batch down and gives its slots back, all at once, so that the next claim is as large as what became free.
func (e *ends) write(ctx context.Context, batch []ending) {
	e.persist(ctx, batch)
	free := map[*lane]int{}
	for i := range batch {
		if batch[i].free {
			free[batch[i].lane]++
		}
	}
	for l, n := range free {
		l.slots.release(n)
	}
}

// persist tries until the batch is written, or refused for good, or ctx has ended.
func (e *ends) persist(ctx context.Context, left []ending) {
	wait := newPause(50*time.Millisecond, 2*time.Second)
	for len(left) > 0 {
		err := e.finish(ctx, left)
		if err == nil {
			return
		}
		code := tidings.ErrorCode(err)
		e.log.Error("cannot write down the ends of attempts", "attempts", len(left), "error", err)
		if code == tidings.InvalidArgument || code == tidings.Internal {
			// Something in the batch is refused for good. Alone, each is written or refused by itself.
			if len(left) == 1 {
				e.log.Error("the end of an attempt is refused: its lease will end instead", "task", left[0].ID)
				return
			}
			for i := range left {
				e.persist(ctx, left[i:i+1:i+1])
			}
			return
		}
		if !pauseFor(ctx, wait.next()) {
			e.log.Error("ends of attempts were not written down: their leases end by themselves", "attempts", len(left))
			return
		}
		if code == tidings.OutcomeUnknown {
			left = e.unrecorded(ctx, left)
		}
	}
}

func (e *ends) finish(ctx context.Context, batch []ending) error {
	finishes := make([]store.Finish, len(batch))
	for i := range batch {
		finishes[i] = batch[i].Finish
	}
	err := e.lineage.Lost() // there is nothing left that an end could be written to
	var stale []tidings.UUID
	if err == nil {
		stale, err = e.store.Finish(ctx, finishes)
	}
	if err != nil {
		return err
	}
	for _, token := range stale {
		for i := range batch {
			if batch[i].Token == token {
				batch[i].lane.metrics.stale.Inc()
				e.log.Warn("an attempt was superseded; its observation stands in the journal as late",
					"channel", batch[i].lane.cfg.Name, "task", batch[i].ID, "outcome", batch[i].Verdict.Outcome)
			}
		}
	}
	return nil
}

// unrecorded returns those whose end is not in the journal, after a commit whose answer was lost.
func (e *ends) unrecorded(ctx context.Context, batch []ending) []ending {
	finishes := make([]store.Finish, len(batch))
	for i := range batch {
		finishes[i] = batch[i].Finish
	}
	found, err := e.store.Recorded(ctx, finishes)
	if err != nil {
		return batch // asked again after the next failure; an end that is written twice only repeats itself as late evidence
	}
	recorded := make(map[tidings.UUID]bool, len(found))
	for _, token := range found {
		recorded[token] = true
	}
	var left []ending
	for _, x := range batch {
		// Of a late end the journal cannot tell whether it or the first one is recorded: it is written again.
		if x.late || !recorded[x.Token] {
			left = append(left, x)
		}
	}
	return left
}
