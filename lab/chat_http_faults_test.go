// Faults that make each code over HTTP.

package lab_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

// credentials asks for everything without credentials, with bad ones, and with those of somebody who may not.
func (h *httpScene) credentials() {
	bare := strings.TrimSpace(h.tidings("key", "create", "nothing but metrics", "--scopes", "metrics"))
	with := func(x httpCall, bearer string, header ...string) answer {
		x.as = ""
		return h.call(x, append(header, "Authorization", "Bearer "+bearer)...)
	}
	for _, x := range h.calls {
		if x.as == "" {
			continue // a provider signs
		}
		nobody := x
		nobody.as = ""
		h.refused(x, "without credentials", "UNAUTHENTICATED", h.call(nobody))
		h.refused(x, "with a token that is none", "UNAUTHENTICATED", with(x, "a.b.c"))
		h.refused(x, "with an unknown key", "UNAUTHENTICATED", with(x, "tdk_"+strings.Repeat("0", 40)))
		h.refused(x, "with an expired token", "UNAUTHENTICATED", with(x, token("ana", func(c map[string]any) { c["exp"] = 1_000_000_000 })))
		if x.op != "get-operator-key" { // which every key may
			h.refused(x, "without the scope", "FORBIDDEN", with(x, bare))
		}
		if x.as == "key" {
			h.refused(x, "by a user whose business it is not", "FORBIDDEN", with(x, token("eve")))
		} else {
			h.refused(x, "by a user in the name of another", "FORBIDDEN", with(x, token("ana"), "Tidings-User", "ben"))
			h.refused(x, "by a server in nobody's name", "INVALID_ARGUMENT", with(x, h.key))
		}
	}
}

