// Tests of every code that an operation on conversations answers with.

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

// operation is one of the OpenAPI document, with a request that succeeds in the populated scene as often as it is made, but for the
// first one's status.
type operation struct {
	method, path, query, body string
	server                    bool // for servers, instead of for u-ana
}

var operations = map[string]operation{
	"create-conversation": {"PUT", "/v1/conversations/{conv}", "", `{"members":["u-ana","u-ben"]}`, true},
	"change-conversation": {"PATCH", "/v1/conversations/{conv}", "", `{"recall_window_ms":120000}`, true},
	"join-conversation":   {"PUT", "/v1/conversations/{conv}/members/u-ben", "", "", true},
	"leave-conversation":  {"DELETE", "/v1/conversations/{conv}/members/u-cid", "", "", true},
	"list-conversations":  {"GET", "/v1/conversations", "", "", false},
	"send-message":        {"PUT", "/v1/conversations/{conv}/messages/m-1", "", `{"body":"one"}`, false},
	"recall-message":      {"POST", "/v1/conversations/{conv}/recalls", "", `{"cmid":"r-2","target":4}`, false},
	"get-outcome":         {"GET", "/v1/conversations/{conv}/messages/m-1", "", "", false},
	"sync-events":         {"GET", "/v1/conversations/{conv}/events", "?after=1", "", false},
	"fetch-event":         {"GET", "/v1/conversations/{conv}/events/3", "", "", false},
	"put-delivered":       {"PUT", "/v1/conversations/{conv}/delivered", "", `{"seq":2,"device":"d-1","install":"i-2"}`, false},
	"put-read":            {"PUT", "/v1/conversations/{conv}/read", "", `{"seq":2}`, false},
	"mute-conversation":   {"PUT", "/v1/conversations/{conv}/mute", "", `{}`, false},
	"unmute-conversation": {"DELETE", "/v1/conversations/{conv}/mute", "", "", false},
}

// in is the operation's request in a conversation, as it succeeds there.
func (o operation) in(conv string) (method, target, body string) {
	return o.method, strings.Replace(o.path, "{conv}", conv, 1) + o.query, o.body
}

func (s *scene) bearerFor(o operation) string {
	if o.server {
		return s.server
	}
	return s.token("u-ana")
}

// promised are the codes that the OpenAPI document lists for each operation on conversations.
func (s *scene) promised() map[string][]string {
	s.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Tags        []string
			Responses   map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(s.api.OpenAPI(), &doc); err != nil {
		s.t.Fatal(err)
	}
	out := map[string][]string{}
	for _, methods := range doc.Paths {
		for _, op := range methods {
			if !slices.Contains(op.Tags, "conversations") {
				continue
			}
			out[op.OperationID] = nil
			for status, r := range op.Responses {
				if status >= "400" && status != "default" {
					out[op.OperationID] = append(out[op.OperationID], strings.Split(r.Description, ", ")...)
				}
			}
		}
	}
	return out
}

