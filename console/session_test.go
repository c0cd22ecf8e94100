// Who gets in, how long, and that no other page can act for them.

package console_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/store"
)

func TestSignIn(t *testing.T) {
	b := newBench(t)
	key := b.key(store.Scopes...)
	for _, c := range []struct {
		name, key, operator string
		status              int
		says                string
	}{
		{"a wrong key", "tdk_nobodys-key-0123456789", "ana", 401, "unknown or revoked"},
		{"what is no key", "x", "ana", 401, "unknown or revoked"},
		{"a key with spaces and lines", "a b\r\nc", "ana", 401, "unknown or revoked"},
		{"a token", "a.b.c", "ana", 401, "unknown or revoked"},
		{"no key", "", "ana", 400, "The key is missing."},
		{"no name", key, "", 400, "Your name is missing"},
		{"a name with a space", key, "ana b", 400, "INVALID_ARGUMENT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := b.browser()
			g := w.post("/console/sign-in", "key", c.key, "operator", c.operator, "next", "/console/reviews")
			if g.status != c.status || g.header.Get("Set-Cookie") != "" {
				t.Errorf("the answer is %d, cookie %q", g.status, g.header.Get("Set-Cookie"))
			}
			g.says(t, c.says, `value="/console/reviews"`)
			if len(c.key) > 1 {
				g.saysNot(t, c.key)
			}
			if after := w.get("/console/reviews"); !strings.HasPrefix(after.path, "/console/sign-in?") {
				t.Errorf("reviews are shown to somebody who is not signed in: %s", after.path)
			}
		})
	}
	w := b.browser()
	if g := w.get("/console/reviews?user=u-ana"); g.path != "/console/sign-in?next=%2Fconsole%2Freviews%3Fuser%3Du-ana" {
		t.Errorf("somebody who is not signed in is led to %s", g.path)
	}
	if g := w.post("/console/sign-in", "key", " "+key+" ", "operator", "ana", "next", "/console/reviews?user=u-ana"); g.path != "/console/reviews?user=u-ana" || g.status != 200 {
		t.Errorf("signing in leads to %s with %d", g.path, g.status)
	}
	g := w.page("/console", "ana", "test-key", "v-test")
	g.saysNot(t, key)
	if g := w.post("/console/sign-out"); g.path != "/console/sign-in" {
		t.Errorf("signing out leads to %s", g.path)
	}
	if g := w.get("/console"); g.path != "/console/sign-in" {
		t.Errorf("after signing out the console shows %s", g.path)
	}
	if strings.Contains(b.log.String(), key) || strings.Contains(b.log.String(), "nobodys-key") {
		t.Error("a key stands in the log")
	}
}

// The cookie is for the console alone, and no script reads it.
func TestSessionCookie(t *testing.T) {
	b := newBench(t)
	key := b.key(store.Scopes...)
	signIn := func(headers ...string) string {
		w := b.browser()
		w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		w.headers = headers
		g := w.post("/console/sign-in", "key", key, "operator", "ana")
		if g.status != http.StatusSeeOther || g.header.Get("Location") != "/console" {
			t.Fatalf("signing in answers %d, to %q", g.status, g.header.Get("Location"))
		}
		return g.header.Get("Set-Cookie")
	}
	for _, want := range []string{"; Path=/console", "; HttpOnly", "; SameSite=Strict"} {
		if got := signIn(); !strings.Contains(got, want) || strings.Contains(got, "Max-Age") || strings.Contains(got, "Expires") || strings.Contains(got, "Secure") {
			t.Errorf("the cookie is %q", got)
		}
	}
	if got := signIn("X-Forwarded-Proto: https"); !strings.Contains(got, "; Secure") {
		t.Errorf("the cookie of who came by TLS is %q", got)
	}
}

// A session ends after twelve hours, with its key, and when its cookie is not what it was.
func TestSessionEnds(t *testing.T) {
	b := newBench(t)
	key := b.key(store.Scopes...)
	visit := func(key string, since time.Time) got {
		w := b.browser()
		at, err := url.Parse(b.url + "/console")
		b.must(err)
		value := fmt.Sprintf(`{"key":%q,"operator":"ana","since":%q}`, key, since.Format(time.RFC3339))
		w.client.Jar.SetCookies(at, []*http.Cookie{{Name: "tidings_console", Value: base64.RawURLEncoding.EncodeToString([]byte(value)), Path: "/console"}})
		return w.get("/console")
	}
	for _, c := range []struct {
		name  string
		key   string
		since time.Time
		path  string
	}{
		{"of now", key, time.Now(), "/console"},
		{"of eleven hours ago", key, time.Now().Add(-11 * time.Hour), "/console"},
		{"of twelve hours ago", key, time.Now().Add(-12 * time.Hour), "/console/sign-in"},
		{"of tomorrow", key, time.Now().Add(24 * time.Hour), "/console/sign-in"},
		{"of another key", "tdk_other", time.Now(), "/console/sign-in"},
		{"without a key", "", time.Now(), "/console/sign-in"},
	} {
		if g := visit(c.key, c.since); g.path != c.path {
			t.Errorf("a session %s shows %s", c.name, g.path)
		}
	}
}

