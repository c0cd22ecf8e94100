// The check 40-revoked-while-connected.

package lab_test

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-revoked-while-connected",
		Expect: "the sockets of a revoked user at two gateways close with 4403 within 10 s, her old token is refused everywhere, a new one passes; one whose token " +
			"ends is closed with 4401 within 2 s of that, and one who has refreshed it lives; one who was removed gets the leave and nothing after it",
		Run: revokedWhileConnected,
	})
}

// lasting is a claim of a token that ends then.
func lasting(until time.Time) func(map[string]any) {
	return func(c map[string]any) { c["exp"] = float64(until.UnixMilli()) / 1000 }
}

func revokedWhileConnected(t *lab.T) {
	c := newChat(t)
	exact := with("TIDINGS_TOKEN_LEEWAY", "0s") // the clocks of issuer and gateways are one
	a, b := c.node("a", exact), c.node("b", exact)
	a.conversation("c-1", "ana", "ben", "cid", "dan")
	connect := func(n *node, user, device, token string) *peer {
		p, _, err := n.open()
		c.Must("open a WebSocket", err)
		p.user, p.dev = user, device
		c.Equal(device+" is connected", "welcome", p.hello(token, device, "i-1").t())
		return p
	}
	old := token("ana")
	first, second := connect(a, "ana", "ana-1", old), connect(b, "ana", "ana-2", old)
	dan := b.device("dan", "dan-1")
	ends := time.Now().Add(2 * time.Second)
	short := token("ben", lasting(ends))
	ending, refreshed := connect(a, "ben", "ben-1", short), connect(b, "ben", "ben-2", short)
	c.Equal("one refreshes the token", "refreshed", refreshed.ask(frame{"t": "refresh", "token": token("ben")}).t())
	c.Equal("another user's token does not do", "UNAUTHENTICATED", refreshed.ask(frame{"t": "refresh", "token": token("dan")}).code())
	cid := a.device("cid", "cid-1")

	// Revocation.
	c.Equal("before it: HTTP", http.StatusOK, a.http(http.MethodGet, "/v1/conversations", nil, "Authorization", "Bearer "+old).status)
	c.tidings("token", "revoke", "ana")
	revoked := time.Now()

	// Removal, meanwhile.
	left := a.leave("c-1", "cid")
	e := cid.event("c-1", left)
	c.Equal("who was removed gets the leave", "leave cid", e.str("kind")+" "+e.str("sender"))
	after := dan.say("c-1", "m-1", "not for cid")
	refreshed.event("c-1", after) // the marker: somebody else has seen it
	c.Equal("the removed one's send", "NOT_MEMBER", cid.ask(message("c-1", "m-2", "x")).code())
	c.Equal("and sync ends at the leave", left, cid.ask(frame{"t": "sync", "conv": "c-1", "after": 0}).num("head"))

	// Expiry.
	code := ending.closed(soon).num("close")
	c.Within("from the token's end to the close", 2*time.Second, time.Since(ends))
	c.True("not before the end", time.Now().After(ends))
	c.Equal("close code of the one whose token ended", 4401, code)

	codes := []int64{first.closed(soon).num("close"), second.closed(soon).num("close")}
	c.Within("from the revocation to the close of both", 10*time.Second, time.Since(revoked))
	c.Equal("close codes of the revoked one", []int64{4403, 4403}, codes)
	c.Until("HTTP refuses the revoked token", soon, func() bool {
		return a.http(http.MethodGet, "/v1/conversations", nil, "Authorization", "Bearer "+old).status == http.StatusUnauthorized
	})
	c.Within("from the revocation to that", 10*time.Second, time.Since(revoked))
	for _, n := range []*node{a, b} {
		c.Equal("the revoked token in the header", http.StatusUnauthorized, n.knock("Authorization", "Bearer "+old).answer.StatusCode)
		s := n.knock()
		s.text(frame{"t": "hello", "rid": "hello", "token": old, "device": "ana-1", "install": "i-1"})
		code, before := s.ends()
		c.Equal("the revoked token in hello", "1 UNAUTHENTICATED 4403", fmt.Sprint(len(before), " ", before[0].code(), " ", code))
	}
	fresh := token("ana", func(c map[string]any) { c["iat"] = float64(time.Now().UnixMilli()) / 1000 })
	connect(a, "ana", "ana-1", fresh)

	dan.event("c-1", dan.say("c-1", "m-3", "x"))
	for _, p := range []*peer{dan, refreshed, cid} {
		c.Equal(p.dev+" lives", "conversations", p.ask(frame{"t": "conversations"}).t())
	}
	c.Equal("events behind the leave at who was removed", 0, len(slices.DeleteFunc(cid.received("event"), func(f frame) bool {
		return f.sub("event").num("seq") <= left
	})))
}
