// The check 40-posted-late-commit.

package lab_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-posted-late-commit",
		Expect: "6 applications post in order and commit in reverse order, each after the events of those behind it have arrived: every event reaches both members within 2 s " +
			"of its commit; within 5 s when the connection that tells the gateways is cut; and it does when the gateway is killed that is about to tell them",
		Run: postedLate,
	})
}

// openPost is an application that has posted a message in its transaction and does not commit yet.
func (c *chat) openPost(conv, cmid string) (tx pgx.Tx, seq int64) {
	c.Helper()
	tx, err := c.pool.Begin(c.ctx)
	c.Must("begin", err)
	c.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(c.ctx)) }) // after a commit it does nothing
	answers, err := outbox.Post(c.ctx, tx, tidings.Message{Conv: conv, Sender: "shop", Cmid: cmid, Body: "your order"})
	c.Must("post", err)
	return tx, answers[0].Seq
}

// reaches commits and returns how long it takes until all of the devices have the event.
func (c *chat) reaches(tx pgx.Tx, conv string, seq int64, peers ...*peer) time.Duration {
	c.Helper()
	c.Must("commit", tx.Commit(c.ctx))
	committed := time.Now()
	for _, p := range peers {
		c.Equal(fmt.Sprintf("the event of %s at %s", conv, p.dev), "your order", p.event(conv, seq).str("body"))
	}
	c.Examined("events at members", len(peers))
	return time.Since(committed)
}

func postedLate(t *lab.T) {
	const late = 6
	c := newChat(t)
	way := c.proxy()
	a, b := c.node("a", through(way)), c.node("b", through(way))
	convs := make([]string, late)
	for i := range convs {
		convs[i] = fmt.Sprintf("c-%d", i)
		a.conversation(convs[i], "shop", "ana", "ben")
	}
	ana, ben := a.device("ana", "ana-1"), b.device("ben", "ben-1")
	waiting := func() int { return one[int](c.scene, `SELECT count(*) FROM tidings.posted`) }
	taken := func() {
		c.Until("the gateways have taken what was posted", soon, func() bool { return waiting() == 0 })
	}
	taken() // of the first members

	txs, seqs := make([]pgx.Tx, late), make([]int64, late)
	for i, conv := range convs {
		txs[i], seqs[i] = c.openPost(conv, "m-1")
	}
	slowest := time.Duration(0)
	for i := late - 1; i >= 0; i-- {
		slowest = max(slowest, c.reaches(txs[i], convs[i], seqs[i], ana, ben))
		taken()
	}
	c.Fault(fault.New("late commit", "transactions that post", fmt.Sprintf("the first one was committed when the events of %d that began after it had been taken and had arrived", late-1)))
	c.Figure("slowest from a late commit to both members", float64(slowest.Milliseconds()), "ms")
	c.Within("slowest from a late commit to both members", 2*time.Second, slowest)

	early, seq := c.openPost("c-0", "m-2")
	between, after := c.openPost("c-1", "m-2")
	c.reaches(between, "c-1", after, ana, ben)
	taken()
	cut := way.Arm(pgproxy.Rule{What: "what a gateway tells the others", Match: theNotify, When: pgproxy.Before, Do: pgproxy.Cut})
	took := c.reaches(early, "c-0", seq, ana, ben)
	c.Fault(cut.Wait(soon))
	c.Figure("from a late commit to both members, when telling it failed", float64(took.Milliseconds()), "ms")
	c.Within("from a late commit to both members, when telling it failed", 5*time.Second, took)
	taken()

	// One gateway at a time takes what was posted. It dies with the lock for that in its hands.
	killer := c.proxy()
	d := c.node("d", through(killer))
	early, seq = c.openPost("c-0", "m-3")
	between, after = c.openPost("c-1", "m-3")
	c.reaches(between, "c-1", after, ana, ben)
	taken()
	held := killer.Arm(pgproxy.Rule{What: "the look for what was posted", Match: pgproxy.Runs("from tidings.posted p order by"), When: pgproxy.Before, Do: pgproxy.Hold})
	c.Fault(held.Wait(soon))
	c.Must("commit", early.Commit(c.ctx))
	c.Equal("posted and not taken while the gateway that does it stands still", 1, waiting())
	c.Fault(d.Kill())
	c.Fault(killer.Cut()) // as the kernel of a dead process does; what the proxy holds it would keep open
	killed := time.Now()
	for _, p := range []*peer{ana, ben} {
		c.Equal("at "+p.dev+" after the kill", "your order", p.event("c-0", seq).str("body"))
	}
	c.Examined("events at members", 2)
	c.Figure("from the kill of the gateway that was to tell to both members", float64(time.Since(killed).Milliseconds()), "ms")
	taken()

	for i, conv := range convs {
		for _, p := range []*peer{ana, ben} {
			times := map[int64]int{}
			for _, f := range p.received("event") {
				if e := f.sub("event"); e.str("conv") == conv && e.str("kind") == "msg" {
					times[e.num("seq")]++
				}
			}
			want := []int{3, 3, 1}[min(i, 2)]
			c.Equal(fmt.Sprintf("different messages of %s that %s was pushed", conv, p.dev), want, len(times))
		}
	}
	c.whole()
}
