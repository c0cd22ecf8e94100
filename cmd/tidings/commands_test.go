// Tests of the command line: usage, where settings come from, what commands print.

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/outbox"
)

func TestUsage(t *testing.T) {
	if out := want(t, exitDone, "--help"); !strings.Contains(out, "serve") {
		t.Errorf("the help is %s", out)
	}
	want(t, exitDone, "version")
	if out := want(t, exitDone, "config"); !strings.Contains(out, "TIDINGS_DATABASE_URL") {
		t.Errorf("the settings are %s", out)
	}
	if out := want(t, exitDone, "help", "review"); !strings.Contains(out, "resolve") {
		t.Errorf("the help about reviews is %s", out)
	}
	for _, args := range [][]string{{}, {"sreve"}, {"serve", "--listem", "x"}, {"serve", "--roles", "judge"}, {"key", "create", "x"},
		{"notify", "u", "e"}, {"serve", "--config", "/nonexistent/tidings.yaml"}, {"review", "resolve", "PERHAPS", "x"}} {
		want(t, exitUsage, args...)
	}
	want(t, exitError, "serve", "--database-url", "postgres://x@127.0.0.1:1/x", "--roles", "api")
	want(t, exitUsage, "serve", "--database-url", "postgres://x@127.0.0.1:1/x") // a worker without channels
	want(t, exitUsage, "verify", "--database-url", "postgres://x@127.0.0.1:port/x")
	want(t, exitError, "migrate", "--database-url", "postgres://x@127.0.0.1:1/x")
	want(t, exitError, "review", "--url", "http://127.0.0.1:1", "--key", "x")
	want(t, exitUsage, "notify", "cancel", "no-id", "--url", "http://127.0.0.1:1", "--key", "x")
}

// A flag wins over the environment, the environment over the file, the file over the default.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tidings.yaml")
	if err := os.WriteFile(file, []byte("listen: from-file:1\ndrain: 7s\ndatabase_conns: 7\nroles: [worker]\norigins: [a, b]\nlog_level: debug\n"+
		"channels: {push: {double: {url: x, mode: push}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TIDINGS_LISTEN", "from-env:1")
	t.Setenv("TIDINGS_DRAIN", "8s")
	var c cli
	parser, err := newParser(&c, &bytes.Buffer{}, &bytes.Buffer{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"serve", "--config", file, "--drain", "9s"}); err != nil {
		t.Fatal(err)
	}
	got := c.Serve.Settings
	if got.Drain != 9*time.Second || got.Listen != "from-env:1" || got.DatabaseConns != 7 || got.Poll != 250*time.Millisecond ||
		strings.Join(got.Roles, "") != "worker" || strings.Join(got.Origins, ",") != "a,b" || got.LogLevel.String() != "DEBUG" {
		t.Errorf("the settings are %+v", got)
	}
	if c.Serve.read.Channels["push"].Double == nil {
		t.Errorf("the channels are %v", c.Serve.read.Channels)
	}
}

