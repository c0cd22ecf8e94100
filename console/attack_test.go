// What others wrote, what was sent from elsewhere, and what nobody should send.

package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// hostile is text that acts where it is not escaped: in HTML, in an attribute, in an address, in a template.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)>javascript:alert(1){{.Key}}` + "\u2028"

// harmless fails when a page has an element or an attribute that hostile text would have made.
func (g got) harmless(t *testing.T, at string) {
	t.Helper()
	if g.status >= 500 {
		t.Errorf("%s is answered with %d", at, g.status)
	}
	for _, sign := range []string{"<script", "<img", "onerror=alert(1)>", `href="javascript`, "href=javascript"} {
		if strings.Contains(g.text, sign) {
			t.Errorf("%s has %s", at, sign)
		}
	}
}

// Each text that somebody else stores stands in each page as text: ids, notes, reasons, what providers answered, names of gateways and devices, the report.
func TestHostileTextEverywhere(t *testing.T) {
	b := newBench(t)
	id := strings.NewReplacer("/", "|", " ", "_", "{{.Key}}", "", "\u2028", "").Replace(hostile)
	task := b.parked(id, id, func(n *tidings.Notification) { n.Title, n.Body = hostile, hostile })
	ctx := t.Context()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := b.pool.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`UPDATE tidings.attempt SET detail = $1, late_detail = $1, late_outcome = 'ACCEPTED', late_at = now(), provider_msg_id = $1, worker = $1`, hostile)
	exec(`UPDATE tidings.task SET last_error = $1, provider_msg_id = $1, address = $1`, hostile)
	all := b.key(store.Scopes...)
	b.api(all, http.MethodPost, "/v1/channels/plain/pause", map[string]string{"reason": hostile})
	b.api(all, http.MethodPut, "/v1/conversations/"+url.PathEscape(id), map[string]any{"members": []string{id}})
	b.api(all, http.MethodPut, "/v1/conversations/"+url.PathEscape(id)+"/messages/"+url.PathEscape(id), map[string]any{"body": hostile, "data": map[string]string{hostile: hostile}}, "Tidings-User: "+id)
	b.must(b.store.RenewLease(ctx, id, time.Minute, false))
	_, err := b.store.Hello(ctx, id, id, id, id, tidings.UUID{1})
	b.must(err)
	text := strings.ReplaceAll(`{"accepted":false,"problems":["X"],"commits":["X"],"versions":{"X":["X"]},"counts":[{"by":"X","name":"X"}],"canary":{"reason":"X"},
		"cards":[{"id":"X","promise":"X","status":"X","reason":"X","level":"X","assumptions":["X"],"unknowns":["X"],"checks":["X"]}],
		"checks":[{"id":"X","title":"X","verdict":"X","promise":"X","kind":"X","level":"X","reason":"X","requires":"X"},{"id":"X","verdict":"NOT_RUN","reason":"X","requires":"X"}]}`,
		`X`, strings.ReplaceAll(hostile, `"`, `\"`))
	b.must(os.WriteFile(b.report, []byte(text), 0o600))

	w := b.signedIn(store.Scopes...)
	q := url.QueryEscape
	seen := map[string]int{}
	for _, path := range []string{"/console", "/console/reviews", "/console/tasks/" + task.String(), "/console/reviews/confirm?state=SENT&task=" + task.String() + ".1",
		"/console/reviews/confirm?state=SENT&task=" + q(hostile+".1"), "/console/reviews/confirm?state=" + q(hostile), "/console/search?user=" + q(id),
		"/console/search?provider_id=" + q(hostile), "/console/search?event_key=" + q(hostile), "/console/channels", "/console/channel?name=plain", "/console/channel?name=" + q(hostile),
		"/console/conversations", "/console/conversations?conv=" + q(id), "/console/conversation?bodies=true&conv=" + q(id), "/console/conversation?conv=" + q(hostile), "/console/gateways",
		"/console/user?user=" + q(id), "/console/user?user=" + q(hostile), "/console/report", "/console/" + url.PathEscape(hostile), "/console/tasks/" + url.PathEscape(hostile),
		"/console/reviews?channel=" + q(hostile) + "&user=" + q(hostile), "/console/sign-in?next=" + q(hostile), "/console/sign-in?next=" + q("/console/"+hostile)} {
		g := w.get(path)
		g.harmless(t, path)
		seen[path] = strings.Count(g.text, html.EscapeString("<script>"))
	}
	for path, least := range map[string]int{"/console/tasks/" + task.String(): 8, "/console/report": 20, "/console/gateways": 1, "/console/channels": 1, "/console/user?user=" + q(id): 2,
		"/console/conversation?bodies=true&conv=" + q(id): 4, "/console/reviews": 3} {
		if seen[path] < least {
			t.Errorf("%s shows the text %d times: the test looks elsewhere", path, seen[path])
		}
	}
	g := w.post("/console/tasks/"+task.String(), "state", "SENT", "attempt_count", "1", "note", hostile)
	g.says(t, "Recorded as SENT")
	g.harmless(t, "the note of a resolution")
	w.post("/console/channel/pause", "name", hostile, "reason", hostile, "minutes", hostile).harmless(t, "a refused pause")
	w.post("/console/sign-in", "key", hostile, "operator", hostile, "next", hostile).harmless(t, "a refused sign-in")
}

