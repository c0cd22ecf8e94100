// Tests of the SMTP channel with a real server.

package smtp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	gosmtp "github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/smtp"
)

// backend is a go-smtp server that keeps what it gets and knows one password.
type backend struct {
	mu    sync.Mutex
	texts []string
	to    []string
	user  string
}

func (b *backend) NewSession(*gosmtp.Conn) (gosmtp.Session, error) { return &serverSession{b}, nil }

type serverSession struct{ *backend }

func (s *serverSession) AuthMechanisms() []string { return []string{sasl.Plain} }
func (s *serverSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "right" {
			return errors.New("no")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.user = user
		return nil
	}), nil
}
func (s *serverSession) Mail(string, *gosmtp.MailOptions) error { return nil }
func (s *serverSession) Rcpt(to string, _ *gosmtp.RcptOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = append(s.to, to)
	return nil
}
func (s *serverSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.texts = append(s.texts, string(text))
	}
	return err
}
func (s *serverSession) Reset()        {}
func (s *serverSession) Logout() error { return nil }

// serve starts a go-smtp server; implicit: TLS from the first byte.
func serve(t *testing.T, certificate *tls.Config, implicit bool) (*backend, string) {
	t.Helper()
	b := &backend{}
	server := gosmtp.NewServer(b)
	server.Domain = "localhost"
	server.AllowInsecureAuth = true
	server.EnableSMTPUTF8 = true
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if implicit {
		listener = tls.NewListener(listener, certificate)
	} else {
		server.TLSConfig = certificate
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return b, listener.Addr().String()
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func expect(t *testing.T, out channel.Outcome, want tidings.Outcome) {
	t.Helper()
	if out.Code != want {
		t.Errorf("the outcome is %s (%s), want %s", out.Code, out.Detail, want)
	}
}

func TestWhatArrives(t *testing.T) {
	b, addr := serve(t, nil, false)
	ch := newChannel(t, smtp.Config{Addr: addr, Mode: smtp.NoTLS, From: "Läden & Söhne <noreply@shop.example>", Username: "u", Password: "right"})
	lines := "first\n.\n..two dots\n.QUIT\nlast, without an end"
	for _, c := range []struct{ name, title, body, address string }{
		{"plain", "Order 1001 shipped", "It has left.\n", "reader@example.org"},
		{"no title", "", "x", "reader@example.org"},
		{"umlauts", "Größe M – schön", "Grüße, 世界 🎉\n", "reader@example.org"},
		{"injection", "Hello\r\nBcc: victim@example.org\r\n\r\nbody", "x\r\n", "reader@example.org"},
		{"header in disguise", "=?utf-8?q?=0D=0ABcc:_victim?=", "x", "reader@example.org"},
		{"long title", strings.Repeat("Überlänge ", 100), "x", "reader@example.org"},
		{"long word", strings.Repeat("x", tidings.MaxTitle), strings.Repeat("y", tidings.MaxBody), "reader@example.org"},
		{"dots", "dots", lines, "reader@example.org"},
		{"separators", "a\u2028b\u0085c\td", "a\rb\x00c\n", "reader@example.org"},
		{"not ASCII", "x", "x", "Grün@exämple.org"},
		{"empty", "x", "", "reader@example.org"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := message()
			m.Title, m.Body, m.Address = c.title, c.body, c.address
			expect(t, ch.Send(deadline(t, 20*time.Second), m), tidings.Accepted)
			b.mu.Lock()
			text, to := b.texts[len(b.texts)-1], b.to[len(b.to)-1]
			b.mu.Unlock()
			for line := range strings.SplitSeq(text, "\r\n") {
				if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
					t.Fatalf("a line of %d bytes, or a bare CR or LF", len(line))
				}
			}
			parsed, err := mail.ReadMessage(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			subject, err := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
			if err != nil {
				t.Fatal(err)
			}
			wantSubject := strings.Map(func(r rune) rune {
				if r < ' ' || r == 0x85 || r == 0x2028 {
					return ' '
				}
				return r
			}, c.title)
			body, err := io.ReadAll(quotedprintable.NewReader(parsed.Body))
			if err != nil {
				t.Fatal(err)
			}
			norm := func(s string) string {
				return strings.TrimSuffix(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s), "\n")
			}
			if diff := cmp.Diff([]string{wantSubject, norm(c.body), c.address}, []string{subject, norm(string(body)), to}); diff != "" {
				t.Errorf("subject, body, recipient (-want +got):\n%s", diff)
			}
			if bcc := parsed.Header.Get("Bcc"); bcc != "" {
				t.Errorf("a Bcc header got in: %q", bcc)
			}
			from, err := mail.ParseAddress(parsed.Header.Get("From"))
			if err != nil || from.Name != "Läden & Söhne" || from.Address != "noreply@shop.example" {
				t.Errorf("From is %v, %v", from, err)
			}
			if got := parsed.Header.Get("Message-Id"); got != "<"+m.Key+"@shop.example>" {
				t.Errorf("Message-ID is %q", got)
			}
			if at, err := parsed.Header.Date(); err != nil || !at.Equal(m.CreatedAt) {
				t.Errorf("Date is %v, %v", at, err)
			}
		})
	}
}

