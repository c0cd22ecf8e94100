// How the servers that are compared are connected to: their handshakes and first frames.

package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/internal/wire"
)

// Server says where a server listens and what it speaks.
type Server struct {
	Addr     string // host:port
	Protocol string // tidings, centrifuge or echo
	Secret   string // for tokens of tidings
	Locals   int    // local addresses 127.0.1.1, 127.0.1.2, … that are taken in turns; 0: any
}

// open connects as a user and returns when the server has taken the connection.
func (s *Server) open(user string, n, buffer int) (*socket, error) {
	local := ""
	if s.Locals > 0 {
		local = fmt.Sprintf("127.0.1.%d", 1+n%s.Locals)
	}
	path, subprotocol := "/v1/ws", wire.Subprotocol
	if s.Protocol != "tidings" {
		path, subprotocol = "/connection/websocket", ""
	}
	c, err := dial(s.Addr, path, subprotocol, local, buffer)
	if err == nil {
		err = s.greet(c, user)
	}
	if err != nil {
		if c != nil {
			_ = c.conn.Close()
		}
		return nil, fmt.Errorf("connect %s: %w", user, err)
	}
	return c, nil
}

func (s *Server) greet(c *socket, user string) error {
	hello, want := user, user
	switch s.Protocol {
	case "tidings":
		now := time.Now()
		text, err := token.IssueHS256([]byte(s.Secret), "tidings", token.Claims{User: user, Issued: now, Expires: now.Add(6 * time.Hour)})
		if err != nil {
			return err
		}
		hello = fmt.Sprintf(`{"t":"hello","rid":"h","token":"%s","device":"%s-d","install":"%s-i","client":"bench"}`, text, user, user)
		want = `{"t":"welcome"`
	case "centrifuge":
		hello = fmt.Sprintf(`{"id":1,"connect":{"name":"%s"}}`, user)
		want = `{"id":1,"connect"`
	}
	if err := c.text(hello); err != nil {
		return err
	}
	frame, err := c.next()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(frame, []byte(want)) {
		return fmt.Errorf("the server answered %.200s", frame)
	}
	return nil
}

var (
	eventHead = []byte(`{"t":"event"`)
	sentHead  = []byte(`{"t":"sent","rid":"`)
	pingHead  = []byte(`{"t":"ping"`)
	errorHead = []byte(`{"t":"error"`)
	pushHead  = []byte(`{"push"`)
)

// pushes counts the pushed messages of a frame, and answers a ping. Centrifuge puts several messages into one frame, one a line.
func (s *Server) pushes(c *socket, frame []byte) (n int, err error) {
	if s.Protocol == "tidings" {
		switch {
		case bytes.HasPrefix(frame, eventHead):
			return 1, nil
		case bytes.HasPrefix(frame, pingHead):
			return 0, c.text(`{"t":"pong"}`)
		}
		return 0, nil
	}
	for line := range bytes.Lines(frame) {
		switch {
		case bytes.HasPrefix(line, pushHead):
			n++
		case len(bytes.TrimSpace(line)) == 2: // {} is a ping and its answer
			if err := c.text("{}"); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