// Whoever signed in at one process of an installation has signed in at each, although they share nothing but the database.
func TestSessionAtAnotherProcess(t *testing.T) {
	b := newBench(t)
	w := b.signedIn(store.Scopes...)
	w.b = b.beside()
	w.page("/console", "ana", "test-key")
}

// Whatever next says, the way leads into the console.
func TestSignInLeadsNowhereElse(t *testing.T) {
	b := newBench(t)
	key := b.key(store.Scopes...)
	for _, next := range []string{"https://evil.example/console", "//evil.example/console", `/\evil.example`, "/console/../v1/ws", "/v1/openapi.json", "javascript:alert(1)",
		"/consolex", "/console\r\nX: y", ""} {
		w := b.browser()
		w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if g := w.post("/console/sign-in", "key", key, "operator", "ana", "next", next); g.header.Get("Location") != "/console" {
			t.Errorf("next %q leads to %q", next, g.header.Get("Location"))
		}
		if g := w.get("/console/sign-in?next=" + url.QueryEscape(next)); strings.Contains(g.text, "evil") || strings.Contains(g.text, "javascript") {
			t.Errorf("next %q stands in the form", next)
		}
	}
}

// A page of elsewhere cannot act for somebody who is signed in.
func TestOtherPagesCannotAct(t *testing.T) {
	b := newBench(t)
	task := b.parked("u-ana", "order-1")
	w := b.signedIn(store.Scopes...)
	form := []string{"state", "SENT", "attempt_count", "1"}
	for _, headers := range [][]string{{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Origin: https://evil.example"}, {"Origin: null"}} {
		w.headers = headers
		if g := w.post("/console/tasks/"+task.String(), form...); g.status != http.StatusForbidden {
			t.Errorf("a form with %q is answered with %d", headers, g.status)
		}
		if g := w.post("/console/sign-in", "key", "k", "operator", "o"); g.status != http.StatusForbidden {
			t.Errorf("signing in with %q is answered with %d", headers, g.status)
		}
	}
	w.headers = nil
	if g := w.get("/console/tasks/" + task.String() + "?state=SENT&attempt_count=1"); g.status != 200 {
		t.Errorf("the task's page answers %d", g.status)
	}
	for _, path := range []string{"/console/reviews/resolve?state=SENT&task=" + task.String() + ".1", "/console/channel/pause?name=plain&reason=r", "/console/channel/resume?name=plain", "/console/sign-out"} {
		if g := w.get(path); g.status != http.StatusNotFound {
			t.Errorf("GET %s answers %d", path, g.status)
		}
	}
	if d := b.detail(task); !d.Review || d.AttemptCount != 1 {
		t.Errorf("the task is %s, review %t, after what should have changed nothing", d.State, d.Review)
	}
	w.headers = []string{"Sec-Fetch-Site: same-origin", "Origin: " + b.url}
	w.post("/console/tasks/"+task.String(), form...).says(t, "Recorded as SENT")
}

func TestHeaders(t *testing.T) {
	b := newBench(t)
	w := b.signedIn(store.Scopes...)
	for _, path := range []string{"/console", "/console/sign-in", "/console/reviews", "/console/nothing"} {
		h := w.get(path).header
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "script-src") {
			t.Errorf("%s has the policy %q", path, csp)
		}
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "same-origin" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the headers %v", path, h)
		}
	}
	page := w.page("/console")
	at := strings.Index(page.text, "/console/console.css?")
	style, _, _ := strings.Cut(page.text[at:], `"`)
	if g := b.browser().get(style); g.status != 200 || g.header.Get("Content-Type") != "text/css; charset=utf-8" || !strings.Contains(g.header.Get("Cache-Control"), "immutable") {
		t.Errorf("the style sheet is answered with %d %v", g.status, g.header)
	}
}

// Whoever has a key without a scope is told which one a page needs.
func TestScopes(t *testing.T) {
	b := newBench(t)
	task := b.parked("u-ana", "order-1")
	reviewer := b.signedIn(store.ScopeReview)
	for _, path := range []string{"/console", "/console/search", "/console/channels", "/console/channel?name=plain", "/console/conversations", "/console/conversation?conv=c", "/console/gateways", "/console/user?user=u-ana", "/console/report"} {
		if g := reviewer.get(path); g.status != http.StatusForbidden {
			t.Errorf("%s answers %d", path, g.status)
		} else {
			g.says(t, "operate", "--scopes review,operate")
		}
	}
	reviewer.page("/console/reviews", "order-1")
	if g := b.browser().post("/console/sign-in", "key", b.key(store.ScopeReview), "operator", "ana"); g.path != "/console/reviews" {
		t.Errorf("a key for reviews leads to %s", g.path)
	}
	operator := b.signedIn(store.ScopeOperate)
	for _, path := range []string{"/console/reviews", "/console/tasks/" + task.String(), "/console/reviews/confirm?state=SENT"} {
		if g := operator.get(path); g.status != http.StatusForbidden {
			t.Errorf("%s answers %d", path, g.status)
		} else {
			g.says(t, "--scopes operate,review")
			g.saysNot(t, "order-1")
		}
	}
	if g := operator.post("/console/tasks/"+task.String(), "state", "SENT", "attempt_count", "1"); g.status != http.StatusForbidden || !b.detail(task).Review {
		t.Errorf("a key without the scope settles a task: %d", g.status)
	}
	operator.page("/console/channels", "plain")
}
