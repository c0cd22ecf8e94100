// The checks 05-connect-hello, 05-auth-rejected.

package lab_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "05-connect-hello",
		Expect: "with the token in hello or in the header: tidings.v1 echoed, no extension, welcome first, with user, device, the connection of the route, " +
			"the database's time, the configured ping and the limits; then the list of exactly the user's conversations, with epochs; another subprotocol: 400",
		Run: connectHello,
	})
	lab.Register(lab.Check{
		ID:     "05-auth-rejected",
		Expect: "every bad credential: in the header 401 before the upgrade, in hello one error and 4401, over HTTP 401; no device, no route; good ones pass",
		Run:    authRejected,
	})
}

func connectHello(t *lab.T) {
	c := newChat(t)
	n := c.node("n1", with("TIDINGS_GATEWAY_PING", "7s"))
	n.conversation("c-a", "ana", "ben")
	n.conversation("c-b", "ana")
	n.conversation("c-z", "ben")
	for _, way := range []string{"hello", "header"} {
		header, inHello := []string(nil), token("ana")
		if way == "header" {
			header, inHello = []string{"Authorization", "Bearer " + inHello}, ""
		}
		p, r, err := n.open(header...)
		c.Must("open a WebSocket", err)
		p.dev = "ana-1"
		c.Equal(way+": subprotocol", "tidings.v1", p.conn.Subprotocol())
		c.Equal(way+": extensions", "", r.Header.Get("Sec-WebSocket-Extensions"))
		const now = `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint`
		before := one[int64](c.scene, now)
		w := p.hello(inHello, "ana-1", "i-1")
		after := one[int64](c.scene, now)
		c.Equal(way+": answer", "welcome of ana at ana-1", fmt.Sprintf("%s of %s at %s", w.t(), w.str("user"), w.str("device")))
		c.Equal(way+": pushes before the welcome", 0, len(p.received("event")))
		c.True(way+": now is the database's", before <= w.num("now") && w.num("now") <= after)
		c.Equal(way+": ping_ms", 7000, w.num("ping_ms"))
		limits := w.sub("limits")
		c.Equal(way+": limits", []int64{65536, 16384, 8192, 256, 500},
			[]int64{limits.num("frame"), limits.num("body"), limits.num("data"), limits.num("inflight"), limits.num("page")})
		_, features := w["features"].([]any)
		c.True(way+": a list of features", features)
		c.Equal(way+": connection", c.routes("ana"), []string{w.str("connection")})

		var listed []string
		for _, s := range p.ask(frame{"t": "conversations"}).list("list") {
			listed = append(listed, fmt.Sprintf("%s epoch %d head %d", s.str("conv"), s.num("epoch"), s.num("head")))
		}
		var stored []string
		for _, conv := range []string{"c-a", "c-b"} {
			stored = append(stored, one[string](c.scene, `SELECT format('%s epoch %s head %s', conv_id, epoch, next_seq - 1) FROM tidings.conversation WHERE conv_id = $1`, conv))
		}
		c.Equal(way+": conversations", stored, listed)
		first := p.ask(frame{"t": "conversations", "limit": 1})
		rest := p.ask(frame{"t": "conversations", "limit": 1, "after": first.list("list")[0].str("conv")})
		c.Equal(way+": in pages", []any{"c-a", true, "c-b", false},
			[]any{first.list("list")[0].str("conv"), first.flag("more"), rest.list("list")[0].str("conv"), rest.flag("more")})
	}
	for _, protocol := range []string{"", "tidings.v2", "TIDINGS.V1"} {
		s := n.knock("Sec-WebSocket-Protocol", "", "Sec-WebSocket-Protocol", protocol)
		c.Equal("asked for the subprotocol "+protocol, http.StatusBadRequest, s.answer.StatusCode)
	}
}

// routes are the connections at which a user's devices are.
func (c *chat) routes(user string) []string {
	c.Helper()
	return one[[]string](c.scene, `SELECT coalesce(array_agg(connection_id::text ORDER BY device_id), '{}') FROM tidings.route WHERE user_id = $1`, user)
}

