// Tests of a whole server.

package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

// running is a server that a test started.
type running struct {
	*Server
	stop  context.CancelFunc
	ended chan error
}

func config(t *testing.T, url string) Config {
	t.Helper()
	var cfg Config
	if err := kong.ApplyDefaults(&cfg); err != nil {
		t.Fatal(err)
	}
	cfg.DatabaseURL, cfg.Listen = url, "127.0.0.1:0"
	cfg.Channels = map[string]Channel{"push": {Double: &Double{URL: "http://127.0.0.1:9", Mode: channeltest.ModePush}}}
	return cfg
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	s, err := New(t.Context(), cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, stop: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.ended:
		case <-time.After(time.Minute):
			t.Error("the server does not stop")
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// wait returns how Run ended.
func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err // for the clean-up
		return err
	case <-time.After(time.Minute):
		t.Fatal("the server does not stop")
		return nil
	}
}

func get(t *testing.T, url string, headers ...string) (int, http.Header, string) {
	t.Helper()
	return request(t, http.MethodGet, url, "", headers...)
}

func request(t *testing.T, method, url, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func (r *running) key(t *testing.T, scopes ...string) string {
	t.Helper()
	secret, _, err := r.Store().CreateKey(t.Context(), "test", scopes)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + secret
}

func TestHealthAndMetrics(t *testing.T) {
	cfg := config(t, pgtest.NewURL(t))
	cfg.MetricsListen, cfg.Origins = "127.0.0.1:0", []string{"https://app.example"}
	r := start(t, cfg)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _, text := get(t, r.URL()+path); status != 200 {
			t.Errorf("%s answers %d %s", path, status, text)
		}
	}
	if _, header, _ := get(t, r.URL()+"/readyz", "Origin: https://app.example"); header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		header.Get("Access-Control-Expose-Headers") != "Retry-After" {
		t.Errorf("an allowed origin is answered with %v", header)
	}
	if _, header, _ := get(t, r.URL()+"/readyz", "Origin: https://evil.example"); header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin is answered with %v", header)
	}
	if status, _, text := get(t, r.URL()+"/nothing"); status != 404 || !strings.Contains(text, "NOT_FOUND") {
		t.Errorf("an unknown path is answered with %d %s", status, text)
	}

	if status, _, _ := get(t, r.URL()+"/metrics"); status != 401 {
		t.Errorf("/metrics without a key answers %d", status)
	}
	if status, _, _ := get(t, r.URL()+"/metrics", r.key(t, store.ScopeOperate)); status != 403 {
		t.Errorf("/metrics with a key without the scope answers %d", status)
	}
	status, _, text := get(t, r.URL()+"/metrics", r.key(t, store.ScopeMetrics))
	if status != 200 {
		t.Fatalf("/metrics with a key answers %d %s", status, text)
	}
	_, _, open := get(t, "http://"+r.metrics.Addr().String()+"/metrics")
	for _, name := range []string{"tidings_oldest_due_seconds{channel=\"push\",priority=\"0\"} 0", "tidings_review_tasks{channel=\"push\"} 0",
		"tidings_in_flight_tasks", "tidings_unmatched_receipts", "tidings_vacuum_horizon_seconds", "tidings_stuck_calls", "tidings_claim_seconds_count"} {
		if !strings.Contains(text, name) || !strings.Contains(open, name) {
			t.Errorf("the metrics lack %s", name)
		}
	}
}

// A worker alone has no API, and an API alone no worker.
func TestRoles(t *testing.T) {
	url := pgtest.NewURL(t)
	cfg := config(t, url)
	cfg.Roles = []string{RoleWorker}
	if status, _, _ := get(t, start(t, cfg).URL()+"/v1/channels"); status != 404 {
		t.Errorf("a worker answers the API with %d", status)
	}
	cfg.Roles = []string{RoleAPI}
	api := start(t, cfg)
	key := api.key(t, store.ScopeNotify)
	if status, _, text := request(t, "POST", api.URL()+"/v1/notifications", `{"user":"u-ana","event_key":"e","body":"b","ttl_s":60}`, key); status != 201 {
		t.Errorf("an API alone answers %d %s", status, text)
	}
	if api.worker != nil {
		t.Error("an API alone has a worker")
	}
}

