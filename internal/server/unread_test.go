// Tests of notifications of unread messages, from the message to the provider.

package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// Who is away gets the text of a message that they have not read, and nothing of one that was recalled before; the figures say so.
func TestUnreadReachesTheProvider(t *testing.T) {
	bodies := make(chan string, 100)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- string(body)
	}))
	t.Cleanup(provider.Close)
	cfg := config(t, pgtest.NewURL(t))
	cfg.ChatNotifyAfter, cfg.ChatNotifyTitle, cfg.ChatPreviewLength, cfg.MetricsListen = time.Second, "You have mail", 10, "127.0.0.1:0"
	cfg.Channels = map[string]Channel{"hook": {Webhook: &Webhook{URL: provider.URL, Secrets: []Secret{{Text: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}}, PlainHTTP: true, AllowPrivate: true}}}
	r := start(t, cfg)
	key := r.key(t, store.ScopeConversations, store.ScopeActUser, store.ScopePrefs)
	do := func(status int, method, path, body string, headers ...string) {
		t.Helper()
		if got, _, text := request(t, method, r.URL()+path, body, append(headers, key, "Content-Type: application/json")...); got != status {
			t.Fatalf("%s %s: %d %s", method, path, got, text)
		}
	}
	next := func() string {
		t.Helper()
		select {
		case body := <-bodies:
			return body
		case <-time.After(20 * time.Second):
			t.Fatal("the provider gets nothing")
			return ""
		}
	}
	do(200, "PUT", "/v1/users/u-ben/channels/hook", `{"address":"b"}`)
	do(200, "PUT", "/v1/users/u-ana/channels/hook", `{"address":"a"}`)
	do(201, "PUT", "/v1/conversations/c-1", `{"members":["u-ana","u-ben"],"preview":true}`)
	do(201, "PUT", "/v1/conversations/c-1/messages/m-1", `{"body":"wrong"}`, "Tidings-User: u-ana")
	do(201, "POST", "/v1/conversations/c-1/recalls", `{"cmid":"r-1","target":3}`, "Tidings-User: u-ana")
	do(201, "PUT", "/v1/conversations/c-1/messages/m-2", `{"body":"right and long"}`, "Tidings-User: u-ana")
	if body := next(); !strings.Contains(body, "You have mail") || !strings.Contains(body, `"right and…"`) || !strings.Contains(body, `"u-ben"`) {
		t.Errorf("the provider gets %s", body)
	}
	do(200, "PUT", "/v1/conversations/c-1/read", `{"seq":5}`, "Tidings-User: u-ben")
	do(201, "PUT", "/v1/conversations/c-1/messages/m-3", `{"body":"answer"}`, "Tidings-User: u-ben")
	if body := next(); !strings.Contains(body, `"answer"`) || !strings.Contains(body, `"u-ana"`) {
		t.Errorf("the provider gets %s", body)
	}
	// The queue is settled after the notification was created.
	lacks := func() (lines []string) {
		_, _, metrics := request(t, "GET", "http://"+r.metrics.Addr().String()+"/metrics", "")
		for _, line := range []string{"tidings_unread_notifications_total 2\n", "tidings_unread_due_rows 0\n", "tidings_unread_overdue_seconds 0\n"} {
			if !strings.Contains(metrics, line) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for deadline := time.Now().Add(10 * time.Second); len(lacks()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the metrics lack %q", lacks())
		}
	}
	if len(bodies) > 0 {
		t.Errorf("the provider gets more: %s", <-bodies)
	}
}
