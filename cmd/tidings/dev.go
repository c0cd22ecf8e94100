// The command dev: everything on this machine to try it out. It is the parent of the processes that serve, and the front before them.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidings-project/tidings/cmd/tidings/internal/front"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
	"github.com/tidings-project/tidings/console"
	"github.com/tidings-project/tidings/internal/localpg"
)

type devCmd struct {
	Dir   string `default:".tidings" help:"Where the database is kept from one run to the next."`
	Fresh bool   `help:"Start with an empty database."`

	Port         int `default:"8080" help:"Of the demo page, the console, the API and chat. A port that is taken is replaced by a free one, the same each time if possible."`
	PostgresPort int `default:"0" help:"Of PostgreSQL; 0: a free one, the same each time if possible."`
	SMTPPort     int `name:"smtp-port" default:"2525" help:"Of the mail server."`
	ReceiverPort int `default:"8025" help:"Of the webhook receiver, which also shows the mails."`
	DoublesPort  int `default:"8026" help:"Of the scripted providers."`

	LogLevel slog.Level `default:"warn" help:"debug, info, warn or error."`
}

// What is there from the start: two users, and a conversation between them.
const (
	devUser = "u-ana"
	devPeer = "u-ben"
	devConv = "c-demo"
)

// devNotifyAfter is when a member who is away is notified of a message: so soon that one can wait for it.
const devNotifyAfter = 5 * time.Second

// devTokens is how long the printed tokens are good.
const devTokens = 30 * 24 * time.Hour

// devAudience is for whom they are: the default setting.
const devAudience = "tidings"

func (c *devCmd) Run(e *env) (err error) {
	if c.Fresh {
		if err := c.forget(e.ctx); err != nil {
			return fmt.Errorf("start afresh: %w", err)
		}
	}
	fmt.Fprintln(e.stdout, "starting PostgreSQL …")
	box, err := sandbox.Start(e.ctx, sandbox.Options{Dir: c.Dir, PostgresPort: c.PostgresPort, SMTPPort: c.SMTPPort,
		ReceiverPort: c.ReceiverPort, DoublesPort: c.DoublesPort,
		OnMail: func(m sandbox.Mail) {
			fmt.Fprintf(e.stdout, "mail for %s: %s — %s\n", strings.Join(m.To, ", "), m.Subject, strings.TrimSpace(m.Text))
		},
		OnHook: func(h sandbox.Hook) { fmt.Fprintf(e.stdout, "webhook, signature verified: %s\n", h.Body) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	secret, err := devSecret(filepath.Join(c.Dir, "secret"))
	if err != nil {
		return err
	}
	port, err := c.apiPort(box)
	if err != nil {
		return err
	}
	var listener net.Listener // whoever connects now is answered when there is something to answer
	if err := box.OnPort("the API", port, func(addr string) (err error) {
		listener, err = net.Listen("tcp", addr)
		return err
	}); err != nil {
		return err
	}
	defer listener.Close()
	command, err := c.serving(box, secret)
	if err != nil {
		return err
	}
	copies := c.copies(box)
	if err := copies.Finish(e.ctx); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, "starting the API and two gateways …")
	children, err := front.StartChildren(e.ctx, command, e.stderr)
	if e.ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	defer children.Stop()
	people, key, err := c.seed(e.ctx, box, secret)
	if err != nil {
		return err
	}
	f, err := front.New(front.Options{Children: children, Box: box, Page: console.Demo(), Key: key, Conv: devConv, People: people, Copies: copies},
		listener.Addr().(*net.TCPAddr).Port)
	if err != nil {
		return err
	}
	c.welcome(e, box, "http://"+listener.Addr().String(), key, people)
	return serveFront(e.ctx, listener, f)
}

// serveFront serves until ctx ends.
func serveFront(ctx context.Context, l net.Listener, f *front.Front) error {
	h := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		ended <- nil
	}
	f.Close()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if h.Shutdown(last) != nil { // somebody takes their time
		_ = h.Close()
	}
	<-ended
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// forget removes the database and what is about it.
func (c *devCmd) forget(ctx context.Context) error {
	if err := localpg.Remove(ctx, c.Dir); err != nil {
		return err
	}
	for _, user := range []string{devUser, devPeer} {
		if err := os.Remove(c.outbox(user)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(c.backups())
}
