// Package relay stands between a WebSocket client and its server, passes their frames on one by one, and lets a demonstration lose,
// repeat and reorder what the server says.
package relay

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Relay is a relay to one server.
type Relay struct {
	// Down stands in the way of what the server says. Set it before the first connection.
	Down Down

	server   string
	listener net.Listener
	http     *http.Server
	work     sync.WaitGroup
	mu       sync.Mutex
	open     map[*Link]bool
	closed   bool
}

// Start starts a relay to the server at url (http://…) on a free port.
func Start(url string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the relay: %w", err)
	}
	r := &Relay{server: strings.Replace(url, "http", "ws", 1), listener: l, open: map[*Link]bool{}}
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
	for l := range r.open {
		l.Cut()
	}
	r.mu.Unlock()
	r.work.Wait()
}

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	link, err := Join(w, request, r.server+request.URL.Path)
	if err != nil {
		return // the client was told
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		link.Cut()
		return
	}
	r.open[link] = true
	r.work.Go(func() {
		link.Run(r.Down)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, link)
	})
}
