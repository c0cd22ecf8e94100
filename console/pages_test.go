// What the pages show, and what they do: tasks, the queue, channels, conversations, the report.

package console_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// What others wrote stands in a page as text.
func TestHostileContent(t *testing.T) {
	b := newBench(t)
	const script, attribute = `<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`
	task := b.parked(`u<b>"ana"&'`, `e<i>"1"`, func(n *tidings.Notification) { n.Title, n.Body = attribute, script })
	w := b.signedIn(store.Scopes...)
	for _, path := range []string{"/console/reviews", "/console/tasks/" + task.String(), "/console/reviews/confirm?state=resend&task=" + task.String() + ".1",
		`/console/search?user=u%3Cb%3E%22ana%22%26%27`, "/console/reviews?user=" + "%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "/console/search?provider_id=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"} {
		g := w.get(path)
		g.saysNot(t, "<script", "<img", "<i>", "<b>", "onerror=alert(1)>")
	}
	w.page("/console/tasks/"+task.String(), html.EscapeString(script), "u&lt;b&gt;", "/console/search?user=u%3cb%3e%22ana%22%26%27")
}

// One page has everything that is known of a task.
func TestTaskPage(t *testing.T) {
	b := newBench(t)
	task := b.parked("u-ana", "order-1")
	w := b.signedIn(store.Scopes...)
	path := "/console/tasks/" + task.String()
	w.page(path, "order-1", "u-ana", "at-u-ana", "Order shipped", "It is on its way.", "waits for a person",
		"whether the provider accepted it: attempt 1", "TIMEOUT", "no answer in time", "no answer within 1 s", "worker-1",
		"It recognises no repeated request.", "It cannot be asked", "the user gets a second copy", task.Key(), task.String(),
		`name="attempt_count" value="1"`, `value="SENT"`, `value="FAILED"`, `value="resend"`)

	told := b.parked("u-ben", "unread-1", func(n *tidings.Notification) {
		bulk := tidings.Bulk
		n.Body, n.Priority, n.About = "", &bulk, &tidings.About{Conv: "c-team", Seq: 7}
	})
	if _, err := b.pool.Exec(t.Context(), `UPDATE tidings.notification SET preview = true WHERE event_key = 'unread-1'`); err != nil {
		t.Fatal(err)
	}
	w.page("/console/tasks/"+told.String(), "read from the log at each call", "message 7 of", "/console/conversation?conv=c-team", "<dd>bulk</dd>")

	g := w.post(path, "state", "FAILED", "attempt_count", "1", "note", "the provider's log has nothing")
	if g.path != path || g.status != 200 {
		t.Errorf("settling ends at %s with %d", g.path, g.status)
	}
	g.says(t, "Recorded as FAILED in the name of ana", "MANUAL_FAILED", "the provider&#39;s log has nothing", "settled by", "test-key:ana")
	g.saysNot(t, "Settle it")
	w.get(path).saysNot(t, "Recorded as FAILED in the name") // said once
	if d := b.detail(task); d.State != tidings.Failed || d.SettledBy != "test-key:ana" {
		t.Errorf("the task is %s, settled by %s", d.State, d.SettledBy)
	}

	g = w.post(path, "state", "SENT", "attempt_count", "2", "note", "too late")
	if g.status != http.StatusConflict {
		t.Errorf("settling it again answers %d", g.status)
	}
	g.says(t, "ALREADY_SETTLED", "Nothing was changed")

	if g := w.get("/console/tasks/00000000-0000-0000-0000-000000000000"); g.status != http.StatusNotFound {
		t.Errorf("no task is answered with %d", g.status)
	}
	if g := w.get("/console/tasks/what"); g.status/100 != 4 {
		t.Errorf("what is no id is answered with %d", g.status)
	}
}

// Who has seen another state of the task is told, sees the task as it is now, and what was typed is kept.
func TestTaskConflict(t *testing.T) {
	b := newBench(t)
	task := b.parked("u-ana", "order-1")
	w := b.signedIn(store.Scopes...)
	g := w.post("/console/tasks/"+task.String(), "state", "resend", "attempt_count", "0", "note", "as she asked")
	if g.status != http.StatusConflict {
		t.Errorf("the answer is %d", g.status)
	}
	g.says(t, "CONFLICT", "read its journal again", `name="attempt_count" value="1"`, "as she asked", `id="v-resend" required checked`)
	if d := b.detail(task); !d.Review || d.AttemptCount != 1 {
		t.Errorf("the task is %s with %d attempts", d.State, d.AttemptCount)
	}
	for _, form := range [][]string{{"state", "delete", "attempt_count", "1"}, {"state", "SENT", "attempt_count", ""}, {"state", "SENT", "attempt_count", "1", "note", strings.Repeat("x", 2001)}} {
		if g := w.post("/console/tasks/"+task.String(), form...); g.status/100 != 4 || !b.detail(task).Review {
			t.Errorf("%.40q is answered with %d", form, g.status)
		}
	}
	if g := w.post("/console/tasks/"+task.String(), "state", "SENT", "note", strings.Repeat("x", 100_000)); g.status/100 != 4 {
		t.Errorf("a form that is too long is answered with %d", g.status)
	}
	w.post("/console/tasks/"+task.String(), "state", "resend", "attempt_count", "1").says(t, "Recorded as resend", "MANUAL_RESEND")
}

