// Package relay stands between a WebSocket client and its server, passes their frames on one by one, and lets a demonstration lose,
// repeat and reorder what the server says.
package relay

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
)

// Relay is a relay to one server.
type Relay struct {
	// Down gets each frame from the server and returns what the client gets instead, in this order; with cut the connection ends after
	// that. It is called for one connection's frames one at a time. Set it before the first connection.
	Down func(frame []byte) (instead [][]byte, cut bool)

	server   string
	listener net.Listener
	http     *http.Server
	work     sync.WaitGroup
	mu       sync.Mutex
	open     map[*websocket.Conn]bool
	closed   bool
}

// Start starts a relay to the server at url (http://…) on a free port.
func Start(url string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the relay: %w", err)
	}
	r := &Relay{server: strings.Replace(url, "http", "ws", 1), listener: l, open: map[*websocket.Conn]bool{}}
	r.http = &http.Server{Handler: r}
	r.work.Go(func() { _ = r.http.Serve(l) }) // ends with Close
	return r, nil
}

// URL is where the relay is reached.
func (r *Relay) URL() string { return "http://" + r.listener.Addr().String() }

// Close ends the relay and its connections.
func (r *Relay) Close() {
	_ = r.http.Close() // there is nothing to be done about it
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
}

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	header := http.Header{}
	if token := request.Header.Get("Authorization"); token != "" {
		header.Set("Authorization", token)
	}
	dialer := websocket.Dialer{Subprotocols: websocket.Subprotocols(request)}
	up, response, err := dialer.DialContext(context.WithoutCancel(request.Context()), r.server+request.URL.Path, header)
	if err != nil {
		status := http.StatusBadGateway
		if response != nil {
			status = response.StatusCode
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{up.Subprotocol()}}
	down, err := upgrader.Upgrade(w, request, nil)
	if err != nil {
		_ = up.Close() // the client was told
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_, _ = up.Close(), down.Close()
		return
	}
	r.open[up], r.open[down] = true, true
	end := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = up.Close(), down.Close()
		delete(r.open, up)
		delete(r.open, down)
	}
	r.work.Go(func() { defer end(); pass(down, up, nil) })
	r.work.Go(func() { defer end(); pass(up, down, r.Down) })
}

// pass reads frames until one side ends.
func pass(from, to *websocket.Conn, instead func([]byte) ([][]byte, bool)) {
	for {
		kind, frame, err := from.ReadMessage()
		if err != nil {
			return
		}
		frames, cut := [][]byte{frame}, false
		if instead != nil {
			frames, cut = instead(frame)
		}
		for _, f := range frames {
			if to.WriteMessage(kind, f) != nil {
				return
			}
		}
		if cut {
			return
		}
	}
}
