// The reading half of a session.

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
	more, err := true, error(nil)
	for more {
		more, err = s.next(ws, t, &meter)
	}
	for err == nil { // passes over what still comes after the gateway's close
		var message io.Reader
		if _, message, err = ws.NextReader(); err == nil {
			_, err = io.Copy(io.Discard, message)
		}
	}
	// A peer that has answered the close frame leaves the end of the connection to the server (RFC 6455, section 7.1.1).
	_, answered := peerClosed(err)
	answered = answered && s.at() == closed // before its own close is echoed
	s.broken(err, t)
	if !answered {
		s.discard()
	}
	s.leave()
}

// next takes one message and tells whether another one may follow. After an error no frame can be read any more.
func (s *session) next(ws *websocket.Conn, t *tap, meter *meter) (more bool, err error) {
	kind, message, err := ws.NextReader()
	if err != nil {
		return false, err
	}
	buffer := readBuffers.Get().(*[]byte) // not before something comes: an idle session holds none
	defer readBuffers.Put(buffer)
	s.partial.Store(s.g.clock())
	frame, err := appendAll((*buffer)[:0], message)
	*buffer = frame
	s.partial.Store(0)
	if err != nil {
		return false, err
	}
	s.seen.Store(s.g.clock())
	s.g.metrics.in.Inc()
	if kind == websocket.TextMessage {
		s.handle(frame, meter)
	} else {
		s.close(wire.CloseNotHello, "binary frames are not understood")
	}
	return s.at() < closing, nil
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
	code, wants := peerClosed(err)
	switch {
	case t.code != 0: // a breach of the protocol
		s.close(t.code, "")
	case errors.Is(err, websocket.ErrReadLimit):
		s.close(wire.CloseTooLarge, "")
	case wants:
		s.finish(code, "") // the peer wants to close: its frame is echoed
	default:
		s.close(0, "")
		_ = s.conn.Close() // the peer is gone
	}
}

// peerClosed is the code of the peer's close frame, if that is what err is.
func peerClosed(err error) (code int, is bool) {
	var frame *websocket.CloseError
	if !errors.As(err, &frame) || frame.Code == websocket.CloseAbnormalClosure { // the library's word for an end without one
		return 0, false
	}
	return frame.Code, true
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
