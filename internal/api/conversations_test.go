// Tests of the operations on conversations.

package api_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidings-project/tidings/internal/token"
)

func TestCreateConversation(t *testing.T) {
	s := newScene(t)
	const path = "/v1/conversations/dm:5:u-ana:u-ben"
	a := s.by(201, "PUT", path, `{"members":["u-ana","u-ben"],"retention_ms":86400000,"unknown":1}`)
	if a.body["conv"] != "dm:5:u-ana:u-ben" || a.body["created"] != true || s.wakes.Load() != 1 {
		t.Errorf("created: %s, %d wake-ups", a.text, s.wakes.Load())
	}
	for _, same := range []string{`{"members":["u-ben","u-ana"],"retention_ms":86400000}`, `{"members":["u-ana","u-ben"],"retention_ms":86400000,"recall_window_ms":120000}`,
		`{"members":["u-ana","u-ben"]}`} {
		if a := s.by(200, "PUT", path, same); a.body["created"] != false || s.wakes.Load() != 1 {
			t.Errorf("created alike: %s, %d wake-ups", a.text, s.wakes.Load())
		}
	}
	for _, other := range []string{`{}`, `{"members":["u-ana"],"retention_ms":86400000}`, `{"members":["u-ana","u-ben"],"retention_ms":null}`,
		`{"members":["u-ana","u-ben"],"retention_ms":86400000,"recall_window_ms":0}`} {
		if a := s.by(409, "PUT", path, other); a.code() != "CONFLICT" {
			t.Errorf("created otherwise: %s", a.text)
		}
	}
	s.by(201, "PUT", "/v1/conversations/empty", `{"recall_window_ms":0}`)
	if n := s.count("SELECT recall_window_ms FROM tidings.conversation WHERE conv_id = 'empty'"); n != 0 {
		t.Errorf("a window of 0 is stored as %d", n)
	}
}

func TestMembers(t *testing.T) {
	s := newScene(t)
	s.by(201, "PUT", "/v1/conversations/c-g", `{}`)
	const ana = "/v1/conversations/c-g/members/u-ana"
	for i, c := range []struct {
		method  string
		seq     float64
		changed bool
	}{{"DELETE", 0, false}, {"PUT", 1, true}, {"PUT", 1, false}, {"DELETE", 2, true}, {"DELETE", 2, false}, {"PUT", 3, true}} {
		before := s.wakes.Load()
		a := s.by(200, c.method, ana, "")
		if a.body["seq"] != c.seq || a.body["changed"] != c.changed || a.body["conv"] != "c-g" || a.body["user"] != "u-ana" || a.body["epoch"] != float64(s.epoch()) {
			t.Errorf("step %d: %s", i, a.text)
		}
		if woke := s.wakes.Load() != before; woke != c.changed {
			t.Errorf("step %d: the gateways were woken: %v", i, woke)
		}
	}
	// each change is one that gateways will be told of
	if n := s.count("SELECT count(*) FROM tidings.posted WHERE conv_id = 'c-g'"); n != 3 {
		t.Errorf("%d changes are to be told of", n)
	}
	s.by(200, "PUT", "/v1/conversations/c-g/members/u-ben", "", "Tidings-User: u-ana")
	s.by(200, "PUT", "/v1/conversations/c-g/members/u-cid", "", "Tidings-User: u-cid")
	var actors []any
	for _, e := range s.as("u-ana", 200, "GET", "/v1/conversations/c-g/events?after=3", "").body["events"].([]any) {
		actors = append(actors, e.(map[string]any)["actor"])
	}
	if fmt.Sprint(actors) != "[u-ana <nil>]" {
		t.Errorf("they joined by %v", actors)
	}
}

