// The checks 10-lease-expiry-converges, 10-paused-gateway-reregisters.

package lab_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "10-lease-expiry-converges",
		Expect: "with a lease of 3 s, a gateway that does not reach the database closes its devices with 4005 within 7 s and says that it is not ready; its routes are gone within 7 s; one of " +
			"its devices is at another gateway then and stays there when the first one is back, which serves new ones; the routes of a killed gateway are gone within 7 s",
		Run: leaseExpiry,
	})
	lab.Register(lab.Check{
		ID: "10-paused-gateway-reregisters",
		Expect: "a gateway with a lease of 3 s stands still until its routes are swept, while 6 of its 12 devices connect to another gateway and messages are sent to 9 of them all " +
			"the time: when it goes on, the 6 get nothing more from it and are closed; the other 6 are closed or have their routes again, each one owner; every event reaches each",
		Run: pausedGateway,
	})
}

// leaseTime is the lease of the gateways in these checks, converged the time by which everything has settled after it: a look each third of
// it, and what a busy machine adds.
const (
	leaseTime = 3 * time.Second
	converged = 7 * time.Second
)

var shortLease = with("TIDINGS_GATEWAY_LEASE", leaseTime.String())

// unrouted waits until a user has no route, and returns how long it took since began.
func (c *chat) unrouted(user string, began time.Time) time.Duration {
	c.Helper()
	c.Until(user+" has no route", soon, func() bool { return len(c.routes(user)) == 0 })
	return time.Since(began)
}

func leaseExpiry(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	a, b := c.node("a", shortLease, through(way)), c.node("b", shortLease)
	a.conversation("c-1", "ana", "ben", "cid")
	ana, ben, cid := a.device("ana", "ana-1"), a.device("ben", "ben-1"), b.device("cid", "cid-1")
	first := c.gateway("ana")

	c.Fault(way.Pause())
	began := time.Now()
	var ends [2]farewell
	c.Together("devices that are closed", 2, func(i int) {
		ends[i].code, ends[i].closed = []*peer{ana, ben}[i].closed(soon).num("close"), time.Now()
	})
	for i, end := range ends {
		c.Equal(fmt.Sprintf("device %d: close code", i), 4005, end.code)
		c.Within(fmt.Sprintf("device %d: until it is closed", i), converged, end.closed.Sub(began))
	}
	c.Figure("from the last that the database heard of it until its devices are closed", float64(ends[0].closed.Sub(began).Milliseconds()), "ms")
	fresh := b.device("ana", "ana-1")
	now := c.routes("ana")
	c.True("the gateway without its lease is not ready", !a.ready(c.ctx))
	took := c.unrouted("ben", began)
	c.Within("until the route of the one who does not come back is gone", converged, took)
	c.Figure("from the last that the database heard of it until its routes are gone", float64(took.Milliseconds()), "ms")
	cid.say("c-1", "m-1", "while it is away")
	fresh.event("c-1", 4)

	way.Resume()
	c.Until("the gateway is ready again", soon, func() bool { return a.ready(c.ctx) })
	back := a.device("ben", "ben-1")
	c.True("and serves as the same", c.gateway("ben") == first)
	cid.say("c-1", "m-2", "when it is back")
	c.Equal("an event at the device that came back", "m-2", back.event("c-1", 5).str("cmid"))
	c.Equal("an event at the device that went over", "m-2", fresh.event("c-1", 5).str("cmid"))
	c.Equal("the route of that one", now, c.routes("ana"))

	c.Fault(a.Kill())
	began = time.Now()
	took = c.unrouted("ben", began)
	c.Within("until the routes of the killed gateway are gone", converged, took)
	c.Figure("from the kill until its routes are gone", float64(took.Milliseconds()), "ms")
	again := b.device("ben", "ben-1")
	cid.say("c-1", "m-3", "when it is dead")
	c.Equal("an event at the device that was there", "m-3", again.event("c-1", 6).str("cmid"))
	c.Equal("routes in the end", []int{1, 1, 1}, []int{len(c.routes("ana")), len(c.routes("ben")), len(c.routes("cid"))})
}

