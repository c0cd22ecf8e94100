// A relay between devices and a gateway that knows frames and can lose, repeat and reorder them.

package lab_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
)

// relay is a way to a node on which a check does to frames what it likes. Unlike tcpproxy it knows where a frame begins.
type relay struct {
	c   *chat
	url string

	mu     sync.Mutex
	node   *node
	mangle mangler
	asked  []frame // by devices, in the order in which they came
}

// mangler says what goes to the device in place of a frame of the gateway: nothing, the frame, others. It is called by one connection
// at a time, under the relay's lock.
type mangler func(f frame, raw []byte) (instead [][]byte)

// relay puts a relay in front of the node.
func (n *node) relay(m mangler) *relay {
	n.c.Helper()
	r := &relay{c: n.c, node: n, mangle: m}
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		serving.Add(1)
		defer serving.Done()
		r.serve(w, req)
	}))
	n.c.Cleanup(func() { server.Close(); serving.Wait() }) // the devices, which came later, are gone by then
	r.url = server.URL
	return r
}

// to leads connections to another node from now on.
func (r *relay) to(n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node = n
}

func (r *relay) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	url := strings.Replace(r.node.url, "http", "ws", 1) + req.URL.Path
	r.mu.Unlock()
	protocol := []string{"tidings.v1"}
	dialer := websocket.Dialer{Subprotocols: protocol, HandshakeTimeout: soon}
	there, _, err := dialer.DialContext(r.c.ctx, url, nil)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer there.Close()
	upgrader := websocket.Upgrader{Subprotocols: protocol}
	here, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		return
	}
	defer here.Close()
	var back sync.WaitGroup
	back.Go(func() {
		pass(there, here, func(f frame, raw []byte) [][]byte {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.mangle == nil {
				return [][]byte{raw}
			}
			return r.mangle(f, raw)
		})
	})
	pass(here, there, func(f frame, raw []byte) [][]byte {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, f)
		return [][]byte{raw}
	})
	back.Wait()
}

// pass passes frames on until one side ends, then ends the other.
func pass(from, to *websocket.Conn, through mangler) {
	defer to.Close()
	for {
		_, raw, err := from.ReadMessage()
		var f frame
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err != nil {
			return
		}
		for _, out := range through(f, raw) {
			if to.WriteMessage(websocket.TextMessage, out) != nil {
				return
			}
		}
	}
}

// requests are those of a type that devices have made.
func (r *relay) requests(t string) []frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.asked), func(f frame) bool { return f.t() != t })
}
