package gateway

import (
	"errors"
	"io"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings/internal/wire"
)

var readBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// read is the session's life: it takes its messages until the socket ends, and then everything of the session ends with it.
func (s *session) read(ws *websocket.Conn, t *tap) {
	ws.SetReadLimit(wire.MaxFrame)
	ws.SetPingHandler(func(payload string) error {
		s.seen.Store(s.g.clock())
		s.pong(payload)
		return nil
	})
	ws.SetPongHandler(func(string) error {
		s.seen.Store(s.g.clock())
		return nil
	})
	ws.SetCloseHandler(func(int, string) error { return nil }) // answered below
	meter := newMeter(s.g.cfg.Rate, s.g.cfg.Burst, s.born)
	more, readable := true, true
	for more {
		more, readable = s.next(ws, t, &meter)
	}
	if !readable || !s.answered(ws) {
		s.discard()
	}
	s.leave()
}

// next takes one message and tells whether another one may follow, and whether frames can still be read.
func (s *session) next(ws *websocket.Conn, t *tap, meter *meter) (more, readable bool) {
	kind, message, err := ws.NextReader()
	if err != nil {
		s.broken(err, t)
		return false, false
	}
	buffer := readBuffers.Get().(*[]byte) // not before something comes: an idle session holds none
	defer readBuffers.Put(buffer)
	s.partial.Store(s.g.clock())
	frame, err := appendAll((*buffer)[:0], message)
	*buffer = frame
	s.partial.Store(0)
	if err != nil {
		s.broken(err, t)
		return false, false
	}
	s.seen.Store(s.g.clock())
	s.g.metrics.in.Inc()
	if kind == websocket.TextMessage {
		s.handle(frame, meter)
	} else {
		s.close(wire.CloseNotHello, "binary frames are not understood")
	}
	return s.at() < closing, true
}

// appendAll appends all of r, which is bounded by the read limit.
func appendAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// broken closes the session as the end of its input demands.
func (s *session) broken(err error, t *tap) {
	var closed *websocket.CloseError
	switch {
	case t.code != 0: // a breach of the protocol
		s.close(t.code, "")
	case errors.Is(err, websocket.ErrReadLimit):
		s.close(wire.CloseTooLarge, "")
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		s.finish(closed.Code, "") // the peer wants to close: its frame is echoed
	default:
		s.close(0, "")
		_ = s.conn.Close() // the peer is gone
	}
}

// answered passes over what still comes after the gateway's close until the peer has answered the close frame: it leaves the end of the
// connection to the server then (RFC 6455, section 7.1.1). It says no when frames can be read no longer.
func (s *session) answered(ws *websocket.Conn) bool {
	for {
		_, message, err := ws.NextReader()
		if err == nil {
			_, err = io.Copy(io.Discard, message)
		}
		var answer *websocket.CloseError
		if errors.As(err, &answer) && answer.Code != websocket.CloseAbnormalClosure {
			return s.at() == closed
		}
		if err != nil {
			return false
		}
	}
}

// discard reads what still comes after the close frame until the peer has closed, too: a socket that is closed with unread bytes
// would be reset, and the close frame lost. The ticker ends it after Config.CloseWait.
func (s *session) discard() {
	buffer := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buffer)
	for {
		if _, err := s.conn.Read((*buffer)[:cap(*buffer)]); err != nil {
			return
		}
	}
}

// leave is the end of the reader: the session is forgotten everywhere.
func (s *session) leave() {
	s.mu.Lock()
	s.gone = true
	s.drop()
	s.mu.Unlock()
	_ = s.conn.Close()
	if s.user != "" {
		s.g.hub.unsubscribe(s)
	}
	s.g.roster.leave(s)
}
