// One client's connection, joined with one to its server.

package relay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings/internal/wire"
)

// Down gets each frame from the server and returns what the client gets instead, in this order; with cut the connection ends after that. It is called for one
// connection's frames one at a time.
type Down func(frame []byte) (instead [][]byte, cut bool)

// Link is a client's WebSocket that is joined with one to its server.
type Link struct {
	client, server *websocket.Conn
	writing        sync.Mutex // one frame at a time to the client
}

const (
	handshakePatience = 10 * time.Second // for a handshake with the server
	farewellPatience  = time.Second      // for the farewell to a side that is closed
)

// Join answers a client's request for a WebSocket by one that is joined with the server at url (ws://…), which is asked first: when it refuses, the client gets its
// status, body and Retry-After. After an error the client has been answered.
func Join(w http.ResponseWriter, r *http.Request, url string) (*Link, error) {
	header := http.Header{}
	if token := r.Header.Get("Authorization"); token != "" {
		header.Set("Authorization", token)
	}
	dialer := websocket.Dialer{Subprotocols: websocket.Subprotocols(r), HandshakeTimeout: handshakePatience}
	// Not the request's context: what is dialled outlives it.
	server, refusal, err := dialer.DialContext(context.WithoutCancel(r.Context()), url, header)
	if err != nil {
		refuse(w, refusal)
		return nil, err
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{server.Subprotocol()}}
	client, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		_ = server.Close() // the client was told
		return nil, err
	}
	client.SetReadLimit(2 * wire.MaxFrame) // it is the server who refuses a frame that is too large, unless it is much too large
	return &Link{client: client, server: server}, nil
}

// refuse passes on what the server answered instead of a handshake, if anything.
func refuse(w http.ResponseWriter, refusal *http.Response) {
	if refusal == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the server is not reachable", http.StatusBadGateway)
		return
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if value := refusal.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(refusal.StatusCode)
	_, _ = io.Copy(w, refusal.Body) // the peer is gone: there is nobody to tell
}

// Run passes frames on until one side ends, then ends the other and returns. down may be nil.
func (l *Link) Run(down Down) {
	var work sync.WaitGroup
	work.Go(func() {
		defer l.Cut()
		pass(l.client, l.server, l.server.WriteMessage, nil)
	})
	work.Go(func() {
		defer l.Cut()
		pass(l.server, l.client, l.toClient, down)
	})
	work.Wait()
}

// Say sends a frame to the client, besides what Run passes on.
func (l *Link) Say(frame []byte) error { return l.toClient(websocket.TextMessage, frame) }

// Cut ends both connections without a farewell, as a network does that is gone.
func (l *Link) Cut() {
	_, _ = l.client.Close(), l.server.Close() // one that has ended already
}

func (l *Link) toClient(kind int, frame []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.client.WriteMessage(kind, frame)
}

// pass reads frames until one side ends. A farewell is passed on, too: its code says what the other side should do.
func pass(from, to *websocket.Conn, write func(kind int, frame []byte) error, down Down) {
	for {
		kind, frame, err := from.ReadMessage()
		if err != nil {
			var farewell *websocket.CloseError
			if errors.As(err, &farewell) && farewell.Code != websocket.CloseAbnormalClosure { // that one is nobody's
				_ = to.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(farewell.Code, farewell.Text), time.Now().Add(farewellPatience))
			}
			return
		}
		frames, cut := [][]byte{frame}, false
		if down != nil {
			frames, cut = down(frame)
		}
		for _, f := range frames {
			if write(kind, f) != nil {
				return
			}
		}
		if cut {
			return
		}
	}
}
