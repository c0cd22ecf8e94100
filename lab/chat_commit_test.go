// The checks 04-rollback-leaves-no-gap, 04-commit-outcome-unknown.

package lab_test

import (
	"fmt"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "04-rollback-leaves-no-gap",
		Expect: "the backend is terminated after it has numbered and written a message, and again at the gateway's resubmission: OUTCOME_UNKNOWN and a log as before; " +
			"another message gets the seq, the resend of the first gets the next one, dup=false",
		Run: terminatedInTheSend,
	})
	lab.Register(lab.Check{
		ID: "04-commit-outcome-unknown",
		Expect: "the answer to the commit is cut: no sent before the answer to the gateway's own resubmission, then sent with the seq of the one row; cut again: " +
			"OUTCOME_UNKNOWN, stored unknown, retry same; the resend finds one row, dup=true where it was stored and dup=false where it was not",
		Run: commitCut,
	})
}

func terminatedInTheSend(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")
	ana.say("c-1", "m-1", "before")
	before, head := c.log("c-1"), c.head("c-1")

	leave := c.shadow("c-1", "ana", "m-2")
	rid := ana.send(message("c-1", "m-2", "rolled back"))
	c.Fault(c.terminate(c.standing()))
	c.True("no answer after the first termination", ana.unanswered(rid))
	c.Fault(c.terminate(c.standing())) // the gateway has submitted it once more by itself
	f := ana.reply(rid)
	leave()
	c.Equal("answer: code, stored, retry", []string{"OUTCOME_UNKNOWN", "unknown", "same"}, []string{f.code(), f.str("stored"), f.str("retry")})
	c.Equal("the log after two rollbacks", before, c.log("c-1"))
	c.Equal("the head after two rollbacks", head, c.head("c-1"))

	c.Equal("the next message gets the next seq", head+1, ben.say("c-1", "m-3", "between"))
	again := ana.ask(message("c-1", "m-2", "rolled back"))
	c.Equal("the resend: answer, seq, dup", []any{"sent", head + 2, false}, []any{again.t(), again.num("seq"), again.flag("dup")})
	ben.event("c-1", head+2)
	c.Equal("rows of the cmid", []int64{head + 2}, c.seqs("c-1", "ana", "m-2"))
	c.whole()
}

func commitCut(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	n := c.node("a", through(way))
	n.conversation("c-1", "ana", "ben")
	ana := n.device("ana", "ana-1")
	arm := func(when pgproxy.Moment, do pgproxy.Action) *pgproxy.Trap {
		return way.Arm(pgproxy.Rule{What: "the commit of a send", Match: theSend, When: when, Do: do})
	}

	cut, held := arm(pgproxy.After, pgproxy.Cut), arm(pgproxy.After, pgproxy.Hold)
	rid := ana.send(message("c-1", "m-1", "hello"))
	c.Fault(cut.Wait(soon))
	c.Fault(held.Wait(soon)) // of the resubmission
	f := ana.ask(frame{"t": "outcome", "conv": "c-1", "cmid": "m-1"})
	c.Equal("meanwhile: stored, seq", []any{"yes", int64(3)}, []any{f.str("stored"), f.num("seq")})
	c.True("no answer before the resubmission has one", ana.unanswered(rid))
	held.Release()
	f = ana.reply(rid)
	c.Equal("then: answer, seq", []any{"sent", int64(3)}, []any{f.t(), f.num("seq")})
	c.Equal("rows", []int64{3}, c.seqs("c-1", "ana", "m-1"))

	for i, x := range []struct {
		what   string
		when   pgproxy.Moment
		stored bool
	}{{"stored, both answers cut", pgproxy.After, true}, {"not stored, cut twice", pgproxy.Before, false}} {
		cmid, seq := fmt.Sprintf("m-%d", i+2), int64(i+4)
		cuts := []*pgproxy.Trap{arm(x.when, pgproxy.Cut), arm(x.when, pgproxy.Cut)}
		f := ana.ask(message("c-1", cmid, "hello"))
		for _, cut := range cuts {
			c.Fault(cut.Wait(soon))
		}
		c.Equal(x.what+": code, stored, retry", []string{"OUTCOME_UNKNOWN", "unknown", "same"}, []string{f.code(), f.str("stored"), f.str("retry")})
		rows := map[bool][]int64{true: {seq}}[x.stored]
		c.Equal(x.what+": rows", rows, c.seqs("c-1", "ana", cmid))
		f = ana.ask(message("c-1", cmid, "hello"))
		c.Equal(x.what+": the resend: answer, seq, dup", []any{"sent", seq, x.stored}, []any{f.t(), f.num("seq"), f.flag("dup")})
		c.Equal(x.what+": rows in the end", []int64{seq}, c.seqs("c-1", "ana", cmid))
	}
	c.whole()
}
