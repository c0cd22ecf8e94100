// Tests of the client by scripts, with a gateway that says what the script tells it to.

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

const patience = 10 * time.Second

type object = map[string]any

// scenario is a file of testdata/scenarios; testdata/scenarios/README.md describes the form.
type scenario struct {
	About    string              `json:"about"`
	Outbox   []scenarioEntry     `json:"outbox"`
	Sent     []scenarioEntry     `json:"sent"`
	Pipeline int                 `json:"pipeline"`
	Acks     bool                `json:"acks"`
	Timeout  int64               `json:"request_timeout_ms"`
	Start    map[string]Position `json:"start"`
	Steps    []map[string]object `json:"steps"`
}

type scenarioEntry struct {
	Conv, Cmid, Body string
	AgeMS            int64 `json:"age_ms"`
	Seq, Epoch       int64
	Target           int64 // of a recall, with Epoch
}

// script is one scenario being played.
type script struct {
	t      *testing.T
	client *Client
	knocks chan knock
	conn   *websocket.Conn
	rid    any // of the frame that was expected last
	done   chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex
	frames  []object // of the present connection, not consumed
	updates []object // not consumed
}

// knock is a handshake that waits for the script's decision.
type knock struct {
	refuse chan object // status and retry_after
	accept chan struct{}
	conn   chan *websocket.Conn
}