func TestMessages(t *testing.T) {
	s := newScene(t)
	s.populate()
	const path = "/v1/conversations/c-g/messages/"
	before := s.wakes.Load()
	first := s.as("u-ben", 201, "PUT", path+"m-1", `{"body":"<&> \"four\" 😀\u2028","data":{ "n" : 1e3, "reply_to":"m-1" },"device":"d-1"}`)
	if first.body["seq"] != 8.0 || first.body["dup"] != false || first.body["conv"] != "c-g" || first.body["epoch"] != float64(s.epoch()) ||
		first.body["mid"] == "" || first.body["at"].(float64) < 1.6e12 || s.wakes.Load() != before+1 {
		t.Errorf("sent: %s", first.text)
	}
	again := s.as("u-ben", 200, "PUT", path+"m-1", `{"data":{ "n" : 1e3, "reply_to":"m-1" },"body":"<&> \"four\" \ud83d\ude00\u2028","device":"d-2"}`)
	if again.body["dup"] != true || s.wakes.Load() != before+1 {
		t.Errorf("sent again: %s", again.text)
	}
	for _, same := range []string{"seq", "mid", "epoch", "at"} {
		if first.body[same] != again.body[same] {
			t.Errorf("the repeat has another %s: %s", same, again.text)
		}
	}
	if n := s.count("SELECT count(*) FROM tidings.posted WHERE conv_id = 'c-g' AND seq = 8"); n != 1 {
		t.Errorf("%d events are to be told of", n)
	}
	stored := s.as("u-ana", 200, "GET", "/v1/conversations/c-g/events/8", "").body["event"].(map[string]any)
	if stored["body"] != "<&> \"four\" 😀\u2028" || stored["sdev"] != "d-1" || stored["sender"] != "u-ben" || stored["data"].(map[string]any)["n"] != 1000.0 {
		t.Errorf("stored is %v", stored)
	}
	// without data, with null, and empty are told apart where they differ
	s.as("u-ben", 201, "PUT", path+"m-2", `{"body":""}`)
	s.as("u-ben", 200, "PUT", path+"m-2", `{"body":"","data":null}`)
	if a := s.as("u-ben", 422, "PUT", path+"m-2", `{"body":"","data":{}}`); a.code() != "IDEMPOTENCY_MISMATCH" {
		t.Errorf("with data: %s", a.text)
	}
	// a server acts as the user that it names, and a token's device is the message's
	if a := s.by(200, "PUT", path+"m-1", `{"body":"one"}`, "Tidings-User: u-ana"); a.body["seq"] != 3.0 || a.body["dup"] != true {
		t.Errorf("by a server: %s", a.text)
	}
	bound := s.issue(token.Claims{User: "u-ana", Device: "d-7"})
	s.expect(s.call(bound, "PUT", path+"m-9", `{"body":"nine"}`), 201, "with a device's token")
	if a := s.as("u-ana", 200, "GET", "/v1/conversations/c-g/events/10", ""); !strings.Contains(a.text, `"sdev":"d-7"`) {
		t.Errorf("from a device: %s", a.text)
	}
	for cmid, want := range map[string]string{
		"m-1": `"stored":"yes","seq":3}`, "m-0": `"stored":"purged","seq":1}`, "m-5": `"stored":"no"}`,
	} {
		a := s.as("u-ana", 200, "GET", path+cmid, "")
		if !strings.Contains(a.text, want) || a.body["cmid"] != cmid || a.body["conv"] != "c-g" || a.body["epoch"] != float64(s.epoch()) {
			t.Errorf("the outcome of %s is %s", cmid, a.text)
		}
	}
	if a := s.as("u-ana", 410, "PUT", path+"m-0", `{"body":"zero"}`); a.code() != "ORIGINAL_EXPIRED" || a.body["seq"] != 1.0 {
		t.Errorf("what was purged: %s", a.text)
	}
}

// Many requests with one cmid are one message; those with others get seqs without a hole.
func TestMessagesConcurrently(t *testing.T) {
	s := newScene(t)
	s.by(201, "PUT", "/v1/conversations/c-g", `{"members":["u-ana"]}`)
	const clients = 16
	tok := s.token("u-ana")
	var done sync.WaitGroup
	one, own := make([]answer, clients), make([]answer, clients)
	for i := range clients {
		done.Go(func() { one[i] = s.call(tok, "PUT", "/v1/conversations/c-g/messages/one", `{"body":"x"}`) })
		done.Go(func() {
			own[i] = s.call(tok, "PUT", fmt.Sprintf("/v1/conversations/c-g/messages/own-%d", i), `{"body":"x"}`)
		})
	}
	done.Wait()
	created, all := 0, []int{}
	for i := range clients {
		if one[i].status == 201 {
			created++
		} else if one[i].status != 200 || one[i].body["dup"] != true {
			t.Errorf("a repeat is answered with %d %s", one[i].status, one[i].text)
		}
		if one[i].body["mid"] != one[0].body["mid"] {
			t.Errorf("one cmid has two messages: %s and %s", one[i].text, one[0].text)
		}
		if own[i].status != 201 {
			t.Errorf("answered with %d %s", own[i].status, own[i].text)
			continue
		}
		all = append(all, int(own[i].body["seq"].(float64)))
	}
	if created != 1 {
		t.Errorf("%d answers say that theirs stored it", created)
	}
	all = append(all, int(one[0].body["seq"].(float64)))
	slices.Sort(all)
	for i, seq := range all {
		if seq != i+2 {
			t.Fatalf("the seqs are %v", all)
		}
	}
}

