// The check 40-recalled-everywhere.

package lab_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-recalled-everywhere",
		Expect: "a message that everything which can give it gave before has been recalled: no frame and no route of the product gives its content, to its sender, to members at two gateways, to " +
			"one who has left, to a device that was offline, and in no push; no table has it. The frames are those of the protocol's examples and the routes those of " +
			"the OpenAPI document, so that one that is not tried fails the check",
		Run: recalledEverywhere,
	})
}

// readsBack are the requests that give a message's content to who may see it. The others are tried all the same.
var readsBack = []string{"conversations", "fetch", "fetch-event", "list-conversations", "show-events", "sync", "sync-events"}

// recalledFrames is a request of each type, tried by a device that has said hello, after the message of c-1 at seq was recalled under r-1.
func recalledFrames(seq int64, user, body string) map[string]frame {
	return map[string]frame{
		"send":          {"t": "send", "conv": "c-1", "cmid": "m-1", "body": body},
		"recall":        {"t": "recall", "conv": "c-1", "cmid": "r-1", "target": seq},
		"sync":          {"t": "sync", "conv": "c-1", "after": 0},
		"fetch":         {"t": "fetch", "conv": "c-1", "seq": seq},
		"ack":           {"t": "ack", "conv": "c-1", "seq": seq},
		"read":          {"t": "read", "conv": "c-1", "seq": seq},
		"conversations": {"t": "conversations"},
		"outcome":       {"t": "outcome", "conv": "c-1", "cmid": "m-1"},
		"refresh":       {"t": "refresh", "token": token(user)},
		"pong":          {"t": "pong"}, // has no reply
		"hello":         nil,           // said by every device here, and its answer looked at
	}
}

// recalledRoutes is a request of every route about conversations.
func recalledRoutes(seq int64, body string) map[string]httpCall {
	const conv = "/v1/conversations/c-1"
	all := map[string]httpCall{}
	for _, x := range []httpCall{
		{"create-conversation", "key", "PUT", conv, `{"members":["ana","ben","cid"]}`},
		{"change-conversation", "key", "PATCH", conv, `{"recall_window_ms":120000}`},
		{"join-conversation", "key", "PUT", conv + "/members/ben", ""},
		{"leave-conversation", "key", "DELETE", conv + "/members/cid", ""},
		{"list-conversations", "", "GET", "/v1/conversations", ""},
		{"send-message", "", "PUT", conv + "/messages/m-1", `{"body":"` + body + `"}`},
		{"recall-message", "", "POST", conv + "/recalls", fmt.Sprintf(`{"cmid":"r-1","target":%d}`, seq)},
		{"get-outcome", "", "GET", conv + "/messages/m-1", ""},
		{"sync-events", "", "GET", conv + "/events", ""},
		{"fetch-event", "", "GET", fmt.Sprint(conv, "/events/", seq), ""},
		{"put-delivered", "", "PUT", conv + "/delivered", fmt.Sprintf(`{"seq":%d,"device":"http","install":"http"}`, seq)},
		{"put-read", "", "PUT", conv + "/read", fmt.Sprintf(`{"seq":%d}`, seq)},
		{"mute-conversation", "", "PUT", conv + "/mute", `{}`},
		{"unmute-conversation", "", "DELETE", conv + "/mute", ""},
		{"find-conversations", "key", "GET", "/v1/operator/conversations", ""},
		{"show-conversation", "key", "GET", "/v1/operator/conversations/c-1", ""},
		{"show-events", "key", "GET", "/v1/operator/conversations/c-1/events?bodies=true", ""},
	} {
		all[x.op] = x
	}
	return all
}

// recalledScene is c-1 of ana, ben and cid, with one message of ana's, and beside it a scene with a request for every other route.
type recalledScene struct {
	*httpScene
	body, mark string // mark is in the content and nowhere else
	seq        int64
	tried      int
	given      map[string]bool // the requests that have given the content
}