// input asks for what cannot be, is no longer, or was never there.
func (h *httpScene) input(parked string) {
	const (
		conv    = "/v1/conversations/c-g"
		unknown = "00000000-0000-4000-8000-000000000000"
	)
	long := strings.Repeat("x", 16385)
	for _, t := range []struct{ op, as, path, body, code string }{
		{"create-conversation", "", "/v1/conversations/%00", "", "INVALID_ARGUMENT"},
		{"create-conversation", "", "", `{"members":["ben"]}`, "CONFLICT"},
		{"create-conversation", "", "", `{"members":["ana","ben"],"recall_window_ms":1}`, "CONFLICT"},
		{"change-conversation", "", "", `{"retention_ms":0}`, "INVALID_ARGUMENT"},
		{"change-conversation", "", "/v1/conversations/c-absent", "", "NOT_FOUND"},
		{"join-conversation", "", conv + "/members/a%20b", "", "INVALID_ARGUMENT"},
		{"join-conversation", "", "/v1/conversations/c-absent/members/ana", "", "NOT_FOUND"},
		{"leave-conversation", "", conv + "/members/a%20b", "", "INVALID_ARGUMENT"},
		{"leave-conversation", "", "/v1/conversations/c-absent/members/ana", "", "NOT_FOUND"},
		{"list-conversations", "", "/v1/conversations?limit=0", "", "INVALID_ARGUMENT"},
		{"send-message", "", "", `{"body":5}`, "INVALID_ARGUMENT"},
		{"send-message", "", "", `{"body":"a\u0000"}`, "INVALID_ARGUMENT"},
		{"send-message", "cid", "", `{"body":"after the leave"}`, "NOT_MEMBER"},
		{"send-message", "", "", `{"body":"two"}`, "IDEMPOTENCY_MISMATCH"},
		{"send-message", "", conv + "/messages/m-0", "", "ORIGINAL_EXPIRED"},
		{"send-message", "", "", `{"body":"` + long + `"}`, "TOO_LARGE"},
		{"recall-message", "", "", `{"cmid":"r","target":0}`, "INVALID_ARGUMENT"},
		{"recall-message", "", "", `{"cmid":"r-1","target":7}`, "IDEMPOTENCY_MISMATCH"},
		{"recall-message", "", "", `{"cmid":"r","target":7,"epoch":7}`, "EPOCH_CHANGED"},
		{"recall-message", "cid", "", `{"cmid":"r","target":4}`, "NOT_MEMBER"},
		{"recall-message", "", "", `{"cmid":"r","target":9}`, "NOT_FOUND"},
		{"recall-message", "ben", "", `{"cmid":"r","target":7}`, "NOT_SENDER"},
		{"recall-message", "", "", `{"cmid":"r","target":4}`, "ALREADY_RECALLED"},
		{"recall-message", "", "", `{"cmid":"r","target":3}`, "RECALL_WINDOW_EXPIRED"},
		{"get-outcome", "", conv + "/messages/a%20b", "", "INVALID_ARGUMENT"},
		{"sync-events", "", conv + "/events?after=-1", "", "INVALID_ARGUMENT"},
		{"sync-events", "", conv + "/events?after=9", "", "CURSOR_AHEAD"},
		{"sync-events", "cid", conv + "/events?after=7", "", "CURSOR_AHEAD"},
		{"sync-events", "", conv + "/events?after=8&epoch=7", "", "EPOCH_CHANGED"},
		{"fetch-event", "", conv + "/events/0", "", "INVALID_ARGUMENT"},
		{"fetch-event", "", conv + "/events/9", "", "NOT_FOUND"},
		{"fetch-event", "", conv + "/events/3?epoch=7", "", "EPOCH_CHANGED"},
		{"fetch-event", "cid", "", "", "NOT_MEMBER"},
		{"put-delivered", "", "", `{"seq":1,"device":"d-1"}`, "INVALID_ARGUMENT"},
		{"put-delivered", "", "", `{"seq":1,"device":"d-1","install":"i-2","epoch":7}`, "EPOCH_CHANGED"},
		{"put-delivered", "", "", `{"seq":1,"device":"d-1","install":"i-1"}`, "INSTALL_REPLACED"},
		{"put-read", "", "", `{"seq":0}`, "INVALID_ARGUMENT"},
		{"put-read", "", "", `{"seq":9}`, "CURSOR_AHEAD"},
		{"put-read", "", "", `{"seq":8,"epoch":7}`, "EPOCH_CHANGED"},
		{"notify", "", "", `{"user":"ana","event_key":"e-1","body":"hello"}`, "INVALID_ARGUMENT"},
		{"notify", "", "", `{"user":"ana","event_key":"e-purged","body":"hello","ttl_s":3600}`, "ORIGINAL_EXPIRED"},
		{"notify", "", "", `{"user":"ana","event_key":"e-2","body":"` + long + `","ttl_s":3600}`, "TOO_LARGE"},
		{"notify", "", "", `{"more":"` + strings.Repeat("x", 1<<20) + `"}`, "TOO_LARGE"},
		{"get-notification", "", "/v1/notifications/x", "", "INVALID_ARGUMENT"},
		{"get-notification", "", "/v1/notifications/" + unknown, "", "NOT_FOUND"},
		{"find-notification", "", "/v1/notifications?user=ana", "", "INVALID_ARGUMENT"},
		{"find-notification", "", "/v1/notifications?user=ana&event_key=e-none", "", "NOT_FOUND"},
		{"cancel-notification", "", "/v1/notifications/" + unknown + "/cancel", "", "NOT_FOUND"},
		{"list-reviews", "", "/v1/reviews?limit=-1", "", "INVALID_ARGUMENT"},
		{"get-review", "", "/v1/reviews/" + unknown, "", "NOT_FOUND"},
		{"resolve-review", "", "/v1/reviews/" + parked, `{"state":"perhaps","attempt_count":1}`, "INVALID_ARGUMENT"},
		{"resolve-review", "", "/v1/reviews/" + parked, `{"state":"SENT","attempt_count":0}`, "CONFLICT"},
		{"resolve-review", "", "", "", "ALREADY_SETTLED"}, // it was, above
		{"resolve-review", "", "/v1/reviews/" + unknown, "", "NOT_FOUND"},
		{"resolve-reviews", "", "", `{"resolutions":[]}`, "INVALID_ARGUMENT"},
		{"list-prefs", "", "/v1/users/a%20b/channels", "", "INVALID_ARGUMENT"},
		{"get-pref", "", "/v1/users/ana/channels/none", "", "NOT_FOUND"},
		{"put-pref", "", "", `{"address":""}`, "INVALID_ARGUMENT"},
		{"put-pref", "", "/v1/users/ana/channels/push", `{"address":"elsewhere","version":99}`, "CONFLICT"},
		{"delete-pref", "", "/v1/users/ana/channels/none", "", "NOT_FOUND"},
		{"mute-conversation", "", "", `{"until":"tomorrow"}`, "INVALID_ARGUMENT"},
		{"mute-conversation", "cid", "", "", "NOT_MEMBER"},
		{"unmute-conversation", "cid", "", "", "NOT_MEMBER"},
		{"put-optout", "", "/v1/users/ana/optouts/a%20b", "", "INVALID_ARGUMENT"},
		{"delete-optout", "", "/v1/users/ana/optouts/none", "", "NOT_FOUND"},
		{"put-quiet", "", "", `{"zone":"nowhere","from":"22:00","to":"07:00"}`, "INVALID_ARGUMENT"},
		{"put-quiet", "", "", `{"zone":"UTC","from":"22:00","to":"22:00"}`, "INVALID_ARGUMENT"},
		{"get-quiet", "", "/v1/users/ben/quiet", "", "NOT_FOUND"},
		{"delete-quiet", "", "/v1/users/ben/quiet", "", "NOT_FOUND"},
		{"pause-channel", "", "", `{}`, "INVALID_ARGUMENT"},
		{"resume-channel", "", "/v1/channels/a%20b/resume", "", "INVALID_ARGUMENT"},
		{"list-tasks", "", "/v1/operator/tasks", "", "INVALID_ARGUMENT"},
		{"list-tasks", "", "/v1/operator/tasks?user=ana&after=x", "", "INVALID_ARGUMENT"},
		{"find-conversations", "", "/v1/operator/conversations?after=c-g", "", "INVALID_ARGUMENT"},
		{"show-conversation", "", "/v1/operator/conversations/c-absent", "", "NOT_FOUND"},
		{"show-events", "", "/v1/operator/conversations/c-absent/events", "", "NOT_FOUND"},
		{"show-events", "", "/v1/operator/conversations/c-g/events?epoch=7", "", "EPOCH_CHANGED"},
		{"list-routes", "", "/v1/operator/users/a%20b/routes", "", "INVALID_ARGUMENT"},
		{"receive-receipts", "", "", "", "NOT_FOUND"},
		{"receive-receipts", "", "", `{"more":"` + strings.Repeat("x", 1<<20) + `"}`, "TOO_LARGE"},
	} {
		x := h.of(t.op)
		what := t.path + " " + t.body
		if t.as != "" {
			x.as = t.as
		}
		if t.path != "" {
			x.path = t.path
		}
		if t.body != "" {
			x.body = t.body
		}
		a := h.call(x)
		h.refused(x, fmt.Sprintf("%.100s", what), t.code, a)
		epoch, head := t.code == "EPOCH_CHANGED" || t.code == "CURSOR_AHEAD", t.code == "CURSOR_AHEAD"
		if epoch != a.body.has("epoch") || head != a.body.has("head") {
			h.wrong++
			h.Errorf("%s, %s: where the log is now is told wrongly: %s", t.op, what, a.raw)
		}
	}
}

