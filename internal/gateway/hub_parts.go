// Small parts of the hub: signals, queues, shards.

package gateway

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// signal says that there is something to do; a second one says nothing more.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) give() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// shardCount is how many parts a shards has. A slice of a comparison is one part.
const shardCount = 64

// shards is a map under many locks.
type shards[V any] struct {
	seed  maphash.Seed
	parts *[shardCount]shard[V]
}

type shard[V any] struct {
	mu sync.Mutex
	m  map[string]V
}

func newShards[V any]() shards[V] {
	s := shards[V]{seed: maphash.MakeSeed(), parts: new([shardCount]shard[V])}
	for i := range s.parts {
		s.parts[i].m = map[string]V{}
	}
	return s
}

func (s *shards[V]) get(key string) (v V, ok bool) {
	s.do(key, func(m map[string]V) { v, ok = m[key] })
	return v, ok
}

// do calls fn with the part that key belongs to, under its lock.
func (s *shards[V]) do(key string, fn func(m map[string]V)) {
	part := &s.parts[maphash.String(s.seed, key)%shardCount]
	part.mu.Lock()
	defer part.mu.Unlock()
	fn(part.m)
}

// part is what the i-th part holds.
func (s *shards[V]) part(i int) []V {
	p := &s.parts[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]V, 0, len(p.m))
	for _, v := range p.m {
		all = append(all, v)
	}
	return all
}

// all is what all parts hold, not all at one time.
func (s *shards[V]) all() (all []V) {
	for i := range s.parts {
		all = append(all, s.part(i)...)
	}
	return all
}

// todo is what a goroutine has to do, bounded by what there is: each user, feed and session is in it once or twice.
type todo[V any] struct {
	mu    sync.Mutex
	items []V
	due   signal
}

func (b *todo[V]) init() { b.due = newSignal() }

func (b *todo[V]) add(v ...V) {
	b.mu.Lock()
	b.items = append(b.items, v...)
	b.mu.Unlock()
	b.due.give()
}

func (b *todo[V]) take() []V {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

// pause waits for d and says whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// wait waits for the signal and says whether ctx goes on.
func (s signal) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s:
		return true
	}
}