func TestBadAddresses(t *testing.T) {
	peer := startPeer(t, false)
	ch := newChannel(t, smtp.Config{Addr: peer.Addr(), Mode: smtp.NoTLS})
	for _, address := range []string{"", "x", "a@b\r\nDATA", "a@b>\r\nRCPT TO:<c@d", "Name <a@b.example>", "a b@c.example", "a@b.example, c@d.example",
		"\"a b\"@c.example", "a@b.example ", "<a@b.example>", "a@b.example\x00", "a@" + strings.Repeat("b", 260), "a\u0085@b.example", "@b.example", "a@"} {
		m := message()
		m.Address = address
		if out := ch.Send(deadline(t, 20*time.Second), m); out.Code != tidings.Rejected {
			t.Errorf("%q: the outcome is %s", address, out.Code)
		}
	}
	if phases := peer.Phases(); len(phases) != 0 {
		t.Errorf("the peer was reached: %v", phases)
	}
}

func TestTLSAndPasswords(t *testing.T) {
	peer := startPeer(t, true)
	send := func(c smtp.Config, want tidings.Outcome) {
		t.Helper()
		expect(t, newChannel(t, c).Send(deadline(t, 20*time.Second), message()), want)
	}
	good := smtp.Config{Addr: peer.Addr(), TLS: peer.TLS(), Username: "u", Password: "p"}
	send(good, tidings.Accepted)
	if m := peer.Mails(); len(m) != 1 || !m[0].TLS {
		t.Fatalf("not one mail over TLS: %+v", m)
	}
	peer.Next(channeltest.SMTPFault{Phase: channeltest.PhaseAuth, Reply: "535 5.7.8 no"})
	send(good, tidings.NotSent)
	peer.Hide("AUTH")
	send(good, tidings.NotSent)
	peer.Hide("STARTTLS")
	send(good, tidings.NotSent)
	if n := len(peer.Mails()); n != 1 {
		t.Errorf("%d mails, the later ones without TLS or authentication", n)
	}

	peer = startPeer(t, false)
	peer.Hide("SMTPUTF8")
	m := message()
	m.Address = "grün@example.org"
	expect(t, newChannel(t, smtp.Config{Addr: peer.Addr(), Mode: smtp.NoTLS}).Send(deadline(t, 20*time.Second), m), tidings.Rejected)

	if _, err := smtp.New(smtp.Config{Addr: "mail.example:25", Mode: smtp.NoTLS, Username: "u", From: "a@b.example"}); tidings.ErrorCode(err) != tidings.InvalidArgument {
		t.Errorf("a password in the clear is refused: %v", err)
	}
}

func TestImplicitTLSAndWrongPassword(t *testing.T) {
	certificate, roots := channeltest.Certificate(t)
	b, addr := serve(t, &tls.Config{Certificates: []tls.Certificate{certificate}}, true)
	config := smtp.Config{Addr: addr, Mode: smtp.Implicit, TLS: &tls.Config{RootCAs: roots}, Username: "shop", Password: "right"}
	expect(t, newChannel(t, config).Send(deadline(t, 20*time.Second), message()), tidings.Accepted)
	config.Password = "wrong"
	out := newChannel(t, config).Send(deadline(t, 20*time.Second), message())
	expect(t, out, tidings.NotSent)
	if strings.Contains(out.Detail, "wrong") {
		t.Errorf("the detail %q holds the password", out.Detail)
	}
	if b.user != "shop" || len(b.texts) != 1 {
		t.Errorf("user %q, %d mails", b.user, len(b.texts))
	}
}