// Tasks on a channel that nobody serves are in the log of a start and in the metrics.
func TestUnservedChannel(t *testing.T) {
	cfg := config(t, pgtest.NewURL(t))
	cfg.Roles, cfg.MetricsListen = []string{RoleAPI}, "127.0.0.1:0"
	r := start(t, cfg)
	if _, err := r.Store().PutPref(t.Context(), "u-ana", store.Pref{Channel: "fax", Address: "a", Enabled: true}, nil); err != nil {
		t.Fatal(err)
	}
	if status, _, text := request(t, "POST", r.URL()+"/v1/notifications", `{"user":"u-ana","event_key":"e","body":"b","ttl_s":60}`, r.key(t, store.ScopeNotify)); status != 201 {
		t.Fatal(status, text)
	}
	if _, _, text := get(t, "http://"+r.metrics.Addr().String()+"/metrics"); !strings.Contains(text, `tidings_oldest_due_seconds{channel="fax",priority="1"}`) {
		t.Errorf("the metrics lack the channel:\n%s", text)
	}
	cfg.Channels, cfg.MetricsListen = nil, ""
	var log strings.Builder
	s, err := New(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, words := range []string{"no channels are configured", "channels=[fax]"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("a start does not say %q:\n%s", words, &log)
		}
	}
}

