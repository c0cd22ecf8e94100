// A scene of conversations and users, for tests of the API.

package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

// contract is the protocol's table of codes: status, retry and stored, for conversations.
var contract = map[string]struct {
	status        int
	retry, stored string
}{
	"INVALID_ARGUMENT":      {400, "no", "unchanged"},
	"UNAUTHENTICATED":       {401, "auth", "unchanged"},
	"FORBIDDEN":             {403, "auth", "unchanged"},
	"NOT_MEMBER":            {403, "no", "no"},
	"NOT_SENDER":            {403, "no", "no"},
	"NOT_FOUND":             {404, "no", "no"},
	"ALREADY_RECALLED":      {409, "no", "no"},
	"RECALL_WINDOW_EXPIRED": {409, "no", "no"},
	"CONFLICT":              {409, "no", "unchanged"},
	"CURSOR_AHEAD":          {409, "resync", ""},
	"EPOCH_CHANGED":         {409, "resync", ""},
	"INSTALL_REPLACED":      {409, "no", "unchanged"},
	"ORIGINAL_EXPIRED":      {410, "no", "purged"},
	"TOO_LARGE":             {413, "no", "unchanged"},
	"IDEMPOTENCY_MISMATCH":  {422, "no", "no"},
	"RATE_LIMITED":          {429, "same", "unchanged"},
	"OUTCOME_UNKNOWN":       {503, "same", "unknown"},
	"UNAVAILABLE":           {503, "same", "unchanged"},
}

var sceneSecret = []byte("0123456789abcdef0123456789abcdef")

// logBuffer takes a log from several goroutines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// scene is an API behind a real HTTP server, on a database of its own with a conversation in it.
type scene struct {
	t      testing.TB
	api    *api.API
	pool   *pgxpool.Pool
	store  *store.Store
	url    string
	client *http.Client
	log    logBuffer
	wakes  atomic.Int32

	server string // key with the scopes act:user and conversations
	mu     sync.Mutex
	tokens map[string]string // by user
}

func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{t: t, tokens: map[string]string{}}
	config, err := pgxpool.ParseConfig(pgtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	store.Configure(config)
	if s.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pool.Close)
	s.store = store.New(s.pool)
	if err := s.store.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.serve(func(*api.Config) {})
	s.server = s.key(store.ScopeActUser, store.ScopeConversations)
	return s
}

// serve starts an API on the scene's database, with a configuration that change has changed. From here on the scene calls it.
func (s *scene) serve(change func(*api.Config)) {
	s.t.Helper()
	var err error
	keys := api.NewKeys(s.store)
	if keys.Tokens, err = token.New(token.Config{HS256Secret: sceneSecret, Audience: "tidings"}); err != nil {
		s.t.Fatal(err)
	}
	c := api.Config{Store: s.store, Keys: keys, Wake: func() { s.wakes.Add(1) }, Logger: slog.New(slog.NewJSONHandler(&s.log, nil))}
	change(&c)
	if s.api, err = api.New(c); err != nil {
		s.t.Fatal(err)
	}
	listening := httptest.NewServer(s.api)
	s.url, s.client = listening.URL, listening.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.t.Cleanup(listening.Close)
}

func (s *scene) key(scopes ...string) string {
	s.t.Helper()
	secret, _, err := s.store.CreateKey(s.t.Context(), "the shop", scopes)
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// token is a token of a user, not bound to a device.
func (s *scene) token(user string) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[user] == "" {
		s.tokens[user] = s.issue(token.Claims{User: user})
	}
	return s.tokens[user]
}

func (s *scene) issue(c token.Claims) string {
	s.t.Helper()
	c.Expires = time.Now().Add(time.Hour)
	text, err := token.IssueHS256(sceneSecret, "tidings", c)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// call makes one request with a key or token; headers are "Name: value". Every refusal is held against the contract.
func (s *scene) call(bearer, method, target, body string, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+target, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{status: w.StatusCode, header: w.Header, text: string(text)}
	if len(text) > 0 && json.Unmarshal(text, &a.body) != nil {
		s.t.Fatalf("%s %.200s answers %d with what is no JSON object: %.300s", method, target, a.status, text)
	}
	if a.status >= 300 {
		s.judge(method+" "+target, a)
	}
	return a
}

// judge holds a refusal against the contract.
func (s *scene) judge(what string, a answer) {
	s.t.Helper()
	promised, known := contract[a.code()]
	stored, _ := a.body["stored"].(string)
	if strings.HasSuffix(what, "/recalls") && strings.Contains(a.text, "the target is no message") {
		promised.stored = "no" // the log was asked
	}
	switch {
	case !known:
		s.t.Errorf("%.200s is refused with %d and a code that nobody promised: %.300s", what, a.status, a.text)
	case a.status != promised.status || a.body["retry"] != promised.retry || stored != promised.stored || a.body["status"] != float64(a.status):
		s.t.Errorf("%.200s: the refusal %s is not the promised one: %.300s", what, a.code(), a.text)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		s.t.Errorf("%.200s: the refusal is %s", what, got)
	}
	if later := a.header.Get("Retry-After") != ""; later != (promised.retry == "same") {
		s.t.Errorf("%.200s: the refusal %s has Retry-After %q", what, a.code(), a.header.Get("Retry-After"))
	}
	if len(a.text) > 2000 {
		s.t.Errorf("%.200s: the refusal has %d bytes", what, len(a.text))
	}
}

// as makes a request with a user's token, and fails unless it is answered with the status.
func (s *scene) as(user string, status int, method, target, body string) answer {
	s.t.Helper()
	return s.expect(s.call(s.token(user), method, target, body), status, user+": "+method+" "+target)
}

// by makes a request with the server's key, and fails unless it is answered with the status.
func (s *scene) by(status int, method, target, body string, headers ...string) answer {
	s.t.Helper()
	return s.expect(s.call(s.server, method, target, body, headers...), status, "server: "+method+" "+target)
}

func (s *scene) expect(a answer, status int, what string) answer {
	s.t.Helper()
	if a.status != status {
		s.t.Fatalf("%.200s answers %d, not %d: %.500s", what, a.status, status, a.text)
	}
	return a
}

// populate makes the conversation c-g: ana and ben join (1, 2), ana sends m-1 and m-2 (3, 4), cid joins (5) and leaves (6), ana sends m-3 (7).
// The message m-0 of ana was purged, it says.
func (s *scene) populate() {
	s.t.Helper()
	s.by(201, "PUT", "/v1/conversations/c-g", `{"members":["u-ana","u-ben"]}`)
	s.as("u-ana", 201, "PUT", "/v1/conversations/c-g/messages/m-1", `{"body":"one"}`)
	s.as("u-ana", 201, "PUT", "/v1/conversations/c-g/messages/m-2", `{"body":"two"}`)
	s.by(200, "PUT", "/v1/conversations/c-g/members/u-cid", "")
	s.by(200, "DELETE", "/v1/conversations/c-g/members/u-cid", "")
	s.as("u-ana", 201, "PUT", "/v1/conversations/c-g/messages/m-3", `{"body":"three"}`)
	s.exec("INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-g', 'u-ana', 'm-0', 1)")
}

func (s *scene) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) count(sql string, args ...any) (n int64) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// epoch is that of every conversation here.
func (s *scene) epoch() int64 {
	s.t.Helper()
	return s.count("SELECT generation FROM tidings.lineage")
}

// seqs are the seqs of a page's events.
func seqs(a answer) (out []int64) {
	events, _ := a.body["events"].([]any)
	for _, e := range events {
		out = append(out, int64(e.(map[string]any)["seq"].(float64)))
	}
	return out
}