// Every operation is refused with every code that its description lists, and with the status, retry and stored of the contract.
func TestEveryCodeOfEveryOperation(t *testing.T) {
	s := newScene(t)
	s.populate()
	s.as("u-ana", 200, "PUT", "/v1/conversations/c-g/delivered", `{"seq":1,"device":"d-1","install":"i-1"}`)
	s.as("u-ana", 201, "POST", "/v1/conversations/c-g/recalls", `{"cmid":"r-2","target":4}`) // the event 8
	s.exec("UPDATE tidings.event SET created_at = created_at - interval '1 hour' WHERE conv_id = 'c-g' AND seq = 3")
	seen := map[string]map[string]bool{}
	note := func(name string, a answer, want string) {
		t.Helper()
		if a.code() != want {
			t.Errorf("%s is answered with %d %s, not %s", name, a.status, a.text, want)
			return
		}
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		seen[name][want] = true
	}
	for name, o := range operations {
		method, target, body := o.in("c-g")
		if a := s.call(s.bearerFor(o), method, target, body); a.status != 200 {
			t.Fatalf("%s is answered with %d %s", name, a.status, a.text)
		}
		note(name, s.call("", method, target, body), "UNAUTHENTICATED")
		note(name, s.call("a.b.c", method, target, body), "UNAUTHENTICATED")
		note(name, s.call(s.key(store.ScopeNotify), method, target, body), "FORBIDDEN")
		if o.server {
			note(name, s.call(s.token("u-ana"), method, target, body), "FORBIDDEN")
			note(name, s.call(s.key(store.ScopeActUser), method, target, body), "FORBIDDEN")
		} else {
			note(name, s.call(s.server, method, target, body), "INVALID_ARGUMENT") // as whom?
			note(name, s.call(s.key(store.ScopeConversations), method, target, body, "Tidings-User: u-ana"), "FORBIDDEN")
			note(name, s.call(s.token("u-ana"), method, target, body, "Tidings-User: u-ben"), "FORBIDDEN")
		}
		method, target, body = o.in("c%00g")
		if o.path == "/v1/conversations" {
			target += "?after=a%20b"
		}
		note(name, s.call(s.bearerFor(o), method, target, body), "INVALID_ARGUMENT")
	}
	s.as("u-ana", 403, "PUT", "/v1/conversations/c-none/read", `{"seq":1}`)
	epoch := s.epoch()
	for _, c := range []struct{ name, bearer, target, body, code string }{
		{"create-conversation", s.server, "", `{"members":["u-ben"]}`, "CONFLICT"},
		{"change-conversation", s.server, "/v1/conversations/c-none", "", "NOT_FOUND"},
		{"join-conversation", s.server, "/v1/conversations/c-none/members/u-ana", "", "NOT_FOUND"},
		{"leave-conversation", s.server, "/v1/conversations/c-none/members/u-ana", "", "NOT_FOUND"},
		{"send-message", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"send-message", s.token("u-cid"), "", "", "NOT_MEMBER"},
		{"send-message", "", "", `{"body":"two"}`, "IDEMPOTENCY_MISMATCH"},
		{"send-message", "", "/v1/conversations/c-g/messages/m-0", "", "ORIGINAL_EXPIRED"},
		{"send-message", "", "", `{"body":"` + strings.Repeat("x", 16385) + `"}`, "TOO_LARGE"},
		{"send-message", "", "", `{"body":"","data":{"x":"` + strings.Repeat("x", 8192) + `"}}`, "TOO_LARGE"},
		{"send-message", "", "", `{"body":"","more":"` + strings.Repeat("x", 1<<20) + `"}`, "TOO_LARGE"},
		{"recall-message", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"recall-message", s.token("u-cid"), "", "", "NOT_MEMBER"},
		{"recall-message", "", "", `{"cmid":"r-2","target":7}`, "IDEMPOTENCY_MISMATCH"},
		{"recall-message", "", "", `{"cmid":"r","target":4,"epoch":7}`, "EPOCH_CHANGED"},
		{"recall-message", "", "", `{"cmid":"r","target":9}`, "NOT_FOUND"},
		{"recall-message", "", "", `{"cmid":"r","target":1}`, "INVALID_ARGUMENT"},
		{"recall-message", s.token("u-ben"), "", `{"cmid":"r","target":7}`, "NOT_SENDER"},
		{"recall-message", "", "", `{"cmid":"r","target":4}`, "ALREADY_RECALLED"},
		{"recall-message", "", "", `{"cmid":"r","target":3}`, "RECALL_WINDOW_EXPIRED"},
		{"recall-message", s.issue(token.Claims{User: "u-ana", Device: "d-5"}), "", `{"cmid":"r","target":7,"device":"d-1"}`, "FORBIDDEN"},
		{"get-outcome", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"sync-events", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"sync-events", "", "?after=9", "", "CURSOR_AHEAD"},
		{"sync-events", "", "?after=8&epoch=7", "", "EPOCH_CHANGED"},
		{"fetch-event", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"fetch-event", s.token("u-cid"), "", "", "NOT_MEMBER"},
		{"fetch-event", "", "/v1/conversations/c-g/events/9", "", "NOT_FOUND"},
		{"fetch-event", "", "?epoch=7", "", "EPOCH_CHANGED"},
		{"put-delivered", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"put-delivered", "", "", `{"seq":1,"device":"d-1","install":"i-2","epoch":7}`, "EPOCH_CHANGED"},
		{"put-delivered", "", "", `{"seq":1,"device":"d-1","install":"i-1"}`, "INSTALL_REPLACED"},
		{"put-delivered", "", "", `{"seq":1,"install":"i-1"}`, "INVALID_ARGUMENT"},
		{"put-delivered", s.issue(token.Claims{User: "u-ana", Device: "d-5"}), "", "", "FORBIDDEN"},
		{"put-read", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"put-read", "", "", `{"seq":9}`, "CURSOR_AHEAD"},
		{"put-read", "", "", `{"seq":8,"epoch":7}`, "EPOCH_CHANGED"},
		{"mute-conversation", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"mute-conversation", s.token("u-cid"), "", "", "NOT_MEMBER"},
		{"unmute-conversation", s.token("u-eve"), "", "", "NOT_MEMBER"},
		{"unmute-conversation", s.token("u-cid"), "", "", "NOT_MEMBER"},
	} {
		o := operations[c.name]
		method, target, body := o.in("c-g")
		if c.bearer == "" {
			c.bearer = s.bearerFor(o)
		}
		if strings.HasPrefix(c.target, "?") {
			target = strings.Split(target, "?")[0] + c.target
		} else if c.target != "" {
			target = c.target
		}
		if c.body != "" {
			body = c.body
		}
		a := s.call(c.bearer, method, target, body)
		note(c.name, a, c.code)
		withEpoch, withHead := c.code == "EPOCH_CHANGED" || c.code == "CURSOR_AHEAD", c.code == "CURSOR_AHEAD"
		if withEpoch != (a.body["epoch"] == float64(epoch)) || withHead != (a.body["head"] == 8.0) || (c.code == "ORIGINAL_EXPIRED") != (a.body["seq"] == 1.0) {
			t.Errorf("%s: the refusal does not say where the log is: %s", c.name, a.text)
		}
	}
	events := s.count("SELECT count(*) FROM tidings.event")
	if events != 8 || s.count("SELECT seq FROM tidings.read WHERE user_id = 'u-ana'") != 2 || s.count("SELECT count(*) FROM tidings.delivered") != 1 {
		t.Errorf("a refusal has written something: there are %d events", events)
	}
	s.loseCommits(note)
	s.loseDatabase(note)
	for name, codes := range s.promised() {
		for _, code := range codes {
			if !seen[name][code] {
				t.Errorf("nothing here is refused by %s with the code %s, which its description lists", name, code)
			}
		}
		for code := range seen[name] {
			if !slices.Contains(codes, code) {
				t.Errorf("%s is refused with the code %s, which its description does not list", name, code)
			}
		}
	}
	if names := slices.Sorted(maps.Keys(s.promised())); !slices.Equal(names, slices.Sorted(maps.Keys(operations))) {
		t.Errorf("the operations are %v", names)
	}
	if strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Errorf("a refusal counts as a defect of ours:\n%s", s.log.String())
	}
}

