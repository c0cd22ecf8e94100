// The check 05-idle-connection-memory.

package lab_test

import (
	"fmt"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID:     "05-idle-connection-memory",
		Expect: "2 000 users with a connection each, in three conversations of fifty: all are served; what the process's memory has grown by, per connection",
		Run:    idleConnections,
	})
}

func idleConnections(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	const idle, room, each = 2000, 50, 3
	c.exec(`WITH r AS (SELECT 'c-' || i AS conv, i FROM generate_series(0, $1::int / $2 * $3 - 1) i),
		m AS (SELECT r.conv, j, 'u-' || ((r.i / $3 * $2 + j - 1) % $1) AS usr FROM r, generate_series(1, $2) j),
		c AS (INSERT INTO tidings.conversation (conv_id, next_seq, epoch) SELECT conv, $2 + 1, 2 FROM r),
		e AS (INSERT INTO tidings.event (conv_id, seq, kind, sender_user) SELECT conv, j, 'join', usr FROM m)
		INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT conv, usr, j FROM m`, idle, room, each)
	c.exec(`ANALYZE tidings.member`)
	for i := range 50 { // what the first connections cost once
		_ = n.socket(fmt.Sprint("w-", i), "d").conn.Close()
	}
	c.Until("the first connections are over", soon, func() bool { return n.metric(connections) == 0 })
	before := n.resident()
	sockets := make([]*socket, idle)
	const openers = 8
	c.Together("devices that connect", openers, func(o int) {
		for i := o; i < idle; i += openers {
			sockets[i] = n.socket(fmt.Sprint("u-", i), "d")
		}
	})
	if c.Failed() {
		return
	}
	c.Equal("connections", idle, int(n.metric(connections)))
	c.Figure("memory per idle connection", float64(n.resident()-before)/idle, "B")
	c.Figure("memory of the process with 2 000 idle connections", float64(n.resident()), "B")
	served := 0
	for _, s := range sockets {
		s.text(frame{"t": "conversations", "rid": "x"})
		if f := s.next(); f.t() == "conversations" && len(f.list("list")) == each {
			served++
		}
	}
	c.Equal("connections that are served their conversations", idle, served)
}