// A report that is JSON and yet no report is said to be none.
func TestReportOfAnotherShape(t *testing.T) {
	b := newBench(t)
	w := b.signedIn(store.ScopeOperate)
	for _, text := range []string{`[]`, `null`, `{"accepted":"yes"}`, `{"checks":{"a":1}}`, `{"checks":[{"bound":1e999}]}`, strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)} {
		b.must(os.WriteFile(b.report, []byte(text), 0o600))
		if g := w.get("/console/report"); g.status != http.StatusNotFound || !strings.Contains(g.text, "no report") {
			t.Errorf("%.40s is answered with %d", text, g.status)
		}
	}
	b.must(os.WriteFile(b.report, []byte(`{}`), 0o600))
	w.page("/console/report", "Not accepted")
	if strings.Contains(b.log.String(), "level=ERROR") {
		t.Errorf("the log has an error: %s", b.log)
	}
}

// A page of elsewhere, also of the same site, cannot load a page in somebody's name, which for what was said would stand in the log. A link from there shows the form with a way on.
func TestOtherPagesCannotLoad(t *testing.T) {
	b := newBench(t)
	w := b.signedIn(store.Scopes...)
	all := b.key(store.Scopes...)
	b.api(all, http.MethodPut, "/v1/conversations/c-1", map[string]any{"members": []string{"u-ana"}})
	const path = "/console/conversation?bodies=true&conv=c-1"
	for _, site := range []string{"same-site", "cross-site"} {
		w.headers = []string{"Sec-Fetch-Site: " + site}
		g := w.get(path)
		if !strings.HasPrefix(g.path, "/console/sign-in?next=") || strings.Contains(b.log.String(), "reads bodies") {
			t.Errorf("%s: %s is shown, and the log has %s", site, g.path, b.log)
		}
		g.says(t, "Go on to the page", html.EscapeString(path))
	}
	for _, site := range []string{"same-origin", "none"} {
		w.headers = []string{"Sec-Fetch-Site: " + site}
		w.page(path, "What was said is shown")
	}
	w.headers = []string{"Sec-Fetch-Site: cross-site"} // a link to the first page
	w.get("/console").says(t, "Go on to the page")
}

// Each page takes the scope that its calls take, and no other one, alone, opens it.
func TestEachScopeAlone(t *testing.T) {
	b := newBench(t)
	task := b.parked("u-ana", "order-1")
	all := b.key(store.Scopes...)
	b.api(all, http.MethodPut, "/v1/conversations/c-1", map[string]any{"members": []string{"u-ana"}})
	b.api(all, http.MethodPut, "/v1/conversations/c-1/messages/m-1", map[string]any{"body": "what ana said"}, "Tidings-User: u-ana")
	b.must(os.WriteFile(b.report, []byte(`{}`), 0o600))
	pages := map[string]string{"/console/reviews": store.ScopeReview, "/console/tasks/" + task.String(): store.ScopeReview, "/console/reviews/confirm?state=SENT&task=" + task.String() + ".1": store.ScopeReview}
	for _, path := range []string{"", "/search?user=u-ana", "/channels", "/channel?name=plain", "/conversations?user=u-ana", "/conversation?conv=c-1", "/conversation?conv=c-1&bodies=true", "/gateways", "/user?user=u-ana", "/report"} {
		pages["/console"+path] = store.ScopeOperate
	}
	for _, scope := range store.Scopes {
		w := b.signedIn(scope)
		for path, needs := range pages {
			g := w.get(path)
			want := http.StatusForbidden
			if needs == scope && !strings.Contains(path, "bodies") {
				want = http.StatusOK
			}
			if g.status != want {
				t.Errorf("with the scope %s %s is answered with %d, not %d", scope, path, g.status, want)
			}
			if want == http.StatusForbidden && (strings.Contains(g.text, "order-1") || strings.Contains(g.text, "at-u-ana")) || strings.Contains(g.text, "what ana said") {
				t.Errorf("with the scope %s %s shows what it must not", scope, path)
			}
		}
		changes := []struct {
			path  string
			form  []string
			needs string
		}{
			{"/console/channel/pause", []string{"name", "push", "reason", "r"}, store.ScopeOperate},
			{"/console/channel/resume", []string{"name", "push"}, store.ScopeOperate},
			{"/console/reviews/resolve", []string{"state", "SENT", "task", "00000000-0000-0000-0000-000000000000.1"}, store.ScopeReview},
			{"/console/tasks/00000000-0000-0000-0000-000000000000", []string{"state", "SENT", "attempt_count", "1"}, store.ScopeReview},
		}
		for _, c := range changes {
			if g := w.post(c.path, c.form...); (g.status == http.StatusForbidden) == (c.needs == scope) {
				t.Errorf("with the scope %s POST %s is answered with %d", scope, c.path, g.status)
			}
		}
	}
	if !slices.Contains(store.Scopes, store.ScopeBodies) {
		t.Error("the scope bodies was not tried")
	}
}

