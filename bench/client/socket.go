// A client's end of a WebSocket that costs as little as it can.

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// The opcodes of frames that are used here (RFC 6455, section 5.2).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// socket is the client's end of a WebSocket that costs as little as it can, because the client shares the processors with the server:
// its mask is zero, which leaves the text as it is and a server cannot tell from another mask.
type socket struct {
	conn net.Conn
	r    *bufio.Reader

	mu  sync.Mutex // for writing
	out []byte
}

// dial opens a WebSocket from a local address ("" is any) with a read buffer of that size.
func dial(addr, path, subprotocol, local string, buffer int) (*socket, error) {
	d := net.Dialer{Timeout: 20 * time.Second}
	if local != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(local)}
	}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, r: bufio.NewReaderSize(conn, buffer)}
	if err := s.upgrade(addr, path, subprotocol); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	return s, nil
}

func (s *socket) upgrade(addr, path, subprotocol string) error {
	if err := s.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	if subprotocol != "" {
		request += "Sec-WebSocket-Protocol: " + subprotocol + "\r\n"
	}
	if _, err := io.WriteString(s.conn, request+"\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(s.r, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return errors.New(response.Status)
	}
	return s.conn.SetDeadline(time.Time{})
}

// next returns the next text frame; it is good until the next call. Pings of the protocol are answered, a close frame is an error.
func (s *socket) next() ([]byte, error) {
	for {
		head, err := s.r.Peek(2)
		if err != nil {
			return nil, err
		}
		op, size, skip := head[0]&15, int(head[1]&127), 2
		if size >= 126 {
			skip = 4
			if size == 127 {
				skip = 10
			}
			if head, err = s.r.Peek(skip); err != nil {
				return nil, err
			}
			size = int(binary.BigEndian.Uint16(head[2:]))
			if skip == 10 {
				size = int(binary.BigEndian.Uint64(head[2:]))
			}
		}
		_, _ = s.r.Discard(skip) // they were peeked at
		frame, err := s.take(size)
		if err != nil {
			return nil, err
		}
		switch op {
		case opText:
			return frame, nil
		case opPing:
			err = s.write(opPong, frame)
		case opClose:
			err = errors.New("the server closed the socket")
			if len(frame) >= 2 {
				err = fmt.Errorf("the server closed the socket: %d %s", binary.BigEndian.Uint16(frame), frame[2:])
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// take returns the next size bytes, those of the buffer if they have room there.
func (s *socket) take(size int) ([]byte, error) {
	if size <= s.r.Size() {
		frame, err := s.r.Peek(size)
		_, _ = s.r.Discard(len(frame))
		return frame, err
	}
	frame := make([]byte, size)
	_, err := io.ReadFull(s.r, frame)
	return frame, err
}

// write writes one frame. It may be called by any goroutine.
func (s *socket) write(op byte, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = appendMasked(s.out[:0], op, payload)
	_, err := s.conn.Write(s.out)
	return err
}

func (s *socket) text(frame string) error { return s.write(opText, []byte(frame)) }

func appendMasked(dst []byte, op byte, payload []byte) []byte {
	if n := len(payload); n < 126 {
		dst = append(dst, 0x80|op, 0x80|byte(n))
	} else { // nothing here is longer than 64 KiB
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|op, 0x80|126), uint16(n))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}
