// The smallest server on the gateway's WebSocket library, to compare memory with.

package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/gorilla/websocket"
)

// serveEcho is a server that says back what it hears and does nothing else, as small as the library allows: it leaves the handler of the
// handshake, reads into 512 bytes and has no write buffer while it is idle.
func serveEcho() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	upgrader := websocket.Upgrader{ReadBufferSize: 512, WriteBufferSize: 512, WriteBufferPool: &sync.Pool{}, CheckOrigin: func(*http.Request) bool { return true }}
	http.HandleFunc("/connection/websocket", func(w http.ResponseWriter, r *http.Request) {
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the answer was given
		}
		go echo(ws) // ends with the socket
	})
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": "http://" + l.Addr().String()}); err != nil {
		return err
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the benchmark has ended
	}()
	return http.Serve(l, nil)
}

func echo(ws *websocket.Conn) {
	defer ws.Close()
	for {
		kind, text, err := ws.ReadMessage()
		if err != nil {
			return
		}
		if err := ws.WriteMessage(kind, text); err != nil {
			return
		}
	}
}
