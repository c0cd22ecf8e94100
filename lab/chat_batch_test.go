// The check 40-batch-isolation.

package lab_test

import (
	"fmt"
	"slices"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-batch-isolation",
		Expect: "11 sends in one transaction, of which 3 are refused, 5 share 2 request keys and 3 are plain; then the same with one more that the database refuses: each gets " +
			"the answer that it would get alone, what is stored is stored once and without a gap, and a third member is pushed just that",
		Run: batchIsolation,
	})
}

// committers is how many transactions with messages a gateway has on their way at once.
const committers = 2

// gather has the gateway behind way write what send submits in one transaction, as it does under load: all of its committers are held by
// messages of plug until everything is there. It returns the batch's trap, which holds its answer.
func (c *chat) gather(way *pgproxy.Proxy, plug *peer, name string, send func()) (*pgproxy.Trap, fault.Receipt) {
	c.Helper()
	var held []*pgproxy.Trap
	var plugs []string
	for i := range committers {
		trap := way.Arm(pgproxy.Rule{What: "a send that keeps a committer", Match: theSend, When: pgproxy.Before, Do: pgproxy.Hold})
		plugs = append(plugs, plug.send(message(fmt.Sprintf("c-plug-%d", i), name, "plug")))
		c.Fault(trap.Wait(soon))
		held = append(held, trap)
	}
	send()
	batch := way.Arm(pgproxy.Rule{What: "the batch", Match: theSend, When: pgproxy.After, Do: pgproxy.Hold})
	held[0].Release() // this committer takes all that waits
	receipt := batch.Wait(soon)
	c.Fault(receipt)
	held[1].Release()
	for _, rid := range plugs {
		if f := plug.reply(rid); f.t() != "sent" {
			c.Fatalf("a message that keeps a committer: %v", f)
		}
	}
	return batch, receipt
}

// flush waits until the gateway has taken all that the device has sent so far: its requests are taken one after the other.
func (p *peer) flush() {
	p.c.Helper()
	if f := p.ask(frame{"t": "no such request"}); f.code() != "INVALID_ARGUMENT" {
		p.c.Fatalf("a request of an unknown type: %v", f)
	}
}

// tried is a send and the answer that is its due.
type tried struct {
	by               *peer
	conv, cmid, body string
	code             string // "" for sent
	seq              int64
	dup              bool
}

