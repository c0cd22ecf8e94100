// Tests of the client with a real gateway.

package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/gateway"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

var secret = []byte("a secret of the tests, of 32 bytes or more")

// house is a real gateway on a database of its own.
type house struct {
	t     *testing.T
	store *store.Store
	url   string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	st := store.New(pgtest.New(t))
	if err := st.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	verifier, err := token.New(token.Config{HS256Secret: secret, Audience: "tidings"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Store: st, Verifier: verifier, ID: "gw-1", DrainFor: 100 * time.Millisecond, CloseWait: time.Second,
		Bus: bus.New(bus.Config{Conn: st.Pool().Config().ConnConfig, Sender: "gw-1"})})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.Handler(g))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.Close()
	})
	eventually(t, "the gateway serves", func() bool { return g.Ready() == nil })
	return &house{t, st, server.URL}
}

func (h *house) create(conv string, members ...string) {
	h.t.Helper()
	if _, err := h.store.CreateConversation(h.t.Context(), store.Conversation{Conv: conv, RecallWindow: 2 * time.Minute, Members: members}); err != nil {
		h.t.Fatal(err)
	}
}

// heard collects updates.
type heard struct {
	mu  sync.Mutex
	all []client.Update
}

func (h *heard) handle(u client.Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, u)
}

func (h *heard) updates() []client.Update {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

func (h *heard) events() (list []tidings.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.all {
		if a, ok := u.(client.Arrived); ok {
			list = append(list, a.Event)
		}
	}
	return list
}

func (h *house) client(user, device string, change ...func(*client.Config)) (*client.Client, *heard) {
	h.t.Helper()
	all := &heard{}
	cfg := client.Config{URL: h.url, Device: device, Handle: all.handle, AckEvery: 10 * time.Millisecond, BackoffMin: 10 * time.Millisecond,
		BackoffMax: 100 * time.Millisecond,
		Token: func(context.Context) (client.Token, error) {
			text, err := token.IssueHS256(secret, "tidings", token.Claims{User: user, Issued: time.Now(), Expires: time.Now().Add(time.Hour)})
			return client.Token{Text: text, Expires: time.Now().Add(time.Hour)}, err
		}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.Open(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			h.t.Error(err)
		}
	})
	return c, all
}

const patience = 20 * time.Second

func eventually(t testing.TB, what string, ok func() bool, seen ...*heard) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, h := range seen {
				for _, u := range h.updates() {
					t.Logf("%T %+v", u, u)
				}
			}
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestTwoClientsOfARealGatewayHaveTheSameLog(t *testing.T) {
	h := newHouse(t)
	h.create("c-g", "u-ana", "u-ben")
	ana, anaHeard := h.client("u-ana", "d-a", func(c *client.Config) { c.Outbox = filepath.Join(t.TempDir(), "outbox") })
	_, benHeard := h.client("u-ben", "d-b")
	const n = 20
	for i := range n {
		p, err := ana.Send(client.Message{Conv: "c-g", Cmid: fmt.Sprint("m-", i), Body: fmt.Sprint("text ", i)})
		if err != nil {
			t.Fatal(err)
		}
		if i == n-1 {
			s, err := p.Wait(t.Context())
			if err != nil || s.Seq != n+2 || s.Dup {
				t.Fatalf("the last one is %+v, %v", s, err)
			}
		}
	}
	for joined, all := range map[int64]*heard{1: anaHeard, 2: benHeard} {
		eventually(t, "everyone has everything", func() bool { return len(all.events()) == n+3-int(joined) }, all)
		for i, e := range all.events() {
			if e.Seq != joined+int64(i) || e.Seq > 2 && *e.Body != fmt.Sprint("text ", e.Seq-3) {
				t.Fatalf("place %d has %+v", i, e)
			}
		}
	}
	eventually(t, "the cursor is stored", func() bool {
		list, err := ana.Conversations(t.Context())
		return err == nil && len(list) == 1 && list[0].Delivered == n+2
	})
	ana.MarkRead("c-g", 5)
	eventually(t, "the read cursor is told", func() bool {
		return slices.ContainsFunc(anaHeard.updates(), func(u client.Update) bool {
			r, ok := u.(client.ReadMoved)
			return ok && r.Seq == 5
		})
	})
	if _, err := ana.Send(client.Message{Conv: "c-other", Body: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := ana.Sync(t.Context(), "c-other"); tidings.ErrorCode(err) != tidings.NotMember {
		t.Fatalf("sync of an absent conversation: %v", err)
	}
}
