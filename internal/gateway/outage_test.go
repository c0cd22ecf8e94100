// Tests of a gateway without its database, and of what it logs.

package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func TestWithoutTheDatabaseRequestsAreRefusedAndComeBack(t *testing.T) {
	direct := store.New(pgtest.New(t))
	if err := direct.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy := proxyTo(t, direct)
	h := houseOn(t, storeThrough(t, direct, proxy), "gw-1", func(c *Config) { c.RequestTimeout = 2 * time.Second })
	h.conversation("c", "ana")
	p := h.login("ana", "a1")
	waiting := h.connect()
	if receipt := proxy.Refuse(); receipt.Proof == "" {
		t.Fatal("connections were not refused")
	}
	proxy.Cut(tcpproxy.Both)
	for _, request := range []string{"sync", "send", "ack", "read", "conversations", "outcome"} {
		fields := `"conv":"c","cmid":"m-` + request + `","body":"x","seq":1`
		if request == "sync" {
			fields = `"conv":"c","after":0`
		} else if request == "conversations" {
			fields = ""
		}
		if f := p.ask(request, fields); f.Code != tidings.Unavailable && f.Code != tidings.OutcomeUnknown || f.Retry != "same" {
			t.Errorf("without the database %s is answered with %s", request, f.raw)
		}
	}
	waiting.hello(issue(t, "ana"), "a2", "i")
	if before := waiting.ends(4005); len(before) != 1 || !strings.Contains(before[0], `"code":"UNAVAILABLE"`) {
		t.Errorf("without the database a hello is answered with %q", before)
	}
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests are served again", func() bool { return p.ask("sync", `"conv":"c","after":0`).T == "events" })
	if f := p.ask("send", `"conv":"c","cmid":"m2","body":"x"`); f.T != "sent" {
		t.Errorf("a send is answered with %s", f.raw)
	}
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestLogsAndMetricsHoldNothingPrivate(t *testing.T) {
	var logs lockedBuffer
	registry := prometheus.NewRegistry()
	h := newHouse(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Registerer = registry
	})
	h.conversation("c", "ana")
	text := issue(t, "ana")
	p := h.connect("Authorization", "Bearer "+text)
	p.hello(text, "a1", "i")
	p.want("welcome")
	p.ask("send", `"conv":"c","cmid":"m1","body":"private-body","data":{"k":"private-data"}`)
	p.ask("send", `"conv":"nowhere","cmid":"m1","body":"private-body"`)
	p.ask("refresh", `"token":"private-token"`)
	p.raw(masked(0x82, []byte("private-binary")))
	p.ends(4409)
	h.empty()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range families {
		all.WriteString(f.String())
	}
	h.stop()
	for _, want := range []string{"tidings_gateway_connections", "tidings_gateway_frames_total", "tidings_gateway_queue_bytes", "4409", "tidings_gateway_commit_messages"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	all.WriteString(logs.b.String())
	if logs.b.Len() == 0 {
		t.Error("nothing was logged")
	}
	for _, private := range []string{"private", text, "127.0.0.1"} {
		if strings.Contains(all.String(), private) {
			t.Errorf("logs or metrics hold %q: %s", private, all.String())
		}
	}
}