// Forms that no page of ours makes: too many tasks, other tasks, attempt counts that nobody saw, two verbs, fields twice, too much of everything.
func TestTamperedForms(t *testing.T) {
	b := newBench(t)
	task := b.parked("u-ana", "order-1")
	other := b.parked("u-ben", "order-2")
	w := b.signedIn(store.Scopes...)
	var many []string
	for i := range 5000 {
		many = append(many, "task", fmt.Sprintf("00000000-0000-0000-0000-%012d.1", i))
	}
	for name, form := range map[string][]string{
		"thousands of tasks":   append([]string{"state", "SENT"}, many[:1000]...),
		"more than a form":     append([]string{"state", "SENT"}, many...),
		"no count":             {"state", "SENT", "task", task.String()},
		"a count that is text": {"state", "SENT", "task", task.String() + ".x"},
		"a huge count":         {"state", "SENT", "task", task.String() + ".99999999999999999999"},
		"a count below zero":   {"state", "SENT", "task", task.String() + ".-1"},
		"no id":                {"state", "SENT", "task", "x.1"},
		"a path":               {"state", "SENT", "task", "../channels/plain/pause.1"},
		"no verb":              {"task", task.String() + ".1"},
		"another verb":         {"state", "CANCELLED", "task", task.String() + ".1"},
		"a long note":          {"state", "SENT", "task", task.String() + ".1", "note", strings.Repeat("x", 2001)},
	} {
		if g := w.post("/console/reviews/resolve", form...); g.status/100 != 4 {
			t.Errorf("%s: %d", name, g.status)
		}
	}
	w.post("/console/reviews/resolve", "state", "SENT", "task", task.String()+".7").says(t, "CONFLICT")
	// The same task twice, with the count that was seen first: only that counts.
	w.post("/console/reviews/resolve", "state", "SENT", "task", task.String()+".7", "task", task.String()+".1").says(t, "CONFLICT")
	for _, path := range []string{"/console/reviews/resolve?state=SENT&task=" + other.String() + ".1", "/console/reviews/resolve?task=" + other.String() + ".1&state=SENT"} {
		w.post(path, "note", "in the address") // tasks are read from the form alone
	}
	for _, id := range []tidings.UUID{task, other} {
		if d := b.detail(id); !d.Review || d.AttemptCount != 1 {
			t.Errorf("the task is %s, review %t, with %d attempts", d.State, d.Review, d.AttemptCount)
		}
	}
	if g := w.get("/console/reviews/confirm?state=SENT" + strings.Repeat("&task="+task.String()+".1", 200)); g.status != 200 || strings.Count(g.text, `name="task"`) != 1 {
		t.Errorf("the same task 200 times: %d", g.status)
	}
	// A cookie that somebody made.
	at, err := url.Parse(b.url + "/console")
	b.must(err)
	for _, value := range []string{"", "x", "e30", "bnVsbA", "W10", strings.Repeat("A", 3000)} {
		w.client.Jar.SetCookies(at, []*http.Cookie{{Name: "tidings_results", Value: value, Path: "/console"}, {Name: "tidings_said", Value: value, Path: "/console"}})
		if g := w.get("/console/reviews/results"); g.status >= 500 {
			t.Errorf("the results %.10q: %d", value, g.status)
		}
	}
}
