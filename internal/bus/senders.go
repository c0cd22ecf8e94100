// Which senders are heard, and what of theirs was missed.

package bus

import (
	"slices"
	"sync"
	"time"
)

// senders is what a listener knows of those that tell.
type senders struct {
	mu    sync.Mutex
	known map[string]*sender
	ended []string  // alive no longer: to be caught up with for the last time
	since time.Time // when the listener began to hear; zero while it is deaf
}

type sender struct {
	run     string
	listens bool
	last    int64     // the newest number
	heard   time.Time // or when it was first expected
	caught  time.Time // the last CatchUp of a silent one; zero when it is not silent
}

// hear judges one payload. fresh: its items were not heard before. lost: something before it was not heard.
func (s *senders) hear(p *payload, now time.Time) (fresh, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[p.Sender]
	if k == nil || k.run != p.Run {
		if p.Bye && k == nil {
			return false, true
		}
		// What an unknown one told before, and what the former process of this name told last, was not heard for certain.
		s.known[p.Sender] = &sender{run: p.Run, listens: p.Listens, last: p.Number, heard: now}
		return true, true
	}
	expected := k.last
	if len(p.Items) > 0 {
		expected++
	}
	fresh, lost = p.Number >= expected, p.Number > expected
	k.last, k.heard, k.caught = max(k.last, p.Number), now, time.Time{}
	if p.Bye {
		delete(s.known, p.Sender)
	}
	return fresh, lost
}

// expect notes which senders are alive and forgets those that are not.
func (s *senders) expect(self string, alive []string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range alive {
		switch k := s.known[id]; {
		case id == self:
		case k == nil:
			s.known[id] = &sender{listens: true, heard: now}
		default:
			k.listens = true // also one of an earlier release, which does not say so
		}
	}
	for id, k := range s.known {
		if !slices.Contains(alive, id) && now.Sub(k.heard) > silentAfter {
			delete(s.known, id)
			s.ended = append(s.ended, id)
		}
	}
}

// alone tells whether nobody else listens, so that nobody misses what is not told. A listener says so when it begins, and with
// every number that it repeats; one of which the database alone knows counts, too. For a sender that does not hear it is never known.
func (s *senders) alone(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || now.Sub(s.since) < beat+tick {
		return false
	}
	for _, k := range s.known {
		if k.listens {
			return false
		}
	}
	return true
}

// deafened notes that nothing is heard from now on.
func (s *senders) deafened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// hearing notes that everything is heard from now on, and nothing could be up to now: that is no silence of theirs.
func (s *senders) hearing(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = now
	for _, k := range s.known {
		k.heard, k.caught = now, time.Time{}
	}
}

// silent calls fn for each sender that has to be caught up with now.
func (s *senders) silent(now time.Time, fn func(id string, again bool)) {
	type due struct {
		id    string
		again bool
	}
	var all []due
	s.mu.Lock()
	for _, id := range s.ended {
		all = append(all, due{id, false})
	}
	s.ended = nil
	for id, k := range s.known {
		if now.Sub(k.heard) >= silentAfter && now.Sub(k.caught) >= beat {
			all = append(all, due{id, !k.caught.IsZero()})
			k.caught = now
		}
	}
	s.mu.Unlock()
	for _, d := range all {
		fn(d.id, d.again)
	}
}
