// The check 26-listen-loss.

package lab_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "26-listen-loss",
		Expect: "the connection on which a gateway listens is terminated, reset, black-holed, and black-holed with all that come after it; then one message from another gateway, and " +
			"silence: it arrives at a member of the first within 2 s, 2 s, 5 s and 5 s; one who listens at the same places, and begins again when it sees the end, never hears of it",
		Run: listenLoss,
	})
}

// hears tells whether the ear has heard that a conversation has grown to a seq.
func (e *ear) hears(conv string, seq int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, payload := range e.heard {
		if strings.Contains(payload, fmt.Sprintf(`"c":%q`, conv)) && strings.Contains(payload, fmt.Sprintf(`"h":%d`, seq)) {
			return true
		}
	}
	return false
}

// began tells how often the ear has begun to listen.
func (e *ear) began() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.times
}

func listenLoss(t *lab.T) {
	c := newChat(t)
	way := c.listenWay()
	a, b := c.node("a", func(o *nodeOptions) { o.database = way.url("") }), c.node("b")
	naive, always := c.ear(way.url(theListener)), c.ear(c.url())
	a.conversation("c-1", "ana", "ben")
	ana, ben := a.device("ana", "ana-1"), b.device("ben", "ben-1")
	sent := 0
	say := func(body string) int64 {
		c.Helper()
		sent++
		seq := ben.say("c-1", fmt.Sprint("m-", sent), body)
		c.Until("the others are told", soon, func() bool { return always.hears("c-1", seq) })
		return seq
	}
	settled := func() { // everybody hears what is told
		c.Helper()
		c.Until("both listen", soon, func() bool { return len(way.listening()) == 2 && naive.began() > 0 })
		seq := say("everybody listens")
		ana.event("c-1", seq)
		c.Until("the naive one hears", soon, func() bool { return naive.hears("c-1", seq) })
	}
	var hole []*listenConn
	for _, x := range []struct {
		name  string
		bound time.Duration
		lose  func()
		proof func() fault.Receipt // what is known of the fault only later; nil: nothing
	}{
		{"terminated", 2 * time.Second, func() { c.Fault(way.terminate()) }, nil},
		{"reset", 2 * time.Second, func() { c.Fault(way.reset()) }, nil},
		{"black-holed", 5 * time.Second, func() { hole = way.swallow(false) }, func() fault.Receipt { return swallowed(hole) }},
		{"black-holed for good", 5 * time.Second, func() { hole = way.swallow(true) }, func() fault.Receipt { return swallowed(hole) }},
	} {
		settled()
		again := naive.began()
		if x.proof == nil {
			way.keepAway() // the message falls into the time in which nobody listens
		}
		x.lose()
		c.Until("nobody listens", soon, func() bool { return len(way.listening()) == 0 })
		seq := say("one message, and then silence")
		told := time.Now()
		if x.proof == nil {
			way.letThrough()
		}
		c.Equal(x.name+": the message", "one message, and then silence", ana.event("c-1", seq).str("body"))
		took := time.Since(told)
		c.Within(x.name+": until it arrives", x.bound, took)
		c.Figure(x.name+": until it arrives", float64(took.Milliseconds()), "ms")
		if x.proof != nil {
			c.Fault(x.proof())
			// The naive one hangs where it is; what helps it is that the network tells it.
			way.letThrough()
			for _, l := range hole {
				l.end()
			}
		}
		c.Until("the naive one listens again", soon, func() bool { return naive.began() > again })
		later := say("the marker: everybody listens again")
		ana.event("c-1", later)
		c.Until("the naive one hears the marker", soon, func() bool { return naive.hears("c-1", later) })
		c.Equal(x.name+": the one that only listens has heard of the message", false, naive.hears("c-1", seq))
		if !naive.hears("c-1", seq) {
			c.Examined("messages that the gateway told of and the one that only listens did not hear", 1)
		}
	}
	c.whole()
}
