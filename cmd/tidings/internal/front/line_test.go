// Tests of the lines, with a gateway that says what a test tells it to.

package front

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is a line before one gateway, which repeats what it hears.
type stand struct {
	t    *testing.T
	line *line
	url  string
}

func newStand(t *testing.T) *stand {
	t.Helper()
	upgrader := websocket.Upgrader{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ready\n")) })
	mux.HandleFunc("GET /v1/ws", func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, text, err := conn.ReadMessage()
			switch {
			case err != nil:
				return
			case string(text) == "bye":
				_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "the gateway stops"), time.Now().Add(time.Second))
				return
			}
			_ = conn.WriteMessage(kind, text)
		}
	})
	gateway := httptest.NewServer(mux)
	t.Cleanup(gateway.Close)
	log := &journal{}
	g := &child{name: "a", title: "gateway a", state: stateUp, url: gateway.URL, tell: log.add}
	l := newLine("ana-phone", "a", &Children{all: []*child{g}, gateways: []*child{g}, log: log})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			l.ready(w, r)
			return
		}
		l.connect(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections) // of the proxy
	t.Cleanup(l.close)
	return &stand{t: t, line: l, url: server.URL}
}

// dial connects, or returns the status that it was refused with.
func (s *stand) dial() (*websocket.Conn, int) {
	s.t.Helper()
	conn, answer, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.url, "http")+"/v1/ws", nil)
	if err != nil {
		if answer == nil {
			s.t.Fatal(err)
		}
		if answer.Header.Get("Retry-After") == "" {
			s.t.Errorf("refused with %d and no Retry-After", answer.StatusCode)
		}
		return nil, answer.StatusCode
	}
	s.t.Cleanup(func() { _ = conn.Close() }) // it may have ended
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	return conn, 0
}

// say has the gateway say texts.
func (s *stand) say(conn *websocket.Conn, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// hear compares what arrives.
func (s *stand) hear(conn *websocket.Conn, texts ...string) {
	s.t.Helper()
	for _, want := range texts {
		_, got, err := conn.ReadMessage()
		if err != nil || string(got) != want {
			s.t.Fatalf("%q arrives, %v, not %q", got, err, want)
		}
	}
}

const (
	first  = `{"t":"event","epoch":1,"event":{"conv":"c","seq":1,"kind":"msg"}}`
	second = `{"t":"event","epoch":1,"event":{"conv":"c","seq":2,"kind":"msg"}}`
	reply  = `{"t":"sent","rid":"1","conv":"c","epoch":1,"seq":1}`
)

func yes() *bool { y := true; return &y }
func no() *bool  { n := false; return &n }

func TestLinePassesFramesAndFarewells(t *testing.T) {
	s := newStand(t)
	conn, _ := s.dial()
	s.say(conn, first, reply, "what is no frame")
	s.hear(conn, first, reply, "what is no frame")
	s.say(conn, "bye")
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, 4001) {
		t.Errorf("the gateway's farewell arrives as %v", err)
	}
}

func TestLineIsCut(t *testing.T) {
	s := newStand(t)
	conn, _ := s.dial()
	s.say(conn, first)
	s.hear(conn, first)
	if got := s.line.state(); got != (lineState{Online: true, Gateway: "a"}) {
		t.Errorf("the line is %+v", got)
	}
	s.line.change(lineChange{Online: no()})
	if _, _, err := conn.ReadMessage(); err == nil || websocket.IsCloseError(err, 4001) {
		t.Errorf("the cut is heard as %v", err)
	}
	if _, status := s.dial(); status != http.StatusServiceUnavailable {
		t.Errorf("a line that is off is refused with %d", status)
	}
	s.line.change(lineChange{Online: yes()})
	again, _ := s.dial()
	s.say(again, first)
	s.hear(again, first)
	s.line.change(lineChange{Cut: true})
	if _, _, err := again.ReadMessage(); err == nil {
		t.Error("the connection was not cut")
	}
	if third, status := s.dial(); third == nil {
		t.Errorf("after a cut the line is refused with %d", status)
	}
}

func TestLineLosesOneReply(t *testing.T) {
	s := newStand(t)
	s.line.change(lineChange{LoseReply: yes()})
	conn, _ := s.dial()
	s.say(conn, first, reply)
	s.hear(conn, first)
	if _, text, err := conn.ReadMessage(); err == nil {
		t.Errorf("%s arrives", text)
	}
	again, _ := s.dial()
	s.say(again, reply)
	s.hear(again, reply)
	if s.line.state().LoseReply {
		t.Error("another reply would be lost")
	}
}

func TestLineShuffles(t *testing.T) {
	s := newStand(t)
	s.line.change(lineChange{Shuffle: yes()})
	conn, _ := s.dial()
	s.say(conn, first, reply, second)
	s.hear(conn, reply, second, second, first)
	s.say(conn, first) // none overtakes it
	s.hear(conn, first)
}

// What no gateway would take is not kept in memory here either.
func TestLineBoundsFrames(t *testing.T) {
	s := newStand(t)
	conn, _ := s.dial()
	_ = conn.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("x", 10*wire.MaxFrame))) // the connection may end in the midst of it
	if _, text, err := conn.ReadMessage(); err == nil {
		t.Errorf("a frame that is too large is passed on: %d bytes come back", len(text))
	}
}

// One device has a bounded number of connections, and the place of one that has ended is free again.
func TestLineIsBounded(t *testing.T) {
	s := newStand(t)
	var last *websocket.Conn
	for range lineMost {
		last, _ = s.dial()
	}
	if _, status := s.dial(); status != http.StatusServiceUnavailable {
		t.Fatalf("one more is refused with %d", status)
	}
	_ = last.Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if conn, _ := s.dial(); conn != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the place does not become free")
		}
	}
}

func TestLineIsReady(t *testing.T) {
	s := newStand(t)
	status := func() int {
		answer, err := http.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if got := status(); got != http.StatusOK {
		t.Errorf("a line that is on answers %d", got)
	}
	s.line.children.gateways[0].gone(nil)
	if got := status(); got != http.StatusServiceUnavailable {
		t.Errorf("without a gateway it answers %d", got)
	}
}
