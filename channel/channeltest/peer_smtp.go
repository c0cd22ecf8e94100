package channeltest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
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

type smtpConn struct {
	peer *SMTPPeer
	conn net.Conn
	r    *bufio.Reader
	n    int
	mail Mail
	tls  bool
}

func (c *smtpConn) say(format string, args ...any) error {
	_, err := fmt.Fprintf(c.conn, format+"\r\n", args...)
	return err
}

// at plays the fault of a phase; without one it says reply ("": nothing).
func (c *smtpConn) at(phase, reply string) error {
	f, faulty := c.peer.reach(phase)
	return c.play(f, faulty, reply)
}

func (c *smtpConn) play(f SMTPFault, faulty bool, reply string) error {
	if faulty {
		if f.Hang {
			<-c.peer.closing // neither reads nor writes
			return io.EOF
		}
		reply = f.Reply
	}
	if reply != "" {
		if err := c.say("%s", reply); err != nil {
			return err
		}
	}
	switch {
	case f.Reset:
		return errReset
	case f.Close:
		return io.EOF
	}
	return nil
}

func (c *smtpConn) line() (string, error) {
	line, err := c.r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

func (c *smtpConn) serve() error {
	if err := c.at(PhaseConnect, "220 peer ESMTP"); err != nil {
		return err
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch verb = strings.ToUpper(verb); verb {
		case "EHLO", "HELO":
			err = c.at(PhaseEHLO, c.extensions())
		case "STARTTLS":
			err = c.startTLS()
		case "AUTH":
			err = c.auth(rest)
		case "MAIL":
			c.mail = Mail{Conn: c.n, From: rest, TLS: c.tls}
			err = c.at(PhaseMail, "250 2.1.0 ok")
		case "RCPT":
			c.mail.To = rest
			err = c.at(PhaseRcpt, "250 2.1.5 ok")
		case "DATA":
			err = c.data()
		case "NOOP":
			err = c.at(PhaseNoop, "250 2.0.0 ok")
		case "RSET":
			err = c.say("250 2.0.0 ok")
		case "QUIT":
			_ = c.say("221 2.0.0 bye")
			return io.EOF
		default:
			err = c.say("500 5.5.1 what?")
		}
		if err != nil {
			return err
		}
	}
}

func (c *smtpConn) extensions() string {
	all := []string{"SIZE 1000000", "8BITMIME", "ENHANCEDSTATUSCODES", "SMTPUTF8"}
	if c.peer.tls != nil && !c.tls {
		all = append(all, "STARTTLS")
	} else {
		all = append(all, "AUTH PLAIN LOGIN")
	}
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	lines := []string{"peer"}
	for _, ext := range all {
		hidden := false
		for _, w := range c.peer.without {
			hidden = hidden || strings.HasPrefix(ext, w)
		}
		if !hidden {
			lines = append(lines, ext)
		}
	}
	last := len(lines) - 1
	for i := range last {
		lines[i] = "250-" + lines[i]
	}
	lines[last] = "250 " + lines[last]
	return strings.Join(lines, "\r\n")
}

func (c *smtpConn) startTLS() error {
	if c.peer.tls == nil || c.tls {
		return c.say("502 5.5.1 no")
	}
	f, faulty := c.peer.reach(PhaseStartTLS)
	if err := c.play(f, faulty, "220 2.0.0 go"); err != nil || faulty {
		return err
	}
	secure := tls.Server(c.conn, c.peer.tls)
	if err := secure.Handshake(); err != nil {
		return err
	}
	c.conn, c.r, c.tls = secure, bufio.NewReader(secure), true
	return nil
}

func (c *smtpConn) auth(rest string) error {
	f, faulty := c.peer.reach(PhaseAuth)
	if strings.HasPrefix(rest, "LOGIN ") && !faulty {
		if err := c.say("334 UGFzc3dvcmQ6"); err != nil { // "Password:"
			return err
		}
		if _, err := c.line(); err != nil {
			return err
		}
	}
	return c.play(f, faulty, "235 2.7.0 welcome")
}

func (c *smtpConn) data() error {
	f, faulty := c.peer.reach(PhaseData)
	if err := c.play(f, faulty, "354 go ahead"); err != nil || faulty {
		return err
	}
	var text strings.Builder
	for first := true; ; first = false {
		line, err := c.line()
		if err != nil {
			return err // a message without its dot is nobody's
		}
		if line == "." {
			break
		}
		text.WriteString(strings.TrimPrefix(line, ".") + "\n")
		if first {
			if err := c.at(PhaseMessage, ""); err != nil {
				return err
			}
		}
	}
	c.mail.Text = text.String()
	f, faulty = c.peer.reach(PhaseDot)
	if !strings.HasPrefix(f.Reply, "4") && !strings.HasPrefix(f.Reply, "5") {
		c.peer.mu.Lock()
		c.peer.mails = append(c.peer.mails, c.mail)
		c.peer.mu.Unlock()
	}
	return c.play(f, faulty, fmt.Sprintf("250 2.0.0 Ok: queued as PEER%04d", len(c.peer.Mails())))
}
