// One proxied connection to PostgreSQL.

package pgproxy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tidings-project/tidings/lab/fault"
)

const (
	messageLimit = 64 << 20 // a longer message ends the session
	startLimit   = 10_000   // the server's own limit for the first packet
	answerLimit  = 16 << 20 // how much of an answer a trap keeps back

	sslRequest    = 80877103
	gssRequest    = 80877104
	cancelRequest = 80877102
)

// session is one forwarded connection.
type session struct {
	p              *Proxy
	client, server net.Conn
	closed         chan struct{}
	once           sync.Once

	statements, portals map[string]string // name → SQL; used by the client's pump alone

	mu      sync.Mutex
	pending []request // what the server has still to answer, in order
}

// request is a message that has an answer of its own: 'P'arse, 'E'xecute, 'S'ync, 'Q'uery and 'F'unction call.
type request struct {
	kind byte
	trap *Trap // acts when it is answered
}

func newSession(p *Proxy, client, server net.Conn) *session {
	return &session{p: p, client: client, server: server, closed: make(chan struct{}),
		statements: map[string]string{}, portals: map[string]string{}}
}

// run forwards until one side has ended.
func (s *session) run() {
	var pumps sync.WaitGroup
	pumps.Go(func() { defer s.close(); s.fromClient() })
	pumps.Go(func() { defer s.close(); s.fromServer() })
	pumps.Wait()
}

func (s *session) close() {
	s.once.Do(func() {
		close(s.closed)
		s.client.Close()
		s.server.Close()
	})
}

// wait waits for a channel to be closed and tells whether the session still lives.
func (s *session) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-s.closed:
		return false
	}
}

// unpaused waits until the proxy is not paused and tells whether the session still lives.
func (s *session) unpaused() bool {
	s.p.mu.Lock()
	open := s.p.open
	s.p.mu.Unlock()
	return s.wait(open)
}

// fromClient forwards what the client says.
func (s *session) fromClient() {
	in := bufio.NewReader(s.client)
	if !s.start(in) {
		return
	}
	out := bufio.NewWriter(s.server)
	for {
		m, err := readMessage(in)
		if err != nil {
			return
		}
		sql, kind := s.understand(m)
		var trap *Trap
		if kind != "" {
			trap = s.p.take(Message{kind, sql})
		}
		if trap != nil && trap.When == Before {
			if out.Flush() != nil || !s.act(trap, "the server has not seen it") {
				return
			}
			trap = nil
		}
		if strings.IndexByte("PESQF", m[0]) >= 0 {
			s.mu.Lock()
			s.pending = append(s.pending, request{m[0], trap})
			s.mu.Unlock()
		}
		if !s.unpaused() || !forward(out, m, in) {
			return
		}
	}
}

// start forwards the packets that precede the first message: encryption is declined, a cancel request ends it.
func (s *session) start(in *bufio.Reader) bool {
	for {
		head, err := in.Peek(8)
		if err != nil {
			return false
		}
		length, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if length < 8 || length > startLimit {
			return false
		}
		packet := make([]byte, length)
		if _, err := io.ReadFull(in, packet); err != nil || !s.unpaused() {
			return false
		}
		if code == sslRequest || code == gssRequest {
			if _, err := s.client.Write([]byte("N")); err != nil {
				return false
			}
			continue
		}
		if _, err := s.server.Write(packet); err != nil {
			return false
		}
		if code == cancelRequest {
			_, _ = io.Copy(io.Discard, s.server) // the server acts, then closes
			return false
		}
		return true
	}
}

// understand follows the client's statements and portals and returns the SQL that a message names, with its kind, or
// "" for the kind. A message that cannot be decoded is the server's to refuse.
func (s *session) understand(m []byte) (sql string, kind Kind) {
	body := m[5:]
	switch m[0] {
	case 'Q':
		var q pgproto3.Query
		if q.Decode(body) == nil {
			return q.String, Query
		}
	case 'P':
		var p pgproto3.Parse
		if p.Decode(body) == nil {
			s.statements[p.Name] = p.Query
			return p.Query, Parse
		}
	case 'B':
		var b pgproto3.Bind
		if b.Decode(body) == nil {
			s.portals[b.DestinationPortal] = s.statements[b.PreparedStatement]
		}
	case 'E':
		var e pgproto3.Execute
		if e.Decode(body) == nil {
			return s.portals[e.Portal], Execute
		}
	case 'C':
		var c pgproto3.Close
		if c.Decode(body) == nil && c.ObjectType == 'S' {
			delete(s.statements, c.Name)
		} else {
			delete(s.portals, c.Name)
		}
	}
	return "", ""
}

