// The checks 06-crash-before-commit, 06-crash-after-commit, 06-crash-after-sent.

package lab_test

import (
	"strings"
	"time"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/pgproxy"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func init() {
	lab.Register(lab.Check{
		ID:     "06-crash-before-commit",
		Expect: "killed before the database has seen the send: no row and no reply; the resend at another gateway writes the one row, dup=false",
		Run:    killedBeforeCommit,
	})
	lab.Register(lab.Check{
		ID:     "06-crash-after-commit",
		Expect: "killed when the database has committed and the gateway has not heard it: one row and no reply; the resend at another gateway gets dup=true and its seq",
		Run:    killedAfterCommit,
	})
	lab.Register(lab.Check{
		ID: "06-crash-after-sent",
		Expect: "killed after sent, before another gateway and a receiver of its own heard of the message: the one at the other gateway is pushed it, the one who reconnects " +
			"there syncs it",
		Run: killedAfterSent,
	})
}

// crash has ana send m-1 at a gateway that is killed at that moment of the send, and returns the gateway that is left.
func (c *chat) crash(when pgproxy.Moment) *node {
	c.Helper()
	way := c.proxy()
	a, b := c.node("a", through(way)), c.node("b")
	b.conversation("c-1", "ana", "ben")
	ana := a.device("ana", "ana-1")
	trap := way.Arm(pgproxy.Rule{What: "the send", Match: theSend, When: when, Do: pgproxy.Hold})
	rid := ana.send(message("c-1", "m-1", "hello"))
	c.Fault(trap.Wait(soon))
	c.True("no answer yet", ana.unanswered(rid))
	c.Fault(a.Kill())
	c.Equal("what the device gets", "closed", ana.reply(rid).t())
	return b
}

// resend has the same device send m-1 at another gateway, and others hear of it.
func (c *chat) resend(b *node, dup bool) {
	c.Helper()
	ana, ben := b.device("ana", "ana-1"), b.device("ben", "ben-1")
	f := ana.ask(message("c-1", "m-1", "hello"))
	c.Equal("the resend: answer, seq, dup", []any{"sent", 3, dup}, []any{f.t(), f.num("seq"), f.flag("dup")})
	c.Equal("rows in the end", []int64{3}, c.seqs("c-1", "ana", "m-1"))
	ana.say("c-1", "m-2", "and more")
	ben.event("c-1", 4)
	c.Equal("messages of the log", []string{"hello", "and more"}, bodies(c.log("c-1")))
	c.whole()
}

func killedBeforeCommit(t *lab.T) {
	c := newChat(t)
	b := c.crash(pgproxy.Before)
	c.Equal("rows after the crash", []int64{}, c.seqs("c-1", "ana", "m-1"))
	c.Equal("head after the crash", 2, c.head("c-1"))
	c.resend(b, false)
}

func killedAfterCommit(t *lab.T) {
	c := newChat(t)
	b := c.crash(pgproxy.After)
	c.Equal("rows after the crash", []int64{3}, c.seqs("c-1", "ana", "m-1"))
	c.resend(b, true)
}

func killedAfterSent(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	a, b := c.node("a", through(way)), c.node("b")
	b.conversation("c-1", "ana", "ben", "cy")
	ana, ben := a.device("ana", "ana-1"), b.device("ben", "ben-1")
	ana.say("c-1", "m-1", "the first that the other gateway hears of this one") // which makes it catch up, once
	ben.event("c-1", 4)
	line := tcpproxy.Start(c, strings.TrimPrefix(a.url, "http://"))
	behind := *a
	behind.url = "http://" + line.Addr()
	cy := behind.device("cy", "cy-1")
	ana.say("c-1", "m-2", "everybody is there")
	ben.event("c-1", 5)
	cy.event("c-1", 5)

	c.Fault(line.Hold(tcpproxy.ToClient)) // of what the gateway pushes to cy
	held := way.Arm(pgproxy.Rule{What: "what the gateway tells others", Match: theNotify, When: pgproxy.Before, Do: pgproxy.Hold})
	c.Equal("sent as seq", 6, ana.say("c-1", "m-3", "the last words"))
	c.Fault(held.Wait(soon))
	c.Fault(a.Kill())
	crashed := time.Now()
	came := 0
	for _, f := range cy.received("event") {
		if f.sub("event").num("seq") == 6 {
			came++
		}
	}
	c.Equal("pushes of it to the receiver at the dead gateway", 0, came)

	c.Equal("at the other gateway", "the last words", ben.event("c-1", 6).str("body"))
	c.Figure("from the crash to the push at the other gateway", float64(time.Since(crashed).Milliseconds()), "ms")
	cy.drop()
	page := b.device("cy", "cy-1").ask(frame{"t": "sync", "conv": "c-1", "after": 5})
	events := page.list("events")
	c.Equal("synced after the reconnect: head, events", []int64{6, 1}, []int64{page.num("head"), int64(len(events))})
	if len(events) == 1 {
		c.Equal("synced after the reconnect", "the last words", events[0].str("body"))
	}
	again := b.device("ana", "ana-1").ask(message("c-1", "m-3", "the last words"))
	c.Equal("a resend: seq, dup", []any{6, true}, []any{again.num("seq"), again.flag("dup")})
	c.whole()
}