func play(t *testing.T, sc scenario) {
	s := &script{t: t, knocks: make(chan knock), done: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(s.handshake))
	path := filepath.Join(t.TempDir(), "outbox")
	s.prepare(path, sc)
	cfg := Config{URL: server.URL, Device: "d-1", Install: "i-1", Outbox: path, Handle: s.told, Pipeline: sc.Pipeline, AckEvery: -1,
		BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond,
		Token: func(context.Context) (Token, error) { return Token{Text: "a token"}, nil }}
	if sc.Timeout > 0 {
		cfg.RequestTimeout = time.Duration(sc.Timeout) * time.Millisecond
	}
	if sc.Acks {
		cfg.AckEvery = time.Millisecond
	}
	if sc.Start != nil {
		cfg.Start = func(conv string) (Position, bool) {
			at, ok := sc.Start[conv]
			return at, ok
		}
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.client = c
	t.Cleanup(func() {
		close(s.done)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		s.work.Wait()
	})
	for i, step := range sc.Steps {
		for what, arg := range step {
			s.step(fmt.Sprintf("step %d (%s)", i+1, what), what, arg)
		}
	}
	s.nothingElse()
}

// prepare writes what an earlier process left in the outbox.
func (s *script) prepare(path string, sc scenario) {
	state := outboxState{User: "u-ana"}
	for _, e := range sc.Outbox {
		at := time.Now().Add(-time.Duration(e.AgeMS) * time.Millisecond)
		waits := Entry{Message: Message{Conv: e.Conv, Cmid: e.Cmid, Body: e.Body}, At: at}
		if e.Target > 0 {
			waits.Target = Position{e.Epoch, e.Target}
		}
		state.Waiting = append(state.Waiting, waits)
	}
	for _, e := range sc.Sent {
		state.Sent = append(state.Sent, sentEntry{Entry{Message: Message{Conv: e.Conv, Cmid: e.Cmid, Body: e.Body}, At: time.Now()}, Sent{Seq: e.Seq, Epoch: e.Epoch}})
	}
	file, err := os.Create(path)
	if err == nil {
		_, err = writeState(file, line{Op: "outbox", Version: outboxVersion, Device: "d-1", Install: "i-1"}, state)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) handshake(w http.ResponseWriter, r *http.Request) {
	k := knock{make(chan object), make(chan struct{}), make(chan *websocket.Conn, 1)}
	select {
	case s.knocks <- k:
	case <-s.done:
		return
	case <-r.Context().Done():
		return
	}
	select {
	case how := <-k.refuse:
		if after, ok := how["retry_after"]; ok {
			w.Header().Set("Retry-After", fmt.Sprint(after))
		}
		w.WriteHeader(int(how["status"].(float64)))
	case <-k.accept:
		conn, err := (&websocket.Upgrader{Subprotocols: []string{wire.Subprotocol}}).Upgrade(w, r, nil)
		if err != nil {
			s.t.Error(err)
		}
		k.conn <- conn
	case <-s.done:
	}
}

// step does one step of the script.
func (s *script) step(name, what string, arg object) {
	s.t.Helper()
	switch what {
	case "refuse":
		s.knock(name).refuse <- arg
	case "accept":
		s.accept(name, arg)
	case "expect":
		f := s.find(name, &s.frames, func(f object) bool { return subset(arg, f) })
		s.rid = f["rid"]
	case "reply":
		arg["rid"] = s.rid
		s.write(arg)
	case "push":
		s.write(arg)
	case "close":
		code := int(arg["code"].(float64))
		_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
	case "cut":
		_ = s.conn.UnderlyingConn().Close()
	case "send":
		_, err := s.client.Send(Message{Conv: text(arg["conv"]), Cmid: text(arg["cmid"]), Body: text(arg["body"]) + strings.Repeat("\x01", number(arg["escapes"]))})
		if code, _ := arg["code"].(string); string(tidings.ErrorCode(err)) != code {
			s.t.Fatalf("%s: the send is answered with %v", name, err)
		}
	case "recall":
		_, err := s.client.Recall(Recall{Conv: text(arg["conv"]), Cmid: text(arg["cmid"]), Target: Position{int64(number(arg["epoch"])), int64(number(arg["target"]))}})
		if code, _ := arg["code"].(string); string(tidings.ErrorCode(err)) != code {
			s.t.Fatalf("%s: the recall is answered with %v", name, err)
		}
	case "resend":
		s.client.Resend(text(arg["conv"]), text(arg["cmid"]))
	case "discard":
		if err := s.client.Discard(text(arg["conv"]), text(arg["cmid"])); err != nil {
			s.t.Fatal(err)
		}
	case "read":
		s.client.MarkRead(text(arg["conv"]), int64(number(arg["seq"])))
	case "reconnect":
		s.client.Reconnect()
	case "update":
		u := s.find(name, &s.updates, func(u object) bool { // of each type the next one counts, but states may be skipped
			return u["type"] == arg["type"] && (arg["type"] != "connection" || subset(arg, u))
		})
		if !subset(arg, u) {
			s.t.Fatalf("%s: got %v", name, u)
		}
	default:
		s.t.Fatalf("%s: there is no such step", name)
	}
}

func text(v any) string { t, _ := v.(string); return t }
func number(v any) int  { n, _ := v.(float64); return int(n) }

func (s *script) knock(name string) knock {
	s.t.Helper()
	select {
	case k := <-s.knocks:
		return k
	case <-time.After(patience):
		s.t.Fatalf("%s: nobody connects", name)
		return knock{}
	}
}

// accept takes the next connection, expects its hello and answers it and the question for the conversations.
func (s *script) accept(name string, arg object) {
	s.t.Helper()
	k := s.knock(name)
	k.accept <- struct{}{}
	conn := <-k.conn
	s.mu.Lock()
	s.conn, s.frames = conn, nil
	s.mu.Unlock()
	s.work.Go(func() { s.read(conn) })
	s.step(name, "expect", object{"t": "hello", "device": "d-1", "install": "i-1", "token": "a token"})
	if arg["lost"] == true {
		s.step(name, "cut", nil)
		return
	}
	if e, ok := arg["error"].(object); ok {
		s.step(name, "reply", e)
		return
	}
	limits := object{"frame": 65536.0, "body": 16384.0, "data": 8192.0, "inflight": 256.0, "page": 500.0}
	if changed, ok := arg["limits"].(object); ok {
		for k, v := range changed {
			limits[k] = v
		}
	}
	user := "u-ana"
	if u, ok := arg["user"].(string); ok {
		user = u
	}
	s.step(name, "reply", object{"t": "welcome", "user": user, "device": "d-1", "connection": "c-1", "now": 1.0, "ping_ms": 25000.0, "limits": limits, "features": []any{}})
	if user != "u-ana" {
		return
	}
	s.step(name, "expect", object{"t": "conversations"})
	list, ok := arg["list"].([]any)
	if !ok {
		list = []any{}
	}
	s.step(name, "reply", object{"t": "conversations", "list": list, "more": false})
}

func (s *script) write(f object) {
	s.t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.conn.WriteMessage(websocket.TextMessage, b); err != nil {
		s.t.Fatal(err)
	}
}

// read collects the client's frames.
func (s *script) read(conn *websocket.Conn) {
	for {
		_, b, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if _, err := wire.Decode(b); err != nil {
			s.t.Errorf("the server would refuse %s: %v", b, err)
		}
		var f object
		_ = json.Unmarshal(b, &f) // it was decoded
		s.mu.Lock()
		if s.conn == conn {
			s.frames = append(s.frames, f)
		}
		s.mu.Unlock()
	}
}

// told collects what the client tells.
func (s *script) told(u Update) {
	var f object
	switch u := u.(type) {
	case Connection:
		f = object{"type": "connection", "state": string(u.State), "code": float64(u.Code)}
	case Arrived:
		f = eventUpdate("arrived", u.Epoch, u.Event)
	case Recalled:
		f = eventUpdate("recalled", u.Epoch, u.Event)
	case Withheld:
		f = object{"type": "withheld", "conv": u.Conv, "epoch": float64(u.Epoch), "from": float64(u.From), "to": float64(u.To), "why": u.Why}
	case Dropped:
		f = object{"type": "dropped", "conv": u.Conv, "epoch": float64(u.Epoch), "code": string(tidings.ErrorCode(u.Err))}
	case Ended:
		f = object{"type": "ended", "cmid": u.Cmid, "body": u.Body, "target": float64(u.Target.Seq), "seq": float64(u.Sent.Seq), "dup": u.Sent.Dup, "code": string(tidings.ErrorCode(u.Err))}
	case Asked:
		f = object{"type": "asked", "cmid": u.Cmid, "target": float64(u.Target.Seq), "code": string(tidings.ErrorCode(u.Err))}
	case Lost:
		f = object{"type": "lost", "cmid": u.Cmid, "body": u.Body, "seq": float64(u.Sent.Seq)}
	case ReadMoved:
		f = object{"type": "read_moved", "conv": u.Conv, "seq": float64(u.Seq), "unread": float64(u.Unread)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, f)
}

func eventUpdate(t string, epoch int64, e tidings.Event) object {
	f := object{"type": t, "conv": e.Conv, "epoch": float64(epoch), "seq": float64(e.Seq), "kind": string(e.Kind), "recalled": e.Recalled}
	if e.Body != nil {
		f["body"] = *e.Body
	}
	return f
}

// find waits for the first of list that fits and takes it out.
func (s *script) find(name string, list *[]object, fits func(object) bool) (found object) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		for i, o := range *list {
			if fits(o) {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				s.mu.Unlock()
				return o
			}
		}
		s.mu.Unlock()
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: it does not come; there are the frames %v and the updates %v", name, s.frames, s.updates)
		}
	}
}

// nothingElse makes sure that the client has nothing more to say: it answers a ping with a pong and had sent nothing else before.
func (s *script) nothingElse() {
	s.t.Helper()
	if s.client.State().State == Online {
		s.write(object{"t": "ping"})
		s.step("the end", "expect", object{"t": "pong"})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.frames) > 0 {
		s.t.Errorf("the client has also sent %v", s.frames)
	}
	for _, u := range s.updates {
		if u["type"] != "connection" && u["type"] != "read_moved" {
			s.t.Errorf("the client has also told %v", u)
		}
	}
}

// subset tells whether has has everything that want names; null is what must not be there.
func subset(want, has object) bool {
	for k, w := range want {
		if h, ok := has[k]; w == nil && ok || w != nil && fmt.Sprint(h) != fmt.Sprint(w) {
			return false
		}
	}
	return true
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("there are %d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var sc scenario
			if err := json.Unmarshal(b, &sc); err != nil {
				t.Fatal(err)
			}
			play(t, sc)
		})
	}
}
