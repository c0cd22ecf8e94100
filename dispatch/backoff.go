// Delays before retries, and the circuit that stops claims.

package dispatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// backoff is how long the n-th attempt waits: a random time up to base × 2^(n−1), at most up to limit ("full jitter"), so that tasks
// that failed together do not come back together.
func backoff(base, limit time.Duration, n int) time.Duration {
	ceiling := limit
	if shift := max(n-1, 0); shift < 32 && base<<shift > 0 {
		ceiling = min(limit, base<<shift)
	}
	return rand.N(ceiling) + time.Millisecond
}

// pause grows from one wait to the next.
type pause struct{ first, now, most time.Duration }

func newPause(first, most time.Duration) *pause { return &pause{first: first, now: first, most: most} }

func (p *pause) next() time.Duration {
	d := min(p.now, p.most)
	p.now = min(2*p.now, p.most)
	return d
}

func (p *pause) reset() { p.now = p.first }

// pauseFor waits for d; false when ctx ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// The circuit opens after this many calls in a row that could not be started, for a time that grows from first to most.
const (
	circuitThreshold = 5
	circuitFirst     = time.Second
	circuitMost      = 30 * time.Second
)

// circuit stops a lane from claiming while its calls cannot even be started. It is this worker's own opinion and is written nowhere;
// such calls give their attempt back, so no budget is spent. After the wait one call tries.
type circuit struct {
	mu      sync.Mutex
	failed  int // in a row
	until   time.Time
	opening time.Duration
	trying  bool // the one call that tries is on its way
}

// record takes over whether a call could be started.
func (c *circuit) record(started bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying = false
	if started {
		c.failed, c.opening, c.until = 0, 0, time.Time{}
		return
	}
	c.failed++
	if c.failed >= circuitThreshold && !now.Before(c.until) {
		c.opening = min(max(2*c.opening, circuitFirst), circuitMost)
		c.until = now.Add(c.opening)
	}
}

// wait is how long the circuit stays open; 0 when it is closed or may be tried.
func (c *circuit) wait(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.until.Sub(now))
}

// limit is how many calls may be claimed: one at a time as long as it is not known whether calls can be started again.
func (c *circuit) limit(free int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening == 0 {
		return free
	}
	if c.trying {
		return 0
	}
	c.trying = true
	return min(free, 1)
}

// untried says that the claim found nothing to try with.
func (c *circuit) untried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying = false
}

// open tells whether the circuit is open or being tried.
func (c *circuit) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opening > 0
}
