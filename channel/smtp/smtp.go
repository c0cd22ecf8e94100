// Package smtp delivers notifications as e-mail through a submission server (RFC 5321, RFC 6409).
//
// SMTP has neither an idempotency key nor a query, but it is exact about responsibility: until the final dot of the
// message has been written nothing can have been accepted, a reply of 4yz or 5yz refuses whatever it answers (RFC 5321,
// section 4.2.5), and only between the final dot and its reply nobody can tell (section 6.1, RFC 1047).
//
// An attempt costs about ten round trips on a new connection and five on a kept one; with c calls at a time and a round
// trip of r a channel sends at most c/(5r) messages a second, besides what the server allows.
package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
)

// TLSMode says how a connection is protected.
type TLSMode string

// The modes. The empty mode is StartTLS; there is no opportunistic one, since an attacker could choose for us.
const (
	StartTLS TLSMode = "starttls" // STARTTLS, and no message without it
	Implicit TLSMode = "implicit" // TLS from the first byte (RFC 8314), usually port 465
	NoTLS    TLSMode = "none"     // in the clear: for a relay on this host or on a network that is trusted
)

// Config describes one submission server.
type Config struct {
	Addr string      // host:port
	Mode TLSMode     // "": StartTLS
	TLS  *tls.Config // nil: the system's roots; the server's name comes from Addr

	Username string // "": no authentication. Never sent in the clear, except to a loopback address
	Password string

	From   string // who sends: "Name <user@host>" or "user@host"
	Hello  string // the name in EHLO; "": the domain of From
	Domain string // of Message-IDs; "": the domain of From
	Idle   int    // connections kept between messages; 0: 4, -1: none
}

// Channel sends through one server. It implements channel.Channel.
type Channel struct {
	config   Config
	from     mail.Address
	sessions pool
}