// A notification that comes in over HTTP goes out, although the worker would poll only after a long time.
func TestWakes(t *testing.T) {
	doubles, err := channeltest.Start(channeltest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := doubles.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := config(t, pgtest.NewURL(t))
	cfg.Poll = 30 * time.Second
	cfg.Channels = map[string]Channel{"push": {Double: &Double{URL: doubles.URL(), Mode: channeltest.ModePush}}}
	r := start(t, cfg)
	key := r.key(t, store.ScopeNotify, store.ScopePrefs)
	if status, _, text := request(t, "PUT", r.URL()+"/v1/users/u-ana/channels/push", `{"address":"a"}`, key); status != 200 {
		t.Fatal(status, text)
	}
	if status, _, text := request(t, "POST", r.URL()+"/v1/notifications", `{"user":"u-ana","event_key":"e","body":"b","ttl_s":60}`, key); status != 201 {
		t.Fatal(status, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := doubles.WaitFor(ctx, channeltest.ModePush, "", func(c channeltest.Counts) bool { return c.Sends == 1 }); err != nil {
		t.Error(err)
	}
}

// A stop says so on /readyz while it still serves, lets a request that is under way end, and then ends without an error.
func TestStop(t *testing.T) {
	url := pgtest.NewURL(t)
	cfg := config(t, url)
	cfg.LameDuck = time.Second
	r := start(t, cfg)
	key := r.key(t, store.ScopeOperate)

	// A lock holds the request up until this test lets it go.
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE tidings.channel_state IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() {
		req, _ := http.NewRequest("POST", r.URL()+"/v1/channels/push/pause", strings.NewReader(`{"reason":"x"}`))
		req.Header.Set("Authorization", strings.TrimPrefix(key, "Authorization: "))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	waiting := func() (n int) {
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tidings.channel_state'::regclass").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(10 * time.Second); waiting() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request does not reach the lock")
		}
	}

	r.stop()
	for deadline := time.Now().Add(cfg.LameDuck); ; time.Sleep(5 * time.Millisecond) {
		status, header, text := get(t, r.URL()+"/readyz")
		if status == 503 {
			if header.Get("Retry-After") != "5" || !strings.Contains(text, "UNAVAILABLE") {
				t.Errorf("a stopping server answers %v %s", header, text)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a stopping server says that it is ready")
		}
	}
	select {
	case err := <-r.ended:
		t.Fatalf("the server ended before its request: %v", err)
	case <-time.After(cfg.LameDuck + 200*time.Millisecond): // it is past the lame duck and waits
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(t); err != nil {
		t.Errorf("the server ends with %v", err)
	}
	if status := <-answered; status != 200 {
		t.Errorf("the request that was under way is answered with %d", status)
	}
}

func TestRefusesToStart(t *testing.T) {
	good := pgtest.NewURL(t)
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no database":            {func(c *Config) { c.DatabaseURL = "" }, "--database-url"},
		"no schema":              {func(c *Config) { c.DatabaseURL = pgtest.NewEmptyURL(t) }, "tidings migrate"},
		"an unreachable server":  {func(c *Config) { c.DatabaseURL = "postgres://x@127.0.0.1:1/x" }, "connect"},
		"an unknown role":        {func(c *Config) { c.Roles = []string{"judge"} }, "judge"},
		"no role":                {func(c *Config) { c.Roles = nil }, "--roles"},
		"a worker for nothing":   {func(c *Config) { c.Channels = nil }, "channels"},
		"a channel of no kind":   {func(c *Config) { c.Channels = map[string]Channel{"x": {}} }, "exactly one"},
		"a lease that is short":  {func(c *Config) { c.Channels = short() }, "lease"},
		"a secret that is unset": {func(c *Config) { c.Channels = unset() }, "TIDINGS_TEST_UNSET"},
		"a port that is taken":   {func(c *Config) { c.Listen = strings.TrimPrefix(start(t, config(t, good)).URL(), "http://") }, "in use"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, good)
			c.change(&cfg)
			s, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err == nil {
				s.Close()
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func short() map[string]Channel {
	return map[string]Channel{"x": {Timeout: 2 * time.Second, Lease: 2 * time.Second, Double: &Double{URL: "http://127.0.0.1:9", Mode: channeltest.ModePush}}}
}

func unset() map[string]Channel {
	return map[string]Channel{"x": {Webhook: &Webhook{URL: "https://hooks.example", Secrets: []Secret{{Env: "TIDINGS_TEST_UNSET"}}}}}
}

// While a gateway closes its sockets, whoever comes is told when to come again.
func TestStopRefusesSocketsUntilTheOthersAreClosed(t *testing.T) {
	cfg := config(t, pgtest.NewURL(t))
	cfg.Roles, cfg.TokenHS256Secret = []string{RoleGateway}, Secret{Text: strings.Repeat("s", 32)}
	cfg.GatewayDrain = time.Second
	r := start(t, cfg)
	deadline := time.Now().Add(time.Minute)
	for r.gateway.Ready() != nil && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	dial := func() (*websocket.Conn, *http.Response, error) {
		dialer := websocket.Dialer{Subprotocols: []string{"tidings.v1"}}
		return dialer.Dial("ws"+strings.TrimPrefix(r.URL(), "http")+"/v1/ws", nil)
	}
	conn, _, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := make(chan error, 1)
	go func() {
		_, _, err := conn.ReadMessage()
		closed <- err
	}()
	r.stop()
	refused := 0
	for open := true; open; {
		another, answer, err := dial()
		wait := 10 * time.Millisecond
		switch {
		case err == nil: // it came before the stop
			_ = another.Close()
		case answer == nil: // the process is about to end, and so is the socket
			wait = cfg.GatewayDrain / 4
		case answer.StatusCode == 503 && answer.Header.Get("Retry-After") != "":
			refused++
		default:
			t.Fatalf("a new socket is answered with %d %v", answer.StatusCode, answer.Header)
		}
		select {
		case err := <-closed:
			if open = false; !websocket.IsCloseError(err, 4001) {
				t.Errorf("the socket ended with %v", err)
			}
		case <-time.After(wait):
			if err != nil && answer == nil {
				t.Fatalf("a new socket is not answered while others are open: %v", err)
			}
		}
	}
	if refused == 0 {
		t.Error("no new socket was refused")
	}
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
}
