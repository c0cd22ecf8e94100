// The check 40-access-matrix.

package lab_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-access-matrix",
		Expect: "every frame and route by member, ex-member and non-member, in the name of another and without the right: as the table says; what is forbidden " +
			"answers like what is absent, to the byte; nobody but members gets the content or a number behind the leave; nothing of theirs is stored",
		Run: accessMatrix,
	})
}

const (
	secret   = "the content that only members may see"
	absent   = "c-none"
	farAhead = 1 << 52
)

// attempt is a request and how it is answered to a member, to one who has left before the secret, and to one who never was there.
type attempt struct {
	member, former, never string
	frame                 frame
}

// frameAttempts are every request about a conversation, without the conversation. seq is the secret's; behind it stand two more, to be
// recalled.
func frameAttempts(seq int64) map[string]attempt {
	return map[string]attempt{
		"send":               {"sent", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "send", "cmid": "x", "body": "x"}},
		"send, another hash": {"IDEMPOTENCY_MISMATCH", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "send", "cmid": "m-secret", "body": "x"}},
		"sync":               {"events", "events", "NOT_MEMBER", frame{"t": "sync", "after": 0}},
		"sync, old epoch":    {"EPOCH_CHANGED", "EPOCH_CHANGED", "NOT_MEMBER", frame{"t": "sync", "after": 0, "epoch": 7}},
		"sync, ahead":        {"CURSOR_AHEAD", "CURSOR_AHEAD", "NOT_MEMBER", frame{"t": "sync", "after": farAhead}},
		"fetch":              {"fetched", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "fetch", "seq": seq}},
		"fetch, old":         {"fetched", "fetched", "NOT_MEMBER", frame{"t": "fetch", "seq": 3}},
		"fetch, old epoch":   {"EPOCH_CHANGED", "EPOCH_CHANGED", "NOT_MEMBER", frame{"t": "fetch", "seq": seq, "epoch": 7}},
		"fetch, ahead":       {"NOT_FOUND", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "fetch", "seq": farAhead}},
		"ack":                {"acked", "acked", "NOT_MEMBER", frame{"t": "ack", "seq": seq}},
		"ack, old epoch":     {"EPOCH_CHANGED", "EPOCH_CHANGED", "NOT_MEMBER", frame{"t": "ack", "seq": seq, "epoch": 7}},
		"read":               {"read", "CURSOR_AHEAD", "NOT_MEMBER", frame{"t": "read", "seq": seq}},
		"read, old epoch":    {"EPOCH_CHANGED", "EPOCH_CHANGED", "NOT_MEMBER", frame{"t": "read", "seq": seq, "epoch": 7}},
		"outcome":            {"outcome", "outcome", "NOT_MEMBER", frame{"t": "outcome", "cmid": "m-secret"}},
		"recall":             {"recalled", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "recall", "cmid": "r", "target": seq + 1}},
		"recall, old epoch":  {"EPOCH_CHANGED", "EPOCH_CHANGED", "NOT_MEMBER", frame{"t": "recall", "cmid": "r-0", "target": seq, "epoch": 7}},
		"recall, ahead":      {"NOT_FOUND", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "recall", "cmid": "r-0", "target": farAhead}},
		"recall of a join":   {"INVALID_ARGUMENT", "NOT_MEMBER", "NOT_MEMBER", frame{"t": "recall", "cmid": "r-0", "target": 1}},
	}
}

// routeAttempt is an operation of the API, {conv} being in its path.
type routeAttempt struct {
	method, path          string
	member, former, never int // the statuses for users' tokens
	body                  any
}

