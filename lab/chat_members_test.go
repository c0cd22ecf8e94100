// The checks 08-join-no-prior-history, 08-leave-closes-interval, 08-rejoin-gap-stays-hidden.

package lab_test

import (
	"fmt"
	"net/http"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "08-join-no-prior-history",
		Expect: "who joins at 7 gets 7, 8 and 9 and not a word of what was before: by push, by sync and fetch over WebSocket and HTTP, by a server in the user's name, in the " +
			"list, by the client library; 1 to 6 are withheld as not_member; in a conversation that the gateway knew and in one that it did not",
		Run: joinNoPriorHistory,
	})
	lab.Register(lab.Check{
		ID: "08-leave-closes-interval",
		Expect: "who leaves at 6 reads 3 to 6, the leave with them, and not a word of what follows, on any path; head, list, unread, cursors and lag hints stop at 6; " +
			"nothing can be sent",
		Run: leaveClosesInterval,
	})
	lab.Register(lab.Check{
		ID: "08-rejoin-gap-stays-hidden",
		Expect: "left at 5, back at 9: 6, 7 and 8 are withheld as not_member by sync from any position, by fetch, push, HTTP and the client library, and are not counted as " +
			"unread; what was before and comes after is readable",
		Run: rejoinGapStaysHidden,
	})
}

// private is in every message that the user of a check must not get.
const private = "not for you"

// paths reads a conversation by every path as the peer's user, and records that each gives the same seqs and reasons, and no word of
// what is private. It returns one of these views.
func (c *chat) paths(p *peer, n *node, conv string, seqs []int64, withheld []string, last int64) (v view) {
	c.Helper()
	for _, x := range []struct {
		what  string
		ask   pager
		limit int
	}{
		{"sync", p.pages(conv), 100}, {"sync by one", p.pages(conv), 1}, {"HTTP", n.pages(p.user, conv), 2}, {"HTTP as a server", n.pagesFor(p.user, conv), 100},
	} {
		v = c.read(x.ask, x.limit)
		c.Equal(conv+" by "+x.what+": seqs", seqs, v.seqs)
		c.Equal(conv+" by "+x.what+": withheld", withheld, v.withheld)
		c.Equal(conv+" by "+x.what+": secrets", 0, mentions(private, v.text))
		c.Examined("pages", v.pages)
	}
	visible := map[int64]string{}
	for _, e := range v.events {
		visible[e.seq] = e.kind
	}
	var want []string
	for seq := int64(1); seq <= last; seq++ {
		kind := visible[seq]
		if kind == "" {
			kind = "NOT_MEMBER"
		}
		want = append(want, fmt.Sprintf("%d %s", seq, kind))
	}
	got, text := c.fetches(p, n, conv, last)
	c.Equal(conv+" by fetch", want, got)
	c.Equal(conv+" by fetch: secrets", 0, mentions(private, text))
	c.Equal(conv+": pushed outside the membership", 0, outside(p.pushed(conv, 0), visible))
	c.Equal("secrets in all that "+p.dev+" was told", 0, mentions(private, p.heard()))
	c.Examined("fetches", len(got))
	c.Examined("pushes", len(p.received("event")))
	c.Examined("secrets in the log", int(one[int64](c.scene, `SELECT count(*) FROM tidings.event WHERE conv_id = $1 AND body LIKE '%' || $2 || '%'`, conv, private)))
	return v
}

// outside counts the seqs that are not visible.
func outside(seqs []int64, visible map[int64]string) (n int) {
	for _, seq := range seqs {
		if visible[seq] == "" {
			n++
		}
	}
	return n
}

// copies records what a client library of the user gets of a conversation.
func (c *chat) copies(n *node, user, conv string, seqs []int64, withheld []string) {
	c.Helper()
	a := c.app(n.url, user, user+"-app")
	a.sync(conv)
	c.Until("it has arrived", soon, func() bool { return len(a.arrived(conv)) >= len(seqs) })
	c.Equal(conv+" by the client library: seqs", seqs, a.arrived(conv))
	var v view
	for _, u := range a.told() {
		if w, ok := u.(client.Withheld); ok && w.Conv == conv {
			v.hide(w.From, w.To, w.Why)
		}
	}
	c.Equal(conv+" by the client library: withheld", withheld, v.withheld)
}

func joinNoPriorHistory(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-known", "ana", "ben")
	a.conversation("c-new", "ana", "dan")
	ana, ben, cy := a.device("ana", "ana-1"), b.device("ben", "ben-1"), b.device("cy", "cy-1")
	for _, conv := range []string{"c-known", "c-new"} {
		for i := 3; i <= 6; i++ {
			ana.say(conv, fmt.Sprint("m-", i), private)
		}
		if conv == "c-known" {
			ben.event(conv, 6) // the gateway that cy is at has it
		}
		c.Equal(conv+": joined at", 7, a.join(conv, "cy"))
		ana.say(conv, "m-8", "hello")
		ana.say(conv, "m-9", "hello")
		cy.event(conv, 9)
		c.Equal(conv+": pushed", []int64{7, 8, 9}, cy.pushed(conv, 0))
		c.paths(cy, b, conv, []int64{7, 8, 9}, []string{"1-6 not_member"}, 9)
		f := c.listed(cy, b, conv)
		c.Equal(conv+" in the list: head, unread, last", []int64{9, 2, 9}, []int64{f.num("head"), f.num("unread"), f.sub("last").num("seq")})
		c.copies(b, "cy", conv, []int64{7, 8, 9}, []string{"1-6 not_member"})
	}
	var joined []string
	for _, f := range cy.received("joined") {
		joined = append(joined, fmt.Sprint(f.str("conv"), " ", f.num("seq")))
	}
	c.Equal("told that it joined", []string{"c-known 7", "c-new 7"}, joined)
}

