// Tests of the operations for operators: keys, overview, tasks, gateways, routes, the report.

package api_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

// list are the objects of an answer's list.
func (a answer) list(name string) (out []map[string]any) {
	all, _ := a.body[name].([]any)
	for _, one := range all {
		out = append(out, one.(map[string]any))
	}
	return out
}

// texts are the fields of the objects of an answer's list, as text.
func (a answer) texts(list string, fields ...string) (out []string) {
	for _, one := range a.list(list) {
		var line []string
		for _, f := range fields {
			line = append(line, fmt.Sprint(one[f]))
		}
		out = append(out, strings.Join(line, " "))
	}
	return out
}

// fields are the names of an object's fields, sorted.
func fields(object map[string]any) (names []string) {
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestOperatorKey(t *testing.T) {
	f := newFixture(t)
	for _, scope := range store.Scopes {
		a := f.request("GET", "/v1/operator/key", "", "Authorization: Bearer "+f.newKey("of "+scope, scope))
		if a.status != 200 || a.body["name"] != "of "+scope || fmt.Sprint(a.body["scopes"]) != "["+scope+"]" || len(a.body) != 2 {
			t.Errorf("with %s alone: %d %s", scope, a.status, a.text)
		}
	}
	if a := f.do("GET", "/v1/operator/key", "", api.OperatorHeader+": eve"); a.body["name"] != "console" {
		t.Errorf("with an operator's name: %s", a.text)
	}
	review := "Authorization: Bearer " + f.newKey("a reviewer", store.ScopeReview)
	for path, status := range map[string]int{"/v1/reviews": 200, "/v1/operator/overview": 403, "/v1/operator/tasks?user=u-ana": 403, "/v1/operator/report": 403, "/v1/channels": 403} {
		if a := f.request("GET", path, "", review); a.status != status {
			t.Errorf("with the scope review %s answers %d", path, a.status)
		}
	}
}

// No user's token opens anything of an operator's, not even one of a user that is called as an operator.
func TestOperatorsHaveNoTokens(t *testing.T) {
	s := newScene(t)
	for _, path := range []string{"key", "overview", "tasks?user=u-ana", "conversations", "conversations/c-g", "conversations/c-g/events", "gateways", "users/u-ana/routes", "report"} {
		if a := s.call(s.token("u-ana"), "GET", "/v1/operator/"+path, ""); a.status != 403 || a.code() != "FORBIDDEN" {
			t.Errorf("%s answers %d %s", path, a.status, a.text)
		}
	}
}

func TestOperatorOverview(t *testing.T) {
	f := newFixture(t)
	if err := f.store.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := f.want(200, "GET", "/v1/operator/overview", "")
	if a.body["reviews"] != 0.0 || a.body["reviews_oldest_at"] != nil || a.body["channels"] != 4.0 || a.body["paused"] != 0.0 || a.body["gateways"] != 0.0 {
		t.Errorf("of an empty installation: %s", a.text)
	}
	if lineage, _ := a.body["lineage"].(map[string]any); fmt.Sprint(fields(lineage)) != "[generation recorded_at timeline]" {
		t.Errorf("the lineage: %s", a.text)
	}
	f.parkedTask("u-ana", "e-1")
	f.want(200, "POST", "/v1/channels/push/pause", `{"reason":"trouble"}`)
	f.want(200, "POST", "/v1/channels/elsewhere/pause", `{"reason":"trouble"}`)
	if err := f.store.RenewLease(t.Context(), "g-1", time.Minute, false); err != nil {
		t.Fatal(err)
	}
	a = f.want(200, "GET", "/v1/operator/overview", "")
	if a.body["reviews"] != 1.0 || a.body["reviews_oldest_at"] == nil || a.body["channels"] != 5.0 || a.body["paused"] != 2.0 || a.body["gateways"] != 1.0 {
		t.Errorf("%s", a.text)
	}
}

// parkedTask submits a notification on the channel plain and has its task wait for a person. It returns the task.
func (f *fixture) parkedTask(user, key string) (task string) {
	f.t.Helper()
	f.want(200, "PUT", "/v1/users/"+user+"/channels/plain", `{"address":"the address"}`)
	id := f.want(201, "POST", "/v1/notifications", fmt.Sprintf(`{"user":%q,"event_key":%q,"body":"the body","ttl_s":60,"channels":["plain"]}`, user, key)).body["id"]
	if err := f.store.Pool().QueryRow(f.t.Context(), `SELECT id::text FROM tidings.task WHERE notification_id = $1`, id).Scan(&task); err != nil {
		f.t.Fatal(err)
	}
	lane := store.Lane{Channel: "plain", Worker: "w", Renderer: "r/1", Lease: time.Minute, Timeout: time.Second}
	claimed, err := f.store.Claim(f.t.Context(), lane, 1, store.ClaimID{1}, nil)
	if err != nil || len(claimed) != 1 || claimed[0].ID.String() != task {
		f.t.Fatalf("claimed %v, %v", claimed, err)
	}
	c := claimed[0]
	verdict := tidings.Finish(c.Held, tidings.Observation{Outcome: tidings.Timeout})
	if _, err := f.store.Finish(f.t.Context(), []store.Finish{{ID: c.ID, Note: c.Note, N: c.N, Token: c.Token, Verdict: verdict, Doubted: true, ProviderMsgID: "p 1/" + key}}); err != nil {
		f.t.Fatal(err)
	}
	return task
}

func TestOperatorTasks(t *testing.T) {
	f := newFixture(t)
	task := f.parkedTask("u-ana", "e-1")
	f.parkedTask("u-ana", "e-2")
	f.want(200, "PUT", "/v1/users/u-ana/channels/push", `{"address":"a"}`)
	f.want(201, "POST", "/v1/notifications", `{"user":"u-ana","event_key":"e-3","body":"b","ttl_s":60,"channels":["push"]}`)
	a := f.want(200, "GET", "/v1/operator/tasks?user=u-ana&event_key=&provider_id=&limit=&after=", "")
	if got := a.texts("tasks", "event_key", "channel", "state", "needs_review"); fmt.Sprint(got) != "[e-3 push PENDING false e-2 plain UNKNOWN true e-1 plain UNKNOWN true]" || a.body["next"] != nil {
		t.Errorf("%v", got)
	}
	if got, want := fmt.Sprint(fields(a.list("tasks")[0])), "[attempt_count channel created_at event_key in_doubt needs_review next_attempt_at notification slot state task user]"; got != want {
		t.Errorf("a task that waits has %s, not %s", got, want)
	}
	if strings.Contains(a.text, "the body") || strings.Contains(a.text, "the address") {
		t.Errorf("content is shown: %s", a.text)
	}
	a = f.want(200, "GET", "/v1/operator/tasks?provider_id="+url.QueryEscape("p 1/e-1"), "")
	if got := a.texts("tasks", "task", "provider_msg_id", "in_doubt"); fmt.Sprint(got) != "["+task+" p 1/e-1 true]" {
		t.Errorf("by the provider's id: %s", a.text)
	}
	f.want(200, "GET", "/v1/reviews/"+a.texts("tasks", "task")[0], "")
	var keys []string
	for next := ""; ; {
		a := f.want(200, "GET", "/v1/operator/tasks?user=u-ana&limit=1&after="+next, "")
		keys = append(keys, a.texts("tasks", "event_key")...)
		if next, _ = a.body["next"].(string); next == "" {
			break
		}
	}
	if fmt.Sprint(keys) != "[e-3 e-2 e-1]" {
		t.Errorf("one by one: %v", keys)
	}
	if a := f.want(200, "GET", "/v1/operator/tasks?user=u-absent", ""); a.list("tasks") != nil || !strings.Contains(a.text, `"tasks":[]`) {
		t.Errorf("of nobody: %s", a.text)
	}
	reviews := f.want(200, "GET", "/v1/reviews?limit=1", "").body["next"]
	f.want(200, "GET", fmt.Sprint("/v1/operator/tasks?user=u-ana&after=", reviews), "") // the same kind of place, of another list
	for _, query := range []string{"", "?event_key=e-1", "?user=a%20b", "?user=%00", "?user=%ff", "?user=" + strings.Repeat("x", 129), "?provider_id=%00", "?provider_id=%ff",
		"?provider_id=" + strings.Repeat("x", 513), "?user=u-ana&limit=0", "?user=u-ana&limit=501", "?user=u-ana&limit=x", "?user=u-ana&limit=9999999999999999999999",
		"?user=u-ana&after=x", "?user=u-ana&after=%00", "?user=u-ana&after=" + strings.Repeat("A", 5000), "?user=u-ana&event_key=%27"} {
		if strings.HasSuffix(query, "%27") { // an id, of no event
			f.want(200, "GET", "/v1/operator/tasks"+query, "")
		} else if a := f.do("GET", "/v1/operator/tasks"+query, ""); a.status != 400 || a.code() != "INVALID_ARGUMENT" {
			t.Errorf("%.100s answers %d %s", query, a.status, a.text)
		}
	}
}

func TestOperatorRoutesAndGateways(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for i, gateway := range []string{"g-alive", "g-dead"} {
		if err := f.store.RenewLease(ctx, gateway, time.Minute, i == 1); err != nil {
			t.Fatal(err)
		}
		if _, err := f.store.Hello(ctx, "u-ana", "d-"+gateway, "i", gateway, tidings.UUID{1, 15: byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.store.Install(ctx, "u-ana", "d-http", "i"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Pool().Exec(ctx, `UPDATE tidings.gateway SET lease_until = now() - interval '1 second' WHERE gateway_id = 'g-dead'`); err != nil {
		t.Fatal(err)
	}
	a := f.want(200, "GET", "/v1/operator/gateways", "")
	if got := a.texts("gateways", "gateway", "alive", "draining", "routes"); fmt.Sprint(got) != "[g-alive true false 1 g-dead false true 1]" || a.list("gateways")[0]["lease_until"] == nil {
		t.Errorf("%s", a.text)
	}
	a = f.want(200, "GET", "/v1/operator/users/u-ana/routes", "")
	if got := a.texts("devices", "device", "install_no", "gateway", "current"); fmt.Sprint(got) != "[d-g-alive 1 g-alive true d-g-dead 1 g-dead false d-http 1 <nil> false]" || a.body["more"] != false {
		t.Errorf("%s", a.text)
	}
	if d := a.list("devices"); d[0]["connection"] == nil || d[2]["connection"] != nil || d[0]["version"] != 1.0 {
		t.Errorf("%s", a.text)
	}
	if a := f.want(200, "GET", "/v1/operator/users/nobody/routes", ""); !strings.Contains(a.text, `"devices":[]`) {
		t.Errorf("of nobody: %s", a.text)
	}
	if a := f.do("GET", "/v1/operator/users/a%20b/routes", ""); a.code() != "INVALID_ARGUMENT" {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestOperatorReport(t *testing.T) {
	f := newFixture(t)
	ask := func(path string) answer {
		t.Helper()
		var err error
		f.api, err = api.New(api.Config{Store: f.store, Keys: api.NewKeys(f.store), ReportFile: path, Logger: slog.New(slog.NewJSONHandler(f.log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return f.do("GET", "/v1/operator/report", "")
	}
	file := filepath.Join(t.TempDir(), "secret-place.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "secret-pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"no setting": "", "no file": file, "a directory": filepath.Dir(file), "a pipe": pipe, "a device": "/dev/zero"} {
		if a := ask(path); a.status != 404 || a.code() != "NOT_FOUND" || !strings.Contains(a.text, "report-file") || strings.Contains(a.text, "secret") {
			t.Errorf("%s: %d %s", what, a.status, a.text)
		}
	}
	write("{}")
	if a := ask(file + "/below"); a.status != 500 || strings.Contains(a.text, "secret") || !strings.Contains(f.log.String(), "the acceptance report") {
		t.Errorf("a path that leads nowhere: %d %s; the log says %s", a.status, a.text, f.log.String())
	}
	write(`{"accepted":true,"checks":[{"id":"1"}]}`)
	if a := ask(file); a.status != 200 || a.body["accepted"] != true || len(a.body) != 2 {
		t.Errorf("a report: %d %s", a.status, a.text)
	}
	write(`{"accepted":false}`) // is read anew
	if a := f.do("GET", "/v1/operator/report", ""); a.body["accepted"] != false {
		t.Errorf("a newer report: %d %s", a.status, a.text)
	}
	for _, text := range []string{"", "{", `{"accepted":`, `"` + strings.Repeat("x", 8<<20) + `"`, `null`, `[{"accepted":true}]`, `"accepted"`, `7`} {
		write(text)
		if a := f.do("GET", "/v1/operator/report", ""); a.status != 404 || !strings.Contains(a.text, "is no report") {
			t.Errorf("a file that begins %.20q: %d %s", text, a.status, a.text)
		}
	}
}