func routeAttempts(seq int64) map[string]routeAttempt {
	const conv, operators = "/v1/conversations/{conv}", "/v1/operator/conversations"
	return map[string]routeAttempt{
		"create-conversation": {http.MethodPut, conv, 403, 403, 403, frame{"members": []string{"eve"}}},
		"change-conversation": {http.MethodPatch, conv, 403, 403, 403, frame{"retention_ms": 1}},
		"join-conversation":   {http.MethodPut, conv + "/members/eve", 403, 403, 403, nil},
		"leave-conversation":  {http.MethodDelete, conv + "/members/ana", 403, 403, 403, nil},
		"send-message":        {http.MethodPut, conv + "/messages/y", 201, 403, 403, frame{"body": "y"}},
		"recall-message":      {http.MethodPost, conv + "/recalls", 201, 403, 403, frame{"cmid": "r-http", "target": seq + 2}},
		"get-outcome":         {http.MethodGet, conv + "/messages/m-secret", 200, 200, 403, nil},
		"sync-events":         {http.MethodGet, conv + "/events?after=0", 200, 200, 403, nil},
		"fetch-event":         {http.MethodGet, conv + fmt.Sprint("/events/", seq), 200, 403, 403, nil},
		"put-delivered":       {http.MethodPut, conv + "/delivered", 200, 200, 403, frame{"seq": seq, "device": "d-1", "install": "d-1-install"}},
		"put-read":            {http.MethodPut, conv + "/read", 200, 409, 403, frame{"seq": seq}},
		"list-conversations":  {http.MethodGet, "/v1/conversations", 200, 200, 200, nil},
		"mute-conversation":   {http.MethodPut, conv + "/mute", 200, 403, 403, frame{}},
		"unmute-conversation": {http.MethodDelete, conv + "/mute", 200, 403, 403, nil},
		"find-conversations":  {http.MethodGet, operators, 403, 403, 403, nil},
		"show-conversation":   {http.MethodGet, operators + "/{conv}", 403, 403, 403, nil},
		"show-events":         {http.MethodGet, operators + "/{conv}/events?bodies=true", 403, 403, 403, nil},
	}
}

// accessScene is a conversation of ana and dan, which cid has left and eve never was in.
type accessScene struct {
	*chat
	n         *node
	left, seq int64 // of cid's leave and of the secret
	cells     int
}

func accessMatrix(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	n.conversation("c-1", "ana", "cid", "dan")
	left := n.leave("c-1", "cid")
	ana := n.device("ana", "ana-1")
	s := &accessScene{chat: c, n: n, left: left, seq: ana.say("c-1", "m-secret", secret)}
	for i := range int64(2) {
		c.Equal("the seq of a message to be recalled", s.seq+1+i, ana.say("c-1", fmt.Sprint("m-", i), secret))
	}
	s.frames(ana, n.device("cid", "cid-1"), n.device("eve", "eve-1"))
	s.routes()

	dan := n.device("dan", "dan-1")
	c.Equal("another member asks for the sender's cmid", "no", dan.ask(frame{"t": "outcome", "conv": "c-1", "cmid": "m-secret"}).str("stored"))
	c.Equal("another member recalls", "NOT_SENDER", dan.ask(frame{"t": "recall", "conv": "c-1", "cmid": "r", "target": s.seq}).code())
	forged := dan.ask(frame{"t": "send", "conv": "c-1", "cmid": "z", "body": "z", "sender": "ana", "user": "ana"})
	c.Equal("a member who writes another sender into a frame is the sender", []int64{forged.num("seq")}, c.seqs("c-1", "dan", "z"))
	strangers := `SELECT count(*) FROM tidings.%s WHERE user_id = 'eve' OR user_id = 'cid' AND seq > $1`
	c.Equal("cursors of those who may not", []int{0, 0},
		[]int{one[int](c.scene, fmt.Sprintf(strangers, "delivered"), left), one[int](c.scene, fmt.Sprintf(strangers, "read"), left)})
	c.Equal("events of theirs behind the leave", 0, one[int](c.scene, `SELECT count(*) FROM tidings.event WHERE sender_user IN ('eve', 'cid') AND seq > $1`, left))
	c.Equal("absent conversations that have come to be", 0, one[int](c.scene, `SELECT count(*) FROM tidings.conversation WHERE conv_id = $1`, absent))
	c.Examined("cells of the matrix", s.cells)
}

// leaks records what an answer to one who may not see everything tells too much. beyond is the last seq that it may name.
func (s *accessScene) leaks(what, answer string, beyond int64) {
	s.Helper()
	s.cells++
	told := strings.Contains(answer, secret)
	for _, field := range []string{"head", "seq", "from", "to"} {
		for _, part := range strings.Split(answer, `"`+field+`":`)[1:] {
			var n int64
			if _, err := fmt.Sscanf(part, "%d", &n); err == nil && n > beyond && n < farAhead {
				told = true
			}
		}
	}
	if told {
		s.Errorf("%s tells too much: %s", what, answer)
	}
}

