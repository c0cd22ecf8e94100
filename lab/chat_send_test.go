// The checks 04-sent-means-committed, 04-concurrent-replay-one-row, 04-idempotency-mismatch, 04-not-member.

package lab_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID:     "04-sent-means-committed",
		Expect: "4 devices at 2 gateways: each of 100 messages is read by another connection as soon as its sent is observed, as it was sent",
		Run:    sentIsCommitted,
	})
	lab.Register(lab.Check{
		ID: "04-concurrent-replay-one-row",
		Expect: "32 sends of one cmid at once, by devices at 2 gateways and over HTTP, on a free and on a locked conversation: one row, one seq, one mid, " +
			"exactly one dup=false",
		Run: replayedAtOnce,
	})
	lab.Register(lab.Check{
		ID:     "04-idempotency-mismatch",
		Expect: "the cmid of another body, other data or none: IDEMPOTENCY_MISMATCH, stored no, over WebSocket and HTTP; the log is as before, the next message is next",
		Run:    otherContent,
	})
	lab.Register(lab.Check{
		ID: "04-not-member",
		Expect: "a stranger, one who has left, and a conversation that does not exist: NOT_MEMBER, stored no, the same in every word; nothing is written; " +
			"a repeat of a message from the time of membership is answered with its seq",
		Run: strangersSend,
	})
}

func sentIsCommitted(t *lab.T) {
	const devices, each = 4, 25
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-1", "ana", "ben")
	peers := []*peer{a.device("ana", "ana-1"), b.device("ana", "ana-2"), a.device("ben", "ben-1"), b.device("ben", "ben-2")}
	var unread, other atomic.Int64
	c.Together("devices that send", devices, func(i int) {
		p := peers[i]
		for n := range each {
			cmid := fmt.Sprintf("%s-%d", p.dev, n)
			f := p.ask(message("c-1", cmid, "hello "+cmid))
			if f.t() != "sent" {
				c.Errorf("send %s: %v", cmid, f)
				return
			}
			var same bool
			err := c.pool.QueryRow(c.ctx, `SELECT kind = 'msg' AND sender_user = $3 AND sender_device = $4 AND cmid = $5 AND body = $6 AND mid::text = $7
					AND floor(extract(epoch FROM created_at) * 1000) = $8 FROM tidings.event WHERE conv_id = $1 AND seq = $2`,
				"c-1", f.num("seq"), p.user, p.dev, cmid, "hello "+cmid, f.str("mid"), f.num("at")).Scan(&same)
			if err != nil {
				unread.Add(1)
			} else if !same {
				other.Add(1)
			}
		}
	})
	c.Equal("sent messages that another connection could not read", 0, unread.Load())
	c.Equal("sent messages that stand there otherwise", 0, other.Load())
	c.Equal("messages in the log", devices*each, len(c.log("c-1"))-2)
	c.whole()
}

func replayedAtOnce(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-1", "ana", "ben")
	var peers []*peer
	for i := range 6 {
		peers = append(peers, a.device("ana", fmt.Sprintf("ana-a%d", i)), b.device("ana", fmt.Sprintf("ana-b%d", i)))
	}
	c.replay("on a free conversation", "m-1", peers, a, b)

	leave := c.occupy("c-1")
	ended := make(chan struct{})
	go func() { // ends when a send stands still; received below
		defer close(ended)
		defer leave()
		c.standing()
	}()
	c.replay("on a locked conversation", "m-2", peers, a, b)
	<-ended
	c.Equal("head", 4, c.head("c-1"))
	c.whole()
}

// replay sends one message 32 times at once, a quarter of it over HTTP.
func (c *chat) replay(where, cmid string, peers []*peer, nodes ...*node) {
	c.Helper()
	var mu sync.Mutex
	first := 0
	seqs, mids := map[int64]int{}, map[string]int{}
	c.Together("sends of one cmid "+where, 32, func(i int) {
		var f frame
		if i%4 == 3 {
			answer := nodes[i/4%len(nodes)].as("ana", http.MethodPut, "/v1/conversations/c-1/messages/"+cmid, frame{"body": "once"})
			if f = answer.body; answer.status != map[bool]int{false: http.StatusCreated, true: http.StatusOK}[f.flag("dup")] {
				c.Errorf("send over HTTP: %d %s", answer.status, answer.raw)
			}
		} else if f = peers[i%len(peers)].ask(message("c-1", cmid, "once")); f.t() != "sent" {
			c.Errorf("send: %v", f)
		}
		mu.Lock()
		defer mu.Unlock()
		seqs[f.num("seq")]++
		mids[f.str("mid")]++
		if !f.flag("dup") {
			first++
		}
	})
	c.Equal(where+": answers with dup=false", 1, first)
	c.Equal(where+": seqs, mids in all answers", []int{1, 1}, []int{len(seqs), len(mids)})
	rows := c.seqs("c-1", "ana", cmid)
	c.Equal(where+": rows", 1, len(rows))
	c.Equal(where+": answers with the seq of the row", 32, seqs[rows[0]])
}

