// A simple load balancer: TCP, the fewest connections, and a look at /readyz.

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const readyEach = 200 * time.Millisecond // how often each server is asked

// balancer forwards connections to servers that say that they are ready.
type balancer struct {
	ln   net.Listener
	work sync.WaitGroup

	mu       sync.Mutex
	servers  map[string]*backend
	accepted []time.Time // since count
}

// backend is a server behind the balancer.
type backend struct {
	addr  string
	ready bool
	conns map[net.Conn]bool
	gone  context.CancelFunc // ends the looks at it
}

func newBalancer() (*balancer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{ln: ln, servers: map[string]*backend{}}
	b.work.Go(b.accept)
	return b, nil
}

func (b *balancer) url() string { return "http://" + b.ln.Addr().String() }

// add adds a server that is ready.
func (b *balancer) add(addr string) {
	ctx, gone := context.WithCancel(context.Background())
	s := &backend{addr: addr, ready: true, conns: map[net.Conn]bool{}, gone: gone}
	b.mu.Lock()
	b.servers[addr] = s
	b.mu.Unlock()
	b.work.Go(func() { b.look(ctx, s) })
}

// remove forgets a server. Its connections have ended.
func (b *balancer) remove(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers[addr].gone()
	delete(b.servers, addr)
}

// open is how many connections a server has.
func (b *balancer) open(addr string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.servers[addr].conns)
}

// count is how many connections came since the last count, and how many at most within one second.
func (b *balancer) count() (all, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := 0
	for i, at := range b.accepted {
		for at.Sub(b.accepted[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	all, b.accepted = len(b.accepted), nil
	return all, most
}

// look asks a server whether it is ready until it is removed.
func (b *balancer) look(ctx context.Context, s *backend) {
	asking := http.Client{Timeout: 2 * time.Second}
	ticker := time.NewTicker(readyEach)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		response, err := asking.Get("http://" + s.addr + "/readyz")
		ready := err == nil && response.StatusCode == http.StatusOK
		if err == nil {
			_ = response.Body.Close()
		}
		b.mu.Lock()
		s.ready = ready
		b.mu.Unlock()
	}
}

func (b *balancer) accept() {
	for {
		conn, err := b.ln.Accept()
		if err != nil {
			return
		}
		b.work.Go(func() { b.serve(conn) })
	}
}

// choose is the ready server with the fewest connections, nil if none is ready, and counts the connection there.
func (b *balancer) choose(conn net.Conn) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted = append(b.accepted, time.Now())
	var best *backend
	for _, s := range b.servers {
		if s.ready && (best == nil || len(s.conns) < len(best.conns)) {
			best = s
		}
	}
	if best != nil {
		best.conns[conn] = true
	}
	return best
}

func (b *balancer) serve(conn net.Conn) {
	defer conn.Close()
	s := b.choose(conn)
	if s == nil {
		return
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.conns, conn)
	}()
	there, err := net.Dial("tcp", s.addr)
	if err != nil {
		return
	}
	defer there.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, there) // an end is an end
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(there, conn)
	_ = there.(*net.TCPConn).CloseWrite()
	back.Wait()
}

func (b *balancer) close() {
	_ = b.ln.Close()
	b.mu.Lock()
	for _, s := range b.servers {
		s.gone()
		for c := range s.conns {
			_ = c.Close()
		}
	}
	b.mu.Unlock()
	b.work.Wait()
}