func (s *accessScene) frames(member, former, never *peer) {
	s.Helper()
	try := func(p *peer, conv string, f frame) (kind, text string) {
		f = maps.Clone(f)
		f["conv"] = conv
		a := p.ask(f)
		delete(a, "rid")
		raw, err := json.Marshal(a)
		s.Must("write an answer", err)
		if kind = a.code(); kind == "" {
			kind = a.t()
		}
		return kind, string(raw)
	}
	for what, a := range frameAttempts(s.seq) {
		gone, goneText := try(former, "c-1", a.frame)
		forbidden, forbiddenText := try(never, "c-1", a.frame)
		_, nobodys := try(never, absent, a.frame)
		_, toMember := try(member, absent, a.frame)
		in, _ := try(member, "c-1", a.frame)
		s.Equal(what+": member, former, never", []string{a.member, a.former, a.never}, []string{in, gone, forbidden})
		s.Equal(what+": absent, to who never was a member", forbiddenText, nobodys)
		s.Equal(what+": absent, to a member of others", forbiddenText, toMember)
		s.leaks(what+" of one who has left", goneText, s.left)
		s.leaks(what+" of one who never was there", forbiddenText, 0)
		s.cells += 3
	}
}

func (s *accessScene) routes() {
	s.Helper()
	n, attempts := s.n, routeAttempts(s.seq)
	var listed []string
	for path, methods := range n.http(http.MethodGet, "/v1/openapi.json", nil).body.sub("paths") {
		for _, op := range methods.(map[string]any) {
			o, _ := op.(map[string]any)
			if tags, _ := o["tags"].([]any); slices.Contains(tags, any("conversations")) || strings.HasPrefix(path, "/v1/operator/conversations") {
				listed = append(listed, frame(o).str("operationId"))
			}
		}
	}
	slices.Sort(listed)
	s.Equal("operations of the API that are in the table", listed, slices.Sorted(maps.Keys(attempts)))

	narrow := strings.TrimSpace(s.tidings("key", "create", "narrow", "--scopes", "notify"))
	bearer := func(text string) []string { return []string{"Authorization", "Bearer " + text} }
	for what, r := range attempts {
		try := func(conv string, header ...string) (status int, text string) {
			a := n.http(r.method, strings.Replace(r.path, "{conv}", conv, 1), r.body, header...)
			a.header.Del("Date")
			return a.status, fmt.Sprint(a.status, " ", strings.TrimSpace(a.raw), " ", a.header)
		}
		gone, goneText := try("c-1", bearer(token("cid"))...)
		forbidden, forbiddenText := try("c-1", bearer(token("eve"))...)
		_, nobodys := try(absent, bearer(token("eve"))...)
		s.Equal(what+": absent, to who never was a member", forbiddenText, nobodys)
		if strings.Contains(r.path, "{conv}") {
			_, toMember := try(absent, bearer(token("ana"))...)
			s.Equal(what+": absent, to a member of others", forbiddenText, toMember)
		}
		s.leaks(what+" of one who has left", goneText, s.left)
		s.leaks(what+" of one who never was there", forbiddenText, 0)
		for who, header := range map[string][]string{
			"another user's name": append(bearer(token("eve")), "Tidings-User", "ana"),
			"a key without scope": append(bearer(narrow), "Tidings-User", "ana"),
			"no credential":       nil,
		} {
			want := http.StatusForbidden
			if header == nil {
				want = http.StatusUnauthorized
			}
			status, text := try("c-1", header...)
			_, nobodys := try(absent, header...)
			s.Equal(what+": "+who, want, status)
			s.Equal(what+": "+who+", absent", text, nobodys)
			s.leaks(what+" with "+who, text, 0)
		}
		in, _ := try("c-1", bearer(token("ana"))...)
		s.Equal(what+": member, former, never", []int{r.member, r.former, r.never}, []int{in, gone, forbidden})
		s.cells += 3
	}
}