// loseCommits has nobody know what became of each write: its connection ends at the COMMIT, or the COMMIT comes with a warning, as
// when the wait for a synchronous standby was cancelled.
func (s *scene) loseCommits(note func(string, answer, string)) {
	s.t.Helper()
	tables := []string{"conversation", "event", "delivered", "read", "mute"}
	s.as("u-ana", 200, "PUT", "/v1/conversations/c-g/mute", `{}`)
	for _, lose := range []string{"PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10)", "RAISE WARNING 'cancelled'"} {
		s.exec(`CREATE OR REPLACE FUNCTION lose_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + lose + `; RETURN NULL; END $$`)
		for _, table := range tables {
			s.exec(`CREATE CONSTRAINT TRIGGER lose_commit AFTER INSERT OR UPDATE OR DELETE ON tidings.` + table + ` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION lose_commit()`)
		}
		for name, c := range map[string]struct{ target, body string }{
			"create-conversation": {"/v1/conversations/c-new", ""},
			"change-conversation": {"", ""},
			"join-conversation":   {"/v1/conversations/c-g/members/u-new", ""},
			"leave-conversation":  {"/v1/conversations/c-g/members/u-ben", ""},
			"send-message":        {"/v1/conversations/c-g/messages/m-new", ""},
			"put-delivered":       {"", `{"seq":5,"device":"d-1","install":"i-2"}`},
			"put-read":            {"", `{"seq":5}`},
			"mute-conversation":   {"", ""},
			"unmute-conversation": {"", ""},
		} {
			o := operations[name]
			method, target, body := o.in("c-g")
			if c.target != "" {
				target = c.target
			}
			if c.body != "" {
				body = c.body
			}
			note(name, s.call(s.bearerFor(o), method, target, body), "OUTCOME_UNKNOWN")
		}
		method, target, _ := operations["recall-message"].in("c-g")
		if a := s.call(s.token("u-ana"), method, target, `{"cmid":"r-new","target":7}`); strings.HasPrefix(lose, "RAISE") {
			s.expect(a, 200, "a recall that came with a warning and was looked for again")
		} else {
			note("recall-message", a, "OUTCOME_UNKNOWN")
		}
		for _, table := range tables {
			s.exec(`DROP TRIGGER lose_commit ON tidings.` + table)
		}
	}
	if a := s.as("u-ana", 200, "PUT", "/v1/conversations/c-g/messages/m-new", `{"body":"one"}`); a.body["dup"] != true {
		s.t.Errorf("what was stored with a warning is repeated: %s", a.text)
	}
}

// loseDatabase makes the database refuse connections, for good. Keys and tokens are known from before.
func (s *scene) loseDatabase(note func(string, answer, string)) {
	s.t.Helper()
	for _, o := range operations {
		method, target, body := o.in("c-g")
		s.call(s.bearerFor(o), method, target, body) // a key or token that was not looked up for long is looked up now
	}
	config := s.pool.Config().ConnConfig.Copy()
	name := config.Database
	config.Database = "postgres"
	admin, err := pgx.ConnectConfig(s.t.Context(), config)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.Background()) }()
	if _, err := admin.Exec(s.t.Context(), "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" ALLOW_CONNECTIONS false"); err != nil {
		s.t.Fatal(err)
	}
	s.pool.Reset()
	for name, o := range operations {
		method, target, body := o.in("c-g")
		note(name, s.call(s.bearerFor(o), method, target, body), "UNAVAILABLE")
	}
}

// What a user may not see answers byte for byte like what does not exist, on every path, whoever asks.
func TestAbsentLooksForbidden(t *testing.T) {
	s := newScene(t)
	s.populate()
	asked := 0
	for name, o := range operations {
		if o.server || o.path == "/v1/conversations" {
			continue
		}
		for _, variant := range []string{"", "?after=9007199254740991", "?epoch=7"} {
			asked++
			method, target, body := o.in("c-g")
			target = strings.Split(target, "?")[0] + variant
			forbidden := s.call(s.token("u-eve"), method, target, body)
			absent := s.call(s.token("u-eve"), method, strings.Replace(target, "c-g", "c-x", 1), body)
			member := s.call(s.token("u-ana"), method, strings.Replace(target, "c-g", "c-x", 1), body)
			served := s.call(s.server, method, target, body, "Tidings-User: u-eve")
			for _, h := range []answer{forbidden, absent, member, served} {
				h.header.Del("Date")
			}
			if forbidden.code() != "NOT_MEMBER" || forbidden.text != absent.text || forbidden.text != member.text || forbidden.text != served.text ||
				fmt.Sprint(forbidden.header) != fmt.Sprint(absent.header) {
				t.Errorf("%s%s: forbidden is\n%sabsent\n%safter all\n%sby a server\n%s", name, variant, forbidden.text, absent.text, member.text, served.text)
			}
			if strings.Contains(forbidden.text, "c-g") {
				t.Errorf("%s names the conversation: %s", name, forbidden.text)
			}
		}
	}
	if asked < 18 {
		t.Errorf("only %d were asked", asked)
	}
}

// Bad input has a code and a status of its own, is no defect of ours, and stores nothing.
func TestBadConversationInput(t *testing.T) {
	s := newScene(t)
	s.populate()
	long := strings.Repeat("x", 10_000)
	inPath := []string{long, "a%2Fb", "a%3Fb", "a%23b", "a%25b", "a%20b", "%00", "%FF", "%C3%A4", "%ED%A0%80", strings.Repeat("x", 129)}
	inNumber := []string{"0", "-1", "9007199254740992", "9007199254740993", "9223372036854775808", "99999999999999999999999999", "1.5", "1e3", `"2"`, "x", "[1]", "true", "NaN"}
	inBody := []string{`{`, `[]`, `"x"`, `null`, `7`, `{"seq":}`, `{"body":"a\u0000"}`, `{"body":"\ud800"}`, `{"body":"\udc00x"}`, "{\"body\":\"\xff\"}", "{\"body\":\"\x00\"}",
		`{"body":5,"seq":"x","members":{},"device":5,"install":5,"retention_ms":"x","until":5}`, `{"body":null,"seq":null,"members":5,"retention_ms":{},"until":{}}`, strings.Repeat("[", 10_000), `{"other":"\u0000"}`, `{"other":"\ud800"}`}
	type try struct{ bearer, method, target, body string }
	var tries []try
	for _, o := range operations {
		method, target, body := o.in("c-g")
		add := func(target, body string) { tries = append(tries, try{s.bearerFor(o), method, target, body}) }
		segments := strings.Split(strings.TrimPrefix(target, "/v1/conversations/"), "/")
		for _, bad := range inPath {
			if !strings.Contains(o.path, "{conv}") {
				break
			}
			add(strings.Replace(o.path, "{conv}", bad, 1)+o.query, body)
			if len(segments) == 3 { // {user}, {cmid} or {seq}
				add(target[:strings.LastIndex(target, "/")+1]+bad, body)
			}
		}
		if body != "" {
			for _, bad := range inBody {
				add(target, bad)
			}
		}
		for _, bad := range inNumber {
			query := url.QueryEscape(bad)
			switch {
			case strings.HasSuffix(o.path, "/events"):
				for _, field := range []string{"limit", "epoch", "after"} {
					if bad != "0" || field == "limit" {
						add(strings.Split(target, "?")[0]+"?"+field+"="+query, "")
					}
				}
			case strings.HasSuffix(o.path, "/events/3"):
				add(strings.TrimSuffix(target, "3")+url.PathEscape(bad), "")
				if bad != "0" {
					add(target+"?epoch="+query, "")
				}
			case strings.HasSuffix(o.path, "/read"), strings.HasSuffix(o.path, "/delivered"):
				add(target, `{"device":"d-1","install":"i-1","seq":`+bad+`}`)
				if bad != "0" {
					add(target, `{"device":"d-1","install":"i-1","seq":2,"epoch":`+bad+`}`)
				}
			case strings.HasSuffix(o.path, "/recalls"):
				add(target, `{"cmid":"r","target":`+bad+`}`)
				if bad != "0" {
					add(target, `{"cmid":"r","target":3,"epoch":`+bad+`}`)
				}
			case o.path == "/v1/conversations":
				add(target+"?limit="+query, "")
			case o.path == "/v1/conversations/{conv}":
				add(target, `{"retention_ms":`+bad+`}`)
				if bad != "0" {
					add(target, `{"recall_window_ms":`+bad+`}`)
				}
			}
		}
	}
	ana := s.token("u-ana")
	for _, bad := range append(inPath, "a%0Ab") {
		tries = append(tries, try{ana, "GET", "/v1/conversations?after=" + bad, ""}, try{ana, "GET", "/v1/conversations?device=" + bad, ""})
	}
	for _, body := range []string{`{}`, `{"body":"","data":[]}`, `{"body":"","data":"x"}`, `{"body":"","data":{"a":"\u0000"}}`, `{"body":"","data":{"a":"\ud800"}}`,
		`{"body":"","data":{"a":1e999999}}`, `{"body":"","data":{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}`, `{"body":"","device":"a b"}`,
		`{"body":"","device":"` + strings.Repeat("x", 129) + `"}`} {
		tries = append(tries, try{ana, "PUT", "/v1/conversations/c-g/messages/m-bad", body})
	}
	for _, body := range []string{`{"target":3}`, `{"cmid":"r"}`, `{"cmid":"","target":3}`, `{"cmid":"a b","target":3}`, `{"cmid":"` + strings.Repeat("x", 129) + `","target":3}`,
		`{"cmid":"r","target":3,"device":"a b"}`, `{"cmid":"r","target":null}`, `{"cmid":5,"target":3}`} {
		tries = append(tries, try{ana, "POST", "/v1/conversations/c-g/recalls", body})
	}
	for _, body := range []string{`{"seq":1}`, `{"seq":1,"device":"d-1"}`, `{"seq":1,"device":"","install":"i"}`, `{"seq":1,"device":"d-1","install":"a/b"}`,
		`{"seq":1,"device":"a b","install":"i"}`, `{"device":"d-1","install":"i-1"}`, `{"seq":1,"device":"d-1","install":"` + long + `"}`} {
		tries = append(tries, try{ana, "PUT", "/v1/conversations/c-g/delivered", body})
	}
	for _, body := range []string{`{"members":["u-ana","u-ana"]}`, `{"members":["a b"]}`, `{"members":[""]}`, `{"members":[null]}`, `{"members":["` + long + `"]}`,
		`{"recall_window_ms":3153600000001}`, `{"members":["a"` + strings.Repeat(`,"a"`, 10_000) + `]}`} {
		tries = append(tries, try{s.server, "PUT", "/v1/conversations/c-bad", body})
	}
	before := s.count("SELECT count(*) FROM tidings.conversation") + s.count("SELECT count(*) FROM tidings.event") + s.count("SELECT count(*) FROM tidings.member")
	for _, c := range tries {
		if a := s.call(c.bearer, c.method, c.target, c.body); a.code() != "INVALID_ARGUMENT" {
			t.Errorf("%s %.80s %.80q is answered with %d %.300s", c.method, c.target, c.body, a.status, a.text)
		}
	}
	for _, bad := range []string{"a b", strings.Repeat("x", 129), "ä"} {
		if a := s.call(s.server, "PUT", "/v1/conversations/c-g/members/u-new", "", "Tidings-User: "+bad); a.code() != "INVALID_ARGUMENT" {
			t.Errorf("the actor %q is answered with %d %s", bad, a.status, a.text)
		}
	}
	after := s.count("SELECT count(*) FROM tidings.conversation") + s.count("SELECT count(*) FROM tidings.event") + s.count("SELECT count(*) FROM tidings.member")
	if before != after || s.count("SELECT count(*) FROM tidings.read") > 0 || s.count("SELECT count(*) FROM tidings.device") > 0 {
		t.Errorf("bad input has stored something: %d rows instead of %d", after, before)
	}
	if len(tries) < 300 {
		t.Errorf("only %d were tried", len(tries))
	}
	if strings.Contains(s.log.String(), `"level":"ERROR"`) || strings.Contains(s.log.String(), `"level":"WARN"`) {
		t.Errorf("bad input counts as a defect of ours:\n%.2000s", s.log.String())
	}
}

// Ids that a URL could mistake for its own are ids like others, written with their escapes.
func TestUnusualIDs(t *testing.T) {
	s := newScene(t)
	for _, id := range []string{"%2E", "%2E%2E", "!$&'()*+,;=:@", "~%22%3C%3E%5C%5E%60%7B%7C%7D", strings.Repeat("x", 128)} {
		s.by(201, "PUT", "/v1/conversations/"+id, `{"members":["u-ana"]}`)
		a := s.as("u-ana", 201, "PUT", "/v1/conversations/"+id+"/messages/"+id, `{"body":"x"}`)
		plain, _ := url.PathUnescape(id)
		if a.body["conv"] != plain {
			t.Errorf("%s is stored as %v", plain, a.body["conv"])
		}
		if a := s.as("u-ana", 200, "GET", "/v1/conversations/"+id+"/messages/"+id, ""); a.body["seq"] != 2.0 || a.body["cmid"] != plain {
			t.Errorf("the outcome under %s is %s", plain, a.text)
		}
	}
}
