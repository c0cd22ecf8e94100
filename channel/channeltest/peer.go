// The scripted HTTP peer: its faults, whatever the version of HTTP.

package channeltest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Protocol is what an HTTPPeer speaks.
type Protocol string

// The protocols.
const (
	HTTP1  Protocol = "http/1.1"
	HTTPS1 Protocol = "http/1.1 over TLS"
	HTTP2  Protocol = "h2"
)

// Fault is what an HTTPPeer does with one request, after it has read the whole of it. The zero Fault answers 200.
type Fault struct {
	Name   string
	Status int         // 0: 200
	Header http.Header // besides Content-Length
	Body   string      // "": the peer's answer, for 200

	Close bool   // close the connection without an answer
	Reset bool   // reset the connection without an answer
	Hang  bool   // never answer
	Cut   bool   // promise a longer body and close
	Raw   string // HTTP/1.1: write this and close

	Stream string // HTTP/2: reset the stream with this code, for example "REFUSED_STREAM"
	GoAway bool   // HTTP/2: say that this stream was not processed, and close
}

// HTTPRequest is one request that an HTTPPeer read to its end.
type HTTPRequest struct {
	Conn   int // 1, 2, 3 … in the order of connections
	Method string
	Path   string // with the query; HTTP/1.1 only
	Header http.Header
	Body   []byte
}

// HTTPPeer is an HTTP server that answers well until it is told to fail. It plays with the connection itself, which a
// handler of net/http cannot, and counts what was really on the wire.
type HTTPPeer struct {
	protocol Protocol
	answer   string
	tls      *tls.Config
	roots    *x509.CertPool
	listener net.Listener
	wg       sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	faults    []Fault
	begun     int // requests of which the peer saw the beginning
	requests  []HTTPRequest
	conns     map[net.Conn]struct{}
	accepted  int
	handshake time.Duration
}

// StartHTTPPeer starts a peer that answers 200 with the given JSON.
func StartHTTPPeer(protocol Protocol, answer string) (*HTTPPeer, error) {
	p := &HTTPPeer{protocol: protocol, answer: answer, conns: map[net.Conn]struct{}{}}
	if protocol != HTTP1 {
		certificate, roots, err := selfSigned()
		if err != nil {
			return nil, err
		}
		next := "http/1.1"
		if protocol == HTTP2 {
			next = "h2"
		}
		p.roots, p.tls = roots, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{next}}
	}
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start an HTTP peer: %w", err)
	}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// ResettingServer is a peer that answers the first request on its first connection and resets the connection when it has
// read the second one; every later request is answered. A client that repeats a request by itself shows as three
// requests for two calls, provided that it reads the first answer to its end, so that the connection is kept.
func ResettingServer() (*HTTPPeer, error) {
	p, err := StartHTTPPeer(HTTP1, `{"id":"1"}`)
	if err == nil {
		p.Next(Fault{}, Fault{Reset: true})
	}
	return p, err
}

// URL is where the peer listens.
func (p *HTTPPeer) URL() string {
	if p.tls != nil {
		return "https://" + p.listener.Addr().String()
	}
	return "http://" + p.listener.Addr().String()
}

// TLS is what a client needs to trust the peer; nil without TLS.
func (p *HTTPPeer) TLS() *tls.Config {
	if p.tls == nil {
		return nil
	}
	return &tls.Config{RootCAs: p.roots}
}

// Next says what to do with the next requests, one Fault each.
func (p *HTTPPeer) Next(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// DelayHandshake makes every new connection wait before its TLS handshake.
func (p *HTTPPeer) DelayHandshake(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handshake = d
}

// Requests are the requests that arrived whole.
func (p *HTTPPeer) Requests() []HTTPRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]HTTPRequest(nil), p.requests...)
}

// Begun counts the requests of which at least the beginning arrived.
func (p *HTTPPeer) Begun() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// Conns counts the connections so far.
func (p *HTTPPeer) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Close closes every connection and waits for the peer's goroutines.
func (p *HTTPPeer) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.wg.Wait()
}

func (p *HTTPPeer) accept() {
	defer p.wg.Done()
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = conn.Close()
			return
		}
		p.conns[conn] = struct{}{}
		p.accepted++
		n, delay := p.accepted, p.handshake
		p.mu.Unlock()
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			defer func() {
				_ = conn.Close()
				p.mu.Lock()
				delete(p.conns, conn)
				p.mu.Unlock()
			}()
			p.serve(conn, n, delay)
		}()
	}
}

func (p *HTTPPeer) serve(tcp net.Conn, n int, delay time.Duration) {
	conn := tcp
	if p.tls != nil {
		time.Sleep(delay)
		secure := tls.Server(tcp, p.tls)
		if secure.Handshake() != nil {
			return
		}
		conn = secure
	}
	var err error
	if p.protocol == HTTP2 {
		err = p.serveHTTP2(conn, n)
	} else {
		err = p.serveHTTP1(conn, n)
	}
	if errors.Is(err, errReset) {
		_ = tcp.(*net.TCPConn).SetLinger(0)
		_ = tcp.Close()
	}
}

var errReset = errors.New("reset the connection")

// beginning counts a request's beginning.
func (p *HTTPPeer) beginning() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
}

// take records a whole request and says what to do with it.
func (p *HTTPPeer) take(r HTTPRequest) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	f := Fault{}
	if len(p.faults) > 0 {
		f, p.faults = p.faults[0], p.faults[1:]
	}
	if f.Status == 0 {
		f.Status = http.StatusOK
	}
	if f.Body == "" && f.Status == http.StatusOK {
		f.Body = p.answer
	}
	return f
}