// badTokens are tokens of ana that must not be accepted, by what is wrong with them.
func badTokens() map[string]string {
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	claim := func(name string, value any) string {
		return token("ana", func(c map[string]any) {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		})
	}
	good, other := strings.Split(token("ana"), "."), strings.Split(token("ben"), ".")
	claims := map[string]any{"sub": "ana", "aud": tokenAudience, "iat": in(0), "exp": in(time.Hour)}
	return map[string]string{
		"expired":             claim("exp", in(-time.Minute)),
		"no end":              claim("exp", nil),
		"not valid yet":       claim("nbf", in(time.Hour)),
		"issued in future":    claim("iat", in(time.Hour)),
		"wrong audience":      claim("aud", "another"),
		"no audience":         claim("aud", nil),
		"no user":             claim("sub", nil),
		"a user that is none": claim("sub", "a b"),
		"wrong secret":        signed("HS256", "another secret, of 32 bytes and more, nobody has", claims),
		"alg none":            signed("none", "", claims),
		"alg none, signed":    signed("none", "", claims) + good[2],
		"alg HS512":           signed("HS512", tokenSecret, claims),
		"others' claims":      good[0] + "." + other[1] + "." + good[2],
		"no signature":        good[0] + "." + good[1] + ".",
		"no token":            "x.y.z",
	}
}

func authRejected(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	const refusedHello = "[error UNAUTHENTICATED hello auth] 4401"
	// hello says hello, and asks at once for what only the welcome permits.
	hello := func(text, device string, header ...string) string {
		s := n.knock(header...)
		s.text(frame{"t": "hello", "rid": "hello", "token": text, "device": device, "install": "i-1"}, frame{"t": "conversations", "rid": "list"})
		code, before := s.ends()
		var seen []string
		for _, f := range before {
			seen = append(seen, fmt.Sprint(f.t(), " ", f.code(), " ", f.str("rid"), " ", f.str("retry")))
		}
		return fmt.Sprint(seen, " ", code)
	}
	tried := 0
	for what, text := range badTokens() {
		tried++
		c.Equal(what+": hello", refusedHello, hello(text, "ana-1"))
		s := n.knock("Authorization", "Bearer "+text)
		c.Equal(what+": handshake", "401 application/problem+json", fmt.Sprint(s.answer.StatusCode, " ", s.answer.Header.Get("Content-Type")))
		c.Equal(what+": HTTP", http.StatusUnauthorized, n.http(http.MethodGet, "/v1/conversations", nil, "Authorization", "Bearer "+text).status)
	}
	for what, header := range map[string]string{"an empty bearer": "Bearer ", "Basic": "Basic YW5hOmFuYQ==", "an API key": "Bearer " + c.key, "a bare token": token("ana")} {
		tried++
		c.Equal(what+": handshake", http.StatusUnauthorized, n.knock("Authorization", header).answer.StatusCode)
	}
	bound := token("ana", func(c map[string]any) { c["did"] = "ana-1" })
	for what, seen := range map[string]string{
		"no token anywhere":                 hello("", "ana-1"),
		"another device's, in hello":        hello(bound, "ana-2"),
		"another device's, in the header":   hello("", "ana-2", "Authorization", "Bearer "+bound),
		"of two users, in header and hello": hello(token("ben"), "ana-1", "Authorization", "Bearer "+token("ana")),
	} {
		tried++
		c.Equal(what, refusedHello, seen)
	}
	c.Examined("bad credentials", tried)
	c.Equal("devices and routes", []int{0, 0}, []int{one[int](c.scene, `SELECT count(*) FROM tidings.device`), one[int](c.scene, `SELECT count(*) FROM tidings.route`)})

	p, _, err := n.open("Authorization", "Bearer "+bound)
	c.Must("open a WebSocket", err)
	c.Equal("the bound token at its device, in the header", "welcome", p.hello("", "ana-1", "i-1").t())
	p, _, err = n.open()
	c.Must("open a WebSocket", err)
	c.Equal("and in hello", "welcome", p.hello(bound, "ana-1", "i-1").t())
}
