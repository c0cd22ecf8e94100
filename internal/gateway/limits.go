// Limits: rates, crews of workers, batches of acks.

package gateway

import (
	"sync"
	"time"
)

// meter counts requests against a rate: a bucket that holds burst of them and is filled by rate each second. It belongs to one
// goroutine.
type meter struct {
	rate, burst float64
	tokens      float64
	at          int64
}

func newMeter(rate float64, burst int, now int64) meter {
	return meter{rate: rate, burst: float64(burst), tokens: float64(burst), at: now}
}

// take counts one request at now. It returns 0, or after how long the next one will be taken.
func (m *meter) take(now int64) time.Duration {
	m.tokens = min(m.burst, m.tokens+float64(now-m.at)/float64(time.Second)*m.rate)
	m.at = now
	if m.tokens >= 1 {
		m.tokens--
		return 0
	}
	return time.Duration((1 - m.tokens) / m.rate * float64(time.Second))
}

// crew runs jobs on at most size goroutines, first come, first served. A goroutine ends when nothing waits. Its queue has no bound
// of its own: who hands jobs in has one (a session two turns and one hello or refresh, sessions are limited).
type crew struct {
	size  int
	owner *sync.WaitGroup

	mu      sync.Mutex
	jobs    []func()
	workers int
}

func (c *crew) do(job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
	if c.workers < c.size {
		c.workers++
		c.owner.Go(c.work)
	}
}

func (c *crew) work() {
	for {
		c.mu.Lock()
		if len(c.jobs) == 0 {
			c.workers--
			c.jobs = nil
			c.mu.Unlock()
			return
		}
		job := c.jobs[0]
		c.jobs[0] = nil
		c.jobs = c.jobs[1:]
		c.mu.Unlock()
		job()
	}
}

// batcher hands what is added to do, all that has come meanwhile at a time, and one batch at a time.
type batcher[T any] struct {
	do    func([]T)
	owner *sync.WaitGroup

	mu      sync.Mutex
	waiting []T
	busy    bool
}

// largestBatch is how many of them do gets at most.
const largestBatch = 512

func (b *batcher[T]) add(one T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, one)
	if !b.busy {
		b.busy = true
		b.owner.Go(b.run)
	}
}

func (b *batcher[T]) run() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), largestBatch)
		batch := b.waiting[:n:n]
		if b.waiting = b.waiting[n:]; n == 0 {
			b.waiting, b.busy = nil, false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.do(batch)
	}
}
