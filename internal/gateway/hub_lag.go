// Hints to devices that stay behind.

package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tidings-project/tidings/internal/wire"
)

// maxHintPause is how far `lag` hints for one device, conversation and head back off.
const maxHintPause = 5 * time.Minute

// mark is how far a device is with a conversation.
type mark struct {
	acked, seen int64 // the delivered cursor, now and at the last look
	head        int64 // what it was last expected to reach
	due         time.Time
	pause       time.Duration // until the next hint; 0: the device is not behind
}

// moved are the feeds that have pushed something which some device has not acknowledged yet.
type moved struct {
	mu   sync.Mutex
	list []*feed
}

// add needs f.mu.
func (m *moved) add(f *feed) {
	if f.stirred {
		return
	}
	f.stirred = true
	m.mu.Lock()
	m.list = append(m.list, f)
	m.mu.Unlock()
}

// acked notes how far the session's device has stored a conversation (the stored value of the reply), so that no `lag` is sent.
func (h *hub) acked(s *session, conv string, seq int64) {
	u, ok := h.users.get(s.user)
	if !ok {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.sessions() {
		if a.session == s {
			m := a.mark(conv)
			m.acked = max(m.acked, seq)
			return
		}
	}
}

func (a *attached) mark(conv string) *mark {
	m := a.marks[conv]
	if m == nil {
		if a.marks == nil {
			a.marks = map[string]*mark{}
		}
		m = &mark{}
		a.marks[conv] = m
	}
	return m
}

// hintLag tells devices that stay behind although events were pushed: the push, or what became of it, was lost.
func (h *hub) hintLag(ctx context.Context) {
	for pause(ctx, h.lagAfter/4) {
		h.moved.mu.Lock()
		list := h.moved.list
		h.moved.list = nil
		h.moved.mu.Unlock()
		for _, f := range list {
			h.hint(f, time.Now())
		}
	}
}

// hint looks at the devices of one feed.
func (h *hub) hint(f *feed, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stirred = false
	behind := false
	for _, s := range f.seats {
		if s.from > f.pos {
			continue
		}
		s.u.mu.Lock()
		list := s.u.sessions()
		for _, a := range list {
			m := a.mark(f.conv)
			if m.look(f.pos, now, h.lagAfter) {
				a.send(wire.AppendLag(nil, f.conv, f.epoch, f.pos))
			}
			behind = behind || m.pause > 0
		}
		s.u.mu.Unlock()
	}
	if behind && !f.dead {
		h.moved.add(f)
	}
}

// look says whether a hint is due. One that makes progress gets none; hints of one head come ever more rarely.
func (m *mark) look(head int64, now time.Time, after time.Duration) bool {
	progress := m.acked > m.seen
	m.seen = m.acked
	switch {
	case m.acked >= head:
		m.pause = 0
	case m.pause == 0 || progress:
		m.pause, m.due = after, now.Add(after)
	case !now.Before(m.due):
		if m.pause = min(2*m.pause, maxHintPause); m.head != head {
			m.pause = after
		}
		m.head, m.due = head, now.Add(m.pause)
		return true
	case m.head != head && m.due.After(now.Add(after)):
		m.pause, m.due = after, now.Add(after)
	}
	return false
}
