// The check 27-http-mapping.

package lab_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "27-http-mapping",
		Expect: "each operation of the OpenAPI document is refused with each code that it documents, with status, stored, retry and Retry-After of the protocol's table; " +
			"NOT_MEMBER is the same byte for byte for an absent and for a forbidden conversation; no refusal writes anything",
		Run: httpMapping,
	})
}

// httpContract is the protocol's table of codes.
var httpContract = map[string]struct {
	status        int
	retry, stored string
}{
	"INVALID_ARGUMENT":      {400, "no", "unchanged"},
	"UNAUTHENTICATED":       {401, "auth", "unchanged"},
	"FORBIDDEN":             {403, "auth", "unchanged"},
	"NOT_MEMBER":            {403, "no", "no"},
	"NOT_SENDER":            {403, "no", "no"},
	"NOT_FOUND":             {404, "no", "unchanged"}, // in a conversation, whose log is asked: no
	"ALREADY_RECALLED":      {409, "no", "no"},
	"RECALL_WINDOW_EXPIRED": {409, "no", "no"},
	"CONFLICT":              {409, "no", "unchanged"},
	"ALREADY_SETTLED":       {409, "no", "unchanged"},
	"CURSOR_AHEAD":          {409, "resync", ""},
	"EPOCH_CHANGED":         {409, "resync", ""},
	"INSTALL_REPLACED":      {409, "no", "unchanged"},
	"ORIGINAL_EXPIRED":      {410, "no", "purged"},
	"TOO_LARGE":             {413, "no", "unchanged"},
	"IDEMPOTENCY_MISMATCH":  {422, "no", "no"},
	"RATE_LIMITED":          {429, "same", "unchanged"},
	"INTERNAL":              {500, "same", "unknown"},
	"OUTCOME_UNKNOWN":       {503, "same", "unknown"},
	"UNAVAILABLE":           {503, "same", "unchanged"},
}

// noMessage is a recall of what is no message. The log is asked before it is refused.
const noMessage = "a recall of what is no message"

// httpCall is a request. as is a user, "key" for the server, or empty.
type httpCall struct{ op, as, method, path, body string }

// httpScene is a node with something of everything in it.
type httpScene struct {
	*chat
	n      *node
	calls  []httpCall                 // one that succeeds for each operation
	seen   map[string]map[string]bool // codes by operation
	wrong  int
	judged int
}

func httpMapping(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	report := filepath.Join(t.TempDir(), "report.json")
	c.Must("write a report", os.WriteFile(report, []byte(`{"accepted":true}`), 0o600))
	h := &httpScene{chat: c, n: c.node("a", through(way), with("TIDINGS_REPORT_FILE", report)), seen: map[string]map[string]bool{}}
	parked := h.populate()
	for _, x := range h.calls {
		a := h.call(x)
		want := []int{http.StatusOK, http.StatusCreated, http.StatusNoContent}
		if x.op == "receive-receipts" {
			want = []int{http.StatusNotFound} // this node has no channels
		}
		h.True(fmt.Sprintf("%s succeeds: %d", x.op, a.status), slices.Contains(want, a.status))
	}
	documented := h.documented()
	var known []string
	for _, x := range h.calls {
		known = append(known, x.op)
	}
	slices.Sort(known)
	h.Equal("operations of the document", known, slices.Sorted(maps.Keys(documented)))

	before := h.written()
	h.credentials()
	h.input(parked)
	h.ofNoMessage()
	h.lookalikes()
	h.Equal("rows that the refusals wrote", before, h.written())
	h.rateLimited()
	h.defect()
	h.lostCommits()
	h.Fault(h.databaseAway(way))

	for op, codes := range documented {
		got := slices.Sorted(maps.Keys(h.seen[op]))
		if len(codes) == 0 {
			h.Equal(op+" was refused in several ways", true, len(got) >= 2)
			continue
		}
		h.Equal(op+": documented codes, codes seen", codes, got)
	}
	h.Equal("refusals that are not as the protocol says", 0, h.wrong)
	h.Examined("refusals", h.judged)
}

