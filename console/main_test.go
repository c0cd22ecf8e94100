// What the console's tests share: the real API on a database of its own, a browser's cookies, tasks that wait for a person.

package console_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/console"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

// text is a log that several goroutines write.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// bench is a console before an API that no worker works for.
type bench struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *store.Store
	url    string
	report string // where the acceptance report is looked for
	log    *text
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, pool: pgtest.New(t), report: filepath.Join(t.TempDir(), "report.json"), log: &text{}}
	b.store = store.New(b.pool)
	b.must(b.store.EnsureLineage(t.Context()))
	b.serve()
	return b
}

// beside is another process on the same database.
func (b *bench) beside() *bench {
	b.t.Helper()
	other := *b
	other.serve()
	return &other
}

// serve starts an API and the console before it.
func (b *bench) serve() {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	served, err := api.New(api.Config{Store: b.store, Keys: api.NewKeys(b.store), Wake: func() {}, Logger: log, Version: "v-test", ReportFile: b.report,
		Channels: map[string]channel.Channel{
			"push":  channeltest.Push("http://127.0.0.1:9", channeltest.ChannelOptions{}),
			"sms":   channeltest.SMS("http://127.0.0.1:9", channeltest.ChannelOptions{}),
			"plain": channeltest.Plain("http://127.0.0.1:9", channeltest.ChannelOptions{}),
		}})
	b.must(err)
	mux := http.NewServeMux()
	mux.Handle("/v1/", served)
	c := console.New(served, log)
	mux.Handle("/console", c)
	mux.Handle("/console/", c)
	server := httptest.NewServer(mux)
	b.t.Cleanup(server.Close)
	b.url = server.URL
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) key(scopes ...string) string {
	b.t.Helper()
	secret, _, err := b.store.CreateKey(b.t.Context(), "test-key", scopes)
	b.must(err)
	return secret
}

// lane is a worker's of the channel that neither recognises a repetition nor can be asked.
var lane = store.Lane{Channel: "plain", Worker: "worker-1", Renderer: "plain/1", Lease: time.Minute, Timeout: time.Second}

// parked makes a task that waits for a person: sent without an answer.
func (b *bench) parked(user, key string, change ...func(*tidings.Notification)) tidings.UUID {
	b.t.Helper()
	_, err := b.store.PutPref(b.t.Context(), user, store.Pref{Channel: "plain", Address: "at-" + user, Enabled: true}, nil)
	b.must(err)
	n := tidings.Notification{User: user, EventKey: key, Title: "Order shipped", Body: "It is on its way.", TTL: tidings.Seconds(time.Hour)}
	for _, c := range change {
		c(&n)
	}
	_, err = outbox.Notify(b.t.Context(), b.pool, n)
	b.must(err)
	var claim store.ClaimID
	_, _ = rand.Read(claim[:])
	claimed, err := b.store.Claim(b.t.Context(), lane, 2, claim, nil)
	b.must(err)
	if len(claimed) != 1 {
		b.t.Fatalf("%d tasks are due, not one", len(claimed))
	}
	c := claimed[0]
	verdict := tidings.Finish(c.Held, tidings.Observation{Outcome: tidings.Timeout})
	_, err = b.store.Finish(b.t.Context(), []store.Finish{{ID: c.ID, Note: c.Note, N: c.N, Token: c.Token, Verdict: verdict, Doubted: true, Detail: "no answer within 1 s"}})
	b.must(err)
	return c.ID
}

func (b *bench) detail(id tidings.UUID) store.TaskDetail {
	b.t.Helper()
	d, err := b.store.TaskDetail(b.t.Context(), id)
	b.must(err)
	return d
}

// settle settles a task by the API, as somebody else.
func (b *bench) settle(id tidings.UUID, verb string) {
	b.t.Helper()
	b.must(b.store.Resolve(b.t.Context(), store.Resolution{Task: id, Verb: verb, By: "somebody-else", AttemptCount: b.detail(id).AttemptCount}))
}

// api calls the API with a key, as an application does.
func (b *bench) api(key, method, path string, in any, headers ...string) {
	b.t.Helper()
	body, err := json.Marshal(in)
	b.must(err)
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(string(body)))
	b.must(err)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	b.must(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	b.must(err)
	if resp.StatusCode >= 300 {
		b.t.Fatalf("%s %s answers %d %s", method, path, resp.StatusCode, answer)
	}
	http.DefaultClient.CloseIdleConnections()
}

// browser is somebody's: it keeps cookies and follows redirects.
type browser struct {
	b       *bench
	client  *http.Client
	headers []string // of each request
}

func (b *bench) browser() *browser {
	b.t.Helper()
	jar, err := cookiejar.New(nil)
	b.must(err)
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	b.t.Cleanup(client.CloseIdleConnections)
	return &browser{b: b, client: client}
}

// signedIn is the browser of somebody who has signed in with a key of the scopes.
func (b *bench) signedIn(scopes ...string) *browser {
	b.t.Helper()
	w := b.browser()
	if got := w.post("/console/sign-in", "key", b.key(scopes...), "operator", "ana"); strings.HasPrefix(got.path, "/console/sign-in") {
		b.t.Fatalf("signing in ends at %s with %d\n%s", got.path, got.status, got.text)
	}
	return w
}

// got is a page, after redirects.
type got struct {
	status int
	path   string // with the query
	header http.Header
	text   string
}

func (w *browser) do(method, path, form string) got {
	w.b.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, w.b.url+path, strings.NewReader(form))
	w.b.must(err)
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range w.headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := w.client.Do(r)
	w.b.must(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	w.b.must(err)
	return got{resp.StatusCode, resp.Request.URL.RequestURI(), resp.Header, string(answer)}
}

func (w *browser) get(path string) got {
	w.b.t.Helper()
	return w.do(http.MethodGet, path, "")
}

// post sends a form of names and values.
func (w *browser) post(path string, pairs ...string) got {
	w.b.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return w.do(http.MethodPost, path, form.Encode())
}

// page is get, and fails unless the page says all the words.
func (w *browser) page(path string, words ...string) got {
	w.b.t.Helper()
	g := w.get(path)
	if g.status != http.StatusOK {
		w.b.t.Errorf("%s answers %d", path, g.status)
	}
	g.says(w.b.t, words...)
	return g
}

func (g got) says(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(g.text, word) {
			t.Errorf("%s (%d) does not say %q:\n%s", g.path, g.status, word, g.text)
		}
	}
}

func (g got) saysNot(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(g.text, word) {
			t.Errorf("%s (%d) says %q:\n%s", g.path, g.status, word, g.text)
		}
	}
}