func leaveClosesInterval(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-1", "ana", "ben", "cy")
	a.conversation("c-marker", "ana", "cy")
	ana, ben, cy := a.device("ana", "ana-1"), b.device("ben", "ben-1"), b.device("cy", "cy-1")
	ana.say("c-1", "m-4", "hello")
	ana.say("c-1", "m-5", "hello")
	cy.event("c-1", 5)
	c.Equal("left at", 6, a.leave("c-1", "cy"))
	c.Equal("told that it left: seq", 6, cy.await("left", soon, func(f frame) bool { return f.t() == "left" && f.str("conv") == "c-1" }).num("seq"))
	ana.say("c-1", "m-7", private)
	ana.say("c-1", "m-8", private)
	ben.event("c-1", 8)
	cy.event("c-marker", ana.say("c-marker", "m-1", "after all that"))
	c.Equal("pushed", []int64{4, 5, 6}, cy.pushed("c-1", 3))

	v := c.paths(cy, b, "c-1", []int64{3, 4, 5, 6}, []string{"1-2 not_member"}, 9)
	c.Equal("head by sync", 6, v.head)
	f := c.listed(cy, b, "c-1")
	c.Equal("in the list: left, head, unread, last", []any{true, 6, 2, 6}, []any{f.flag("left"), f.num("head"), f.num("unread"), f.sub("last").num("seq")})
	for _, x := range []struct {
		ask  frame
		want []any
	}{
		{frame{"t": "sync", "conv": "c-1", "after": 6}, []any{"", 6}},
		{frame{"t": "sync", "conv": "c-1", "after": 7}, []any{"CURSOR_AHEAD", 6}},
		{frame{"t": "read", "conv": "c-1", "seq": 7}, []any{"CURSOR_AHEAD", 6}},
		{frame{"t": "send", "conv": "c-1", "cmid": "x", "body": "x"}, []any{"NOT_MEMBER", 0}},
	} {
		f := cy.ask(x.ask)
		c.Equal(fmt.Sprintf("%s %v: code, head", x.ask["t"], append([]any{x.ask["after"]}, x.ask["seq"])), x.want, []any{f.code(), f.num("head")})
	}
	c.Equal("over HTTP sync after 7: status, head", []any{http.StatusConflict, 6}, func() []any {
		a := b.as("cy", http.MethodGet, "/v1/conversations/c-1/events?after=7", nil)
		return []any{a.status, a.body.num("head")}
	}())
	f = cy.ask(frame{"t": "ack", "conv": "c-1", "seq": 8})
	c.Equal("ack 8: answer, seq", []any{"acked", 6}, []any{f.t(), f.num("seq")})
	f = cy.ask(frame{"t": "read", "conv": "c-1", "seq": 6})
	c.Equal("read 6: answer, seq, unread", []any{"read", 6, 0}, []any{f.t(), f.num("seq"), f.num("unread")})
	c.copies(b, "cy", "c-1", []int64{3, 4, 5, 6}, []string{"1-2 not_member"})

	// Nobody acknowledges what is pushed: a member is told that it lags, the former one is not, or not beyond the leave.
	ben.await("the hint that ben lags", soon, func(f frame) bool { return f.t() == "lag" && f.str("conv") == "c-1" && f.num("head") == 8 })
	cy.event("c-marker", ana.say("c-marker", "m-2", "after the hint"))
	beyond := 0
	for _, f := range cy.received("lag") {
		if f.str("conv") == "c-1" && f.num("head") > 6 {
			beyond++
		}
	}
	c.Equal("hints beyond the leave", 0, beyond)
	c.Equal("secrets in all that cy was told", 0, mentions(private, cy.heard()))
}

func rejoinGapStaysHidden(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-1", "ana", "ben", "cy")
	ana, ben, cy := a.device("ana", "ana-1"), b.device("ben", "ben-1"), b.device("cy", "cy-1")
	ana.say("c-1", "m-4", "before")
	cy.event("c-1", 4)
	c.Equal("left at", 5, a.leave("c-1", "cy"))
	for i := 6; i <= 8; i++ {
		ana.say("c-1", fmt.Sprint("m-", i), private)
	}
	ben.event("c-1", 8)
	c.Equal("back at", 9, b.join("c-1", "cy"))
	ana.say("c-1", "m-10", "after")
	cy.event("c-1", 10)
	c.Equal("pushed", []int64{4, 5, 9, 10}, cy.pushed("c-1", 3))

	gap := []string{"1-2 not_member", "6-8 not_member"}
	c.paths(cy, b, "c-1", []int64{3, 4, 5, 9, 10}, gap, 10)
	for after := int64(5); after <= 9; after++ {
		_, withheld, ok := explains(cy.ask(frame{"t": "sync", "conv": "c-1", "after": after}))
		var v view
		for _, w := range withheld {
			v.hide(w.num("from"), w.num("to"), w.str("why"))
		}
		var want []string
		if after < 8 {
			want = []string{fmt.Sprintf("%d-8 not_member", after+1)}
		}
		c.Equal(fmt.Sprintf("sync after %d: explained, withheld", after), []any{true, want}, []any{ok, v.withheld})
	}
	c.Equal("in the list: unread", 2, c.listed(cy, b, "c-1").num("unread"))
	for _, x := range [][]int64{{4, 1}, {7, 1}, {9, 1}, {10, 0}} {
		f := cy.ask(frame{"t": "read", "conv": "c-1", "seq": x[0]})
		c.Equal(fmt.Sprintf("read %d: unread", x[0]), x[1], f.num("unread"))
	}
	c.copies(b, "cy", "c-1", []int64{3, 4, 5, 9, 10}, gap)
}
