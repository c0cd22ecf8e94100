// The check 04-seq-gapless.

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "04-seq-gapless",
		Expect: "6 devices at 2 gateways and 4 applications whose transactions roll back by chance, in 4 conversations, with sends terminated in between: every log is " +
			"contiguous, every confirmed message is at its seq, no rolled-back one is there; logs without their last, first or a middle event are rejected",
		Run: gapless,
	})
}

const (
	gaplessConvs  = 4
	gaplessPeers  = 6
	gaplessApps   = 4
	gaplessEach   = 30 // messages of a device
	gaplessPosts  = 20 // transactions of an application
	gaplessKilled = 3  // sends terminated inside the database
)

// ledger is what the senders were told.
type ledger struct {
	mu        sync.Mutex
	confirmed map[logged]bool // with conv in kind
	undone    map[string]bool // cmids that were rolled back
}

func (l *ledger) confirm(conv, sender, cmid string, seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed[logged{kind: conv, sender: sender, cmid: cmid, seq: seq}] = true
}

func gapless(t *lab.T) {
	c := newChat(t)
	nodes := []*node{c.node("a"), c.node("b")}
	convs := make([]string, gaplessConvs)
	for i := range convs {
		convs[i] = fmt.Sprintf("c-%d", i)
		nodes[0].conversation(convs[i], "ana", "ben")
	}
	var peers []*peer
	for i := range gaplessPeers {
		peers = append(peers, nodes[i%2].device("ana", fmt.Sprintf("ana-%d", i)))
	}
	told := &ledger{confirmed: map[logged]bool{}, undone: map[string]bool{}}
	var sending, refused atomic.Int64
	sending.Store(gaplessPeers)
	terminated := make(chan int, 1)
	go func() { // received below
		n := 0
		for sending.Load() > 0 && n < gaplessKilled {
			n += c.terminateOne()
			pauseABit()
		}
		terminated <- n
	}()
	c.Together("senders", gaplessPeers+gaplessApps, func(i int) {
		r := rand.New(rand.NewPCG(t.Seed(), uint64(i)))
		if i >= gaplessPeers {
			c.application(i, convs, r, told)
			return
		}
		defer sending.Add(-1)
		for n := range gaplessEach {
			conv, cmid := convs[r.IntN(len(convs))], fmt.Sprintf("d%d-%d", i, n)
			f := peers[i].insist(conv, cmid, "hello", &refused)
			if f.t() != "sent" {
				c.Errorf("send %s: %v", cmid, f)
				return
			}
			told.confirm(conv, "ana", cmid, f.num("seq"))
		}
	})
	c.Note("%d sends were terminated inside the database, %d answers asked for a resend, %d messages were rolled back by applications",
		<-terminated, refused.Load(), len(told.undone))

	stored, astray, undone := map[logged]bool{}, 0, 0
	for _, conv := range convs {
		for _, e := range c.log(conv) {
			if e.kind == "msg" {
				stored[logged{kind: conv, sender: e.sender, cmid: e.cmid, seq: e.seq}] = true
			}
			if told.undone[e.cmid] {
				undone++
			}
		}
	}
	for m := range told.confirmed {
		if !stored[m] {
			astray++
		}
	}
	c.Equal("confirmed messages that are not at their seq", 0, astray)
	c.Equal("messages that nobody was told of", 0, len(stored)-len(told.confirmed))
	c.Equal("messages that were rolled back and are there", 0, undone)
	c.True("some messages were rolled back", len(told.undone) > 0)
	c.Examined("messages", len(stored))
	c.whole()
	c.doctor(convs)
}

// application posts to conversations in transactions of its own, of which about half are rolled back.
func (c *chat) application(i int, convs []string, r *rand.Rand, told *ledger) {
	cancelled := errors.New("cancelled")
	for n := range gaplessPosts {
		messages := make([]tidings.Message, 1+r.IntN(3))
		for k := range messages {
			messages[k] = tidings.Message{Conv: convs[r.IntN(len(convs))], Sender: "ben", Cmid: fmt.Sprintf("p%d-%d-%d", i, n, k), Body: "posted"}
		}
		var answers []tidings.Answer
		keep := r.IntN(2) == 0
		err := pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) (err error) {
			if answers, err = outbox.Post(c.ctx, tx, messages...); err == nil && !keep {
				err = cancelled
			}
			return err
		})
		if err != nil && err != cancelled {
			c.Errorf("post: %v", err)
			return
		}
		for k, m := range messages {
			if err == nil {
				told.confirm(m.Conv, m.Sender, m.Cmid, answers[k].Seq)
				continue
			}
			told.mu.Lock()
			told.undone[m.Cmid] = true
			told.mu.Unlock()
		}
	}
}

// terminateOne ends a backend that waits inside a send, if there is one, and returns how many it ended.
func (c *chat) terminateOne() (n int) {
	err := c.pool.QueryRow(c.ctx, `SELECT count(pg_terminate_backend(pid)) FROM (`+standingSQL+` LIMIT 1) s`).Scan(&n)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.Errorf("terminate a backend: %v", err)
	}
	return n
}

// doctor takes an event out of three of the logs and records that the look for holes finds each.
func (c *chat) doctor(convs []string) {
	c.Helper()
	for i, x := range []struct{ what, sql string }{
		{"without its last event", `DELETE FROM tidings.event WHERE conv_id = $1 AND seq = (SELECT next_seq - 1 FROM tidings.conversation WHERE conv_id = $1)`},
		{"with a min_seq that is too low", `DELETE FROM tidings.event WHERE conv_id = $1 AND seq = 1`},
		{"with a hole", `DELETE FROM tidings.event WHERE conv_id = $1 AND seq = 2`},
	} {
		c.Equal("events taken out", 1, c.exec(x.sql, convs[i]))
		_, broken := c.contiguous()
		c.Equal("a log "+x.what+": logs found broken", i+1, broken)
	}
	c.exec(`UPDATE tidings.conversation SET min_seq = 2 WHERE conv_id = $1`, convs[1])
	_, broken := c.contiguous()
	c.Equal("with the right min_seq: logs found broken", 2, broken)
}