// The whole life of a key, a notification, a review and a channel, through the commands.
func TestCommands(t *testing.T) {
	url := pgtest.NewEmptyURL(t)
	db := []string{"--database-url", url}
	if out := want(t, exitError, with(db, "key", "list")...); !strings.Contains(out, "tidings migrate") {
		t.Errorf("a database without a schema: %s", out)
	}
	want(t, exitDone, with(db, "migrate")...)
	want(t, exitUsage, with(db, "key", "create", "ops", "--scopes", "everything")...)
	key := decode[map[string]any](t, want(t, exitDone, with(db, "key", "create", "ops", "--scopes", "all", "--json")...))

	dir := t.TempDir()
	config := "channels:\n  plain: {timeout: 300ms, lease: 2s, double: {url: 'http://127.0.0.1:1', mode: plain}}\n" +
		"  push: {timeout: 300ms, lease: 2s, double: {url: 'http://127.0.0.1:1', mode: push}}\n"
	if err := os.WriteFile(filepath.Join(dir, "tidings.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, dir, with(db, "serve", "--migrate", "--config", "tidings.yaml", "--roles", "api", "--listen", "127.0.0.1:0")...)
	line := server.line(`"msg":"serving"`)
	api := []string{"--url", decode[map[string]any](t, line)["url"].(string), "--key", key["key"].(string), "--operator", "eve"}

	if out := want(t, exitDone, with(api, "notify", "u-ana", "e-1", "--body", "b")...); !strings.Contains(out, "created, 0 tasks") || !strings.Contains(out, "nobody is told") {
		t.Errorf("a user without channels: %s", out)
	}
	if out := want(t, exitDone, with(api, "notify", "u-ana", "e-1", "--body", "c")...); !strings.Contains(out, "existed with other content") {
		t.Errorf("the same event again: %s", out)
	}
	if out := want(t, exitUsage, with(api, "notify", "u ana", "e-1", "--body", "c")...); !strings.Contains(out, "user has the byte") {
		t.Errorf("a bad user: %s", out)
	}
	want(t, exitNo, with(api, "notify", "show", "u-ana", "e-2")...)
	shown := decode[map[string]any](t, want(t, exitDone, with(api, "notify", "show", "u-ana", "e-1", "--json")...))
	if out := want(t, exitDone, with(api, "notify", "cancel", shown["id"].(string))...); out != "cancelled\n" {
		t.Errorf("a cancellation: %s", out)
	}
	if out := want(t, exitDone, with(api, "notify", "cancel", shown["id"].(string))...); !strings.Contains(out, "before") {
		t.Errorf("a second cancellation: %s", out)
	}
	if out := want(t, exitDone, with(api, "notify", "show", "u-ana", "e-1")...); !strings.Contains(out, "expires 2") || !strings.Contains(out, "cancelled 2") {
		t.Errorf("a cancelled notification: %s", out)
	}
	want(t, exitNo, "notify", "show", "u-ana", "e-1", "--url", api[1], "--key", "tdk_unknown")

	if out := want(t, exitDone, with(api, "channel", "list")...); !strings.Contains(out, "same key for 24h") || !strings.Contains(out, "a person") {
		t.Errorf("the channels: %s", out)
	}
	want(t, exitDone, with(api, "channel", "pause", "push", "--reason", "the provider has trouble")...)
	if out := want(t, exitDone, with(api, "channel")...); !strings.Contains(out, "the provider has trouble (ops:eve)") {
		t.Errorf("the paused channel: %s", out)
	}
	for _, args := range [][]string{{"channel", "pause", "fax", "--reason", "x"}, {"channel", "resume", "fax"}} {
		if out := want(t, exitDone, with(api, args...)...); !strings.Contains(out, "no channel of this process") {
			t.Errorf("%v: %s", args, out)
		}
	}
	want(t, exitDone, with(api, "channel", "resume", "push")...)

	tasks := park(t, url, 3)
	if out := want(t, exitDone, with(api, "review", "--limit", "2")...); !strings.Contains(out, "more: --after") || strings.Count(out, "plain") != 2 {
		t.Errorf("the reviews: %s", out)
	}
	if out := want(t, exitDone, with(api, "review", "show", tasks[0])...); !strings.Contains(out, "ended as TIMEOUT") || !strings.Contains(out, "only you can find out") ||
		!strings.Contains(out, "u-0-pager") || !strings.Contains(out, "the text of it") || strings.Contains(out, "the provider's id ") {
		t.Errorf("a review: %s", out)
	}
	if out := want(t, exitNo, with(api, "review", "resolve", "SENT", tasks[0], "--attempt-count", "9")...); !strings.Contains(out, "CONFLICT") {
		t.Errorf("a stale page: %s", out)
	}
	if out := want(t, exitUsage, with(api, "review", "resolve", "SENT", tasks[0])...); !strings.Contains(out, "ended as TIMEOUT") || !strings.Contains(out, "--attempt-count 1") {
		t.Errorf("a task that was not looked at: %s", out)
	}
	want(t, exitDone, with(api, "review", "resolve", "sent", tasks[0], "--attempt-count", "1", "--note", "seen in the provider's console")...)
	want(t, exitNo, with(api, "review", "resolve", "FAILED", tasks[0], "--attempt-count", "2")...)
	want(t, exitUsage, with(api, "review", "resolve", "FAILED")...)
	if out := want(t, exitUsage, with(api, "review", "resolve", "FAILED", "--all")...); !strings.Contains(out, "settle 2 tasks as FAILED") {
		t.Errorf("in bulk without a yes: %s", out)
	}
	if out := want(t, exitDone, with(api, "review", "resolve", "FAILED", "--all", "--yes", "--channel", "plain")...); !strings.Contains(out, "2 resolved as FAILED, 0 refused") {
		t.Errorf("resolved in bulk: %s", out)
	}
	if out := want(t, exitDone, with(api, "review", "resolve", "FAILED", "--all", "--yes")...); !strings.Contains(out, "0 resolved") {
		t.Errorf("resolved nothing: %s", out)
	}

	if out := want(t, exitDone, with(db, "verify")...); !strings.Contains(out, "No promise is violated") {
		t.Errorf("verify: %s", out)
	}
	doctor(t, url)
	if out := want(t, exitNo, with(db, "verify")...); !strings.Contains(out, "VIOLATED") {
		t.Errorf("verify of doctored rows: %s", out)
	}
	if report := decode[map[string]any](t, want(t, exitNo, with(db, "verify", "--json")...)); report["violated"] == 0.0 {
		t.Errorf("verify as JSON: %v", report)
	}

	if out := want(t, exitDone, with(db, "recover", "--lossless")...); !strings.Contains(out, "no worker may run") {
		t.Errorf("a recovery beside a running server: %s", out)
	}
	if out := want(t, exitNo, with(db, "recover", "--without-journal", "--lost-since", "2026-01-01T00:00:00Z")...); !strings.Contains(out, "generation") || !strings.Contains(out, "DO NOT HOLD") {
		t.Errorf("recover: %s", out)
	}
	if out := want(t, exitDone, with(db, "purge", "--purge-after", "1ms")...); strings.HasPrefix(out, "0 notifications") {
		t.Errorf("purge: %s", out)
	}
	if out := want(t, exitNo, with(api, "notify", "u-0", "e", "--body", "b")...); !strings.Contains(out, "ORIGINAL_EXPIRED") {
		t.Errorf("a purged event: %s", out)
	}

	if out := want(t, exitDone, with(db, "key", "list")...); !strings.Contains(out, "ops") || strings.Contains(out, "tdk_") {
		t.Errorf("the keys: %s", out)
	}
	want(t, exitDone, with(db, "key", "revoke", key["id"].(string))...)
	want(t, exitNo, with(db, "key", "revoke", "00000000-0000-0000-0000-000000000001")...)

	if err := server.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := server.wait(); code != exitDone {
		t.Errorf("the server exits with %d:\n%s", code, server.text())
	}
}

// park leaves n tasks on the channel plain that wait for a person.
func park(t testing.TB, url string, n int) (ids []string) {
	t.Helper()
	s, err := server.OpenStore(url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Pool().Close()
	for i := range n {
		user := fmt.Sprintf("u-%d", i)
		if _, err := s.PutPref(t.Context(), user, store.Pref{Channel: "plain", Address: user + "-pager", Enabled: true}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.Notify(t.Context(), s.Pool(), tidings.Notification{User: user, EventKey: "e", Body: "the text of it", TTL: tidings.Seconds(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	claimed, err := s.Claim(t.Context(), store.Lane{Channel: "plain", Worker: "w", Renderer: "r/1", Lease: time.Minute, Timeout: time.Second}, n, store.ClaimID{1}, nil)
	if err != nil || len(claimed) != n {
		t.Fatalf("claimed %d tasks, %v", len(claimed), err)
	}
	var ends []store.Finish
	for _, c := range claimed {
		ends = append(ends, store.Finish{ID: c.ID, N: c.N, Token: c.Token, Doubted: true, Verdict: tidings.Finish(c.Held, tidings.Observation{Outcome: tidings.Timeout})})
		ids = append(ids, c.ID.String())
	}
	if stale, err := s.Finish(t.Context(), ends); err != nil || len(stale) > 0 {
		t.Fatalf("finished with %d stale, %v", len(stale), err)
	}
	return ids
}

// doctor takes the person out of what a person settled: the machine would have called unsent what may have been sent.
func doctor(t testing.TB, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tag, err := conn.Exec(t.Context(), "UPDATE tidings.task SET settled_by = NULL, outcome_uncertain = false WHERE state = 'FAILED'")
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("doctored %d rows, %v", tag.RowsAffected(), err)
	}
}
