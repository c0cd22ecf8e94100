// Package tcpproxy stands between a client and a server and disturbs the bytes between them from outside: it cuts,
// holds and refuses, in each direction.
package tcpproxy

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/tidings-project/tidings/lab/fault"
)

// Direction is the way that bytes go.
type Direction int

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

func (d Direction) String() string {
	return [...]string{"nowhere", "to the server", "to the client", "both ways"}[d&Both]
}

// Proxy forwards connections to a target until the test ends.
type Proxy struct {
	addr string

	mu     sync.Mutex
	target string
	ln     net.Listener // nil while refusing
	held   Direction
	free   chan struct{} // closed and replaced when what pass looks at changes
	conns  map[*conn]bool
	shut   bool
	work   sync.WaitGroup
}

// conn is one forwarded connection.
type conn struct {
	client, server *net.TCPConn
	cut            Direction     // guarded by Proxy.mu
	closed         chan struct{} // closed by close
	once           sync.Once
}

// Start forwards from a free port of 127.0.0.1 to target, "host:port".
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target, addr: "127.0.0.1:0", free: make(chan struct{}), conns: map[*conn]bool{}}
	if err := p.listen(); err != nil {
		t.Fatalf("start a proxy to %s: %v", target, err)
	}
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect to, "127.0.0.1:port". It does not change.
func (p *Proxy) Addr() string { return p.addr }

// Cut ends a direction of all present connections: whoever reads it sees the end of the stream, later bytes are
// dropped. Cutting both ways closes them. The receipt has no proof when there was nothing to cut.
func (p *Proxy) Cut(d Direction) fault.Receipt {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for c := range p.conns {
		c.cut |= d
		switch {
		case c.cut == Both:
			c.close()
		case d == ToServer:
			c.server.CloseWrite()
		case d == ToClient:
			c.client.CloseWrite()
		}
	}
	p.stir()
	return p.receipt("cut "+d.String(), n)
}

// Hold lets no byte pass in a direction, on present and future connections, until Release. To both ends it looks as
// if the network swallowed everything.
func (p *Proxy) Hold(d Direction) fault.Receipt {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held |= d
	return p.receipt("hold "+d.String(), len(p.conns))
}

// Release lets pass what was held.
func (p *Proxy) Release(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held &^= d
	p.stir()
}

// Redirect leads future connections to another target; present ones stay where they are.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Refuse closes the port, so that new connections are refused by the kernel; present ones go on.
func (p *Proxy) Refuse() fault.Receipt {
	p.mu.Lock()
	ln := p.ln
	p.ln = nil
	p.mu.Unlock()
	if ln != nil {
		ln.Close()
	}
	proof := ""
	if probe, err := net.Dial("tcp", p.addr); err != nil {
		proof = "a probe was refused"
	} else {
		probe.Close()
	}
	return fault.New("refuse", "connections to the proxy", proof)
}

// Accept opens the port again after Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil || p.shut {
		return nil
	}
	return p.listenLocked()
}

func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listenLocked()
}

func (p *Proxy) listenLocked() error {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", p.addr, err)
	}
	p.ln, p.addr = ln, ln.Addr().String()
	p.work.Go(func() { p.accept(ln) })
	return nil
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve forwards one connection until both directions have ended.
func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	c := &conn{client: client, server: server.(*net.TCPConn), closed: make(chan struct{})}
	p.mu.Lock()
	p.conns[c] = true
	if p.shut {
		c.close()
	}
	p.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(c, ToServer, c.client, c.server) })
	pumps.Go(func() { p.pump(c, ToClient, c.server, c.client) })
	pumps.Wait()
	c.close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// pump forwards one direction and passes its end on.
func (p *Proxy) pump(c *conn, d Direction, from, to *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.pass(c, d) {
			if _, err := to.Write(buf[:n]); err != nil {
				c.close() // the other end is gone: nothing can be delivered any more
				return
			}
		}
		if err == io.EOF {
			if p.pass(c, d) {
				to.CloseWrite()
			}
			return
		}
		if err != nil {
			c.close()
			return
		}
	}
}

func (p *Proxy) stir() {
	close(p.free)
	p.free = make(chan struct{})
}

// pass waits while the direction is held and tells whether it was not cut.
func (p *Proxy) pass(c *conn, d Direction) bool {
	for {
		p.mu.Lock()
		held, cut, free := p.held&d != 0, c.cut&d != 0, p.free
		p.mu.Unlock()
		if cut || !held {
			return !cut
		}
		select {
		case <-free:
		case <-c.closed:
			return false
		}
	}
}

func (p *Proxy) receipt(kind string, conns int) fault.Receipt {
	proof := ""
	if conns > 0 {
		proof = fmt.Sprintf("%d connections", conns)
	}
	return fault.New(kind, "connections through the proxy", proof)
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.shut = true
	if p.ln != nil {
		p.ln.Close()
	}
	for c := range p.conns {
		c.close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.closed)
		c.client.Close()
		c.server.Close()
	})
}