// fromServer forwards what the server says. From the first word of the answer to a trapped request on it keeps
// everything back, until the server is ready for the next query; then the trap acts.
func (s *session) fromServer() {
	in, out := bufio.NewReader(s.server), bufio.NewWriter(s.client)
	var trap *Trap
	var kept []byte
	var said []string
	for {
		m, err := readMessage(in)
		if err != nil {
			_, _ = s.client.Write(kept) // the server's last words; the trap did not act
			return
		}
		if trap = s.answered(m[0], trap); trap == nil {
			if !s.unpaused() || !forward(out, m, in) {
				return
			}
			continue
		}
		if out.Flush() != nil { // what came before the answer
			return
		}
		kept, said = append(kept, m...), append(said, gist(m)...)
		if len(kept) > answerLimit {
			s.p.t.Errorf("%s %s %s: the answer is longer than %d bytes", trap.Do, trap.When, trap.What, answerLimit)
			return
		}
		if m[0] != 'Z' {
			continue
		}
		if !s.act(trap, "the server answered "+strings.Join(said, ", ")) || !s.unpaused() {
			return
		}
		if _, err := s.client.Write(kept); err != nil {
			return
		}
		trap, kept, said = nil, nil, nil
	}
}

// answered takes note of a message from the server, given its type: it strikes off what is answered now, and returns
// the trap of the request that is being answered, which is current if there is one.
func (s *session) answered(kind byte, current *Trap) *Trap {
	s.mu.Lock()
	defer s.mu.Unlock()
	skip := func(until string) { // what the server ignored: it does so from an error to the next Sync
		for len(s.pending) > 0 && strings.IndexByte(until, s.pending[0].kind) < 0 {
			if t := s.pending[0].trap; t != nil && t != current {
				s.p.rearm(t)
			}
			s.pending = s.pending[1:]
		}
	}
	if kind == 'Z' {
		skip("SQF")
	}
	if len(s.pending) == 0 {
		return current
	}
	head := s.pending[0]
	if current == nil {
		current = head.trap
	}
	switch {
	case kind == 'Z', kind == '1' && head.kind == 'P', strings.IndexByte("CIs", kind) >= 0 && head.kind == 'E':
		s.pending = s.pending[1:]
	case kind == 'E' && head.kind != 'Q' && head.kind != 'F':
		skip("S")
	}
	return current
}

// act does what the trap is for, and tells whether the session goes on.
func (s *session) act(t *Trap, proof string) bool {
	if t.Do == Cut {
		s.close()
	}
	t.receipt = fault.New(string(t.Do), string(t.When)+" "+t.What, proof)
	close(t.sprung)
	return t.Do != Cut && s.wait(t.released)
}

// gist returns the part of an answer that tells what came of the request.
func gist(m []byte) []string {
	switch m[0] {
	case 'C':
		var c pgproto3.CommandComplete
		if c.Decode(m[5:]) == nil {
			return []string{string(c.CommandTag)}
		}
	case 'E':
		var e pgproto3.ErrorResponse
		if e.Decode(m[5:]) == nil {
			return []string{"error " + e.Code}
		}
	case 'Z':
		return []string{"ready for query"}
	}
	return nil
}

// readMessage reads one message: a byte for its type, four for the length of what follows with themselves.
func readMessage(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(5)
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < 4 || length > messageLimit {
		return nil, fmt.Errorf("message of %d bytes", length)
	}
	m := make([]byte, 1+length)
	_, err = io.ReadFull(in, m)
	return m, err
}

// forward writes a message, and sends it off unless the next one is already there.
func forward(out *bufio.Writer, m []byte, in *bufio.Reader) bool {
	if _, err := out.Write(m); err != nil {
		return false
	}
	return in.Buffered() > 0 || out.Flush() == nil
}
