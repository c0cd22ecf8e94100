// The other end of a socket, for tests.

package gateway

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// peer is a client that writes its bytes by hand, so that it can also write what no library would.
type peer struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
	rids int
}

// upgradeRequest is a proper handshake but for what headers replace; a header without a value is left out.
func upgradeRequest(headers ...string) []byte {
	all := map[string]string{"Host": "gateway", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "tidings.v1"}
	for i := 0; i < len(headers); i += 2 {
		all[headers[i]] = headers[i+1]
	}
	var b bytes.Buffer
	b.WriteString("GET /v1/ws HTTP/1.1\r\n")
	for name, value := range all {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// knock sends a handshake and returns the answer to it.
func knock(t testing.TB, addr string, headers ...string) (*peer, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{t: t, conn: conn, r: bufio.NewReader(conn)}
	p.raw(upgradeRequest(headers...))
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	answer, err := http.ReadResponse(p.r, nil)
	if err != nil {
		t.Fatalf("read the answer to the handshake: %v", err)
	}
	return p, answer
}

// open is knock that has to be let in.
func open(t testing.TB, addr string, headers ...string) *peer {
	t.Helper()
	p, answer := knock(t, addr, headers...)
	if answer.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(answer.Body)
		t.Fatalf("the handshake was answered with %d %s", answer.StatusCode, body)
	}
	return p
}

func (p *peer) raw(b []byte) {
	p.t.Helper()
	_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("write to the gateway: %v", err)
	}
}

// masked is a frame as clients write it. first is the first byte: 0x81 is a whole text.
func masked(first byte, payload []byte) []byte {
	var b []byte
	switch n := len(payload); {
	case n < 126:
		b = append(b, first, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, first, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, first, 0x80|127), uint64(n))
	}
	key := [4]byte{1, 2, 3, 4}
	b = append(b, key[:]...)
	for i, c := range payload {
		b = append(b, c^key[i%4])
	}
	return b
}

func (p *peer) text(format string, args ...any) {
	p.t.Helper()
	p.raw(masked(0x81, fmt.Appendf(nil, format, args...)))
}

// frame reads a frame as it is.
func (p *peer) frame() (opcode byte, payload []byte, err error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	var head [2]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	if head[0]&0xf0 != 0x80 || head[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("a frame begins with %x", head)
	}
	n := int64(head[1])
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(p.r, b[:])
		n = int64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(p.r, b[:])
		n = int64(binary.BigEndian.Uint64(b[:]))
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(p.r, payload)
	return head[0] & 0xf, payload, err
}

// reply is a frame of the protocol.
type reply struct {
	wire.Frame
	raw string
}

// next reads the next frame of the protocol and answers pings.
func (p *peer) next() reply {
	p.t.Helper()
	for {
		opcode, payload, err := p.frame()
		if err != nil {
			p.t.Fatalf("read from the gateway: %v", err)
		}
		if opcode == 8 {
			p.t.Fatalf("the gateway closed with %d %q", binary.BigEndian.Uint16(payload), payload[2:])
		}
		if opcode != 1 {
			continue
		}
		f, err := wire.DecodeFrame(payload)
		if err != nil {
			p.t.Fatalf("%v: %s", err, payload)
		}
		if f.T == wire.TypePing {
			p.text(`{"t":"pong"}`)
			continue
		}
		return reply{f, string(payload)}
	}
}

// want reads until a frame of type t and returns it.
func (p *peer) want(t string) reply {
	p.t.Helper()
	for {
		if f := p.next(); f.T == t {
			return f
		} else if f.T == wire.TypeError {
			p.t.Fatalf("waited for %s, got %s", t, f.raw)
		}
	}
}

// ask sends a request and returns its reply. fields stand behind the rid.
func (p *peer) ask(t, fields string, args ...any) reply {
	p.t.Helper()
	p.rids++
	rid := fmt.Sprint("ask-", p.rids)
	if fields != "" {
		fields = "," + fmt.Sprintf(fields, args...)
	}
	p.text(`{"t":%q,"rid":%q%s}`, t, rid, fields)
	for {
		if f := p.next(); f.Rid == rid {
			return f
		}
	}
}

// refused is ask that has to be refused with the code.
func (p *peer) refused(code tidings.Code, t, fields string, args ...any) reply {
	p.t.Helper()
	f := p.ask(t, fields, args...)
	if f.T != wire.TypeError || f.Code != code {
		p.t.Fatalf("%s %s is answered with %s, want the code %s", t, fields, f.raw, code)
	}
	return f
}

// closing reads until the close frame. It returns its code and the frames before it; 0 when the socket just ended.
func (p *peer) closing() (code int, before []string) {
	p.t.Helper()
	for {
		opcode, payload, err := p.frame()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			p.t.Fatal("the gateway has not closed")
		case err != nil:
			return 0, before
		case opcode == 8 && len(payload) >= 2:
			return int(binary.BigEndian.Uint16(payload)), before
		case opcode == 8:
			return 1005, before
		case opcode == 1 && !strings.Contains(string(payload), `"t":"ping"`):
			before = append(before, string(payload))
		}
	}
}

// ends reads the close frame, and then the end of the socket: nothing follows a close frame.
func (p *peer) ends(code int) (before []string) {
	p.t.Helper()
	got, before := p.closing()
	if got != code {
		p.t.Fatalf("the gateway closed with %d after %q, want %d", got, before, code)
	}
	if b, err := io.ReadAll(p.r); err != nil || len(b) > 0 {
		p.t.Fatalf("after the close frame came %q, %v", b, err)
	}
	return before
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func newReader(b []byte) *bufio.Reader { return newReaderOf(bytes.NewReader(b)) }

func newReaderOf(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }
