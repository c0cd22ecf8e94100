// Tests of what operators see of conversations, and of who may read what was said.

package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

// asUser makes a request as a user, and fails unless it is answered with the status.
func (f *fixture) asUser(user string, status int, method, target, body string) answer {
	f.t.Helper()
	return f.want(status, method, target, body, api.UserHeader+": "+user)
}

// talked is a fixture with the conversation c-1: ana and ben join (1, 2), ana says two things (3, 4), of which she recalls the second (5),
// ben leaves (6) and comes back (7). There are c-2 of ben and p-1 of nobody.
func talked(t *testing.T) *fixture {
	f := newFixture(t)
	if err := f.store.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(201, "PUT", "/v1/conversations/c-1", `{"members":["u-ana","u-ben"],"retention_ms":86400000}`)
	f.want(201, "PUT", "/v1/conversations/c-2", `{"members":["u-ben"]}`)
	f.want(201, "PUT", "/v1/conversations/p-1", `{}`)
	f.asUser("u-ana", 201, "PUT", "/v1/conversations/c-1/messages/m-1", `{"body":"said-body","data":{"k":"said-data"}}`)
	f.asUser("u-ana", 201, "PUT", "/v1/conversations/c-1/messages/m-2", `{"body":"recalled-body","data":{"k":"recalled-data"}}`)
	f.asUser("u-ana", 201, "POST", "/v1/conversations/c-1/recalls", `{"cmid":"r-1","target":4}`)
	f.want(200, "DELETE", "/v1/conversations/c-1/members/u-ben", "")
	f.want(200, "PUT", "/v1/conversations/c-1/members/u-ben", "")
	f.asUser("u-ana", 200, "PUT", "/v1/conversations/c-1/read", `{"seq":3}`)
	f.asUser("u-ana", 200, "PUT", "/v1/conversations/c-1/delivered", `{"seq":4,"device":"phone","install":"i"}`)
	return f
}

func TestOperatorConversations(t *testing.T) {
	f := talked(t)
	for query, want := range map[string]string{
		"":                            "[c-1 7 1 2 c-2 1 1 1 p-1 0 1 0]",
		"?user=&conv=&limit=&after=":  "[c-1 7 1 2 c-2 1 1 1 p-1 0 1 0]",
		"?conv=c-":                    "[c-1 7 1 2 c-2 1 1 1]",
		"?conv=c-1":                   "[c-1 7 1 2]",
		"?user=u-ben":                 "[c-1 7 1 2 c-2 1 1 1]",
		"?user=u-ben&conv=c-2":        "[c-2 1 1 1]",
		"?user=u-absent":              "[]",
		"?conv=%27%20OR%201=1":        "INVALID_ARGUMENT",
		"?conv=_-1":                   "[]",
		"?user=%00":                   "INVALID_ARGUMENT",
		"?user=a%20b":                 "INVALID_ARGUMENT",
		"?limit=0":                    "INVALID_ARGUMENT",
		"?limit=201":                  "INVALID_ARGUMENT",
		"?after=c-1":                  "INVALID_ARGUMENT",
		"?after=%25":                  "INVALID_ARGUMENT",
		"?after=AA":                   "INVALID_ARGUMENT",
		"?conv=" + long("c", 129):     "INVALID_ARGUMENT",
		"?conv=" + long("c", 128):     "[]",
		"?user=" + long("u", 100_000): "INVALID_ARGUMENT",
	} {
		a := f.do("GET", "/v1/operator/conversations"+query, "")
		got := a.code()
		if a.status == 200 {
			got = fmt.Sprint(a.texts("conversations", "conv", "head", "min_seq", "members"))
		}
		if got != want || a.body["next"] != nil {
			t.Errorf("%.100s: %s, not %s: %d %.500s", query, got, want, a.status, a.text)
		}
	}
	first := f.want(200, "GET", "/v1/operator/conversations?limit=1", "")
	if c := first.list("conversations")[0]; c["retention_ms"] != 86400000.0 || c["epoch"] == nil || c["created_at"] == nil {
		t.Errorf("%s", first.text)
	}
	second := f.want(200, "GET", fmt.Sprint("/v1/operator/conversations?limit=1&after=", first.body["next"]), "")
	last := f.want(200, "GET", fmt.Sprint("/v1/operator/conversations?limit=1&after=", second.body["next"]), "")
	if fmt.Sprint(second.texts("conversations", "conv"), last.texts("conversations", "conv"), last.body["next"]) != "[c-2] [p-1] <nil>" {
		t.Errorf("page by page: %s, %s", second.text, last.text)
	}
}

func long(letter string, n int) string { return strings.Repeat(letter, n) }

func TestOperatorConversation(t *testing.T) {
	f := talked(t)
	a := f.want(200, "GET", "/v1/operator/conversations/c-1", "")
	if a.body["conv"] != "c-1" || a.body["head"] != 7.0 || a.body["min_seq"] != 1.0 || a.body["recall_window_ms"] != 120000.0 || a.body["retention_ms"] != 86400000.0 ||
		a.body["preview"] != false || a.body["member_count"] != 2.0 || a.body["more_members"] != nil {
		t.Errorf("%s", a.text)
	}
	if got, want := fmt.Sprint(a.texts("members", "user", "join_seq", "leave_seq", "read", "devices")),
		"[u-ana 1 <nil> 3 [map[delivered:4 device:phone]] u-ben 7 <nil> 0 [] u-ben 2 6 0 []]"; got != want {
		t.Errorf("members %s, not %s", got, want)
	}
	if a := f.want(200, "GET", "/v1/operator/conversations/p-1", ""); !strings.Contains(a.text, `"members":[]`) || a.body["retention_ms"] != nil {
		t.Errorf("of nobody: %s", a.text)
	}
	for path, code := range map[string]string{"absent": "NOT_FOUND", "c%25": "INVALID_ARGUMENT", "a%20b": "INVALID_ARGUMENT", "%00": "INVALID_ARGUMENT", long("c", 129): "INVALID_ARGUMENT"} {
		for _, rest := range []string{"", "/events"} {
			if a := f.do("GET", "/v1/operator/conversations/"+path+rest, ""); a.code() != code {
				t.Errorf("%.50s%s: %d %s", path, rest, a.status, a.text)
			}
		}
	}
}

func TestOperatorEvents(t *testing.T) {
	f := talked(t)
	const path = "/v1/operator/conversations/c-1/events"
	for query, want := range map[string]string{
		"":                                 "[1 join 2 join 3 msg 4 msg 5 recall 6 leave 7 join] false",
		"?after=&before=&limit=&bodies=":   "[1 join 2 join 3 msg 4 msg 5 recall 6 leave 7 join] false",
		"?after=5&limit=1":                 "[6 leave] true",
		"?before=8&limit=2":                "[6 leave 7 join] true",
		"?before=3&limit=2":                "[1 join 2 join] false",
		"?after=2&before=5":                "[3 msg 4 msg] false",
		"?after=9007199254740991":          "[] false",
		"?before=9007199254740991&limit=1": "[7 join] true",
		"?after=-1":                        "INVALID_ARGUMENT",
		"?after=9007199254740992":          "INVALID_ARGUMENT",
		"?before=x":                        "INVALID_ARGUMENT",
		"?limit=0":                         "INVALID_ARGUMENT",
		"?limit=201":                       "INVALID_ARGUMENT",
		"?bodies=perhaps":                  "INVALID_ARGUMENT",
		"?epoch=7":                         "EPOCH_CHANGED",
	} {
		a := f.do("GET", path+query, "")
		got := a.code()
		if a.status == 200 {
			got = fmt.Sprint(a.texts("events", "seq", "kind"), a.body["more"])
		}
		if got != want {
			t.Errorf("%s: %s, not %s: %d %s", query, got, want, a.status, a.text)
		}
	}
	a := f.want(200, "GET", path+"?after=2&limit=3", "")
	events := a.list("events")
	for i, want := range []string{"[at cmid kind sender seq]", "[at cmid kind recalled_by sender seq]", "[at cmid kind sender seq target]"} {
		if got := fmt.Sprint(fields(events[i])); got != want {
			t.Errorf("event %d has %s, not %s", i+3, got, want)
		}
	}
	if events[1]["recalled_by"] != 5.0 || events[2]["target"] != 4.0 || events[0]["sender"] != "u-ana" || a.body["head"] != 7.0 || a.body["min_seq"] != 1.0 {
		t.Errorf("%s", a.text)
	}

	// What a purge has taken is not there, nor are its rows where some are left over.
	if _, err := f.store.Pool().Exec(t.Context(), `UPDATE tidings.conversation SET min_seq = 4 WHERE conv_id = 'c-1'`); err != nil {
		t.Fatal(err)
	}
	if a := f.want(200, "GET", path+"?bodies=true&limit=2", ""); fmt.Sprint(a.texts("events", "seq")) != "[4 5]" || a.body["min_seq"] != 4.0 || strings.Contains(a.text, "said") {
		t.Errorf("after a purge: %s", a.text)
	}
}

