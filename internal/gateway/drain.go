// The end of a gateway's sessions.

package gateway

import (
	"time"

	"github.com/tidings-project/tidings/internal/wire"
)

// drain ends all sessions: each is told when to connect again, at another instant than the others, and is closed at that instant
// after its requests were answered. It returns when all readers are about to end.
func (g *Gateway) drain() {
	g.roster.shut()
	g.hub.drain()
	list := g.roster.shuffled()
	g.log.Info("draining", "connections", len(list), "over", g.cfg.DrainFor)
	share := func(i int) time.Duration { return time.Duration(int64(g.cfg.DrainFor) / int64(len(list)) * int64(i+1)) }
	for i, s := range list {
		if s.at() == serving && s.uncorked() {
			s.send(wire.AppendDraining(nil, share(i)))
		}
	}
	began := time.Now()
	const step = 20 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	var last []*session // those that have yet to be answered
	for i := 0; i < len(list) || len(last) > 0; {
		<-ticker.C
		for ; i < len(list) && share(i) <= time.Since(began); i++ {
			list[i].advance(leaving)
			last = append(last, list[i])
		}
		over := time.Since(began) > g.cfg.DrainFor+g.cfg.RequestTimeout
		rest := last[:0]
		for _, s := range last {
			switch {
			case s.at() >= closing:
			case s.flight.Load() == 0 || over:
				s.finish(wire.CloseDraining, "the gateway stops")
			default:
				rest = append(rest, s)
			}
		}
		last = rest
	}
}