// New makes a channel. It does not connect. The error has the code InvalidArgument.
func New(c Config) (*Channel, error) {
	from, err := mail.ParseAddress(c.From)
	if err != nil || len(c.From) > 500 || !plainAddress(from.Address) || !ascii(from.Address) {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the sender is not an e-mail address in ASCII of at most 500 bytes with its name")
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil || host == "" {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the mail server's address is not host:port")
	}
	switch c.Mode {
	case "":
		c.Mode = StartTLS
	case StartTLS, Implicit:
	case NoTLS:
		if c.Username != "" && !loopback(host) {
			return nil, tidings.Errorf(tidings.InvalidArgument, "a password is not sent without TLS, except to a loopback address")
		}
	default:
		return nil, tidings.Errorf(tidings.InvalidArgument, "the TLS mode is none of %q, %q, %q", StartTLS, Implicit, NoTLS)
	}
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	if c.Hello == "" {
		c.Hello = domain
	}
	if c.Domain == "" {
		c.Domain = domain
	}
	if !domainName.MatchString(c.Hello) || !domainName.MatchString(c.Domain) {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the EHLO name or the Message-ID domain is not a domain name")
	}
	if c.TLS = c.TLS.Clone(); c.TLS == nil {
		c.TLS = &tls.Config{}
	}
	if c.TLS.ServerName == "" {
		c.TLS.ServerName = host
	}
	if c.Idle == 0 {
		c.Idle = 4
	}
	return &Channel{config: c, from: *from, sessions: pool{max: c.Idle}}, nil
}

var domainName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`)

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Close ends the connections that are kept.
func (c *Channel) Close() { c.sessions.close() }

// Contract is what SMTP promises.
func (c *Channel) Contract() channel.Contract {
	return channel.Contract{
		Source: "RFC 5321, sections 4.2.5, 4.5.3.2.6 and 6.1, read 2026-11-30",
		Safe:   func(status int) bool { return status >= 400 && status <= 599 },
	}
}

// Renderer names the rendering.
func (c *Channel) Renderer() string { return "smtp/1" }

// Send makes one attempt: one transaction with one recipient.
func (c *Channel) Send(ctx context.Context, m channel.Message) channel.Outcome {
	if !plainAddress(m.Address) {
		return channel.Outcome{Code: tidings.Rejected, Detail: "the address is not an e-mail address"}
	}
	text := c.render(m)
	out := c.transact(ctx, m.Address, text)
	out.RequestHash = channel.HashParts([]byte(c.from.Address), []byte(m.Address), text)
	return out
}

// transact is the transaction, phase by phase. Until the final dot every failure closes the connection: any further
// command, QUIT as well, would make the library end an open message with a dot and so submit half of it.
func (c *Channel) transact(ctx context.Context, to string, text []byte) channel.Outcome {
	if channel.TooLate(ctx) || ctx.Err() != nil {
		return notSent("start", errTooLate)
	}
	s, err := c.session(ctx)
	if err != nil {
		// Whatever the server says before MAIL is about the session, not about the message: a wrong password must not
		// fail every message for good.
		return notSent("connect", err)
	}
	kept := false
	defer func() {
		if !kept {
			s.conn.Close()
		}
	}()
	if channel.TooLate(ctx) {
		return notSent("start", errTooLate)
	}
	options := &smtp.MailOptions{Size: int64(len(text)), UTF8: !ascii(to)}
	if ok, _ := s.client.Extension("SMTPUTF8"); options.UTF8 && !ok {
		return channel.Outcome{Code: tidings.Rejected, Detail: "the address is not ASCII and the server has no SMTPUTF8"}
	}
	if err := s.client.Mail(c.from.Address, options); err != nil {
		return before("MAIL", err)
	}
	if err := s.client.Rcpt(to, nil); err != nil {
		return before("RCPT", err)
	}
	data, err := s.client.Data()
	if err != nil {
		return before("DATA", err)
	}
	if _, err := data.Write(text); err != nil {
		return before("message", err)
	}
	if s.conn.expired() {
		return before("message", context.DeadlineExceeded) // this process slept: the dot does not leave any more
	}
	answer, err := data.CloseWithResponse()
	if err != nil && s.conn.writeFailed() {
		return before("final dot", err) // it did not leave this host whole
	}
	if err == nil {
		kept = c.sessions.put(s)
		return channel.Outcome{Code: tidings.Accepted, Status: 250, ProviderMsgID: queueID(answer.StatusText)}
	}
	return after(err)
}

var errTooLate = errors.New("too late to start: the lease would end before the call")

func notSent(phase string, err error) channel.Outcome {
	detail := phase + ": " + channel.Describe(err)
	var reply *smtp.SMTPError
	switch {
	case errors.As(err, &reply):
		detail = fmt.Sprintf("%s: %d %s", phase, reply.Code, enhanced(reply))
	case errors.Is(err, errTooLate), errors.Is(err, errNoMechanism), errors.Is(err, errNoStartTLS):
		detail = err.Error()
	}
	return channel.Outcome{Code: tidings.NotSent, Detail: detail}
}

// before is the outcome of a failure before the final dot: a reply refuses, anything else means that nothing was sent.
func before(phase string, err error) channel.Outcome {
	var reply *smtp.SMTPError
	if errors.As(err, &reply) {
		if out, ok := refusal(phase, reply); ok {
			return out
		}
	}
	return notSent(phase, err)
}

// after is the outcome of a failure after the final dot: only a reply tells.
func after(err error) channel.Outcome {
	const phase = "reply to the message"
	var reply *smtp.SMTPError
	var timeout net.Error
	switch {
	case errors.As(err, &reply):
		if out, ok := refusal(phase, reply); ok {
			return out
		}
		if reply.Code >= 200 && reply.Code < 300 {
			return channel.Outcome{Code: tidings.Accepted, Status: reply.Code, ProviderMsgID: queueID(reply.Message)}
		}
		return channel.Outcome{Code: tidings.IOError, Status: reply.Code, Detail: "ambiguous " + phase}
	case errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.Canceled):
		return channel.Outcome{Code: tidings.Timeout, Detail: phase + ": " + channel.Describe(err)}
	default:
		return channel.Outcome{Code: tidings.IOError, Detail: phase + ": " + channel.Describe(err)}
	}
}

// refusal is the outcome of a 4yz or 5yz reply. The mailbox is gone only where the enhanced code (RFC 3463, RFC 7505 for
// 5.1.10) says so about the recipient: servers use a bare 550 for a great deal else.
func refusal(phase string, reply *smtp.SMTPError) (channel.Outcome, bool) {
	out := channel.Outcome{Status: reply.Code, Detail: phase + ": " + enhanced(reply)}
	switch {
	case reply.Code >= 400 && reply.Code < 500:
		out.Code = tidings.HTTP5xx
	case reply.Code >= 500 && reply.Code < 600:
		out.Code = tidings.Rejected
		switch reply.EnhancedCode {
		case smtp.EnhancedCode{5, 1, 1}, smtp.EnhancedCode{5, 1, 6}, smtp.EnhancedCode{5, 1, 10}:
			out.AddressGone = phase == "RCPT"
		}
	default:
		return channel.Outcome{}, false
	}
	return out, true
}

// enhanced is what a reply says without its words, which often repeat the address.
func enhanced(reply *smtp.SMTPError) string {
	if e := reply.EnhancedCode; e[0] > 0 {
		return fmt.Sprintf("%d.%d.%d", e[0], e[1], e[2])
	}
	return "refused"
}

// queued finds the queue id in the replies of Postfix ("queued as …"), Exim ("id=…") and their imitators.
var queued = regexp.MustCompile(`(?i)(?:\bqueued as |\bid=)<?([A-Za-z0-9._@-]+)`)

func queueID(text string) string {
	if found := queued.FindStringSubmatch(text); found != nil {
		return channel.ProviderID(found[1])
	}
	return ""
}

// callTime is when a call ends by its context; a context without one gets the longest that RFC 5321 asks for.
func callTime(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(10 * time.Minute)
}
