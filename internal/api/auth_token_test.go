// Tests of users' tokens.

package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

var tokenSecret = []byte("0123456789abcdef0123456789abcdef")

// tokenScene is an API that takes tokens and has one more operation, which tells who acts.
type tokenScene struct {
	t     testing.TB
	api   *API
	store *store.Store
	log   strings.Builder
}

func newTokenScene(t testing.TB) *tokenScene {
	t.Helper()
	s := &tokenScene{t: t, store: store.New(pgtest.New(t))}
	keys := NewKeys(s.store)
	var err error
	if keys.Tokens, err = token.New(token.Config{HS256Secret: tokenSecret, Audience: "tidings"}); err != nil {
		t.Fatal(err)
	}
	s.api, err = New(Config{Store: s.store, Keys: keys, Wake: func() {}, Logger: slog.New(slog.NewJSONHandler(&s.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	type out struct {
		Body struct{ User, Device, By string }
	}
	register(s.api, huma.Operation{OperationID: "who-acts", Method: http.MethodGet, Path: "/v1/test/actor"}, []string{store.ScopeActUser},
		func(ctx context.Context, in *struct {
			Device string `query:"device"`
		}) (o *out, err error) {
			o = &out{}
			if o.Body.User, err = actingUser(ctx); err != nil {
				return nil, err
			}
			o.Body.By = by(ctx)
			o.Body.Device, err = actingDevice(ctx, in.Device)
			return o, err
		})
	return s
}

func (s *tokenScene) token(c token.Claims) string {
	s.t.Helper()
	if c.Expires.IsZero() {
		c.Expires = time.Now().Add(time.Minute)
	}
	text, err := token.IssueHS256(tokenSecret, "tidings", c)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func (s *tokenScene) key(scopes ...string) string {
	s.t.Helper()
	secret, _, err := s.store.CreateKey(s.t.Context(), "shop", scopes)
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// ask makes a request as the given key or token, for a user if one is named; it returns the status and the answer's object.
func (s *tokenScene) ask(method, target, bearer, user string) (int, map[string]any) {
	s.t.Helper()
	r := httptest.NewRequest(method, target, nil).WithContext(s.t.Context())
	if method == http.MethodPut && strings.Contains(target, "/channels/") {
		r = httptest.NewRequest(method, target, strings.NewReader(`{"address":"a"}`)).WithContext(s.t.Context())
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	if user != "" {
		r.Header.Set(UserHeader, user)
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	var body map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			s.t.Fatalf("%s %s answers %s", method, target, w.Body)
		}
	}
	return w.Code, body
}

func TestWhoActs(t *testing.T) {
	s := newTokenScene(t)
	free, bound := s.token(token.Claims{User: "u-ana"}), s.token(token.Claims{User: "u-ana", Device: "d-1"})
	server, other := s.key(store.ScopeActUser, store.ScopePrefs), s.key(store.ScopePrefs)
	for _, c := range []struct {
		name, bearer, header, device string
		status                       int
		user, from, by               string
	}{
		{"a token", free, "", "", 200, "u-ana", "", "u-ana"},
		{"a token that names its own user", free, "u-ana", "", 200, "u-ana", "", "u-ana"},
		{"a token that names another user", free, "u-eve", "", 403, "", "", ""},
		{"a token of any device", free, "", "d-2", 200, "u-ana", "d-2", "u-ana"},
		{"a token of a device", bound, "", "", 200, "u-ana", "d-1", "u-ana"},
		{"a token of a device, named", bound, "", "d-1", 200, "u-ana", "d-1", "u-ana"},
		{"a token of another device", bound, "", "d-2", 403, "", "", ""},
		{"an expired token", s.token(token.Claims{User: "u-ana", Expires: time.Now().Add(-time.Hour)}), "", "", 401, "", "", ""},
		{"no token", "a.b.c", "", "", 401, "", "", ""},
		{"a server for a user", server, "u-ben", "d-3", 200, "u-ben", "d-3", "shop"},
		{"a server for nobody", server, "", "", 400, "", "", ""},
		{"a server for what is no id", server, "u/ben", "", 400, "", "", ""},
		{"a server without the scope", other, "u-ben", "", 403, "", "", ""},
	} {
		status, body := s.ask("GET", "/v1/test/actor?device="+c.device, c.bearer, c.header)
		if status != c.status || status == 200 && (body["User"] != c.user || body["Device"] != c.from || body["By"] != c.by) {
			t.Errorf("%s is answered with %d %v", c.name, status, body)
		}
	}
	if strings.Contains(s.log.String(), free) {
		t.Error("a token stands in the log")
	}
}

// A user's token reaches what is about that user, and nothing else.
func TestTokensReachTheirOwnUser(t *testing.T) {
	s := newTokenScene(t)
	ana := s.token(token.Claims{User: "u-ana"})
	operations := 0
	for path, item := range s.api.huma.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "PUT": item.Put, "POST": item.Post, "DELETE": item.Delete} {
			if op == nil || len(scopesOf(op)) == 0 || takesTokens(op) && !strings.HasPrefix(path, ownPath) {
				continue
			}
			operations++
			target := func(user string) string {
				return strings.NewReplacer("{user}", user, "{channel}", "push", "{category}", "news", "{", "", "}", "").Replace(path)
			}
			if status, body := s.ask(method, target("u-ben"), ana, ""); status != 403 || body["code"] != "FORBIDDEN" {
				t.Errorf("%s %s of another user is answered with %d %v", method, path, status, body)
			}
			if !strings.HasPrefix(path, ownPath) {
				continue
			}
			if status, body := s.ask(method, target("u-ana"), ana, ""); status == 401 || status == 403 || status >= 500 {
				t.Errorf("%s %s of the same user is answered with %d %v", method, path, status, body)
			}
			if status, _ := s.ask(method, target("u-ana"), ana, "u-ben"); status != 403 {
				t.Errorf("%s %s in the name of another user is answered with %d", method, path, status)
			}
		}
	}
	if operations < 15 {
		t.Errorf("only %d operations were looked at", operations)
	}
	for path := range map[string]bool{"/v1/users/u%2Dben/channels": true, "/v1/users/u-ana%2F..%2Fu-ben/channels": true, "/v1/users/U-ANA/channels": true} {
		if status, _ := s.ask("GET", path, ana, ""); status != 403 {
			t.Errorf("%s is answered with %d", path, status)
		}
	}
}

// A revocation reaches tokens that worked before within the stated time, and no token that was issued after it.
func TestTokensAreRevoked(t *testing.T) {
	s := newTokenScene(t)
	now := time.Now()
	before, undated := s.token(token.Claims{User: "u-ana", Issued: now.Add(-time.Second)}), s.token(token.Claims{User: "u-ana"})
	after, ben := s.token(token.Claims{User: "u-ana", Issued: now}), s.token(token.Claims{User: "u-ben"})
	status := func(text string) int { code, _ := s.ask("GET", "/v1/test/actor", text, ""); return code }
	for _, text := range []string{before, undated, after, ben} {
		if got := status(text); got != 200 {
			t.Fatalf("before the revocation a token is answered with %d", got)
		}
	}
	if err := s.store.RevokeTokens(t.Context(), "u-ana", now.Add(-time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for revoked := time.Now(); status(before) == 200; time.Sleep(50 * time.Millisecond) {
		if time.Since(revoked) > KeyCacheTime+2*time.Second {
			t.Fatal("a revoked token still works")
		}
	}
	for _, c := range []struct {
		name, text string
		want       int
	}{{"a revoked token", before, 401}, {"a token without a date", undated, 401}, {"a later token", after, 200}, {"another user's", ben, 200}} {
		if got := status(c.text); got != c.want {
			t.Errorf("%s is answered with %d", c.name, got)
		}
	}
	s.store.Pool().Close()
	s.api.keys.floors = cache[string, time.Time]{}
	if got := status(after); got != 503 {
		t.Errorf("when nobody knows whether it is revoked, a token is answered with %d", got)
	}
}

func TestWithoutTokens(t *testing.T) {
	s := newTokenScene(t)
	text := s.token(token.Claims{User: "u-ana"})
	s.api.keys.Tokens = nil
	if status, body := s.ask("GET", "/v1/test/actor", text, ""); status != 401 || body["code"] != "UNAUTHENTICATED" {
		t.Errorf("where no tokens are accepted, one is answered with %d %v", status, body)
	}
}