func startPeer(t *testing.T, secure bool) *channeltest.SMTPPeer {
	t.Helper()
	peer, err := channeltest.StartSMTPPeer(secure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Close)
	return peer
}

func TestConnectionsAreKept(t *testing.T) {
	for _, c := range []struct{ idle, conns int }{{0, 1}, {-1, 3}} {
		peer := startPeer(t, true)
		ch := newChannel(t, smtp.Config{Addr: peer.Addr(), TLS: peer.TLS(), Idle: c.idle})
		for range 3 {
			expect(t, ch.Send(deadline(t, 20*time.Second), message()), tidings.Accepted)
		}
		if m := peer.Mails(); m[2].Conn != c.conns {
			t.Errorf("idle %d: the third mail came on connection %d, want %d", c.idle, m[2].Conn, c.conns)
		}
	}
	peer := startPeer(t, false)
	ch := newChannel(t, smtp.Config{Addr: peer.Addr(), Mode: smtp.NoTLS})
	expect(t, ch.Send(deadline(t, 20*time.Second), message()), tidings.Accepted)
	peer.Next(channeltest.SMTPFault{Phase: channeltest.PhaseNoop, Reset: true})
	expect(t, ch.Send(deadline(t, 20*time.Second), message()), tidings.Accepted) // a kept connection that is gone costs nothing
	if m := peer.Mails(); len(m) != 2 || m[1].Conn != 2 {
		t.Errorf("mails %+v", m)
	}
}

// The trap of the library: after a failure in the middle of a message any further command ends it with a dot, and the
// server takes half a mail.
func TestHalfAMessageIsNotSubmitted(t *testing.T) {
	for _, fault := range []channeltest.SMTPFault{{Phase: channeltest.PhaseMessage, Reset: true}, {Phase: channeltest.PhaseMessage, Hang: true}} {
		peer := startPeer(t, false)
		ch := newChannel(t, smtp.Config{Addr: peer.Addr(), Mode: smtp.NoTLS})
		m := message()
		m.Body = strings.Repeat("more than the socket buffers take\n", 1<<19)
		peer.Next(fault)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		reached := func() bool {
			phases := peer.Phases()
			return len(phases) > 0 && phases[len(phases)-1] == channeltest.PhaseMessage
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for !reached() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if fault.Hang {
				cancel()
			}
		})
		expect(t, ch.Send(ctx, m), tidings.NotSent)
		cancel()
		wg.Wait()
		if !reached() {
			t.Errorf("the peer did not stop in the middle of the message: %v", peer.Phases())
		}
		if n := len(peer.Mails()); n != 0 {
			t.Errorf("the peer took %d messages", n)
		}
	}
}

func TestCancelledAfterTheDot(t *testing.T) {
	peer := startPeer(t, true)
	ch := newChannel(t, smtp.Config{Addr: peer.Addr(), TLS: peer.TLS()})
	peer.Next(channeltest.SMTPFault{Phase: channeltest.PhaseDot, Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := make(chan channel.Outcome, 1)
	go func() { got <- ch.Send(ctx, message()) }()
	for len(peer.Mails()) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	expect(t, <-got, tidings.IOError)
}

func TestTalkativeServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for err == nil {
			_, err = io.WriteString(conn, "220-and another line\r\n")
		}
	}()
	ch := newChannel(t, smtp.Config{Addr: listener.Addr().String(), Mode: smtp.NoTLS})
	expect(t, ch.Send(deadline(t, 20*time.Second), message()), tidings.NotSent)
	<-done
}

func TestManyAtOnce(t *testing.T) {
	peer := startPeer(t, true)
	ch := newChannel(t, smtp.Config{Addr: peer.Addr(), TLS: peer.TLS()})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				expect(t, ch.Send(deadline(t, 20*time.Second), message()), tidings.Accepted)
			}
		})
	}
	wg.Wait()
	if n := len(peer.Mails()); n != 40 {
		t.Errorf("%d mails, want 40", n)
	}
}
