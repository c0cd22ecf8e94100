// The scripted SMTP peer: its faults and what it recorded.

package channeltest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Phases of an SMTP session at which an SMTPPeer can fail. A phase is reached when the peer has read what belongs to it.
const (
	PhaseConnect  = "connect" // instead of the greeting
	PhaseEHLO     = "EHLO"
	PhaseStartTLS = "STARTTLS"
	PhaseAuth     = "AUTH"
	PhaseMail     = "MAIL"
	PhaseRcpt     = "RCPT"
	PhaseData     = "DATA"    // instead of 354
	PhaseMessage  = "message" // after the first line of the message
	PhaseDot      = "dot"     // after the final dot: with anything but a refusing reply the peer has accepted
	PhaseNoop     = "NOOP"
)

// SMTPFault is what happens at a phase, once.
type SMTPFault struct {
	Phase string
	Reply string // this reply, lines separated by CRLF; then Close or Reset, when set
	Close bool
	Reset bool
	Hang  bool // no reply, and nothing is read any more
}

// Mail is a message that an SMTPPeer took responsibility for.
type Mail struct {
	Conn     int // 1, 2, 3 … in the order of connections
	From, To string
	Text     string // with the dots unstuffed, lines ended by LF
	TLS      bool
}

// SMTPPeer is a submission server that works until it is told to fail, and says what it accepted.
type SMTPPeer struct {
	listener net.Listener
	tls      *tls.Config // nil: no STARTTLS
	roots    *x509.CertPool
	wg       sync.WaitGroup
	closing  chan struct{}

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{}
	accepted int
	without  []string
	faults   []SMTPFault
	mails    []Mail
	phases   []string
}

// StartSMTPPeer starts a peer; with secure it offers STARTTLS.
func StartSMTPPeer(secure bool) (*SMTPPeer, error) {
	p := &SMTPPeer{closing: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	if secure {
		certificate, roots, err := selfSigned()
		if err != nil {
			return nil, err
		}
		p.roots, p.tls = roots, &tls.Config{Certificates: []tls.Certificate{certificate}}
	}
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start an SMTP peer: %w", err)
	}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Addr is where the peer listens.
func (p *SMTPPeer) Addr() string { return p.listener.Addr().String() }

// TLS is what a client needs to trust the peer; nil without STARTTLS.
func (p *SMTPPeer) TLS() *tls.Config {
	if p.tls == nil {
		return nil
	}
	return &tls.Config{RootCAs: p.roots}
}

// Next adds faults; each happens the next time its phase is reached.
func (p *SMTPPeer) Next(faults ...SMTPFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// Hide leaves out extensions of the EHLO reply that begin with one of the words.
func (p *SMTPPeer) Hide(words ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.without = words
}

// Mails are the accepted messages.
func (p *SMTPPeer) Mails() []Mail {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Mail(nil), p.mails...)
}

// Phases are the phases that were reached, in order.
func (p *SMTPPeer) Phases() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.phases...)
}

// Close closes every connection and waits for the peer's goroutines. It is called once.
func (p *SMTPPeer) Close() {
	close(p.closing)
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.wg.Wait()
}

func (p *SMTPPeer) accept() {
	defer p.wg.Done()
	for {
		tcp, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = tcp.Close()
			return
		}
		p.conns[tcp] = struct{}{}
		p.accepted++
		s := &smtpConn{peer: p, conn: tcp, r: bufio.NewReader(tcp), n: p.accepted}
		p.mu.Unlock()
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			if errors.Is(s.serve(), errReset) {
				_ = tcp.(*net.TCPConn).SetLinger(0)
			}
			_ = tcp.Close()
			p.mu.Lock()
			delete(p.conns, tcp)
			p.mu.Unlock()
		}()
	}
}

// reach records a phase and takes its fault.
func (p *SMTPPeer) reach(phase string) (SMTPFault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phases = append(p.phases, phase)
	for i, f := range p.faults {
		if f.Phase == phase {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			return f, true
		}
	}
	return SMTPFault{}, false
}