// What was said takes the scope bodies beside operate, is logged without itself, and is not given once it was recalled or its sender erased.
func TestOperatorsReadBodies(t *testing.T) {
	f := talked(t)
	const path = "/v1/operator/conversations/c-1/events?bodies=true"
	f.log.Reset()
	for name, scopes := range map[string][]string{"operate": {store.ScopeOperate}, "bodies": {store.ScopeBodies}, "all others": without(store.Scopes, store.ScopeBodies)} {
		a := f.request("GET", path, "", "Authorization: Bearer "+f.newKey(name, scopes...))
		if a.status != 403 || a.code() != "FORBIDDEN" {
			t.Errorf("with %s: %d %s", name, a.status, a.text)
		}
	}
	curious := "Authorization: Bearer " + f.newKey("desk", store.ScopeOperate, store.ScopeBodies)
	for _, query := range []string{"?after=0", "?bodies=false"} {
		if a := f.request("GET", "/v1/operator/conversations/c-1/events"+query, "", curious); a.status != 200 || strings.Contains(a.text, "body") || strings.Contains(a.text, "said") {
			t.Errorf("without being asked for: %d %s", a.status, a.text)
		}
	}
	f.request("GET", "/v1/operator/conversations/absent/events?bodies=true", "", curious)
	if f.log.Len() > 0 {
		t.Errorf("nothing was read, and the log has %s", f.log)
	}

	a := f.request("GET", path, "", curious, api.OperatorHeader+": eve")
	events := a.list("events")
	if a.status != 200 || len(events) != 7 || events[2]["body"] != "said-body" || fmt.Sprint(events[2]["data"]) != "map[k:said-data]" || events[3]["body"] != nil || events[3]["data"] != nil {
		t.Fatalf("%d %s", a.status, a.text)
	}
	if strings.Contains(a.text, "recalled-body") || strings.Contains(a.text, "recalled-data") {
		t.Errorf("what was recalled is given: %s", a.text)
	}
	f.request("GET", path+"&after=2&limit=1", "", curious)
	lines := strings.Split(strings.TrimSpace(f.log.String()), "\n")
	for i, want := range []string{"desk:eve c-1 1 7 7", "desk c-1 3 3 1"} {
		var line struct {
			Level, Msg, By, Conv string
			From, To, Events     int64
		}
		if i >= len(lines) || json.Unmarshal([]byte(lines[i]), &line) != nil || line.Level != "INFO" || line.Msg != "an operator reads bodies" ||
			fmt.Sprint(line.By, " ", line.Conv, " ", line.From, " ", line.To, " ", line.Events) != want {
			t.Errorf("line %d of the log is not of %s: %s", i, want, f.log)
		}
	}
	if len(lines) != 2 || strings.Contains(f.log.String(), "said") || strings.Contains(f.log.String(), "tdk_") {
		t.Errorf("the log: %s", f.log)
	}

	if _, err := f.store.EraseUser(t.Context(), "u-ana", "op"); err != nil {
		t.Fatal(err)
	}
	if a := f.request("GET", path, "", curious); a.status != 200 || strings.Contains(a.text, "said") || len(a.list("events")) < 7 {
		t.Errorf("after an erasure: %d %s", a.status, a.text)
	}
}

func without(all []string, one string) (others []string) {
	for _, s := range all {
		if s != one {
			others = append(others, s)
		}
	}
	return others
}

// An operator's request waits for nobody who holds a conversation.
func TestOperatorsWaitForNoLock(t *testing.T) {
	f := talked(t)
	tx, err := f.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM tidings.conversation FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, path := range []string{"", "/c-1", "/c-1/events?bodies=true"} {
		f.want(200, "GET", "/v1/operator/conversations"+path, "")
	}
	if took := time.Since(began); took > tidings.DefaultRecallWindow/10 {
		t.Errorf("they took %v", took)
	}
}
