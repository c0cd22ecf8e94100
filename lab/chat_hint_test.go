// The check 06-redelivery-hint.

package lab_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "06-redelivery-hint",
		Expect: "the push of the last message is lost on the way: some seconds later the gateway says lag with the head, the client syncs, the message arrives and is " +
			"acknowledged; nothing else brought it",
		Run: pushLost,
	})
}

// leak is a way to a node on which a frame can get lost.
type leak struct {
	url string

	mu     sync.Mutex
	lose   func(frame) bool // asked of each frame to the client; nil: none
	lost   int
	passed []frame // both ways
}

// leak puts a relay in front of the node.
func (n *node) leak() *leak {
	n.c.Helper()
	l := &leak{}
	var relays sync.WaitGroup
	upgrader := websocket.Upgrader{Subprotocols: []string{"tidings.v1"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		relays.Add(1)
		defer relays.Done()
		dialer := websocket.Dialer{Subprotocols: upgrader.Subprotocols}
		there, _, err := dialer.DialContext(n.c.ctx, strings.Replace(n.url, "http", "ws", 1)+r.URL.Path, nil)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer here.Close()
		var back sync.WaitGroup
		back.Go(func() { l.relay(there, here, l.drops) })
		l.relay(here, there, nil)
		back.Wait()
	}))
	n.c.Cleanup(func() { server.Close(); relays.Wait() }) // the client, opened later, is closed by then
	l.url = server.URL
	return l
}

// relay passes frames on until one side ends, then ends the other.
func (l *leak) relay(from, to *websocket.Conn, lost func(frame) bool) {
	defer to.Close()
	for {
		kind, data, err := from.ReadMessage()
		if err != nil {
			return
		}
		var f frame
		_ = json.Unmarshal(data, &f) // what is no frame passes as it is
		if lost != nil && lost(f) {
			continue
		}
		l.mu.Lock()
		l.passed = append(l.passed, f)
		l.mu.Unlock()
		if to.WriteMessage(kind, data) != nil {
			return
		}
	}
}

// drops loses a frame if lose picks it.
func (l *leak) drops(f frame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose == nil || !l.lose(f) {
		return false
	}
	l.lost++
	return true
}

// loses sets what gets lost from now on, and forgets what has passed.
func (l *leak) loses(f func(frame) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.lost, l.passed = f, 0, nil
}

// seen is how many frames were lost, and those of some types that have passed both ways since loses.
func (l *leak) seen(types ...string) (lost int, passed []frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost, slices.DeleteFunc(slices.Clone(l.passed), func(f frame) bool { return !slices.Contains(types, f.t()) })
}

func pushLost(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	way := n.leak()
	ana := n.device("ana", "ana-1")
	ben := c.app(way.url, "ben", "ben-1")
	ana.say("c-1", "m-1", "heard")
	c.Until("the first message is acknowledged", soon, func() bool { return c.delivered("c-1", "ben", "ben-1") == 3 })

	way.loses(func(f frame) bool { return f.t() == "event" && f.sub("event").num("seq") == 4 })
	ana.say("c-1", "m-2", "not heard")
	began := time.Now()
	c.Until("the push is lost", soon, func() bool { lost, _ := way.seen(); return lost > 0 })
	lost, _ := way.seen()
	c.Fault(fault.New("lost push", "the event on its way to the client", fmt.Sprintf("%d frame was taken out", lost)))
	c.Equal("arrived at the client", []int64{2, 3}, ben.arrived("c-1"))

	c.Until("the hint is acted upon", soon, func() bool { return c.delivered("c-1", "ben", "ben-1") == 4 })
	c.Figure("from sent to the acknowledgement", float64(time.Since(began).Milliseconds()), "ms")
	var types []string
	_, passed := way.seen("event", "lag", "sync", "events", "fetched")
	for _, f := range passed {
		types = append(types, f.t())
	}
	if c.Equal("what was said about it", []string{"lag", "sync", "events"}, types) {
		c.Equal("the hint: conv, head", []any{"c-1", 4}, []any{passed[0].str("conv"), passed[0].num("head")})
		c.Equal("the sync: after", 3, passed[1].num("after"))
	}
	c.Equal("arrived at the client in the end", []int64{2, 3, 4}, ben.arrived("c-1"))
	c.Equal("lost frames", 1, func() int { lost, _ := way.seen(); return lost }())
}