// Many are settled in one go, after a page that lists them; what became of each is told.
func TestManyReviews(t *testing.T) {
	b := newBench(t)
	var tasks []tidings.UUID
	for i := range 5 {
		tasks = append(tasks, b.parked(fmt.Sprintf("u-%d", i), fmt.Sprintf("order-%d", i)))
	}
	w := b.signedIn(store.Scopes...)
	queue := w.page("/console/reviews", "order-0", "order-4", tasks[0].String()+".1")
	if strings.Index(queue.text, "order-0") > strings.Index(queue.text, "order-4") {
		t.Error("the queue does not begin with the oldest")
	}
	w.page("/console/reviews?user=u-3", "order-3").saysNot(t, "order-2")
	w.page("/console/reviews?channel=push", "Nothing that matches")

	w.page("/console/reviews/confirm?which=picked&state=SENT", "No task was picked")
	confirm := "/console/reviews/confirm?which=picked&state=SENT"
	for _, task := range tasks[:4] {
		confirm += "&task=" + task.String() + ".1"
	}
	b.settle(tasks[3], store.VerbFailed) // somebody was faster before the page
	g := w.page(confirm, "Settle 3 tasks as SENT?", "order-0", "order-1", "order-2", "Left out:", "it is FAILED")
	g.saysNot(t, "order-4", tasks[3].String()+".1")
	if b.detail(tasks[0]).AttemptCount != 1 {
		t.Error("the page before the confirmation has changed a task")
	}
	b.settle(tasks[1], store.VerbFailed) // and after it
	g = w.post("/console/reviews/resolve", "state", "SENT", "note", "all in the provider's log", "task", tasks[0].String()+".1", "task", tasks[1].String()+".1",
		"task", tasks[2].String()+".0")
	if g.path != "/console/reviews/results" || g.status != 200 {
		t.Fatalf("settling ends at %s with %d", g.path, g.status)
	}
	for range 2 { // it can be loaded again
		g.says(t, "1 task recorded as SENT", "ALREADY_SETTLED", "CONFLICT: the task has 1 attempts by now, not 0", tasks[0].String(), tasks[1].String(), tasks[2].String())
		g = w.get(g.path)
	}
	if d := b.detail(tasks[0]); d.State != tidings.Sent || d.Attempts[1].Detail != "all in the provider's log" || d.SettledBy != "test-key:ana" {
		t.Errorf("the task is %+v", d)
	}
	if d := b.detail(tasks[2]); !d.Review {
		t.Error("a task was settled whose attempt count was another")
	}
	for _, form := range [][]string{{"state", "SENT"}, {"state", "SENT", "task", tasks[2].String()}, {"task", tasks[2].String() + ".1"}} {
		if g := w.post("/console/reviews/resolve", form...); g.status != http.StatusBadRequest {
			t.Errorf("%q is answered with %d", form, g.status)
		}
	}
	w.page("/console/reviews/confirm?which=all&state=resend&all="+tasks[2].String()+".1&all="+tasks[4].String()+".1", "Settle 2 tasks as resend?", "Risk:", "A second copy is acceptable")
	if g := b.signedIn(store.Scopes...).get("/console/reviews/results"); g.path != "/console/reviews" {
		t.Errorf("results of nothing are shown at %s", g.path)
	}
}

