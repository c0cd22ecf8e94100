// Tests of a gateway over real sockets.

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/internal/wire"
)

// house is a gateway that serves on a database of its own.
type house struct {
	*Gateway
	t     testing.TB
	store *store.Store
	addr  string
	stop  func()
}

var secret = []byte("a secret of the tests, of 32 bytes or more")

const audience = "tidings-test"

func newHouse(t testing.TB, change ...func(*Config)) *house {
	t.Helper()
	st := store.New(pgtest.New(t))
	if err := st.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	return houseOn(t, st, "gw-1", change...)
}

// houseOn starts one more gateway on a store.
func houseOn(t testing.TB, st *store.Store, id string, change ...func(*Config)) *house {
	t.Helper()
	verifier, err := token.New(token.Config{HS256Secret: secret, Audience: audience})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testLog{t}, nil))
	cfg := Config{Store: st, Verifier: verifier, ID: id, Logger: log, DrainFor: 200 * time.Millisecond, CloseWait: time.Second,
		Bus: bus.New(bus.Config{Conn: st.Pool().Config().ConnConfig, Sender: id, Log: log})}
	cfg.Registerer = prometheus.NewRegistry()
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Run(ctx)
	}()
	h := &house{Gateway: g, t: t, store: st, addr: server.Listener.Addr().String()}
	h.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("the gateway has not ended within %v", patience)
		}
		server.Close()
	})
	t.Cleanup(h.stop)
	eventually(t, "the gateway serves", func() bool { return g.Ready() == nil })
	return h
}

