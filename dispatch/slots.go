// Counts the calls that a lane may have open.

package dispatch

import (
	"context"
	"sync"
)

// slots counts the calls that a lane may have open. A slot is held from the claim until the end of the attempt is written down, so
// that everything between the two is bounded by it.
type slots struct {
	mu      sync.Mutex
	size    int
	used    int
	changed chan struct{} // closed and replaced when slots become free
}

func newSlots(size int) *slots { return &slots{size: size, changed: make(chan struct{})} }

func (s *slots) all() int { return s.size }

// acquire takes up to n slots and returns how many it took.
func (s *slots) acquire(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.size-s.used)
	s.used += n
	return n
}

func (s *slots) release(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns how many slots are free, at least one; false when ctx has ended.
func (s *slots) wait(ctx context.Context) (int, bool) {
	for {
		if ctx.Err() != nil {
			return 0, false
		}
		s.mu.Lock()
		free, changed := s.size-s.used, s.changed
		s.mu.Unlock()
		if free > 0 {
			return free, true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-changed:
		}
	}
}

// idle waits until all slots are free or ctx ends and returns how many are in use.
func (s *slots) idle(ctx context.Context) int {
	for {
		s.mu.Lock()
		used, changed := s.used, s.changed
		s.mu.Unlock()
		if used == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return used
		case <-changed:
		}
	}
}