// populate makes the conversation c-g: ana and ben join (1, 2), ana sends m-1 and m-2 (3, 4), cid joins (5) and leaves (6), ana sends m-3
// (7); the first call of recall-message recalls m-2 (8); m-0 was purged, it says, and m-1 is an hour old. A notification has a task, another was purged, and of a third the task is parked.
func (h *httpScene) populate() (parked string) {
	h.n.conversation("c-g", "ana", "ben")
	ana := h.n.device("ana", "d-1", "i-1")
	ana.say("c-g", "m-1", "one")
	ana.say("c-g", "m-2", "two")
	h.n.join("c-g", "cid")
	h.n.leave("c-g", "cid")
	ana.say("c-g", "m-3", "three")
	h.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-g', 'ana', 'm-0', 1)`)
	h.exec(`UPDATE tidings.event SET created_at = created_at - interval '1 hour' WHERE conv_id = 'c-g' AND seq = 3`)
	h.subscribe("ana", "push")
	ids := map[string]string{}
	for _, key := range []string{"e-1", "e-purged", "e-parked", "e-cancelled", "e-settled"} {
		a := h.n.server("", "POST", "/v1/notifications", frame{"user": "ana", "event_key": key, "body": "hello", "ttl_s": 3600})
		h.Equal("notify: status, tasks", []any{201, 1}, []any{a.status, a.body.num("tasks")})
		ids[key] = a.body.str("id")
	}
	task := func(key string) string {
		return one[string](h.scene, `SELECT id::text FROM tidings.task WHERE notification_id = $1`, ids[key])
	}
	h.exec(`DELETE FROM tidings.task WHERE notification_id = $1`, ids["e-purged"])
	h.exec(`UPDATE tidings.notification SET purged_at = statement_timestamp(), payload_hash = NULL, title = NULL, body = NULL, data = NULL, channels = NULL WHERE id = $1`, ids["e-purged"])
	for _, key := range []string{"e-parked", "e-settled"} {
		h.exec(`UPDATE tidings.task SET state = 'UNKNOWN', outcome_uncertain = true, doubt_at = statement_timestamp(), needs_review = true, next_attempt_at = NULL, attempt_count = 1
			WHERE notification_id = $1`, ids[key])
	}
	const conv, users, delivered = "/v1/conversations/c-g", "/v1/users/ana", `{"seq":2,"device":"d-1","install":"i-2"}`
	h.calls = []httpCall{
		{"create-conversation", "key", "PUT", conv, `{"members":["ana","ben"]}`},
		{"change-conversation", "key", "PATCH", conv, `{"recall_window_ms":120000}`},
		{"join-conversation", "key", "PUT", conv + "/members/ben", ""},
		{"leave-conversation", "key", "DELETE", conv + "/members/cid", ""},
		{"list-conversations", "ana", "GET", "/v1/conversations", ""},
		{"send-message", "ana", "PUT", conv + "/messages/m-1", `{"body":"one","device":"d-1"}`},
		{"recall-message", "ana", "POST", conv + "/recalls", `{"cmid":"r-1","target":4}`},
		{"get-outcome", "ana", "GET", conv + "/messages/m-1", ""},
		{"sync-events", "ana", "GET", conv + "/events?after=1", ""},
		{"fetch-event", "ana", "GET", conv + "/events/3", ""},
		{"put-delivered", "ana", "PUT", conv + "/delivered", delivered},
		{"put-read", "ana", "PUT", conv + "/read", `{"seq":2}`},
		{"mute-conversation", "ana", "PUT", conv + "/mute", `{}`},
		{"unmute-conversation", "ana", "DELETE", conv + "/mute", ""},
		{"notify", "key", "POST", "/v1/notifications", `{"user":"ana","event_key":"e-1","body":"hello","ttl_s":3600}`},
		{"get-notification", "key", "GET", "/v1/notifications/" + ids["e-1"], ""},
		{"find-notification", "key", "GET", "/v1/notifications?user=ana&event_key=e-1", ""},
		{"cancel-notification", "key", "POST", "/v1/notifications/" + ids["e-cancelled"] + "/cancel", ""},
		{"list-reviews", "key", "GET", "/v1/reviews", ""},
		{"get-review", "key", "GET", "/v1/reviews/" + task("e-1"), ""},
		{"resolve-review", "key", "POST", "/v1/reviews/" + task("e-settled"), `{"state":"FAILED","attempt_count":1}`},
		{"resolve-reviews", "key", "POST", "/v1/reviews", `{"resolutions":[{"task":"` + task("e-settled") + `","state":"SENT","attempt_count":1}]}`},
		{"put-pref", "key", "PUT", users + "/channels/email", `{"address":"somewhere"}`},
		{"list-prefs", "key", "GET", users + "/channels", ""},
		{"get-pref", "key", "GET", users + "/channels/email", ""},
		{"delete-pref", "key", "DELETE", users + "/channels/email", ""},
		{"put-optout", "key", "PUT", users + "/optouts/news", ""},
		{"list-optouts", "key", "GET", users + "/optouts", ""},
		{"delete-optout", "key", "DELETE", users + "/optouts/news", ""},
		{"put-quiet", "key", "PUT", users + "/quiet", `{"zone":"Europe/Berlin","from":"22:00","to":"07:00"}`},
		{"get-quiet", "key", "GET", users + "/quiet", ""},
		{"delete-quiet", "key", "DELETE", users + "/quiet", ""},
		{"list-channels", "key", "GET", "/v1/channels", ""},
		{"pause-channel", "key", "POST", "/v1/channels/push/pause", `{"reason":"maintenance"}`},
		{"resume-channel", "key", "POST", "/v1/channels/push/resume", ""},
		{"receive-receipts", "", "POST", "/v1/channels/push/receipts", `{}`},
		{"get-operator-key", "key", "GET", "/v1/operator/key", ""},
		{"get-overview", "key", "GET", "/v1/operator/overview", ""},
		{"list-tasks", "key", "GET", "/v1/operator/tasks?user=ana", ""},
		{"find-conversations", "key", "GET", "/v1/operator/conversations?conv=c-g", ""},
		{"show-conversation", "key", "GET", "/v1/operator/conversations/c-g", ""},
		{"show-events", "key", "GET", "/v1/operator/conversations/c-g/events?bodies=true", ""},
		{"list-gateways", "key", "GET", "/v1/operator/gateways", ""},
		{"list-routes", "key", "GET", "/v1/operator/users/ana/routes", ""},
		{"get-report", "key", "GET", "/v1/operator/report", ""},
	}
	return task("e-parked")
}

