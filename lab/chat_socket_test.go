// A WebSocket written by hand, for hostile frames.

package lab_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// socket is a TCP connection on which a check writes the WebSocket protocol (RFC 6455) byte by byte, also as no library would.
// Nothing is read from it but what the check reads.
type socket struct {
	c      *chat
	conn   *net.TCPConn
	r      *bufio.Reader
	answer *http.Response // to the handshake
}

// knock asks for a WebSocket. Headers come in pairs and replace those of a usual handshake; an empty value removes one.
func (n *node) knock(header ...string) *socket {
	n.c.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	n.c.Must("connect to "+n.url, err)
	n.c.Cleanup(func() { _ = conn.Close() })
	s := &socket{c: n.c, conn: conn.(*net.TCPConn), r: bufio.NewReaderSize(conn, 512)}
	h := http.Header{"Host": {"127.0.0.1"}, "Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"tidings.v1"}}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			h.Del(header[i])
		} else {
			h.Add(header[i], header[i+1])
		}
	}
	text := strings.Builder{}
	text.WriteString("GET /v1/ws HTTP/1.1\r\n")
	n.c.Must("write a handshake", h.Write(&text))
	text.WriteString("\r\n")
	s.write([]byte(text.String()))
	s.wait()
	s.answer, err = http.ReadResponse(s.r, nil)
	n.c.Must("read the answer to a handshake", err)
	return s
}

// socket opens a WebSocket and says hello.
func (n *node) socket(user, device string) *socket {
	n.c.Helper()
	s := n.knock()
	s.text(frame{"t": "hello", "rid": "hello", "token": token(user), "device": device, "install": device + "-install"})
	if w := s.next(); w.t() != "welcome" {
		n.c.Fatalf("hello of %s: %v", device, w)
	}
	return s
}

// wait gives the next read its time.
func (s *socket) wait() { _ = s.conn.SetReadDeadline(time.Now().Add(soon)) }

// write writes bytes. That the other side takes no more of them is no error.
func (s *socket) write(data ...[]byte) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(soon))
	buffers := net.Buffers(data)
	_, _ = buffers.WriteTo(s.conn)
}

// text writes frames in one go.
func (s *socket) text(frames ...frame) {
	var data [][]byte
	for _, f := range frames {
		b, err := json.Marshal(f)
		if err != nil {
			panic(fmt.Sprintf("write a frame: %v", err))
		}
		data = append(data, masked(0x81, b))
	}
	s.write(data...)
}

// masked is a frame as a client has to write it: the first byte, the length and the payload under a mask.
func masked(first byte, payload []byte) []byte {
	var out []byte
	switch n := len(payload); {
	case n < 126:
		out = []byte{first, 0x80 | byte(n)}
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16([]byte{first, 0x80 | 126}, uint16(n))
	default:
		out = binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, uint64(n))
	}
	mask := [4]byte{0x11, 0x22, 0x33, 0x44}
	out = append(out, mask[:]...)
	for i, b := range payload {
		out = append(out, b^mask[i%4])
	}
	return out
}

// read reads one frame.
func (s *socket) read() (opcode byte, payload []byte, err error) {
	s.wait()
	head := make([]byte, 2)
	if _, err := io.ReadFull(s.r, head); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch n {
	case 126:
		var size uint16
		err = binary.Read(s.r, binary.BigEndian, &size)
		n = uint64(size)
	case 127:
		err = binary.Read(s.r, binary.BigEndian, &n)
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(s.r, payload)
	return head[0] & 0x0f, payload, err
}

// next is the next reply. Pushes before it are passed over.
func (s *socket) next() (f frame) {
	s.c.Helper()
	for f.t() != "error" && !f.has("rid") {
		opcode, payload, err := s.read()
		s.c.Must("read a frame", err)
		if opcode != 1 {
			s.c.Fatalf("read a frame: opcode %d: %q", opcode, payload)
		}
		f = nil
		s.c.Must("read a frame", json.Unmarshal(payload, &f))
	}
	return f
}

// ends reads to the end and returns the code of the close frame, 0 when there is none, and the frames before it.
func (s *socket) ends() (code int, before []frame) {
	s.c.Helper()
	for {
		opcode, payload, err := s.read()
		switch {
		case err != nil:
			return 0, before
		case opcode == 8 && len(payload) >= 2:
			_ = s.conn.Close()
			return int(binary.BigEndian.Uint16(payload)), before
		case opcode == 8:
			return 1005, before
		}
		var f frame
		s.c.Must("read a frame", json.Unmarshal(payload, &f))
		before = append(before, f)
	}
}

// resident is the memory of the node's process in bytes.
func (n *node) resident() int {
	n.c.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		n.c.NotRun("the memory of a process is read from /proc, which is not there")
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	n.c.Must("read VmRSS", err)
	return kib << 10
}

// metric is the value of a metric of the node, 0 when it is not there yet. The name has its labels with it.
func (n *node) metric(name string) (value float64) {
	n.c.Helper()
	a := n.server("", http.MethodGet, "/metrics", nil)
	if a.status != http.StatusOK {
		n.c.Fatalf("read the metrics: %d %s", a.status, a.raw)
	}
	for line := range strings.Lines(a.raw) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			var err error
			value, err = strconv.ParseFloat(text, 64)
			n.c.Must("read the metric "+name, err)
		}
	}
	return value
}

// mib is a mebibyte.
const mib = 1 << 20