// testLog writes to the test's log.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// issue is a token of a user that is good for an hour, unless change says otherwise.
func issue(t testing.TB, user string, change ...func(*token.Claims)) string {
	t.Helper()
	c := token.Claims{User: user, Issued: time.Now(), Expires: time.Now().Add(time.Hour)}
	for _, f := range change {
		f(&c)
	}
	text, err := token.IssueHS256(secret, audience, c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// connect opens a socket without a hello.
func (h *house) connect(headers ...string) *peer {
	h.t.Helper()
	return open(h.t, h.addr, headers...)
}

// login is a session of a user's device.
func (h *house) login(user, device string) *peer {
	h.t.Helper()
	p := h.connect()
	p.hello(issue(h.t, user), device, "install-1")
	if f := p.next(); f.T != "welcome" {
		h.t.Fatalf("the hello is answered with %s", f.raw)
	}
	return p
}

func (p *peer) hello(text, device, install string) {
	p.t.Helper()
	p.text(`{"t":"hello","rid":"h","token":%q,"device":%q,"install":%q,"client":"by hand/1"}`, text, device, install)
}

// conversation makes one.
func (h *house) conversation(conv string, members ...string) {
	h.t.Helper()
	if _, err := h.store.CreateConversation(h.t.Context(), store.Conversation{Conv: conv, RecallWindow: time.Minute, Members: members}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.store.Pool().Exec(h.t.Context(), sql, args...); err != nil {
		h.t.Fatal(err)
	}
}

// empty waits until no session is left.
func (h *house) empty() {
	h.t.Helper()
	eventually(h.t, "no session is left", func() bool { return h.roster.size() == 0 })
}

func TestConversationOverTheSocket(t *testing.T) {
	h := newHouse(t)
	h.conversation("c", "ana", "ben")
	ana, ben := h.login("ana", "a1"), h.login("ben", "b1")
	sent := ana.ask("send", `"conv":"c","cmid":"m1","body":"hello","data":{"x":1}`)
	if sent.T != "sent" || sent.Seq != 3 || sent.Dup || sent.Epoch == 0 || sent.At == 0 {
		t.Fatalf("the send is answered with %s", sent.raw)
	}
	if again := ana.ask("send", `"conv":"c","cmid":"m1","body":"hello","data":{"x":1}`); !again.Dup || again.Seq != 3 || again.Mid != sent.Mid {
		t.Fatalf("the repetition is answered with %s", again.raw)
	}
	if push := ben.want("event"); push.Event == nil || push.Event.Seq != 3 || *push.Event.Body != "hello" || push.Event.Mid != sent.Mid {
		t.Fatalf("the push is %s", push.raw)
	}
	page := ben.ask("sync", `"conv":"c","epoch":0,"after":0`)
	if page.T != "events" || page.Head != 3 || len(page.Events) != 2 || len(page.Withheld) != 1 || page.More {
		t.Fatalf("the sync is answered with %s", page.raw)
	}
	if f := ben.ask("fetch", `"conv":"c","epoch":%d,"seq":3`, page.Epoch); f.T != "fetched" || *f.Event.Body != "hello" {
		t.Fatalf("the fetch is answered with %s", f.raw)
	}
	if f := ben.ask("ack", `"conv":"c","epoch":%d,"seq":100`, page.Epoch); f.T != "acked" || f.Seq != 3 {
		t.Fatalf("the ack is answered with %s", f.raw)
	}
	if f := ben.ask("conversations", ""); f.T != "conversations" || len(f.List) != 1 || f.List[0].Delivered != 3 || f.List[0].Unread != 1 {
		t.Fatalf("the list is %s", f.raw)
	}
	second := h.login("ben", "b2")
	if f := ben.ask("read", `"conv":"c","epoch":%d,"seq":3`, page.Epoch); f.T != "read" || f.Seq != 3 || f.Unread != 0 {
		t.Fatalf("the read is answered with %s", f.raw)
	}
	if f := second.want("cursor"); f.Conv != "c" || f.Read != 3 {
		t.Fatalf("the other device is told %s", f.raw)
	}
	if f := ana.ask("outcome", `"conv":"c","cmid":"m1"`); f.T != "outcome" || f.Stored != "yes" || f.Seq != 3 {
		t.Fatalf("the outcome is %s", f.raw)
	}
	if f := ana.ask("refresh", `"token":%q`, issue(t, "ana")); f.T != "refreshed" {
		t.Fatalf("the refresh is answered with %s", f.raw)
	}

	eve := h.login("eve", "e1")
	for _, request := range []string{"send", "sync", "fetch", "read", "ack", "outcome"} {
		inside := eve.refused(tidings.NotMember, request, `"conv":"c","cmid":"m1","body":"x","seq":1,"after":0`)
		absent := eve.refused(tidings.NotMember, request, `"conv":"nowhere","cmid":"m1","body":"x","seq":1,"after":0`)
		inside.raw, absent.raw = strings.ReplaceAll(inside.raw, inside.Rid, ""), strings.ReplaceAll(absent.raw, absent.Rid, "")
		if inside.raw != absent.raw {
			t.Errorf("%s tells a conversation from none: %s, %s", request, inside.raw, absent.raw)
		}
	}
	ana.refused(tidings.IdempotencyMismatch, "send", `"conv":"c","cmid":"m1","body":"other"`)
	ana.refused(tidings.EpochChanged, "sync", `"conv":"c","epoch":7,"after":0`)
	ana.refused(tidings.CursorAhead, "read", `"conv":"c","epoch":%d,"seq":9`, page.Epoch)
	ana.refused(tidings.Unauthenticated, "refresh", `"token":%q`, issue(t, "ben"))
	ana.refused(tidings.InvalidArgument, "hello", `"token":"x","device":"a1","install":"i"`)
}

func TestUpgradeRefusals(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Origins = []string{"https://app.example"} })
	good := issue(t, "ana")
	for name, test := range map[string]struct {
		headers []string
		status  int
	}{
		"no subprotocol":      {[]string{"Sec-WebSocket-Protocol", ""}, 400},
		"another subprotocol": {[]string{"Sec-WebSocket-Protocol", "chat, tidings.v2"}, 400},
		"another origin":      {[]string{"Origin", "https://evil.example"}, 403},
		"the origin in part":  {[]string{"Origin", "https://app.example.evil.example"}, 403},
		"origin null":         {[]string{"Origin", "null"}, 403},
		"no upgrade":          {[]string{"Upgrade", "h2c"}, 400},
		"another version":     {[]string{"Sec-WebSocket-Version", "12"}, 400},
		"no key":              {[]string{"Sec-WebSocket-Key", "short"}, 400},
		"a bad token":         {[]string{"Authorization", "Bearer nonsense"}, 401},
		"no bearer":           {[]string{"Authorization", "Basic YTpi"}, 401},
		"an expired token": {[]string{"Authorization", "Bearer " + issue(t, "ana", func(c *token.Claims) {
			c.Issued, c.Expires = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		})}, 401},
	} {
		p, answer := knock(t, h.addr, test.headers...)
		if answer.StatusCode != test.status || answer.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: answered with %d %s, want %d", name, answer.StatusCode, answer.Header.Get("Content-Type"), test.status)
		}
		_ = p.conn.Close()
	}
	for name, headers := range map[string][]string{
		"an allowed origin":      {"Origin", "https://app.example"},
		"several subprotocols":   {"Sec-WebSocket-Protocol", "chat, tidings.v1"},
		"compression is offered": {"Sec-WebSocket-Extensions", "permessage-deflate"},
		"a token":                {"Authorization", "Bearer " + good},
	} {
		p, answer := knock(t, h.addr, headers...)
		if answer.StatusCode != 101 || answer.Header.Get("Sec-WebSocket-Protocol") != "tidings.v1" || answer.Header.Get("Sec-WebSocket-Extensions") != "" {
			t.Errorf("%s: answered with %d %v", name, answer.StatusCode, answer.Header)
		}
		_ = p.conn.Close()
	}
	recorded := httptest.NewRecorder()
	h.ServeHTTP(recorded, httptest.NewRequest(http.MethodPost, "/v1/ws", nil))
	if recorded.Code != http.StatusMethodNotAllowed {
		t.Errorf("a POST is answered with %d", recorded.Code)
	}
	h.empty()
}