// ofNoMessage recalls a join.
func (h *httpScene) ofNoMessage() {
	x := h.of("recall-message")
	x.body = `{"cmid":"r","target":1}`
	h.refused(x, noMessage, "INVALID_ARGUMENT", h.call(x))
}

// rateLimited has requests stand at the node until it takes no more: they announce a body and do not send it.
func (h *httpScene) rateLimited() {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	x := h.of("put-read")
	request := fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n", x.path, token("ana"))
	stand := func() {
		c, err := net.Dial("tcp", strings.TrimPrefix(h.n.url, "http://"))
		h.Must("connect to the node", err)
		open = append(open, c)
		_, err = c.Write([]byte(request))
		h.Must("send a request without its body", err)
	}
	for range 512 {
		stand()
	}
	var a answer
	h.Until("the node refuses one more request", soon, func() bool {
		stand() // instead of one that may have been refused for lack of a connection to the database
		a = h.call(x)
		return a.status == http.StatusTooManyRequests
	})
	h.refused(httpCall{op: "one too many"}, "512 requests at the same time", "RATE_LIMITED", a)
}

// defect has a log with a hole, which is nothing that a request can bring about.
func (h *httpScene) defect() {
	h.n.conversation("c-hole", "ana", "ben", "cid")
	h.exec(`DELETE FROM tidings.event WHERE conv_id = 'c-hole' AND seq = 2`)
	x := httpCall{"a defect", "ana", "GET", "/v1/conversations/c-hole/events", ""}
	a := h.call(x)
	h.refused(x, "a log with a hole", "INTERNAL", a)
	h.True("the answer to a defect names nothing of it", !strings.Contains(a.raw, "hole"))
	h.exec(`DELETE FROM tidings.event WHERE conv_id = 'c-hole'`)
	h.exec(`UPDATE tidings.conversation SET min_seq = next_seq WHERE conv_id = 'c-hole'`)
}

