// The checks 05-heartbeat-timeout, 05-old-close-keeps-new-route, 05-control-close-by-device.

package lab_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "05-heartbeat-timeout",
		Expect: "with a ping each second: a device that does not answer is closed with 4003 within 4 s, one behind a dead network has no route within 10 s " +
			"(the close frame is waited for 5 s); one that answers lives",
		Run: heartbeatTimeout,
	})
	lab.Register(lab.Check{
		ID: "05-old-close-keeps-new-route",
		Expect: "a device that left a gateway which stood still, and is at another: when the first one goes on and closes, the route is that of the second, " +
			"and an event arrives there; the same at one gateway, where the older one is closed with 4404",
		Run: oldCloseKeepsNewRoute,
	})
	lab.Register(lab.Check{
		ID:     "05-control-close-by-device",
		Expect: "the late close of an old connection, by its id: 0 rows, the route of the new one stays; by user and device: the new one's route is gone",
		Run:    closeByDevice,
	})
}

func heartbeatTimeout(t *lab.T) {
	c := newChat(t)
	n := c.node("n1", with("TIDINGS_GATEWAY_PING", "1s"))
	network := tcpproxy.Start(c, strings.TrimPrefix(n.url, "http://"))
	far := &node{Process: n.Process, c: c, url: "http://" + network.Addr()} // the same node from behind a network that can die

	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")
	cut := far.device("cid", "cid-1")
	c.Equal("routes of the three", []int{1, 1, 1}, []int{len(c.routes("ana")), len(c.routes("ben")), len(c.routes("cid"))})
	cut.await("a ping at cid", soon, func(f frame) bool { return f.t() == "ping" })
	began := time.Now()
	receipt := network.Hold(tcpproxy.Both)
	ana.mu.Lock()
	ana.silent = true
	ana.mu.Unlock()
	c.Fault(receipt)

	code := ana.closed(soon).num("close")
	c.Within("until the silent one is closed", 4*time.Second, time.Since(began))
	c.Equal("close code of the silent one", 4003, code)
	ana.drop() // as who sees a close frame does
	c.Until("the route of the silent one is gone", soon, func() bool { return len(c.routes("ana")) == 0 })
	c.Within("until its route is gone", 5*time.Second, time.Since(began))
	c.Until("the route of the one behind the dead network is gone", soon, func() bool { return len(c.routes("cid")) == 0 })
	c.Within("until the route of the one behind the dead network is gone", 10*time.Second, time.Since(began))
	proof := ""
	if pings := len(ana.received("ping")); pings > 0 {
		proof = fmt.Sprintf("%d pings reached it", pings)
	}
	c.Fault(fault.New("does not answer", "ana's device", proof))
	c.Equal("the one that answers lives", "conversations", ben.ask(frame{"t": "conversations"}).t())
	c.True("and was pinged meanwhile", len(ben.received("ping")) >= 5)
	c.Equal("its route", 1, len(c.routes("ben")))
}

const connections = "tidings_gateway_connections"

func oldCloseKeepsNewRoute(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-1", "ana", "dan")
	old, other := a.device("ana", "ana-1"), a.device("ben", "ben-1")
	c.Fault(a.Stop())
	old.drop()
	fresh := b.device("ana", "ana-1")
	now := c.routes("ana")
	c.Fault(a.Continue())
	c.Until("the old connection is closed at its gateway", soon, func() bool { return a.metric(connections) == 1 })
	other.drop() // the marker: its route is removed after the old one's would be
	c.Until("the marker's route is gone", soon, func() bool { return len(c.routes("ben")) == 0 })
	c.Equal("routes of the device, two gateways", now, c.routes("ana"))
	c.Equal("that are", 1, len(now))
	dan := b.device("dan", "dan-1")
	c.Equal("an event at the new connection", "m-1", fresh.event("c-1", dan.say("c-1", "m-1", "x")).str("cmid"))

	newer := b.device("ana", "ana-1")
	now = c.routes("ana")
	c.Equal("at one gateway the older is closed with", 4404, fresh.closed(soon).num("close"))
	fresh.drop()
	marker := b.device("eve", "eve-1")
	c.Until("the older is closed at its gateway", soon, func() bool { return b.metric(connections) == 3 })
	marker.drop()
	c.Until("the marker's route is gone", soon, func() bool { return len(c.routes("eve")) == 0 })
	c.Equal("routes of the device, one gateway", now, c.routes("ana"))
	c.Equal("that are", 1, len(now))
	c.Equal("an event at the newest connection", "m-2", newer.event("c-1", dan.say("c-1", "m-2", "x")).str("cmid"))
}

func closeByDevice(t *lab.T) {
	c := newChat(t)
	register := func(connection string, version int) int {
		return c.exec(`INSERT INTO tidings.route AS r (bucket, user_id, device_id, gateway_id, connection_id, version)
			VALUES (tidings.bucket_of('ana'), 'ana', 'ana-1', 'g-' || $2::bigint, $1, $2)
			ON CONFLICT (user_id, device_id, bucket) DO UPDATE SET gateway_id = excluded.gateway_id, connection_id = excluded.connection_id,
				version = excluded.version WHERE r.version < excluded.version`, connection, version)
	}
	const old, fresh = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	c.Equal("routes registered by the old connection and then by the new one", []int{1, 1}, []int{register(old, 1), register(fresh, 2)})
	c.Equal("rows that the old connection's late close removes by its id", 0,
		c.exec(`DELETE FROM tidings.route WHERE user_id = 'ana' AND device_id = 'ana-1' AND connection_id = $1`, old))
	guarded := c.routes("ana")
	c.Equal("routes then", []string{fresh}, guarded)
	c.Equal("rows that it removes by user and device", 1, c.exec(`DELETE FROM tidings.route WHERE user_id = 'ana' AND device_id = 'ana-1'`))
	c.Exposed("routes then", guarded, c.routes("ana"))
}
