// Tests of what the client refuses and what it tells.

package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

func noToken(context.Context) (Token, error) { return Token{}, errors.New("there is none") }

func TestSendRefusesAtOnce(t *testing.T) {
	c, err := Open(Config{URL: "ws://127.0.0.1:1", Device: "d-1", Token: noToken, MaxOutbox: 2})
	if err != nil {
		t.Fatal(err)
	}
	send := func(cmid, body string) tidings.Code {
		_, err := c.Send(Message{Conv: "c", Cmid: cmid, Body: body})
		return tidings.ErrorCode(err)
	}
	for _, step := range []struct {
		cmid, body string
		want       tidings.Code
	}{
		{"a", "one", ""}, {"a", "one", ""}, {"a", "two", tidings.IdempotencyMismatch}, {"a b", "x", tidings.InvalidArgument},
		{"b", strings.Repeat("x", tidings.MaxBody+1), tidings.TooLarge}, {"b", strings.Repeat("\x01", 11_000), tidings.TooLarge},
		{"b", "x", ""}, {"d", "x", tidings.RateLimited},
	} {
		if got := send(step.cmid, step.body); got != step.want {
			t.Errorf("%s with %d bytes: %s, not %s", step.cmid, len(step.body), got, step.want)
		}
	}
	if n := len(c.Waiting()); n != 2 {
		t.Errorf("%d messages wait", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the outbox is flushed: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(Message{Conv: "c", Body: "x"}); err == nil {
		t.Error("a closed client takes a message")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no token": {URL: "ws://a", Device: "d"}, "no device": {URL: "ws://a", Token: noToken}, "no scheme": {URL: "localhost:8080", Device: "d", Token: noToken}, "ftp": {URL: "ftp://a", Device: "d", Token: noToken},
		"bad install": {URL: "ws://a", Device: "d", Token: noToken, Install: "a b"},
	} {
		if c, err := Open(cfg); err == nil {
			_ = c.Close()
			t.Errorf("%s: it was opened", name)
		}
	}
	cfg := Config{URL: "https://chat.example.org", Device: "d", Token: noToken}
	if err := cfg.check(); err != nil || cfg.URL != "wss://chat.example.org/v1/ws" {
		t.Errorf("the URL becomes %s, %v", cfg.URL, err)
	}
}

// What was transmitted and has no answer is in doubt, and what never left is not.
func TestWaitingTellsWhatIsInDoubt(t *testing.T) {
	asked := make(chan struct{})
	var upgrader websocket.Upgrader
	upgrader.Subprotocols = []string{wire.Subprotocol}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			_, frame, err := conn.ReadMessage()
			if err != nil {
				return
			}
			switch req, _ := wire.Decode(frame); req.T {
			case wire.TypeHello:
				if err := conn.WriteMessage(websocket.TextMessage, wire.AppendWelcome(nil, req.Rid, &wire.Welcome{User: "u-ana", PingMS: 25_000, Limits: wire.NewLimits(0)})); err != nil {
					return
				}
			case wire.TypeSend: // never answered
				close(asked)
			}
		}
	}))
	defer server.Close()
	c, err := Open(Config{URL: server.URL, Device: "d-1", Token: func(context.Context) (Token, error) { return Token{Text: "t"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"first", "second"} { // one is under way at once
		if _, err := c.Send(Message{Conv: "c", Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is sent")
	}
	check := func(when string) {
		t.Helper()
		if list := c.Waiting(); len(list) != 2 || !list[0].InDoubt || list[1].InDoubt {
			t.Errorf("%s: %+v", when, list)
		}
	}
	check("on its way")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed")
}

// An address without a gateway says which one it is.
func TestThereIsNoGateway(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	told := make(chan Connection, 1)
	c, err := Open(Config{URL: server.URL, Device: "d-1", Token: func(context.Context) (Token, error) { return Token{Text: "t"}, nil }, BackoffMin: time.Hour, BackoffMax: time.Hour,
		Handle: func(u Update) {
			if u, ok := u.(Connection); ok {
				select {
				case told <- u:
				default: // the first one counts
				}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	select {
	case u := <-told:
		if u.Err == nil || !strings.Contains(u.Err.Error(), "there is no gateway at ws://") {
			t.Errorf("it says %v", u.Err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is told")
	}
}
