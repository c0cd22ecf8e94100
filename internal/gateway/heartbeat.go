// The one ticker: pings, deadlines and expiries of all sessions.

package gateway

import (
	"context"
	"time"

	"github.com/tidings-project/tidings/internal/wire"
)

// heartbeat looks at every session once a second, or oftener when a time of the configuration is short, until ctx ends. No session
// has a timer of its own: at 100 000 of them a pass takes some milliseconds, and timers would take memory for each.
func (g *Gateway) heartbeat(ctx context.Context) {
	every := time.Second
	for _, d := range []time.Duration{g.cfg.PingEvery, g.cfg.PongWait, g.cfg.HelloWait, g.cfg.PartialWait, g.cfg.SendWait, g.cfg.CloseWait} {
		every = max(min(every, d/5), time.Millisecond)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now, wall := g.clock(), time.Now()
			g.roster.each(func(s *session) { s.tick(now, wall) })
		}
	}
}

// tick does for a session what has become due. wall is compared with what the token says, by the clock that judged it.
func (s *session) tick(now int64, wall time.Time) {
	cfg := &s.g.cfg
	past := func(since int64, limit time.Duration) bool { return since != 0 && now-since > int64(limit) }
	s.mu.Lock()
	phase, oldest, closedAt := s.phase, s.oldest, s.closedAt
	s.mu.Unlock()
	claims := s.claims.Load()
	if oldest != 0 && oldest <= s.pinged {
		s.pinged = now // the ping may still be queued behind it: SendWait is the limit until it is not
	}
	switch partial := s.partial.Load(); {
	case phase >= closing:
		if past(closedAt, cfg.CloseWait) {
			_ = s.conn.Close() // the reader and the writer end
		}
	case past(oldest, cfg.SendWait) && s.uncorked():
		s.close(wire.CloseSlow, "the peer does not read")
	case past(partial, cfg.PartialWait):
		s.close(wire.CloseHeartbeat, "a message did not arrive in time")
	case phase == fresh:
		if past(s.born, cfg.HelloWait) {
			s.close(wire.CloseNoHello, "no hello came")
		}
	case claims != nil && wall.After(claims.Expires.Add(cfg.Verifier.Leeway())):
		s.close(wire.CloseToken, "the token has expired")
	case s.pinged != 0 && s.seen.Load() < s.pinged && partial == 0 && past(s.pinged, cfg.PongWait):
		s.close(wire.CloseHeartbeat, "no answer to a ping")
	case now >= s.nextPing && s.uncorked():
		// A message that is still arriving is followed by the answer: PartialWait is the limit then.
		s.pinged, s.nextPing = now, now+int64(cfg.PingEvery)
		s.send(wire.AppendPing(nil))
	}
}

// uncorked tells whether the welcome was said.
func (s *session) uncorked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.corked
}
