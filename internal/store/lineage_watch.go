// Watches the history that a process serves, and keeps the witness.

package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/outside"
)

const (
	watchEvery   = 500 * time.Millisecond // how often a process looks at its database
	watchWait    = 3 * time.Second        // for a look
	witnessEvery = time.Second
	witnessMost  = 128 // events in a witness
)

// Watch looks at the database every 500 ms until ctx ends, on the first of the pools, and writes the witness at most once a second. It sees what
// no connection ends at: a dump that is restored in place. When the database may not be served any more, the connections
// of all pools are given up; when it may again, Watch notices.
func (m *LineageMemory) Watch(ctx context.Context, pools ...*pgxpool.Pool) {
	var witness sync.WaitGroup
	if m.dir != "" {
		witness.Go(func() { m.keepWitness(ctx) })
	}
	m.watch(ctx, pools[0], func() {
		for _, p := range pools {
			p.Reset()
		}
	})
	witness.Wait()
}

// Observe is Watch for a pool that is an application's and was not prepared: what it notices is in Lost, and nothing else is done about it.
// It returns at once when the pool was prepared for another memory.
func (m *LineageMemory) Observe(ctx context.Context, pool *pgxpool.Pool) {
	m.watch(ctx, pool, func() {})
}

func (m *LineageMemory) watch(ctx context.Context, pool *pgxpool.Pool, broken func()) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for breaks := m.Breaks(); ; {
		if b := m.Breaks(); b != breaks {
			breaks = b
			broken()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-m.doubt:
		}
		if !m.Look(ctx, pool) {
			return
		}
	}
}

// Look judges the database anew, as Watch does all the time. That it cannot be reached is told by those who need it. It says no, and
// judges nothing, when the pool was prepared for another memory.
func (m *LineageMemory) Look(ctx context.Context, pool *pgxpool.Pool) bool {
	ctx, cancel := context.WithTimeout(ctx, watchWait)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return true
	}
	defer conn.Release()
	if other := memoryOf(conn.Conn()); other != nil && other != m {
		return false
	}
	_ = m.judge(ctx, conn.Conn()) // what it comes to is remembered and logged
	return true
}

// keepWitness writes the witness until ctx ends, and then for the last time.
func (m *LineageMemory) keepWitness(ctx context.Context) {
	ticker := time.NewTicker(witnessEvery)
	defer ticker.Stop()
	var written outside.Witness
	failing := false
	for going := true; going; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			going = false
		}
		w := m.testify()
		if w == nil || sameWitness(w, &written) {
			continue
		}
		err := m.writeWitness(w)
		if err == nil {
			written = *w
		} else if !failing {
			m.log.Warn("the witness could not be written; it is tried again", "error", err)
		}
		failing = err != nil
	}
}

// testify is what there is to witness; nil while nothing is served.
func (m *LineageMemory) testify() *outside.Witness {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.known
	if k == nil || k.record == nil || m.refused.Load() != nil {
		return nil
	}
	w := &outside.Witness{SystemIdentifier: k.system, Timeline: k.timeline, LSN: k.at.String(), DatabaseOID: k.database, LogOID: k.log,
		Generation: k.record.generation, RecordedAt: k.record.recorded, Events: []outside.WitnessedEvent{}}
	for _, e := range m.events.all() {
		w.Events = append(w.Events, outside.WitnessedEvent{Conv: e.conv, Epoch: e.epoch, Seq: e.seq, Mid: e.mid, At: e.at})
	}
	return w
}

func sameWitness(a, b *outside.Witness) bool {
	return a.Timeline == b.Timeline && a.LSN == b.LSN && a.Generation == b.Generation && a.RecordedAt.Equal(b.RecordedAt) && slices.Equal(a.Events, b.Events)
}

// writeWitness writes a witness. What the one that is there knows of the same history is kept: it may be another process's.
func (m *LineageMemory) writeWitness(w *outside.Witness) error {
	there, err := outside.ReadWitness(m.dir)
	if err != nil {
		return err
	}
	out := *w
	out.At = time.Now()
	if there != nil {
		old, err := knownOf(there)
		if err != nil {
			return err
		}
		ours, err := knownOf(w)
		if err != nil {
			return err
		}
		switch c := old.record.compare(ours.record); {
		case c > 0:
			return fmt.Errorf("the witness in %s is of a later recovery than the database: it is left as it is", m.dir)
		case c == 0:
			if cmp.Or(cmp.Compare(old.timeline, ours.timeline), cmp.Compare(old.at, ours.at)) > 0 {
				out.Timeline, out.LSN = there.Timeline, there.LSN
			}
			out.Events = joined(there.Events, w.Events)
		}
	}
	return outside.WriteWitness(m.dir, &out)
}

// joined are the newest events of both.
func joined(a, b []outside.WitnessedEvent) []outside.WitnessedEvent {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b outside.WitnessedEvent) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Conv, b.Conv), cmp.Compare(a.Seq, b.Seq))
	})
	all = slices.CompactFunc(all, func(a, b outside.WitnessedEvent) bool { return a.Conv == b.Conv && a.Seq == b.Seq && a.Mid == b.Mid })
	return all[max(0, len(all)-witnessMost):]
}

// readWitness makes the witness, if there is one, the memory of a process that begins.
func (m *LineageMemory) readWitness() error {
	if m.dir == "" {
		return nil
	}
	w, err := outside.ReadWitness(m.dir)
	if err != nil || w == nil {
		return err
	}
	if m.known, err = knownOf(w); err != nil {
		return err
	}
	m.events.grow(len(w.Events))
	for _, e := range w.Events {
		m.events.put(rememberedEvent{e.Conv, e.Epoch, e.Seq, e.Mid, e.At})
	}
	return nil
}

// knownOf is what a witness knew of the database.
func knownOf(w *outside.Witness) (*known, error) {
	at, err := parseLSN(w.LSN)
	if err != nil {
		return nil, fmt.Errorf("read the witness: %w", err)
	}
	k := &known{place: place{w.SystemIdentifier, w.Timeline, at, w.DatabaseOID, w.LogOID}}
	k.record = &record{k.place, w.Generation, w.RecordedAt}
	return k, nil
}