// A page of the queue is settled at once, and what became of each fits what a browser keeps.
func TestFullPageOfReviews(t *testing.T) {
	b := newBench(t)
	for i := range 51 {
		b.parked("u-ana", fmt.Sprintf("order-%02d", i))
	}
	w := b.signedIn(store.Scopes...)
	g := w.page("/console/reviews", "order-00", "order-49", "Settle all 50 of this page", "Next page")
	g.saysNot(t, "order-50", "First page")
	address, _, _ := strings.Cut(g.text[strings.Index(g.text, "/console/reviews?after="):], `"`)
	w.page(html.UnescapeString(address), "order-50", "First page").saysNot(t, "Next page", "order-49")
	items, _, err := b.store.ListReviews(context.Background(), store.ReviewFilter{Limit: 50})
	b.must(err)
	form := []string{"state", "SENT"}
	for i, item := range items {
		form = append(form, "task", fmt.Sprintf("%s.%d", item.ID, i)) // one of them is right
	}
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	g = w.post("/console/reviews/resolve", form...)
	if size := len(g.header.Get("Set-Cookie")); g.status != http.StatusSeeOther || size > 4096 {
		t.Errorf("settling answers %d with a cookie of %d bytes", g.status, size)
	}
	g = w.page("/console/reviews/results", "1 task recorded as SENT", "49 tasks refused", "CONFLICT")
	for _, item := range items {
		g.says(t, item.ID.String())
	}
	if g := w.post("/console/reviews/resolve", append(form, "task", "00000000-0000-0000-0000-000000000000.1")...); g.status != http.StatusBadRequest {
		t.Errorf("more than a page is answered with %d", g.status)
	}
}

func TestChannels(t *testing.T) {
	b := newBench(t)
	b.parked("u-ana", "order-1")
	w := b.signedIn(store.Scopes...)
	w.page("/console/channels", "push", "sms", "plain", "/console/reviews?channel=plain")
	w.page("/console/channel?name=push", "It recognises a repeated request by its key (header Idempotency-Key) for 24 h.", "It reports by itself")
	w.page("/console/channel?name=sms", "It can be asked by our reference at once.", "proves that nothing was accepted")
	if g := w.get("/console/channel?name=fax"); g.status != http.StatusNotFound {
		t.Errorf("no channel is answered with %d", g.status)
	}
	g := w.post("/console/channel/pause", "name", "plain", "reason", "the provider is down", "minutes", "90")
	if g.path != "/console/channel?name=plain" {
		t.Errorf("pausing ends at %s", g.path)
	}
	g.says(t, "The channel plain is paused.", "the provider is down", "test-key:ana", "in 1 h 29 min", "Resume plain")
	w.page("/console/channels", "Paused", "the provider is down")
	w.page("/console", "1 paused")
	w.post("/console/channel/resume", "name", "plain").says(t, "The channel plain goes on.", "Pause plain")
	w.post("/console/channel/pause", "name", "plain", "reason", "for long").says(t, "it is resumed")
	for _, form := range [][]string{{"name", "plain", "reason", ""}, {"name", "plain", "reason", "typed", "minutes", "0"}, {"name", "plain", "reason", "typed", "minutes", "soon"}} {
		g := w.post("/console/channel/pause", form...)
		if g.status/100 != 4 {
			t.Errorf("%q is answered with %d", form, g.status)
		}
		g.says(t, "INVALID_ARGUMENT", `value="`+form[3]+`"`, "for long")
	}
}

func TestSearch(t *testing.T) {
	b := newBench(t)
	first, second := b.parked("u-ana", "order-1"), b.parked("u-ana", "order-2")
	b.parked("u-ben", "order-1")
	w := b.signedIn(store.Scopes...)
	w.page("/console/search", "Search").saysNot(t, "No such task")
	w.page("/console/search?user=u-ana", first.String(), second.String(), "waits for a person", "/console/conversations?user=u-ana", "/console/user?user=u-ana").saysNot(t, "u-ben")
	w.page("/console/search?user=u-ana&event_key=order-2", second.String()).saysNot(t, first.String())
	w.page("/console/search?provider_id=p-1", "No such task")
	if g := w.get("/console/search?event_key=order-1"); g.status != http.StatusBadRequest {
		t.Errorf("a search by the event alone is answered with %d", g.status)
	} else {
		g.says(t, "INVALID_ARGUMENT", `value="order-1"`)
	}
}

