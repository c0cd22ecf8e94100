// Sends webhooks as Tidings does, and as others might.

package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/webhook"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

func TestReceiver(t *testing.T) {
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), tableSQL); err != nil {
		t.Fatal(err)
	}
	secret := func(c string) webhook.Secret {
		s, err := webhook.ParseSecret("whsec_" + strings.Repeat(c, 32))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	server := httptest.NewServer(&receiver{secrets: []webhook.Secret{secret("A"), secret("B")}, pool: pool})
	defer server.Close()
	send := func(id string, s webhook.Secret) channel.Outcome {
		t.Helper()
		c, err := webhook.New(webhook.Config{URL: server.URL, Secrets: []webhook.Secret{s}, PlainHTTP: true, AllowPrivate: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Send(t.Context(), channel.Message{Key: id, User: "u-ana", Address: "ana", EventKey: "e-" + id, Body: "Hello", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
	}
	for _, id := range []string{"1", "1", "2"} {
		if out := send(id, secret("B")); out.Code != tidings.Accepted || out.ProviderMsgID != id {
			t.Errorf("webhook %s: %+v", id, out)
		}
	}
	if out := send("3", secret("C")); out.Code != tidings.Rejected {
		t.Errorf("a webhook with a foreign signature: %+v", out)
	}
	var ids string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(webhook_id || ' ' || recipient || ' ' || body, ', ' ORDER BY webhook_id) FROM received`).Scan(&ids); err != nil {
		t.Fatal(err)
	}
	if ids != "1 u-ana Hello, 2 u-ana Hello" {
		t.Errorf("stored are %s", ids)
	}
}
