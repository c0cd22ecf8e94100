// The checks 40-busy-conversation, 40-control-convoy.

package lab_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-busy-conversation",
		Expect: "an application holds one conversation for 2 s: 40 sends to it wait and follow in the order of their senders, while sends to others, in one batch with " +
			"them and afterwards, have at most 3 times the p99 that they had before and 200 ms",
		Run: busyConversation,
	})
	lab.Register(lab.Check{
		ID: "40-control-convoy",
		Expect: "a batch for two conversations of which one is held: the product's stores the message of the free one at once; one with blocking locks in key order stores " +
			"nothing, and nobody else can send to the free one as long as that takes",
		Run: convoy,
	})
}

func busyConversation(t *lab.T) {
	const (
		held    = 2 * time.Second
		others  = 4
		calm    = 100 // sends of each device before
		waiting = 10  // sends to the busy conversation by each of two devices, twice
	)
	c := newChat(t)
	way := c.proxy()
	n := c.node("a", through(way), with("TIDINGS_GATEWAY_RATE", "100000"))
	n.conversation("c-busy", "ana", "ben")
	for i := range committers {
		n.conversation(fmt.Sprintf("c-plug-%d", i), "ana")
	}
	var peers []*peer
	for i := range others {
		user := fmt.Sprintf("user-%d", i)
		n.conversation("c-of-"+user, user)
		peers = append(peers, n.device(user, user+"-1"))
	}
	ana, ben, plug := n.device("ana", "ana-1"), n.device("ben", "ben-1"), n.device("ana", "ana-2")

	// load has the others send without pause and returns how long each send took.
	load := func(name string, more func(sent int) bool) (took []time.Duration) {
		var mu sync.Mutex
		c.Together(name, others, func(i int) {
			p := peers[i]
			var own []time.Duration
			for more(len(own)) {
				began := time.Now()
				if f := p.ask(message("c-of-"+p.user, fmt.Sprintf("%s-%d", name, len(own)), "hello")); f.t() != "sent" {
					c.Errorf("send: %v", f)
					return
				}
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
		slices.Sort(took)
		return took
	}
	p99 := func(took []time.Duration) time.Duration { return took[len(took)*99/100] }
	before := load("before", func(sent int) bool { return sent < calm })

	leave := c.occupy("c-busy")
	since := time.Now()
	rids := map[*peer][]string{}
	say := func(from int) {
		for k := range waiting {
			for _, p := range []*peer{ana, ben} {
				rids[p] = append(rids[p], p.send(message("c-busy", fmt.Sprintf("%s-%d", p.dev, from+k), "patience")))
			}
		}
	}
	var beside []string
	batch, receipt := c.gather(way, plug, "plug", func() {
		say(0)
		for _, p := range peers {
			beside = append(beside, p.send(message("c-of-"+p.user, "beside", "hello")))
		}
		for _, p := range append(peers, ana, ben) {
			p.flush()
		}
	})
	c.Equal("a batch for the busy conversation and others", fmt.Sprintf("the server answered SELECT %d, ready for query", 2*waiting+others), receipt.Proof)
	batch.Release()
	for i, p := range peers {
		c.Equal("a send beside those to the busy conversation, in one batch", "sent", p.reply(beside[i]).t())
	}
	c.standing()
	during := load("during", func(int) bool { return time.Since(since) < held })
	say(waiting) // behind those that wait
	ana.flush()
	ben.flush()
	early := 0
	for p, all := range rids {
		for _, rid := range all {
			if !p.unanswered(rid) {
				early++
			}
		}
	}
	c.Equal("sends to the busy conversation that were answered while it was locked", 0, early)
	lasted := time.Since(since)
	c.True("it was locked for 2 s at least", lasted >= held)
	leave()
	freed := time.Now()
	c.Fault(fault.New("hold", "a conversation's row, by an application's transaction",
		fmt.Sprintf("a send waited for it in the database; %d sends to others were answered meanwhile", len(during))))
	for p, all := range rids {
		var seqs []int64
		for _, rid := range all {
			f := p.reply(rid)
			if f.t() != "sent" {
				c.Errorf("send to the busy conversation: %v", f)
			}
			seqs = append(seqs, f.num("seq"))
		}
		c.True("the seqs of "+p.dev+" rise in the order sent", slices.IsSorted(seqs) && len(slices.Compact(seqs)) == 2*waiting)
	}
	c.Figure("busy conversation: locked for", float64(lasted.Milliseconds()), "ms")
	c.Figure("busy conversation: from the unlock to the last answer", float64(time.Since(freed).Microseconds())/1000, "ms")
	c.Figure("sends to others before: p99", float64(p99(before).Microseconds())/1000, "ms")
	c.Figure("sends to others while it was locked: p99", float64(p99(during).Microseconds())/1000, "ms")
	c.Figure("sends to others while it was locked: slowest", float64(during[len(during)-1].Microseconds())/1000, "ms")
	c.Within("p99 of sends to others while it was locked", 3*p99(before)+200*time.Millisecond, p99(during))
	c.Equal("messages of the busy conversation", 4*waiting, len(bodies(c.log("c-busy"))))
	c.whole()
}

// batchSQL sends one message to each of two conversations in one transaction, with blocking locks or without.
const batchSQL = `SELECT code, coalesce(seq, 0) FROM tidings.send_rows(ARRAY['c-a', 'c-b'], ARRAY[1, 2], ARRAY['ana', 'ana'], ARRAY[NULL, NULL], ARRAY[$1, $1], ARRAY['x', 'x'],
	ARRAY[NULL, NULL], $2) ORDER BY position`

type placed struct {
	Code string
	Seq  int64
}

// batch runs a batch of two messages.
func (c *chat) batch(cmid string, blocking bool) ([]placed, error) {
	rows, err := c.pool.Query(c.ctx, batchSQL, cmid, blocking)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[placed])
}

func convoy(t *lab.T) {
	c := newChat(t)
	c.bare("c-a", "ana")
	c.bare("c-b", "ana")
	leave := c.occupy("c-b")
	began := time.Now()
	answers, err := c.batch("m-1", false)
	c.Must("send a batch without waiting", err)
	c.Figure("batch that does not wait", float64(time.Since(began).Microseconds())/1000, "ms")
	c.Equal("without waiting: the free conversation, the held one", []placed{{"", 2}, {"BUSY", 0}}, answers)
	guarded := len(c.seqs("c-a", "ana", "m-1"))

	type result struct {
		answers []placed
		err     error
	}
	ended := make(chan result, 1)
	began = time.Now()
	go func() { // received below
		answers, err := c.batch("m-2", true)
		ended <- result{answers, err}
	}()
	c.standing()
	naive := len(c.seqs("c-a", "ana", "m-2"))
	c.Exposed("messages of the free conversation that are stored while the other one is held", guarded, naive)
	third, err := c.batch("m-3", false) // of somebody else
	c.Must("send another batch without waiting", err)
	c.Exposed("what somebody else's send to the free conversation gets meanwhile", answers[0].Code, third[0].Code)
	leave()
	r := <-ended
	c.Must("send a batch with blocking locks", r.err)
	c.Figure("batch with blocking locks", float64(time.Since(began).Microseconds())/1000, "ms")
	c.Equal("in the end", []placed{{"", 3}, {"", 2}}, r.answers)
	answers, err = c.batch("m-3", false)
	c.Must("send a batch after all", err)
	c.Equal("and then both are free", []placed{{"", 4}, {"", 3}}, answers)
	c.whole()
}
