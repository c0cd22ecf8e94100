// The writing half of a session.

package gateway

import (
	"encoding/binary"
	"net"
	"sync"

	"github.com/tidings-project/tidings/internal/wire"
)

// chunk is about how many bytes one write to a socket takes. What has begun must end before a close frame can follow, so it is
// not larger.
const chunk = 32 << 10

// The first byte of a whole frame (RFC 6455, section 5.2).
const (
	textFrame  = 0x81
	closeFrame = 0x88
	pongFrame  = 0x8a
)

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// write writes what is queued, many frames at a time, and ends when nothing is left. There is one at most, and nobody else writes
// to the socket. It has no deadline of its own: the ticker closes a socket that takes nothing for Config.SendWait.
func (s *session) write() {
	buffer := writeBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buffer) <= 2*chunk { // a large page is not kept for the next pong
			writeBuffers.Put(buffer)
		}
	}()
	var batch []item
	var ok bool
	for {
		out := (*buffer)[:0]
		if batch, out, ok = s.take(batch, out); !ok {
			return
		}
		if len(batch) > 0 && !s.g.held() {
			s.close(wire.CloseLostLease, "the gateway lost its lease") // another may serve this device by now
			continue
		}
		for k := range batch {
			i := &batch[k]
			frame := i.reply(s.g)
			if i.event != nil {
				frame = i.event.frame()
			}
			if frame != nil { // the body of a recalled message is not sent, although it was queued
				out = appendFrame(out, textFrame, frame)
			}
		}
		s.g.metrics.out.Add(float64(len(batch)))
		if len(out) > 0 {
			if _, err := s.conn.Write(out); err != nil {
				s.close(0, "") // what is left is dropped
				_ = s.conn.Close()
			}
		}
		*buffer = out
	}
}

// take settles the account of the batch that was written and takes the next one. What is not in the queue, a pong or the close
// frame, is appended to out at once. It says no when nothing is left, and the writer has to end.
func (s *session) take(done []item, out []byte) (batch []item, _ []byte, ok bool) {
	s.mu.Lock()
	for _, i := range done {
		s.settle(i)
	}
	clear(done)
	size, n := 0, 0
	for n < len(s.queue) && size < chunk {
		size += int(s.queue[n].size)
		n++
	}
	batch, s.queue = s.queue[:n:n], s.queue[n:]
	if n == 0 {
		s.queue, s.oldest = nil, 0 // the arrays end with the writer: an idle session holds none
	} else if s.oldest = batch[0].at; len(s.queue) == 0 {
		s.queue = done[:0] // what comes meanwhile needs no new array
	}
	wake := s.wantsStep()
	switch {
	case s.phase < closing && s.echoes:
		out = appendFrame(out, pongFrame, s.echo)
		s.echoes = false
		ok = true
	case n > 0:
		ok = true
	case s.phase == closing:
		s.phase = closed
		if ok = s.code != 0; ok {
			out = appendClose(out, s.code, s.reason)
		}
	}
	if !ok {
		s.writing, s.echo = false, nil
	}
	last := !ok && s.phase == closed && s.code != 0
	s.mu.Unlock()
	if wake {
		s.g.readers.do(s.step)
	}
	if last {
		halfClose(s.conn)
	}
	return batch, out, ok
}

// appendClose appends a close frame; the reason is cut to what a control frame can carry. The code 1005 says that the peer's
// frame had none, and the echo has none either.
func appendClose(out []byte, code int, reason string) []byte {
	if code == 1005 {
		return appendFrame(out, closeFrame, nil)
	}
	payload := append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason[:min(len(reason), 123)]...)
	return appendFrame(out, closeFrame, payload)
}

// appendFrame appends a whole frame, unmasked as a server's are.
func appendFrame(dst []byte, first byte, payload []byte) []byte {
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, first, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, first, 126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, first, 127), uint64(n))
	}
	return append(dst, payload...)
}

// halfClose tells the peer that nothing follows and leaves the other direction open: closing a socket that has unread bytes
// would take the close frame back.
func halfClose(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // the socket is closed for good soon
	}
}
