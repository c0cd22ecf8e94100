// Package pgproxy stands between a PostgreSQL client and its server, understands enough of what they say to know
// which statement a message belongs to, and cuts or holds the connection exactly there: a crash between COMMIT and
// its answer is a rule, not a matter of luck. It does not speak TLS.
//
// The protocol is that of PostgreSQL's documentation, chapter "Frontend/Backend Protocol", version 3.
package pgproxy

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings/lab/fault"
)

// Kind is the sort of a message that names a statement.
type Kind string

// The kinds. A statement runs by Query (simple protocol) or Execute (extended protocol); Parse only prepares it.
const (
	Query   Kind = "Query"
	Parse   Kind = "Parse"
	Execute Kind = "Execute"
)

// Message is what the client asks for. SQL is the statement's text, also for an Execute, which does not carry it.
type Message struct {
	Kind Kind
	SQL  string
}

// Runs matches a message that runs a statement whose text contains part, in any case.
func Runs(part string) func(Message) bool {
	part = strings.ToLower(part)
	return func(m Message) bool { return m.Kind != Parse && strings.Contains(strings.ToLower(m.SQL), part) }
}

// Commit matches the end of an explicit transaction.
func Commit(m Message) bool {
	return m.Kind != Parse && strings.EqualFold(strings.Trim(m.SQL, "; \n\t"), "commit")
}

// Moment is when a rule acts.
type Moment string

// The moments. Before: the server has not seen the message. What the client sent ahead of it without waiting may or may
// not have been executed. After: the server has finished with it and is ready for the next query, and the client has
// received nothing of the answer. (In an implicit transaction a statement is only then committed.)
const (
	Before Moment = "before"
	After  Moment = "after its answer to"
)

// Action is what a rule does.
type Action string

// The actions.
const (
	Cut  Action = "cut"  // closes the connection to both sides
	Hold Action = "hold" // lets nothing pass in the direction in question until Trap.Release
)

// Rule says what to do to the first message that matches.
type Rule struct {
	What  string // for the receipt: "COMMIT of the claim"
	Match func(Message) bool
	When  Moment
	Do    Action
}

// Trap is a rule that was armed. It acts once.
type Trap struct {
	Rule
	p        *Proxy
	sprung   chan struct{} // closed when it has acted; receipt is set before
	receipt  fault.Receipt
	released chan struct{}
	once     sync.Once
}

// Proxy forwards connections to one server until the test ends.
type Proxy struct {
	t        testing.TB
	ln       net.Listener
	upstream *url.URL

	mu       sync.Mutex
	armed    []*Trap
	open     chan struct{} // closed unless paused
	sessions map[*session]bool
	shut     bool
	work     sync.WaitGroup
}

// Start forwards from a free port of 127.0.0.1 to the server of a postgres:// URL.
func Start(t testing.TB, server string) *Proxy {
	t.Helper()
	upstream, err := url.Parse(server)
	if err != nil {
		t.Fatal("start a PostgreSQL proxy: the server's URL cannot be parsed") // and is not shown: it has a password
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a PostgreSQL proxy: %v", err)
	}
	p := &Proxy{t: t, ln: ln, upstream: upstream, open: make(chan struct{}), sessions: map[*session]bool{}}
	close(p.open)
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is the URL given to Start, by way of the proxy.
func (p *Proxy) URL() string {
	u := *p.upstream
	u.Host = p.ln.Addr().String()
	return u.String()
}

// Arm puts a rule in force for all connections, present and future.
func (p *Proxy) Arm(r Rule) *Trap {
	t := &Trap{Rule: r, p: p, sprung: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, t)
	return t
}

// Wait waits until the trap has acted and returns its receipt; it ends the test as failed when that takes longer.
func (t *Trap) Wait(within time.Duration) fault.Receipt {
	t.p.t.Helper()
	select {
	case <-t.sprung:
	case <-time.After(within):
		t.p.t.Fatalf("%s %s %s: no message matched within %v", t.Do, t.When, t.What, within)
	}
	return t.receipt
}

// Release lets pass what the trap holds.
func (t *Trap) Release() { t.once.Do(func() { close(t.released) }) }

// Cut closes all present connections. The receipt has no proof when there were none.
func (p *Proxy) Cut() fault.Receipt {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		s.close()
	}
	return p.receipt(string(Cut))
}

// Pause lets no message pass in either direction until Resume, also on connections that are made meanwhile. To both
// sides it looks as if the network swallowed everything.
func (p *Proxy) Pause() fault.Receipt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused() {
		p.open = make(chan struct{})
	}
	return p.receipt("pause")
}

// Resume ends a pause.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused() {
		close(p.open)
	}
}

func (p *Proxy) paused() bool {
	select {
	case <-p.open:
		return false
	default:
		return true
	}
}

func (p *Proxy) receipt(kind string) fault.Receipt {
	proof := ""
	if n := len(p.sessions); n > 0 {
		proof = fmt.Sprintf("%d connections", n)
	}
	return fault.New(kind, "connections to PostgreSQL", proof)
}

// take finds the trap for a message and disarms it.
func (p *Proxy) take(m Message) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.armed, func(t *Trap) bool { return t.Match(m) })
	if i < 0 {
		return nil
	}
	t := p.armed[i]
	p.armed = slices.Delete(p.armed, i, i+1)
	return t
}

// rearm takes back a trap whose message was never executed.
func (p *Proxy) rearm(t *Trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, t)
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream.Host)
	if err != nil {
		client.Close()
		return
	}
	s := newSession(p, client, server)
	p.mu.Lock()
	p.sessions[s] = true
	if p.shut {
		s.close()
	}
	p.mu.Unlock()
	s.run()
	p.mu.Lock()
	delete(p.sessions, s)
	p.mu.Unlock()
}

func (p *Proxy) close() {
	p.ln.Close()
	p.mu.Lock()
	p.shut = true
	for s := range p.sessions {
		s.close()
	}
	p.mu.Unlock()
	p.work.Wait()
}
