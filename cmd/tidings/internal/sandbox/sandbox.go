// Package sandbox is what the product needs around it to be tried out on one machine: a private PostgreSQL, a mail server and a
// webhook receiver that are real but deliver nothing, and the scripted doubles.
package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/webhook"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/schema"
)

// Options say what to start. The zero value is temporary and takes free ports.
type Options struct {
	Dir string // where the database is kept; "": nowhere

	// Ports of 127.0.0.1; 0, or one that is taken: a free one.
	PostgresPort, SMTPPort, ReceiverPort, DoublesPort int

	OnMail func(Mail) // called with each mail
	OnHook func(Hook) // called with each webhook
}

// Sandbox runs until it is closed.
type Sandbox struct {
	Postgres *localpg.Server
	Doubles  *channeltest.Server
	Notes    []string // ports that were taken

	mails     shelf[Mail]
	hooks     shelf[Hook]
	mail      *mailServer
	receivers *receivers
	smtpAddr  string
	recvAddr  string
	secret    string
}

// Start starts everything and migrates the database.
func Start(ctx context.Context, o Options) (_ *Sandbox, err error) {
	s := &Sandbox{secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()+rand.Text()))}
	s.mails.added, s.hooks.added = o.OnMail, o.OnHook
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	secret, err := webhook.ParseSecret(s.secret)
	if err != nil {
		return nil, err
	}
	if err := s.OnPort("the mail server", o.SMTPPort, func(addr string) error {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			s.smtpAddr = l.Addr().String()
			s.mail = startMail(l, &s.mails)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := s.OnPort("the receiver", o.ReceiverPort, func(addr string) error {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			s.recvAddr = l.Addr().String()
			s.receivers = startReceivers(l, secret, &s.mails, &s.hooks)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := s.OnPort("the doubles", o.DoublesPort, func(addr string) (err error) {
		s.Doubles, err = channeltest.Start(channeltest.Options{Addr: addr})
		return err
	}); err != nil {
		return nil, err
	}
	if s.Postgres, err = localpg.Start(ctx, localpg.Options{Dir: o.Dir, Port: o.PostgresPort}); err != nil {
		return nil, err
	}
	if err := schema.Migrate(ctx, s.DatabaseURL()); err != nil {
		return nil, err
	}
	return s, nil
}

// OnPort starts something on a port of 127.0.0.1, or on a free one when that is taken, and makes a note of it.
func (s *Sandbox) OnPort(what string, port int, start func(addr string) error) error {
	err := start(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		s.Notes = append(s.Notes, fmt.Sprintf("port %d is taken: there is another one for %s", port, what))
		err = start("127.0.0.1:0")
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", what, err)
	}
	return nil
}

// DatabaseURL is the database's connection string.
func (s *Sandbox) DatabaseURL() string { return s.Postgres.URL("postgres") }

// MailsURL shows the mails that arrived.
func (s *Sandbox) MailsURL() string { return "http://" + s.recvAddr + "/mails" }

// HooksURL shows the webhooks that arrived.
func (s *Sandbox) HooksURL() string { return "http://" + s.recvAddr + "/hooks" }

// SMTPAddr is where the mail server listens.
func (s *Sandbox) SMTPAddr() string { return s.smtpAddr }

// Mails are the newest mails that arrived.
func (s *Sandbox) Mails() []Mail { return s.mails.all() }

// Hooks are the newest webhooks that arrived.
func (s *Sandbox) Hooks() []Hook { return s.hooks.all() }

// Channels are the channels to everything that the sandbox has.
func (s *Sandbox) Channels(timeout, lease time.Duration) map[string]server.Channel {
	secrets := []server.Secret{{Text: s.secret}}
	double := func(mode string) server.Channel {
		return server.Channel{Timeout: timeout, Lease: lease, Double: &server.Double{URL: s.Doubles.URL(), Mode: mode, Secrets: secrets}}
	}
	return map[string]server.Channel{
		"email": {Timeout: 10 * time.Second, Lease: 30 * time.Second,
			SMTP: &server.SMTP{Addr: s.smtpAddr, Mode: "none", From: "Tidings <tidings@sandbox.test>"}},
		"webhook": {Timeout: 5 * time.Second, Lease: 15 * time.Second,
			Webhook: &server.Webhook{URL: "http://" + s.recvAddr + "/hook", Secrets: secrets, PlainHTTP: true, AllowPrivate: true}},
		"push":  double(channeltest.ModePush),
		"sms":   double(channeltest.ModeSMS),
		"plain": double(channeltest.ModePlain),
	}
}

// Close ends everything in order.
func (s *Sandbox) Close() error {
	var errs []error
	if s.Postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, s.Postgres.Stop(ctx))
	}
	if s.Doubles != nil {
		errs = append(errs, s.Doubles.Close())
	}
	if s.receivers != nil {
		errs = append(errs, s.receivers.close())
	}
	if s.mail != nil {
		errs = append(errs, s.mail.close())
	}
	return errors.Join(errs...)
}
