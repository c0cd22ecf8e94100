// The scripted peer over HTTP/2.

package channeltest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
)

// The little of HTTP/2 (RFC 9113) and HPACK (RFC 7541) that a peer needs in order to count requests and to fail.
const (
	h2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameData, frameHeaders, frameReset, frameSettings = 0, 1, 3, 4
	framePing, frameGoAway, frameWindow                = 6, 7, 8

	flagAck, flagEndStream, flagEndHeaders = 1, 1, 4
)

// h2Codes are the error codes by name (RFC 9113, section 7).
var h2Codes = map[string]uint32{"NO_ERROR": 0, "PROTOCOL_ERROR": 1, "INTERNAL_ERROR": 2, "REFUSED_STREAM": 7, "CANCEL": 8,
	"ENHANCE_YOUR_CALM": 11, "HTTP_1_1_REQUIRED": 13}

type h2Conn struct {
	net.Conn
	n      int
	bodies map[uint32][]byte // of the open streams
}

func (p *HTTPPeer) serveHTTP2(conn net.Conn, n int) error {
	c := &h2Conn{Conn: conn, n: n, bodies: map[uint32][]byte{}}
	preface := make([]byte, len(h2Preface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return err
	}
	if string(preface) != h2Preface {
		return fmt.Errorf("this is not HTTP/2")
	}
	if err := c.write(frameSettings, 0, 0, nil); err != nil {
		return err
	}
	for {
		kind, flags, stream, payload, err := c.read()
		if err != nil {
			return err
		}
		end := false
		switch kind {
		case frameSettings:
			if flags&flagAck == 0 {
				err = c.write(frameSettings, flagAck, 0, nil)
			}
		case framePing:
			if flags&flagAck == 0 {
				err = c.write(framePing, flagAck, 0, payload)
			}
		case frameHeaders: // what they say does not matter here
			p.beginning()
			c.bodies[stream] = nil
			end = flags&flagEndStream != 0
		case frameReset:
			delete(c.bodies, stream)
		case frameData:
			c.bodies[stream] = append(c.bodies[stream], payload...)
			end = flags&flagEndStream != 0
			if len(payload) > 0 {
				credit := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
				err = c.write(frameWindow, 0, 0, credit)
			}
		}
		if err == nil && end {
			body := c.bodies[stream]
			delete(c.bodies, stream)
			err = c.finish(stream, p.take(HTTPRequest{Conn: c.n, Body: body}))
		}
		if err != nil {
			return err
		}
	}
}

// finish does with a whole request what f says. io.EOF closes the connection.
func (c *h2Conn) finish(stream uint32, f Fault) error {
	switch {
	case f.Close:
		return io.EOF
	case f.Reset:
		return errReset
	case f.Hang:
		return nil
	case f.Stream != "":
		return c.write(frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, h2Codes[f.Stream]))
	case f.GoAway:
		last := binary.BigEndian.AppendUint32(nil, stream-2) // of the streams that were or may have been processed
		if stream < 2 {
			last = make([]byte, 4)
		}
		if err := c.write(frameGoAway, 0, 0, append(last, 0, 0, 0, 0)); err != nil {
			return err
		}
		return io.EOF
	}
	block := literal(":status", fmt.Sprint(f.Status))
	for name, values := range f.Header {
		for _, v := range values {
			block = append(block, literal(strings.ToLower(name), v)...)
		}
	}
	if err := c.write(frameHeaders, flagEndHeaders, stream, block); err != nil {
		return err
	}
	if f.Cut {
		if err := c.write(frameData, 0, stream, []byte(f.Body)[:len(f.Body)/2]); err != nil {
			return err
		}
		return io.EOF
	}
	return c.write(frameData, flagEndStream, stream, []byte(f.Body))
}

// literal is a header field without indexing and with a new name (RFC 7541, section 6.2.2), for short ones.
func literal(name, value string) []byte {
	b := append([]byte{0, byte(len(name))}, name...)
	return append(append(b, byte(len(value))), value...)
}

func (c *h2Conn) write(kind, flags byte, stream uint32, payload []byte) error {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	b = append(binary.BigEndian.AppendUint32(b, stream), payload...)
	_, err := c.Write(b)
	return err
}

func (c *h2Conn) read() (kind, flags byte, stream uint32, payload []byte, err error) {
	var head [9]byte
	if _, err = io.ReadFull(c, head[:]); err != nil {
		return
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(c, payload)
	return head[3], head[4], binary.BigEndian.Uint32(head[5:]) &^ (1 << 31), payload, err
}