// lostCommits ends the connection at the COMMIT of each write, and has it come with a warning, as when the wait for a synchronous
// standby was cancelled. The same request settles it.
func (h *httpScene) lostCommits() {
	tables := []string{"conversation", "event", "delivered", "read", "mute", "notification", "channel_pref"}
	h.exec(`INSERT INTO tidings.mute (conv_id, user_id) VALUES ('c-g', 'ana')`)
	for i, lose := range []string{"PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10)", "RAISE WARNING 'cancelled'"} {
		h.exec(`CREATE OR REPLACE FUNCTION lose_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + lose + `; RETURN NULL; END $$`)
		for _, table := range tables {
			h.exec(`CREATE CONSTRAINT TRIGGER lose_commit AFTER INSERT OR UPDATE OR DELETE ON tidings.` + table + ` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION lose_commit()`)
		}
		var again []httpCall
		for _, t := range []struct{ op, path, body string }{
			{"create-conversation", "/v1/conversations/c-new", ""},
			{"change-conversation", "", ""},
			{"join-conversation", "/v1/conversations/c-g/members/dan", ""},
			{"leave-conversation", "/v1/conversations/c-g/members/ben", ""},
			{"send-message", "/v1/conversations/c-g/messages/m-new", ""},
			{"put-delivered", "", fmt.Sprintf(`{"seq":%d,"device":"d-1","install":"i-2"}`, 3+i)},
			{"put-read", "", fmt.Sprintf(`{"seq":%d}`, 3+i)},
			{"mute-conversation", "", ""},
			{"unmute-conversation", "", ""},
		} {
			x := h.of(t.op)
			if t.path != "" {
				x.path = t.path
			}
			if t.body != "" {
				x.body = t.body
			}
			h.refused(x, "a lost commit", "OUTCOME_UNKNOWN", h.call(x))
			again = append(again, x)
		}
		recall := h.of("recall-message")
		recall.body = `{"cmid":"r-new","target":7}`
		if a := h.call(recall); i == 0 {
			h.refused(recall, "a lost commit", "OUTCOME_UNKNOWN", a)
		} else { // the node has looked once more, in a transaction whose commit came without a warning
			h.Equal("recall-message with a warning: status, dup", []any{http.StatusOK, true}, []any{a.status, a.body.flag("dup")})
		}
		for _, table := range tables {
			h.exec(`DROP TRIGGER lose_commit ON tidings.` + table)
		}
		if i == 0 {
			continue // so that it is written under the warning below
		}
		for _, x := range again {
			a := h.call(x)
			h.Equal(x.op+" again: status, written once more", []any{http.StatusOK, false}, []any{a.status, a.body.flag("created") || a.body.flag("changed")})
			if x.op == "send-message" {
				h.Equal("send-message again: dup", true, a.body.flag("dup"))
			}
		}
	}
	h.whole()
}

// databaseAway has the database refuse connections, for good.
func (h *httpScene) databaseAway(way *pgproxy.Proxy) fault.Receipt {
	config := h.pool.Config().ConnConfig.Copy()
	name := config.Database
	config.Database = "postgres"
	admin, err := pgx.ConnectConfig(h.ctx, config)
	h.Must("connect as administrator", err)
	defer func() { _ = admin.Close(context.WithoutCancel(h.ctx)) }()
	_, err = admin.Exec(h.ctx, "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" ALLOW_CONNECTIONS false")
	h.Must("have the database refuse connections", err)
	receipt := way.Cut()
	for _, x := range h.calls {
		switch a := h.call(x); x.op {
		case "receive-receipts": // it asks the database for nothing before it knows the channel
		case "get-operator-key", "get-report": // they ask it for the key alone, which is believed for a while
		case "resolve-reviews": // each on its own
			h.Equal(x.op+": status, code of the one", []any{200, "UNAVAILABLE"}, []any{a.status, a.body.list("results")[0].sub("problem").code()})
		default:
			h.refused(x, "without a database", "UNAVAILABLE", a)
		}
	}
	return receipt
}