func pausedGateway(t *lab.T) {
	const devices, quiet = 12, 3 // the first half goes over to the other gateway; the last of the others hear nothing meanwhile
	c := newChat(t)
	quick := with("TIDINGS_GATEWAY_RATE", "100000")
	a, b := c.node("a", shortLease), c.node("b", shortLease, quick)
	users := []string{"dan"}
	for i := range devices {
		users = append(users, fmt.Sprint("user-", i))
	}
	a.conversation("c-1", users[:1+devices-quiet]...)
	a.conversation("c-2", append(users[1+devices-quiet:], "dan")...)
	old, fresh := make([]*peer, devices), make([]*peer, devices)
	for i := range devices {
		old[i] = a.device(users[1+i], users[1+i]+"-d")
	}
	paused := c.gateway("user-0")
	dan := b.device("dan", "dan-1")
	before := dan.say("c-1", "m-before", "before")
	for _, p := range old[:devices-quiet] {
		p.event("c-1", before)
	}

	var over atomic.Bool
	var talking sync.WaitGroup
	c.Fault(a.Stop())
	talking.Go(func() { // waited for below
		for k := 0; !over.Load(); k++ {
			if f := dan.ask(message("c-1", fmt.Sprint("m-", k), "all the time")); f.t() != "sent" {
				c.Errorf("send: %v", f)
				return
			}
			pauseABit()
		}
	})
	defer talking.Wait()
	defer over.Store(true)
	for i := range devices / 2 {
		fresh[i] = b.device(users[1+i], users[1+i]+"-d")
	}
	moved := c.head("c-1") // what is later must come from the new gateway alone
	c.Until("the routes of the one that stands still are swept", soon, func() bool {
		return one[int](c.scene, `SELECT count(*) FROM tidings.route WHERE gateway_id = $1`, paused) == 0
	})
	c.Fault(a.Continue())
	ahead := time.Now()

	// Whoever went over is closed at the old gateway.
	codes, came := map[int64]int{}, 0
	for i, p := range old[:devices/2] {
		codes[p.closed(soon).num("close")]++
		came += len(p.pushed("c-1", moved))
		c.Equal("routes of "+p.user, []string{fresh[i].connection()}, c.routes(p.user))
	}
	c.Equal("events from the old gateway to those who went over", 0, came)
	c.True("close codes of those who went over: 4404 or 4005", codes[4404]+codes[4005] == devices/2)
	// The others have their route again, or were closed and connect again.
	registered := 0
	for i, p := range old[devices/2:] {
		c.Until(p.user+" has its route again or is closed", soon, func() bool { return p.over() || len(c.routes(p.user)) == 1 })
		if fresh[devices/2+i] = p; p.over() {
			c.Equal("close code of "+p.user, 4005, p.closed(soon).num("close"))
			fresh[devices/2+i] = a.reconnect(p.user, p.dev)
		} else {
			registered++
		}
	}
	c.Figure("from when it went on until all devices were settled", float64(time.Since(ahead).Milliseconds()), "ms")
	over.Store(true)
	talking.Wait()
	c.Until("the gateway is ready again", soon, func() bool { return a.ready(c.ctx) })
	last := map[string]int64{}
	for _, conv := range []string{"c-1", "c-2"} {
		last[conv] = dan.say(conv, "m-after", "the marker: everybody hears it")
	}
	for i, p := range fresh {
		conv := map[bool]string{true: "c-1", false: "c-2"}[i < devices-quiet]
		if !p.hears(conv, last[conv]) { // it had its route again, and was closed all the same
			c.Equal("close code of "+p.user, 4005, p.closed(soon).num("close"))
			registered--
			p = a.reconnect(p.user, p.dev)
		}
		c.Equal("route of "+p.user, []string{p.connection()}, c.routes(p.user))
		if v := c.read(p.pages(conv), 500); len(v.withheld) > 1 || v.head != last[conv] {
			c.Errorf("%s reads %v", p.user, v.withheld)
		} else {
			c.Examined("events", len(v.events))
		}
	}
	came = 0
	for _, p := range old[:devices/2] {
		came += len(p.pushed("c-1", moved))
	}
	c.Equal("events from the old gateway to those who went over, in the end", 0, came)
	c.Note("%d of those who stayed had their routes again, the others were closed; of those who went over %d were closed with 4404, %d with 4005",
		registered, codes[4404], codes[4005])
	c.Examined("connections that could have had two owners", devices)
}

// hears waits until the event is pushed, and returns false if the connection ends before.
func (p *peer) hears(conv string, seq int64) (heard bool) {
	p.c.Helper()
	p.wait(fmt.Sprintf("event %d of %s at %s, or its end", seq, conv, p.dev), soon, func() bool {
		heard = slices.ContainsFunc(p.pushes, func(f frame) bool {
			e := f.sub("event")
			return e.str("conv") == conv && e.num("seq") == seq
		})
		return heard || p.ended != nil
	})
	return heard
}

// connection is the id that the gateway gave to the connection in the answer to the hello, its first request.
func (p *peer) connection() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replies["1"].str("connection")
}
