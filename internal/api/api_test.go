// Tests of the OpenAPI document, and what all tests of the API need.

package api_test

import (
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/webhook"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// fixture is an API on a database of its own.
type fixture struct {
	t     testing.TB
	api   *api.API
	store *store.Store
	key   string // with every scope
	log   *strings.Builder
	wakes atomic.Int32
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, store: store.New(pgtest.New(t)), log: &strings.Builder{}}
	secret, err := webhook.ParseSecret(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	options := channeltest.ChannelOptions{Secrets: []webhook.Secret{secret}}
	f.api, err = api.New(api.Config{Store: f.store, Keys: api.NewKeys(f.store), Wake: func() { f.wakes.Add(1) },
		Logger: slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Channels: map[string]channel.Channel{
			"push":   channeltest.Push("http://127.0.0.1:9", options),
			"sms":    channeltest.SMS("http://127.0.0.1:9", options),
			"plain":  channeltest.Plain("http://127.0.0.1:9", options),
			"broken": broken{channeltest.Push("http://127.0.0.1:9", options)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	f.key = f.newKey("console", store.Scopes...)
	return f
}

// broken is a channel whose adapter has a defect.
type broken struct{ channel.Channel }

// ParseReceipt panics with what nobody is to see.
func (broken) ParseReceipt(http.Header, []byte) ([]channel.Receipt, error) { panic("secret") }

func (f *fixture) newKey(name string, scopes ...string) string {
	f.t.Helper()
	secret, _, err := f.store.CreateKey(f.t.Context(), name, scopes)
	if err != nil {
		f.t.Fatal(err)
	}
	return secret
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (a answer) code() string { s, _ := a.body["code"].(string); return s }

// request makes one request; headers are "Name: value".
func (f *fixture) request(method, target, body string, headers ...string) answer {
	f.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	r = r.WithContext(f.t.Context())
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header(), text: w.Body.String()}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &a.body); err != nil {
			f.t.Fatalf("%s %s answers %d with what is not a JSON object: %s", method, target, w.Code, a.text)
		}
	}
	return a
}

// do is request with the key that has every scope.
func (f *fixture) do(method, target, body string, headers ...string) answer {
	f.t.Helper()
	return f.request(method, target, body, append(headers, "Authorization: Bearer "+f.key)...)
}

// want makes a request, and fails unless it is answered with the status.
func (f *fixture) want(status int, method, target, body string, headers ...string) answer {
	f.t.Helper()
	a := f.do(method, target, body, headers...)
	if a.status != status {
		f.t.Fatalf("%s %s answers %d, not %d: %s", method, target, a.status, status, a.text)
	}
	return a
}

var update = flag.Bool("update", false, "write docs/openapi.json")

// The document in docs is the one that the code makes.
func TestOpenAPIDocument(t *testing.T) {
	const path = "../../docs/openapi.json"
	f := newFixture(t)
	got := append(f.api.OpenAPI(), '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got) {
		t.Error("docs/openapi.json is not what the code makes: run go test ./internal/api -run OpenAPI -update")
	}
	if served := f.want(200, "GET", "/v1/openapi.json", ""); served.text+"\n" != string(got) {
		t.Error("/v1/openapi.json is something else")
	}
}
