// What checks put in the way of a send: held rows, shadowed keys, ended backends.

package lab_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

// What stands in the way of a send, inside the database and on the way to it.

// theSend is the statement by which a gateway appends messages: one transaction, so that its answer is the answer to its commit.
var theSend = pgproxy.Runs("tidings.send_rows")

// theNotify is the statement by which a gateway tells the others.
var theNotify = pgproxy.Runs("pg_notify")

// occupy holds a conversation's row, as an application's long transaction does, until the function it returns is called.
func (c *chat) occupy(conv string) (leave func()) {
	c.Helper()
	return c.obstruct("hold a conversation", `SELECT FROM tidings.conversation WHERE conv_id = $1 FOR UPDATE`, conv)
}

// shadow writes an event under a request key and does not commit it, until the function it returns takes it back. Who sends under
// this key cannot see it, gets a seq and writes the event, and stands still before the commit.
func (c *chat) shadow(conv, sender, cmid string) (leave func()) {
	c.Helper()
	return c.obstruct("take a request key", `INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid)
		VALUES ($1, 1000000, 'msg', gen_random_uuid(), $2, $3)`, conv, sender, cmid)
}

func (c *chat) obstruct(what, sql string, args ...any) (leave func()) {
	c.Helper()
	tx, err := c.pool.Begin(c.ctx)
	c.Must("begin", err)
	leave = func() { _ = tx.Rollback(context.WithoutCancel(c.ctx)) } // a second time it does nothing
	if _, err := tx.Exec(c.ctx, sql, args...); err != nil {
		leave()
		c.Fatalf("%s: %v", what, err)
	}
	c.Cleanup(leave)
	return leave
}

// standingSQL finds backends that wait for somebody else inside a send.
const standingSQL = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'
	AND query LIKE '%tidings.send_rows%' ORDER BY pid`

// standing waits until a send stands still in the database, and returns its backend.
func (c *chat) standing() (pid int) {
	c.Helper()
	c.Until("a send stands still in the database", soon, func() bool {
		rows, err := c.pool.Query(c.ctx, standingSQL)
		c.Must("look for waiting backends", err)
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		c.Must("look for waiting backends", err)
		if len(pids) > 0 {
			pid = pids[0]
		}
		return pid != 0
	})
	return pid
}

// terminate ends a backend that stands inside a send and waits until it is gone.
func (c *chat) terminate(pid int) fault.Receipt {
	c.Helper()
	var where string
	err := c.pool.QueryRow(c.ctx, `SELECT wait_event FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%tidings.send_rows%'`, pid).Scan(&where)
	c.Must("look at the backend", err)
	proof := ""
	if one[bool](c.scene, `SELECT pg_terminate_backend($1, $2)`, pid, soon.Milliseconds()) {
		proof = fmt.Sprintf("it waited for a lock (%s) inside the send, and is gone", where)
	}
	return fault.New("terminate", "the backend of a send", proof)
}

// bare makes a conversation by SQL, for a check without a gateway: its members are its first events.
func (c *chat) bare(conv string, members ...string) {
	c.Helper()
	c.exec(`INSERT INTO tidings.conversation (conv_id, next_seq, epoch) VALUES ($1, 1 + $2::int, 2)`, conv, len(members))
	for i, user := range members {
		c.exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user) VALUES ($1, $2, 'join', $3)`, conv, i+1, user)
		c.exec(`INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ($1, $3, $2)`, conv, i+1, user)
	}
}

// message is the request that sends a message.
func message(conv, cmid, body string) frame {
	return frame{"t": "send", "conv": conv, "cmid": cmid, "body": body}
}

// unanswered tells whether a request has no answer yet, at a peer that lives.
func (p *peer) unanswered(rid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replies[rid] == nil && p.ended == nil
}

// insist sends a message as a client does: under the same cmid again for as long as the answer says so. It counts these answers and
// returns the final one, or {"t":"closed"}.
func (p *peer) insist(conv, cmid, body string, refused *atomic.Int64) frame {
	p.c.Helper()
	for {
		f := p.ask(message(conv, cmid, body))
		if f.t() != "error" || f.str("retry") != "same" {
			return f
		}
		refused.Add(1)
		told := time.Duration(f.num("retry_after_ms")) * time.Millisecond
		select {
		case <-time.After(min(max(told, 20*time.Millisecond), 200*time.Millisecond)): // a client would wait as long as it is told
		case <-p.c.ctx.Done():
			p.c.Fatalf("send %s: still refused: %s", cmid, f.code())
		}
	}
}

// seqs are where the messages under a request key stand in a log; more than one is an error of the log.
func (c *chat) seqs(conv, sender, cmid string) (at []int64) {
	c.Helper()
	for _, e := range c.log(conv) {
		if e.sender == sender && e.cmid == cmid {
			at = append(at, e.seq)
		}
	}
	return at
}

// head is the last seq of a log.
func (c *chat) head(conv string) int64 {
	c.Helper()
	return one[int64](c.scene, `SELECT next_seq - 1 FROM tidings.conversation WHERE conv_id = $1`, conv)
}

// whole records that every log is contiguous.
func (c *chat) whole() {
	c.Helper()
	logs, broken := c.contiguous()
	c.Equal("logs with a hole or a wrong end", 0, broken)
	c.Examined("logs", logs)
}

// pauseABit is the time between two looks at something that several goroutines bring about.
func pauseABit() { time.Sleep(5 * time.Millisecond) }