func recalledEverywhere(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	s := &recalledScene{httpScene: &httpScene{chat: c, n: a, seen: map[string]map[string]bool{}}, mark: fmt.Sprint("taken-back-", t.Seed())}
	s.body = "a body, " + s.mark
	s.populate()
	a.conversation("c-1", "ana", "ben", "cid")
	ana, ben, cid := a.device("ana", "ana-1"), b.device("ben", "ben-1"), a.device("cid", "cid-1")
	// A conversation that grows while they connect is told of by a hint in place of the push.
	settled := ana.say("c-1", "m-0", "before all else")
	for _, p := range []*peer{ana, ben, cid} {
		p.wait("an event or a hint at "+p.dev, soon, func() bool {
			return slices.ContainsFunc(p.pushes, func(f frame) bool {
				return f.sub("event").num("seq") == settled || f.t() == "lag" && f.num("head") >= settled
			})
		})
	}
	data := frame{"note": "data, " + s.mark}
	s.seq = ana.ask(frame{"t": "send", "conv": "c-1", "cmid": "m-1", "body": s.body, "data": data}).num("seq")
	devices := []*peer{ana, ben, cid}
	for _, p := range devices {
		s.True(p.dev+" was pushed the content", strings.Contains(textOf(p.event("c-1", s.seq)), s.mark))
	}

	// Before the recall: what gives the content gives it, so that its absence later says something.
	s.given = map[string]bool{}
	for _, p := range devices {
		s.askFrames(p, readsBack...)
		s.askRoutes(p.user, readsBack...)
		s.Equal("what gave the content to "+p.user, readsBack, slices.Sorted(maps.Keys(s.given)))
		s.given = map[string]bool{}
	}
	s.Equal("tables with the content", []string{"event"}, s.tables())
	s.n.leave("c-1", "cid")
	s.askFrames(cid, "sync", "fetch")
	s.Equal("what gave the content to one who had left", []string{"fetch", "sync"}, slices.Sorted(maps.Keys(s.given)))
	s.given, s.tried = map[string]bool{}, 0

	answer := ana.ask(frame{"t": "recall", "conv": "c-1", "cmid": "r-1", "target": s.seq})
	s.Equal("the recall", "recalled", answer.t())
	pushed := map[*peer]int{}
	for _, p := range devices[:2] {
		p.event("c-1", answer.num("seq"))
	}
	for _, p := range devices {
		pushed[p] = len(p.received("event"))
	}
	// Those who were offline meanwhile connect now, at both gateways.
	devices = append(devices, b.device("ana", "ana-2"), a.device("ben", "ben-2"), b.device("cid", "cid-2"))
	for _, p := range devices {
		s.askFrames(p)
		s.askRoutes(p.user)
	}
	s.askRoutes("")
	page := devices[4].ask(frame{"t": "sync", "conv": "c-1", "after": s.seq - 1})
	s.Equal("the message and the recall at a device that was offline: recalled, target", []any{true, s.seq},
		[]any{page.list("events")[0].flag("recalled"), page.list("events")[2].num("target")})
	s.looked("a repeated send in a transaction", one[string](c.scene, `SELECT tidings.post_v1($1::json)::text`, string(mustJSON(frame{"conv": "c-1", "sender": "ana", "cmid": "m-1", "body": s.body, "data": data}))))
	s.looked("the metrics", a.server("", http.MethodGet, "/metrics", nil).raw+b.server("", http.MethodGet, "/metrics", nil).raw)
	last := ana.say("c-1", "m-2", "the marker: what was pushed before this has arrived")
	for _, p := range devices[:2] {
		p.event("c-1", last)
	}
	for _, p := range devices {
		for _, f := range p.received("event")[pushed[p]:] {
			s.looked("a push to "+p.dev, textOf(f))
		}
	}
	s.Equal("tables with the content", []string{}, s.tables())
	s.Equal("body, data or hash in the message's row", 0, one[int](c.scene, `SELECT count(coalesce(body, data, request_hash::text)) FROM tidings.event WHERE conv_id = 'c-1' AND seq = $1`, s.seq))
	s.Equal("what has given the content", []string{}, slices.Sorted(maps.Keys(s.given)))
	s.Examined("answers and pushes", s.tried)
}

// content is what a user sends under the message's cmid: its sender sends it once more, others something of their own.
func (s *recalledScene) content(user string) string {
	if user == "ana" {
		return s.body
	}
	return "something else"
}

// looked looks for the content in an answer.
func (s *recalledScene) looked(what, answer string) {
	s.tried++
	if strings.Contains(answer, s.mark) {
		s.given[what] = true
	}
}

// askFrames has a device ask with every type of request or, if some are named, with those.
func (s *recalledScene) askFrames(p *peer, only ...string) {
	s.Helper()
	frames := recalledFrames(s.seq, p.user, s.content(p.user))
	s.Equal("requests of the protocol that are tried", s.examples(), slices.Sorted(maps.Keys(frames)))
	for t, f := range frames {
		if only != nil && !slices.Contains(only, t) {
			continue
		}
		switch t {
		case "hello":
			p.mu.Lock()
			welcome := textOf(p.replies["1"]) // each device's first request
			p.mu.Unlock()
			s.looked(t, welcome)
		case "pong":
			p.write(f)
		default:
			s.looked(t, textOf(p.ask(f)))
		}
	}
}

// askRoutes asks every route in a user's name, with the user's token and with a server's key, or those that are named. Nobody's name is for
// those that are about no conversation.
func (s *recalledScene) askRoutes(user string, only ...string) {
	s.Helper()
	routes := recalledRoutes(s.seq, s.content(user))
	for _, x := range s.calls {
		if _, own := routes[x.op]; !own {
			routes[x.op] = x
		}
	}
	s.Equal("routes of the API that are tried", slices.Sorted(maps.Keys(s.documented())), slices.Sorted(maps.Keys(routes)))
	for op, x := range routes {
		switch {
		case only != nil && !slices.Contains(only, op):
		case x.as != "" || user == "":
			s.looked(op, s.call(x).raw)
		default:
			x.as = user
			s.looked(op, s.call(x).raw)
			x.as = "key"
			s.looked(op, s.call(x, "Tidings-User", user).raw)
		}
	}
}

// examples are the types of the requests of which the protocol has an example, as it has of every request.
func (s *recalledScene) examples() (types []string) {
	s.Helper()
	files, err := filepath.Glob("../internal/wire/testdata/request-*.json")
	s.Must("find the protocol's examples", err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		s.Must("read an example", err)
		var f frame
		s.Must("read "+file, json.Unmarshal(text, &f))
		types = append(types, f.t())
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// tables are the tables that have the content in some row.
func (s *recalledScene) tables() (found []string) {
	s.Helper()
	rows, err := s.pool.Query(s.ctx, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'tidings' ORDER BY 1`)
	s.Must("list the tables", err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.Must("list the tables", err)
	for _, table := range all {
		if one[int](s.scene, `SELECT count(*) FROM `+pgx.Identifier{"tidings", table}.Sanitize()+` t WHERE t::text LIKE '%' || $1 || '%'`, s.mark) > 0 {
			found = append(found, table)
		}
	}
	s.Examined("tables", len(all))
	return found
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("write JSON: %v", err))
	}
	return text
}
