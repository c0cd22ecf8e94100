// One connection of the scripted SMTP peer.

package channeltest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
)

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
