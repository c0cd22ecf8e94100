package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
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
		"no token": {URL: "ws://a", Device: "d"}, "no device": {URL: "ws://a", Token: noToken}, "ftp": {URL: "ftp://a", Device: "d", Token: noToken},
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
