// The mail server of dev and demo.

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"time"

	"github.com/emersion/go-smtp"
)

// Mail is a message that the mail server took.
type Mail struct {
	At        time.Time `json:"at"`
	From      string    `json:"from"`
	To        []string  `json:"to"`
	MessageID string    `json:"message_id"`
	Subject   string    `json:"subject"`
	Text      string    `json:"text"`
}

// mailServer is a real SMTP server that keeps what it gets and delivers nothing.
type mailServer struct {
	smtp  *smtp.Server
	taken *shelf[Mail]
	done  chan error
}

func startMail(l net.Listener, taken *shelf[Mail]) *mailServer {
	m := &mailServer{taken: taken, done: make(chan error, 1)}
	m.smtp = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: m}, nil }))
	m.smtp.Domain = "sandbox.test"
	m.smtp.MaxMessageBytes = 1 << 20
	m.smtp.MaxRecipients = 10
	m.smtp.ReadTimeout, m.smtp.WriteTimeout = time.Minute, time.Minute
	m.smtp.ErrorLog = quiet{}
	go func() { m.done <- m.smtp.Serve(l) }()
	return m
}

func (m *mailServer) close() error {
	err := m.smtp.Close()
	if served := <-m.done; served != nil && !errors.Is(served, smtp.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// quiet swallows what a peer does wrong.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type mailSession struct {
	server *mailServer
	mail   Mail
}

func (s *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	s.mail = Mail{From: from}
	return nil
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.To = append(s.mail.To, to)
	return nil
}

// Data takes the message: what can be read is kept, and only then is it acknowledged.
func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read the message: %w", err)
	}
	s.mail.At, s.mail.MessageID = time.Now().UTC(), m.Header.Get("Message-ID")
	if s.mail.Subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		return fmt.Errorf("read the subject: %w", err)
	}
	body := m.Body
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		body = quotedprintable.NewReader(body)
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	s.mail.Text = string(content)
	s.server.taken.add(s.mail)
	return nil
}

func (s *mailSession) Reset()        { s.mail = Mail{} }
func (s *mailSession) Logout() error { return nil }