func batchIsolation(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	n := c.node("a", through(way))
	n.conversation("c-1", "ana", "ben", "cy")
	n.conversation("c-2", "ana", "ben", "cy")
	for i := range committers {
		n.conversation(fmt.Sprintf("c-plug-%d", i), "ana")
	}
	ana, ben, cy, eve := n.device("ana", "ana-1"), n.device("ben", "ben-1"), n.device("cy", "cy-1"), n.device("eve", "eve-1")
	plug := n.device("ana", "ana-2")
	ana.say("c-1", "m-old", "old")
	c.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-1', 'ana', 'm-gone', 1)`)
	c.exec(`ALTER TABLE tidings.event ADD CONSTRAINT no_poison CHECK (body <> 'poison')`)

	tries := func(name string, seq int64) []tried {
		cmid := func(s string) string { return name + "-" + s }
		return []tried{
			{ana, "c-1", cmid("m"), "first", "", seq, false},
			{ana, "c-1", cmid("m"), "first", "", seq, true},
			{ana, "c-1", cmid("m"), "other", "IDEMPOTENCY_MISMATCH", 0, false},
			{ana, "c-1", "m-old", "old", "", 4, true},
			{ana, "c-1", "m-old", "other", "IDEMPOTENCY_MISMATCH", 0, false},
			{ana, "c-1", "m-gone", "gone", "ORIGINAL_EXPIRED", 1, false},
			{ana, "c-2", cmid("m"), "elsewhere", "", seq - 1, false},
			{eve, "c-1", cmid("m"), "not welcome", "NOT_MEMBER", 0, false},
			{eve, "c-absent", cmid("m"), "not welcome", "NOT_MEMBER", 0, false},
			{ben, "c-1", cmid("m"), "of another", "", seq + 1, false},
			{ben, "c-2", cmid("m"), "of another", "", seq, false},
		}
	}
	const distinct = 8 // request keys among them
	first := tries("one", 5)
	answers, receipt := c.submitted(way, plug, "one", first)
	c.Equal("the first batch", fmt.Sprintf("the server answered SELECT %d, ready for query", distinct), receipt.Proof)
	stored := func(name string) (rows, transactions int) {
		c.Must("look at what is stored", c.pool.QueryRow(c.ctx, `SELECT count(*), count(DISTINCT xmin::text) FROM tidings.event WHERE conv_id IN ('c-1', 'c-2') AND cmid LIKE $1`,
			name+"-%").Scan(&rows, &transactions))
		return rows, transactions
	}
	rows, transactions := stored("one")
	c.Equal("stored when the first batch is committed: rows, transactions", []int{4, 1}, []int{rows, transactions})
	c.judged("first batch", answers, first)

	second := append(tries("two", 7), tried{ben, "c-1", "two-poison", "poison", "INVALID_ARGUMENT", 0, false}, tried{ben, "c-1", "two-after", "after it", "", 9, false})
	answers, receipt = c.submitted(way, plug, "two", second)
	c.Equal("the second batch", "the server answered error 23514, ready for query", receipt.Proof)
	rows, _ = stored("two")
	c.Equal("stored of it when it was rolled back", 0, rows)
	c.judged("second batch", answers, second)
	rows, transactions = stored("two")
	c.Equal("stored of it in the end: rows, transactions", []int{5, 5}, []int{rows, transactions})

	c.Equal("the log", "4 m-old, 5 one-m, 6 one-m, 7 two-m, 8 two-m, 9 two-after", seqsAndKeys(c.log("c-1")))
	c.Equal("the other log", "4 one-m, 5 one-m, 6 two-m, 7 two-m", seqsAndKeys(c.log("c-2")))
	for conv, last := range map[string]int64{"c-1": ben.say("c-1", "marker", "marker"), "c-2": ben.say("c-2", "marker", "marker")} {
		c.Until("the marker reaches the third member", soon, func() bool { return cy.pushedTo(conv) >= last })
		var pushed []int64
		for _, f := range cy.received("event") {
			if e := f.sub("event"); e.str("conv") == conv && e.str("kind") == "msg" {
				pushed = append(pushed, e.num("seq"))
			}
		}
		var all []int64
		for seq := int64(4); seq <= last; seq++ {
			all = append(all, seq)
		}
		slices.Sort(pushed) // a push is a hint, and may come twice
		c.Equal("messages of "+conv+" that were pushed", all, slices.Compact(pushed))
	}
	c.whole()
}

// pushedTo is the greatest seq of a conversation that a device was pushed.
func (p *peer) pushedTo(conv string) (seq int64) {
	for _, f := range p.received("event") {
		if e := f.sub("event"); e.str("conv") == conv {
			seq = max(seq, e.num("seq"))
		}
	}
	return seq
}

// submitted sends tries so that they make one batch, in their order, and records that none is answered before the batch is.
func (c *chat) submitted(way *pgproxy.Proxy, plug *peer, name string, tries []tried) (func() []frame, fault.Receipt) {
	c.Helper()
	rids := make([]string, len(tries))
	batch, receipt := c.gather(way, plug, name, func() {
		for i, x := range tries {
			rids[i] = x.by.send(message(x.conv, x.cmid, x.body))
			if i+1 == len(tries) || tries[i+1].by != x.by {
				x.by.flush()
			}
		}
	})
	early := 0
	for i, x := range tries {
		if !x.by.unanswered(rids[i]) {
			early++
		}
	}
	c.Equal(name+": sends that were answered before their batch", 0, early)
	return func() (replies []frame) {
		batch.Release()
		for i, x := range tries {
			replies = append(replies, x.by.reply(rids[i]))
		}
		return replies
	}, receipt
}

// judged lets a batch have its answer and holds the answers to its sends against what is their due.
func (c *chat) judged(what string, replies func() []frame, tries []tried) {
	c.Helper()
	for i, f := range replies() {
		x := tries[i]
		c.Equal(fmt.Sprintf("%s: %s sends %s to %s, saying %q: code, seq, dup", what, x.by.user, x.cmid, x.conv, x.body), []any{x.code, x.seq, x.dup},
			[]any{f.code(), f.num("seq"), f.flag("dup")})
	}
}

// seqsAndKeys are the messages of a log.
func seqsAndKeys(events []logged) (s string) {
	for _, e := range events {
		if e.kind == "msg" {
			if s != "" {
				s += ", "
			}
			s += fmt.Sprint(e.seq, " ", e.cmid)
		}
	}
	return s
}