func TestConversations(t *testing.T) {
	b := newBench(t)
	key := b.key(store.Scopes...)
	b.api(key, "PUT", "/v1/conversations/c-crew", map[string]any{"members": []string{"u-ana", "u-ben"}})
	for i := range 60 {
		b.api(key, "PUT", fmt.Sprintf("/v1/conversations/c-crew/messages/m-%d", i), map[string]any{"body": fmt.Sprintf("<b>secret %d</b>", i)}, "Tidings-User: u-ana")
	}
	w := b.signedIn(store.ScopeOperate)
	w.page("/console/conversations", "Conversations").saysNot(t, "There is no such")
	w.page("/console/conversations?conv=c-", "c-crew", "62")
	w.page("/console/conversations?user=u-ben", "c-crew")
	w.page("/console/conversations?conv=d", "There is no such conversation.")
	g := w.page("/console/conversation?conv=c-crew", "2 users", "u-ana", "u-ben", "m-59", "your key lacks the scope", "Older")
	g.saysNot(t, "secret", "Newer", "m-3<")
	if g := w.get("/console/conversation?conv=c-crew&bodies=true"); g.status != http.StatusForbidden {
		t.Errorf("bodies without the scope are answered with %d", g.status)
	} else {
		g.saysNot(t, "secret")
	}
	if strings.Contains(b.log.String(), "reads bodies") {
		t.Error("the log says that bodies were read that were not")
	}
	reader := b.signedIn(store.ScopeOperate, store.ScopeBodies)
	reader.page("/console/conversation?conv=c-crew", "Show what was said").saysNot(t, "secret")
	reader.page("/console/conversation?conv=c-crew&bodies=true", "&lt;b&gt;secret 59&lt;/b&gt;", "is in the log of the server", "Hide it").saysNot(t, "<b>")
	if log := b.log.String(); !strings.Contains(log, "reads bodies") || !strings.Contains(log, "test-key:ana") || !strings.Contains(log, "c-crew") || strings.Contains(log, "secret") {
		t.Errorf("the log says of the reading:\n%s", log)
	}
	reader.page("/console/conversation?conv=c-crew&before=13", "m-0", "Newer").saysNot(t, "Older", "m-11<")
	reader.page("/console/conversation?conv=c-crew&after=60", "Older").saysNot(t, "m-0<", "Newer")
	for _, conv := range []string{"nothing", "..", ".", "", "a%2Fb", "a%00b"} {
		if g := w.get("/console/conversation?conv=" + conv); g.status != http.StatusNotFound && g.status != http.StatusBadRequest {
			t.Errorf("the conversation %q is answered with %d", conv, g.status)
		}
	}
}

func TestPlaces(t *testing.T) {
	b := newBench(t)
	b.parked("u-ana", "order-1")
	w := b.signedIn(store.Scopes...)
	w.page("/console", "Reviews", "The oldest has waited since", "Generation")
	w.page("/console/gateways", "No gateway has reported", "Devices of a user")
	w.page("/console/user?user=u-ana", "no device that ever connected", "/console/search?user=u-ana")
	if g := w.get("/console/user"); g.status != http.StatusBadRequest {
		t.Errorf("no user is answered with %d", g.status)
	}
	if g := w.get("/console/nothing"); g.status != http.StatusNotFound {
		t.Errorf("no page is answered with %d", g.status)
	}
}

func TestReport(t *testing.T) {
	b := newBench(t)
	w := b.signedIn(store.Scopes...)
	if g := w.get("/console/report"); g.status != http.StatusNotFound {
		t.Errorf("no report is answered with %d", g.status)
	} else {
		g.says(t, "tidings serve --report-file", "make lab")
	}
	b.must(os.WriteFile(b.report, []byte(`{"accepted":false,"problems":["33-X: <b>FAIL</b>"],"commits":["0123456789abcdef0"],"versions":{"go":["go1.26"]},
		"counts":[{"by":"family","name":"04","core":9,"core_passed":8,"checks":9,"passed":8}],
		"cards":[{"id":"P1","promise":"One is one.","status":"not shown","reason":"33-X failed","level":"model","assumptions":["one primary"],"unknowns":["a failover"],"checks":["33-X"]}],
		"checks":[{"id":"33-X","title":"shows it","kind":"normal","level":"model","promise":"P1","verdict":"FAIL","runs":20,"passes":19,"reason":"a line"},
			{"id":"34-Y","title":"elsewhere","kind":"normal","level":"HA cluster","promise":"","verdict":"NOT_RUN","runs":0,"passes":0,"reason":"three machines","requires":"three machines and a day"}],
		"canary":{"ok":true,"runs":40,"by_rule":21}}`), 0o600))
	w.page("/console/report", "Not accepted: 1 problem", "33-X: &lt;b&gt;", "0123456789ab<", "go go1.26", "One is one.", "not shown", "33-X failed", "one primary", "a failover", "19/20",
		"8 of 9", "NOT_RUN", "three machines and a day", "40 runs, 21 had to fail; that is how it was")
}

// A database that does not answer is told with its code.
func TestUnavailable(t *testing.T) {
	b := newBench(t)
	w := b.signedIn(store.Scopes...)
	b.pool.Close()
	g := w.get("/console/reviews")
	if g.status != http.StatusServiceUnavailable && g.status != http.StatusInternalServerError {
		t.Errorf("the answer is %d", g.status)
	}
	g.says(t, "That did not work", `role="alert"`)
}