func TestHelloRefusals(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.MaxPerUser = 2 })
	good := issue(t, "ana")
	bound := issue(t, "ana", func(c *token.Claims) { c.Device = "a1" })
	old := issue(t, "ana", func(c *token.Claims) { c.Issued, c.Expires = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour) })
	for name, test := range map[string]struct {
		text string
		code int
	}{
		"no token":       {"", 4401},
		"nonsense":       {"nonsense", 4401},
		"cut":            {good[:len(good)-2], 4401},
		"expired":        {old, 4401},
		"another device": {bound, 4401},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, h.addr)
			p.hello(test.text, "a2", "i")
			before := p.ends(test.code)
			if len(before) != 1 || !strings.Contains(before[0], `"code":"UNAUTHENTICATED"`) {
				t.Errorf("before the end came %q", before)
			}
		})
	}
	p := h.connect("Authorization", "Bearer "+good)
	p.hello("", "a1", "install-1")
	p.want("welcome")
	p = h.connect("Authorization", "Bearer "+good)
	p.hello(issue(t, "ben"), "a1", "install-1")
	p.ends(4401) // two users

	h.login("ana", "a2")
	p = h.connect()
	p.hello(good, "a3", "i")
	if before := p.ends(wire.CloseTooMany); len(before) != 1 || !strings.Contains(before[0], `"code":"RATE_LIMITED"`) {
		t.Errorf("the third device is told %q", before)
	}
	h.login("ana", "a2") // the same device again is no third one

	p = h.connect()
	p.hello(good, "a b", "i")
	if before := p.ends(4409); len(before) != 1 || !strings.Contains(before[0], `"code":"INVALID_ARGUMENT"`) {
		t.Errorf("a bad device is told %q", before)
	}
}

func TestReplacedConnectionsAndInstalls(t *testing.T) {
	h := newHouse(t)
	other := houseOn(t, h.store, "gw-2")
	first := h.login("ana", "a1")
	second := h.login("ana", "a1")
	first.ends(4404)
	third := other.login("ana", "a1")
	second.ends(4404)
	p := h.connect()
	p.hello(issue(t, "ana"), "a1", "install-2")
	p.want("welcome")
	third.ends(4404)
	p = h.connect()
	p.hello(issue(t, "ana"), "a1", "install-1")
	if before := p.ends(4410); len(before) != 1 || !strings.Contains(before[0], `"code":"INSTALL_REPLACED"`) {
		t.Errorf("a replaced install is told %q", before)
	}
}

func TestRevocationAndExpiryReachOpenSockets(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.FloorsEvery = 50 * time.Millisecond })
	revoked := h.connect()
	revoked.hello(issue(t, "ana", func(c *token.Claims) { c.Issued = time.Now().Add(-time.Minute) }), "a1", "i")
	revoked.want("welcome")
	untouched := h.login("ben", "b1")
	if err := h.store.RevokeTokens(t.Context(), "ana", time.Time{}); err != nil {
		t.Fatal(err)
	}
	revoked.ends(4403)
	again := h.connect()
	again.hello(issue(t, "ana", func(c *token.Claims) { c.Issued = time.Now().Add(-time.Minute) }), "a1", "i")
	again.ends(4403)

	expiring := h.connect()
	expiring.hello(issue(t, "eve", func(c *token.Claims) { c.Expires = time.Now().Add(3 * time.Second) }), "e1", "i")
	expiring.want("welcome")
	refreshed := h.connect()
	refreshed.hello(issue(t, "eve", func(c *token.Claims) { c.Expires = time.Now().Add(3 * time.Second) }), "e2", "i")
	refreshed.want("welcome")
	if f := refreshed.ask("refresh", `"token":%q`, issue(t, "eve")); f.T != "refreshed" {
		t.Fatalf("the refresh is answered with %s", f.raw)
	}
	expiring.ends(4401)
	for _, p := range []*peer{refreshed, untouched} {
		if f := p.ask("conversations", ""); f.T != "conversations" {
			t.Errorf("answered with %s", f.raw)
		}
	}
}

func TestDrain(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.DrainFor = time.Second })
	h.conversation("c", "ana")
	var peers []*peer
	for i := range 10 {
		peers = append(peers, h.login("ana", fmt.Sprint("a", i)))
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		h.stop()
	}()
	hints := map[int64]bool{}
	for _, p := range peers {
		hints[p.want("draining").ReconnectAfterMS] = true
	}
	if len(hints) != len(peers) {
		t.Errorf("the hints of %d connections are %v", len(peers), hints)
	}
	if h.Ready() == nil {
		t.Error("a draining gateway says that it is ready")
	}
	p, answer := knock(t, h.addr)
	if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" {
		t.Errorf("a new socket is answered with %d %v", answer.StatusCode, answer.Header)
	}
	_ = p.conn.Close()
	for _, p := range peers {
		p.ends(4001)
	}
	<-stopped
}