func TestEvents(t *testing.T) {
	s := newScene(t)
	s.populate()
	epoch := s.epoch()
	const path = "/v1/conversations/c-g/events"
	for _, c := range []struct{ user, query, seqs, rest string }{
		{"u-ana", "", "[1 2 3 4 5 6 7]", `"withheld":[],"trimmed":false,"more":false}`},
		{"u-ana", "?after=2&limit=2", "[3 4]", `"more":true}`},
		{"u-ana", "?limit=9007199254740991", "[1 2 3 4 5 6 7]", `"more":false}`},
		{"u-ana", "?after=7&epoch=" + fmt.Sprint(epoch), "[]", `"events":[],"withheld":[],"trimmed":false,"more":false}`},
		{"u-ben", "?after=0", "[2 3 4 5 6 7]", `"withheld":[{"from":1,"to":1,"why":"not_member"}],"trimmed":false,"more":false}`},
		{"u-cid", "", "[5 6]", `"withheld":[{"from":1,"to":4,"why":"not_member"}],"trimmed":false,"more":false}`},
	} {
		a := s.as(c.user, 200, "GET", path+c.query, "")
		if fmt.Sprint(seqs(a)) != c.seqs || !strings.HasSuffix(strings.TrimSpace(a.text), c.rest) || a.body["epoch"] != float64(epoch) {
			t.Errorf("%s%s: %s", c.user, c.query, a.text)
		}
	}
	if a := s.as("u-cid", 200, "GET", path+"/6", ""); a.body["epoch"] != float64(epoch) || !strings.Contains(a.text, `"kind":"leave"`) {
		t.Errorf("fetched: %s", a.text)
	}
	// what was recalled has no content, and a purged prefix its reason
	s.exec("UPDATE tidings.event SET recalled_by = 7, body = NULL, data = NULL, request_hash = NULL WHERE conv_id = 'c-g' AND seq = 4")
	if a := s.as("u-ben", 200, "GET", path+"/4", ""); !strings.Contains(a.text, `"recalled":true`) || strings.Contains(a.text, "body") {
		t.Errorf("a recalled message: %s", a.text)
	}
	s.exec("DELETE FROM tidings.event WHERE conv_id = 'c-g' AND seq <= 3")
	s.exec("UPDATE tidings.conversation SET min_seq = 4 WHERE conv_id = 'c-g'")
	a := s.as("u-ben", 200, "GET", path, "")
	if fmt.Sprint(seqs(a)) != "[4 5 6 7]" || !strings.Contains(a.text, `{"from":2,"to":3,"why":"trimmed"}],"trimmed":true`) || a.body["min_seq"] != 4.0 {
		t.Errorf("after a purge: %s", a.text)
	}
	if a := s.as("u-ana", 404, "GET", path+"/3", ""); a.code() != "NOT_FOUND" {
		t.Errorf("a purged event: %s", a.text)
	}
}

