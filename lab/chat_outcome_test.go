// The check 40-outcome-query.

package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-outcome-query",
		Expect: "asked at another gateway, over the WebSocket and over HTTP: no, while a send has not reached the database, and yes when it has; yes, when it is committed and its gateway has " +
			"not heard so; while it is held at COMMIT, by a standby that does not answer, and by a lock before it, no answer, or that it is unavailable; then yes of the first, and no of the " +
			"second, whose gateway was killed and whose transaction was ended; purged of one that was purged, also to who has left",
		Run: outcomeQuery,
	})
}

// outcomes asks what became of ana's message, twice: over the WebSocket and over HTTP. The function it returns waits for the answers.
func (c *chat) outcomes(p *peer, n *node, cmid string) (answers func() []string, open func() bool) {
	c.Helper()
	rid := p.send(frame{"t": "outcome", "conv": "c-1", "cmid": cmid})
	web := make(chan frame, 1)
	go func() { web <- n.as(p.user, http.MethodGet, "/v1/conversations/c-1/messages/"+cmid, nil).body }() // received below
	told := func(f frame) string {
		switch {
		case f.code() != "":
			return f.code()
		case f.has("seq"):
			return fmt.Sprint(f.str("stored"), " ", f.num("seq"))
		}
		return f.str("stored")
	}
	open = func() bool { return p.unanswered(rid) && len(web) == 0 }
	return func() []string {
		c.Helper()
		answers := []string{told(p.reply(rid)), told(<-web)}
		c.Examined("answers", len(answers))
		return answers
	}, open
}

// outcome is outcomes for answers that come at once.
func (c *chat) outcome(p *peer, n *node, cmid string) []string {
	c.Helper()
	answers, _ := c.outcomes(p, n, cmid)
	return answers()
}

func both(answer string) []string { return []string{answer, answer} }

// standby makes each commit wait for a standby of a name, "" for none.
func (c *chat) standby(name string) {
	c.Helper()
	c.exec(`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`)
	c.exec(`SELECT pg_reload_conf()`)
	c.Until("the server has taken its configuration", soon, func() bool { return one[string](c.scene, `SHOW synchronous_standby_names`) == name })
	if name == "" {
		return
	}
	// Commits wait as soon as the checkpointer has taken it, too. That cannot be read, so one is tried; its backend waits on.
	c.Until("a commit waits", soon, func() bool {
		ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
		defer cancel()
		_, err := c.pool.Exec(ctx, `SELECT pg_logical_emit_message(true, 'lab', '')`)
		return err != nil && ctx.Err() != nil
	})
}

// atCommit waits until a send waits for a standby in its COMMIT.
func (c *chat) atCommit() fault.Receipt {
	c.Helper()
	c.Until("a send waits in its COMMIT", soon, func() bool {
		return one[int](c.scene, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%tidings.send_rows%'`) > 0
	})
	return fault.New("hold at COMMIT", "the send", "its backend waits for the standby (SyncRep)")
}

func outcomeQuery(t *lab.T) {
	_, c := ownDatabase(t) // whose configuration the check changes
	way := c.proxy()
	a, b := c.node("a", through(way)), c.node("b", with("TIDINGS_HOUSEKEEPING_EACH", "1h"))
	b.conversation("c-1", "ana", "ben")
	ana, other := a.device("ana", "ana-1"), b.device("ana", "ana-2")

	trap := way.Arm(pgproxy.Rule{What: "the send", Match: theSend, When: pgproxy.Before, Do: pgproxy.Hold})
	rid := ana.send(message("c-1", "m-1", "on its way"))
	c.Fault(trap.Wait(soon))
	c.Equal("on its way to the database", both("no"), c.outcome(other, b, "m-1"))
	trap.Release()
	c.Equal("then it is sent", "sent", ana.reply(rid).t())
	c.Equal("sent", both("yes 3"), c.outcome(other, b, "m-1"))

	trap = way.Arm(pgproxy.Rule{What: "the send", Match: theSend, When: pgproxy.After, Do: pgproxy.Hold})
	rid = ana.send(message("c-1", "m-2", "committed"))
	c.Fault(trap.Wait(soon))
	c.Equal("committed, and its gateway has not heard so", both("yes 4"), c.outcome(other, b, "m-2"))
	c.True("its sender has no answer", ana.unanswered(rid))
	trap.Release()
	c.Equal("then it is sent", 4, ana.reply(rid).num("seq"))

	c.standby("nobody")
	rid = ana.send(message("c-1", "m-3", "held at COMMIT"))
	c.Fault(c.atCommit())
	early, open := c.outcomes(other, b, "m-3")
	c.waits(2, "FOR SHARE")
	c.True("held at COMMIT: no answer", open())
	c.Equal("held at COMMIT: the answer when it is tired of waiting", both("UNAVAILABLE"), early())
	c.True("its sender has no answer", ana.unanswered(rid))
	late, _ := c.outcomes(other, b, "m-3")
	c.waits(2, "FOR SHARE")
	c.standby("")
	c.Equal("held at COMMIT: when that is over", both("yes 5"), late())
	c.Equal("then it is sent", 5, ana.reply(rid).num("seq"))

	leave := c.shadow("c-1", "ana", "m-4")
	rid = ana.send(message("c-1", "m-4", "never committed"))
	pid := c.standing()
	late, open = c.outcomes(other, b, "m-4")
	c.waits(2, "FOR SHARE")
	c.True("before its commit: no answer", open())
	c.Fault(a.Kill()) // which would send it again
	c.Equal("what its sender gets", "closed", ana.reply(rid).t())
	c.Fault(c.terminate(pid))
	c.Equal("ended before its commit", both("no"), late())
	leave()
	c.Equal("and still", both("no"), c.outcome(other, b, "m-4"))
	again := other.ask(message("c-1", "m-4", "never committed"))
	c.Equal("its resend: seq, dup", []any{6, false}, []any{again.num("seq"), again.flag("dup")})
	c.Equal("after the resend", both("yes 6"), c.outcome(other, b, "m-4"))

	b.keeps("c-1", time.Millisecond)
	c.Equal("purged events", 6, c.purge().num("events"))
	c.Equal("purged", both("purged 3"), c.outcome(other, b, "m-1"))
	b.leave("c-1", "ana")
	c.Equal("purged, to who has left", both("purged 6"), c.outcome(other, b, "m-4"))
	c.Equal("never sent, to who has left", both("no"), c.outcome(other, b, "m-5"))
	c.whole()
}