func otherContent(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	ana, phone, ben := n.device("ana", "ana-1"), n.device("ana", "ana-2"), n.device("ben", "ben-1")
	first := message("c-1", "m-1", "first")
	first["data"] = frame{"price": 1}
	original := ana.ask(first)
	c.Equal("the first", "sent", original.t())
	before := c.log("c-1")

	change := func(field string, value any) frame {
		f := message("c-1", "m-1", "first")
		f["data"] = frame{"price": 1}
		if f[field] = value; value == nil {
			delete(f, field)
		}
		return f
	}
	refused := 0
	for _, x := range []struct {
		what string
		by   *peer
		f    frame
	}{
		{"another body", ana, change("body", "second")}, {"other data", ana, change("data", frame{"price": 2})}, {"no data", ana, change("data", nil)},
		{"another body, by another device of the user", phone, change("body", "second")},
	} {
		f := x.by.ask(x.f)
		c.Equal(x.what+": code, stored, retry", []string{"IDEMPOTENCY_MISMATCH", "no", "no"}, []string{f.code(), f.str("stored"), f.str("retry")})
		refused++
	}
	a := n.as("ana", http.MethodPut, "/v1/conversations/c-1/messages/m-1", frame{"body": "second"})
	c.Equal("over HTTP: status, code, stored", []any{http.StatusUnprocessableEntity, "IDEMPOTENCY_MISMATCH", "no"}, []any{a.status, a.body.code(), a.body.str("stored")})
	refused++
	c.Equal("the log after that", before, c.log("c-1"))
	again := ana.ask(first)
	c.Equal("the first again: seq, dup", []any{original.num("seq"), true}, []any{again.num("seq"), again.flag("dup")})

	// Two contents of a new key, one behind the other: the first stands.
	one, two := ana.send(message("c-1", "m-2", "first")), ana.send(message("c-1", "m-2", "second"))
	c.Equal("two contents in a row", []string{"sent", "IDEMPOTENCY_MISMATCH"}, []string{ana.reply(one).t(), ana.reply(two).code()})
	refused++
	// Another user's key of the same name is another key; it is also the marker that all of the above has passed.
	marker := ben.say("c-1", "m-1", "of ben")
	c.Equal("what another user sends under this cmid gets the next seq", original.num("seq")+2, marker)
	ana.event("c-1", marker)
	c.Examined("refused sends that could have written something", refused)
	c.Equal("messages in the log", []string{"first", "first", "of ben"}, bodies(c.log("c-1")))
	c.whole()
}

// bodies are what the messages among events say.
func bodies(events []logged) (all []string) {
	for _, e := range events {
		if e.kind == "msg" {
			all = append(all, e.body)
		}
	}
	return all
}

func strangersSend(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben", "cy")
	ana, ben, cy, eve := n.device("ana", "ana-1"), n.device("ben", "ben-1"), n.device("cy", "cy-1"), n.device("eve", "eve-1")
	old := cy.say("c-1", "m-old", "as a member")
	n.leave("c-1", "cy")
	before := c.log("c-1")

	refusals := map[string]bool{}
	attempts := 0
	for _, x := range []struct {
		who  *peer
		conv string
	}{{eve, "c-1"}, {cy, "c-1"}, {ana, "c-absent"}, {eve, "c-absent"}} {
		what := x.who.user + " in " + x.conv
		f := x.who.ask(message(x.conv, "m-new", "not welcome"))
		c.Equal(what+": code, stored, retry", []string{"NOT_MEMBER", "no", "no"}, []string{f.code(), f.str("stored"), f.str("retry")})
		delete(f, "rid")
		a := n.as(x.who.user, http.MethodPut, "/v1/conversations/"+x.conv+"/messages/m-new", frame{"body": "not welcome"})
		c.Equal(what+" over HTTP: status, code", []any{http.StatusForbidden, "NOT_MEMBER"}, []any{a.status, a.body.code()})
		refusals[fmt.Sprint(f)+a.raw] = true
		attempts += 2
	}
	c.Equal("different refusals", 1, len(refusals))
	repeat := cy.ask(message("c-1", "m-old", "as a member"))
	c.Equal("a repeat by one who has left: answer, seq, dup", []any{"sent", old, true}, []any{repeat.t(), repeat.num("seq"), repeat.flag("dup")})
	attempts++
	c.Equal("the log after that", before, c.log("c-1"))
	marker := ana.say("c-1", "m-1", "hello")
	c.Equal("the next message gets the next seq", before[len(before)-1].seq+1, marker)
	ben.event("c-1", marker)
	c.Equal("rows of a conversation that does not exist", 0, one[int](c.scene, `SELECT count(*) FROM tidings.event WHERE conv_id = 'c-absent'`))
	c.Examined("sends that could have written something", attempts)
	c.whole()
}