// written counts the rows that a request could have written.
func (h *httpScene) written() (rows []int64) {
	h.Helper()
	h.Must("count rows", h.pool.QueryRow(h.ctx, `SELECT ARRAY[(SELECT count(*) FROM tidings.conversation), (SELECT count(*) FROM tidings.event), (SELECT count(*) FROM tidings.member),
		(SELECT sum(seq) FROM tidings.read), (SELECT sum(seq) FROM tidings.delivered), (SELECT count(*) FROM tidings.notification), (SELECT count(*) FROM tidings.channel_pref),
		(SELECT count(*) FROM tidings.task WHERE needs_review), (SELECT count(*) FROM tidings.optout), (SELECT count(*) FROM tidings.receipt)]::bigint[]`).Scan(&rows))
	return rows
}

func (h *httpScene) call(x httpCall, header ...string) answer {
	h.Helper()
	switch x.as {
	case "":
	case "key":
		header = append(header, "Authorization", "Bearer "+h.key)
	default:
		header = append(header, "Authorization", "Bearer "+token(x.as))
	}
	var body any
	if x.body != "" {
		body = []byte(x.body)
	}
	return h.n.http(x.method, x.path, body, header...)
}

// of is the call of an operation that succeeds.
func (h *httpScene) of(op string) httpCall {
	return h.calls[slices.IndexFunc(h.calls, func(x httpCall) bool { return x.op == op })]
}

// refused holds an answer against the protocol's table, and notes that the operation was refused with that code.
func (h *httpScene) refused(x httpCall, what, code string, a answer) {
	h.Helper()
	want := httpContract[code]
	stored := want.stored
	if code == "NOT_FOUND" && strings.HasPrefix(x.path, "/v1/conversations") || code == "INVALID_ARGUMENT" && what == noMessage {
		stored = "no"
	}
	expected := []any{want.status, code, want.retry, stored, want.status, "application/problem+json", want.retry == "same"}
	got := []any{a.status, a.body.code(), a.body.str("retry"), a.body.str("stored"), a.body.num("status"), a.header.Get("Content-Type"), a.header.Get("Retry-After") != ""}
	h.judged++
	if fmt.Sprint(expected) != fmt.Sprint(got) {
		h.wrong++
		h.Errorf("%s, %s: %v instead of %v: %.300s", x.op, what, got, expected, a.raw)
		return
	}
	if h.seen[x.op] == nil {
		h.seen[x.op] = map[string]bool{}
	}
	h.seen[x.op][code] = true
}

// documented are the codes that the node's OpenAPI document lists, by operation, sorted. Not every operation lists some.
func (h *httpScene) documented() map[string][]string {
	h.Helper()
	a := h.n.http("GET", "/v1/openapi.json", nil)
	all := map[string][]string{}
	for _, methods := range a.body.sub("paths") {
		for _, op := range methods.(map[string]any) {
			op := frame(op.(map[string]any))
			codes := []string{}
			for status, r := range op.sub("responses") {
				if text := frame(r.(map[string]any)).str("description"); status >= "400" && status != "default" && strings.ToUpper(text) == text {
					codes = append(codes, strings.Split(text, ", ")...)
				}
			}
			slices.Sort(codes)
			all[op.str("operationId")] = codes
		}
	}
	return all
}

// lookalikes asks of a conversation that eve is not in, of one that does not exist, and of one that does not exist as somebody else.
func (h *httpScene) lookalikes() {
	asked := 0
	for _, x := range h.calls {
		if x.as != "ana" || x.op == "list-conversations" {
			continue
		}
		path, _, _ := strings.Cut(x.path, "?")
		for _, query := range []string{"", "?after=9007199254740991", "?epoch=7"} {
			x.path = path + query
			elsewhere := x
			elsewhere.path = strings.Replace(x.path, "c-g", "c-absent", 1)
			as := func(x httpCall, user string, header ...string) answer {
				x.as = user
				a := h.call(x, header...)
				a.header.Del("Date")
				return a
			}
			forbidden := as(x, "eve")
			h.refused(x, "by a stranger", "NOT_MEMBER", forbidden)
			for what, a := range map[string]answer{"absent": as(elsewhere, "eve"), "absent, asked by another": as(elsewhere, "ana"), "forbidden, asked by a server": as(x, "key", "Tidings-User", "eve")} {
				asked++
				if forbidden.raw != a.raw || fmt.Sprint(forbidden.header) != fmt.Sprint(a.header) {
					h.Errorf("%s%s: %s answers\n%s instead of\n%s", x.op, query, what, a.raw, forbidden.raw)
				}
			}
		}
	}
	h.Examined("refusals that have to look the same", asked)
}