func TestCursors(t *testing.T) {
	s := newScene(t)
	s.populate()
	epoch := float64(s.epoch())
	const delivered, read = "/v1/conversations/c-g/delivered", "/v1/conversations/c-g/read"
	for _, c := range []struct {
		user, body string
		seq        float64
	}{
		{"u-ben", `{"seq":3,"device":"d-1","install":"i-1"}`, 3},
		{"u-ben", `{"seq":2,"device":"d-1","install":"i-1"}`, 3},
		{"u-ben", `{"seq":99,"device":"d-1","install":"i-1","epoch":0}`, 7},
		{"u-ben", `{"seq":1,"device":"d-2","install":"i-9"}`, 1},
		{"u-ben", `{"seq":4,"device":"d-1","install":"i-2"}`, 4}, // a new install begins anew
		{"u-cid", `{"seq":99,"device":"d-1","install":"i-1"}`, 6},
	} {
		if a := s.as(c.user, 200, "PUT", delivered, c.body); a.body["seq"] != c.seq || a.body["conv"] != "c-g" || a.body["epoch"] != epoch {
			t.Errorf("%s %s is answered with %s", c.user, c.body, a.text)
		}
	}
	bound := s.issue(token.Claims{User: "u-ben", Device: "d-1"})
	if a := s.expect(s.call(bound, "PUT", delivered, `{"seq":5,"install":"i-2"}`), 200, "with a device's token"); a.body["seq"] != 5.0 {
		t.Errorf("with a device's token: %s", a.text)
	}
	s.expect(s.call(bound, "PUT", delivered, `{"seq":5,"install":"i-2","device":"d-2"}`), 403, "for another device")

	for _, c := range []struct{ body, want string }{
		{`{"seq":3}`, `"seq":3,"unread":2,"unread_more":false}`}, // 4 and 7; joins and leaves are not unread
		{`{"seq":2,"epoch":0}`, `"seq":3,"unread":2,"unread_more":false}`},
		{`{"seq":7}`, `"seq":7,"unread":0,"unread_more":false}`},
	} {
		if a := s.as("u-ben", 200, "PUT", read, c.body); !strings.Contains(a.text, c.want) || a.body["conv"] != "c-g" || a.body["epoch"] != epoch {
			t.Errorf("read %s is answered with %s", c.body, a.text)
		}
	}
	if a := s.as("u-ben", 409, "PUT", read, `{"seq":8}`); a.code() != "CURSOR_AHEAD" || a.body["head"] != 7.0 || a.body["epoch"] != epoch {
		t.Errorf("read beyond the head: %s", a.text)
	}
	if a := s.as("u-ben", 409, "PUT", read, `{"seq":8,"epoch":5}`); a.code() != "EPOCH_CHANGED" || a.body["epoch"] != epoch || a.body["head"] != nil {
		t.Errorf("read of another history: %s", a.text)
	}
	if n := s.count("SELECT seq FROM tidings.read WHERE conv_id = 'c-g' AND user_id = 'u-ben'"); n != 7 {
		t.Errorf("stored is %d", n)
	}
}

func TestListConversations(t *testing.T) {
	s := newScene(t)
	s.populate()
	for _, conv := range []string{"c-a", "c-z"} {
		s.by(201, "PUT", "/v1/conversations/"+conv, `{"members":["u-ben"]}`)
	}
	s.as("u-ben", 200, "PUT", "/v1/conversations/c-g/read", `{"seq":3}`)
	s.as("u-ben", 200, "PUT", "/v1/conversations/c-g/delivered", `{"seq":4,"device":"d-1","install":"i-1"}`)
	list := func(a answer) (convs []string) {
		for _, c := range a.body["list"].([]any) {
			convs = append(convs, c.(map[string]any)["conv"].(string))
		}
		return convs
	}
	all := s.as("u-ben", 200, "GET", "/v1/conversations?device=d-1", "")
	if fmt.Sprint(list(all)) != "[c-a c-g c-z]" || all.body["more"] != false {
		t.Fatalf("the list is %s", all.text)
	}
	g := all.body["list"].([]any)[1].(map[string]any)
	for field, want := range map[string]any{"epoch": float64(s.epoch()), "head": 7.0, "min_seq": 1.0, "delivered": 4.0, "read": 3.0, "unread": 2.0, "unread_more": false} {
		if g[field] != want {
			t.Errorf("%s is %v", field, g[field])
		}
	}
	if last := g["last"].(map[string]any); last["seq"] != 7.0 || last["body"] != "three" || g["at"] != last["at"] {
		t.Errorf("the last event is %v", last)
	}
	first := s.as("u-ben", 200, "GET", "/v1/conversations?limit=2", "")
	rest := s.as("u-ben", 200, "GET", "/v1/conversations?limit=2&after=c-g", "")
	if fmt.Sprint(list(first), first.body["more"], list(rest), rest.body["more"]) != "[c-a c-g] true [c-z] false" {
		t.Errorf("in pages: %s %s", first.text, rest.text)
	}
	if a := s.as("u-eve", 200, "GET", "/v1/conversations", ""); strings.TrimSpace(a.text) != `{"list":[],"more":false}` {
		t.Errorf("of one who is nowhere: %s", a.text)
	}
	if a := s.as("u-cid", 200, "GET", "/v1/conversations", ""); !strings.Contains(a.text, `"head":6`) || !strings.Contains(a.text, `"left":true`) || strings.Contains(a.text, "three") {
		t.Errorf("of one who has left: %s", a.text)
	}
}
