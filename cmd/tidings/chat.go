package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

type chatCmd struct {
	URL    string        `name:"url" env:"TIDINGS_URL" required:"" placeholder:"URL" help:"Where the gateway is."`
	Token  string        `name:"token" env:"TIDINGS_TOKEN" required:"" placeholder:"TOKEN" help:"Your token. Prefer the environment: other users of the machine can read a command line."`
	Conv   string        `arg:"" help:"The conversation."`
	Device string        `placeholder:"DEVICE" help:"This device. Default: that of the token, otherwise your name and -chat."`
	Outbox string        `type:"path" placeholder:"FILE" help:"Keep what is not sent yet in this file. Default: in memory."`
	Last   int64         `default:"50" help:"How many earlier events to show."`
	Wait   time.Duration `default:"10s" help:"At the end, how long to wait until everything is sent and shown."`

	in io.Reader // nil: standard input
}

// Help stands below the usage.
func (chatCmd) Help() string {
	return "Lines are sent as messages; /quit or the end of the input leaves. Events are printed to the output, the state of the connection and refusals to standard error."
}

func (c *chatCmd) Run(e *env) error {
	if err := tidings.CheckID("the conversation", c.Conv); err != nil {
		return usage(err)
	}
	if c.Device == "" {
		c.Device = deviceOf(c.Token)
	}
	show := &chatScreen{env: e, conv: c.Conv, moved: make(chan struct{})}
	conn, err := client.Open(client.Config{
		URL: c.URL, Device: c.Device, Outbox: c.Outbox, Name: "tidings-chat/" + version(),
		Token:  func(context.Context) (client.Token, error) { return client.Token{Text: c.Token}, nil },
		Start:  func(string) (client.Position, bool) { return client.Position{}, false }, // until its head is known
		Handle: show.update,
	})
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	show.ready(conn, cancel)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		show.fail(c.follow(ctx, conn))
	}()
	c.talk(ctx, conn, show)
	unsent := c.leave(ctx, conn, show, followed)
	cancel()
	<-followed
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close the outbox: %w", err)
	}
	switch err := show.failure(); {
	case err != nil:
		return err
	case unsent > 0 && c.Outbox == "":
		return tidings.Errorf(tidings.OutcomeUnknown, "%d messages have no answer; they may be stored", unsent)
	case unsent > 0:
		fmt.Fprintf(e.stderr, "(%d messages stay in %s)\n", unsent, c.Outbox)
	}
	return nil
}

// deviceOf takes the device from the token, which the server judges, or makes one of its user.
func deviceOf(token string) string {
	var claims struct{ Sub, Did string }
	if parts := strings.Split(token, "."); len(parts) == 3 {
		if b, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(b, &claims) // what is no token has no claims
		}
	}
	switch {
	case claims.Did != "":
		return claims.Did
	case claims.Sub != "":
		return claims.Sub + "-chat"
	}
	return "chat"
}

// follow begins to show the conversation from its last events on.
func (c *chatCmd) follow(ctx context.Context, conn *client.Client) error {
	list, err := conn.Conversations(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Conv == c.Conv && s.Head > c.Last {
			conn.Follow(c.Conv, client.Position{Epoch: s.Epoch, Seq: s.Head - c.Last})
		}
	}
	return conn.Sync(ctx, c.Conv)
}

// talk sends lines until there are no more.
func (c *chatCmd) talk(ctx context.Context, conn *client.Client, show *chatScreen) {
	in := c.in
	if in == nil {
		in = os.Stdin
	}
	lines := make(chan string)
	go func() { // it ends with the input, or with the process: a read of a terminal cannot be interrupted
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); line != "" {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case line, more := <-lines:
			if !more || line == "/quit" {
				return
			}
			if _, err := conn.Send(client.Message{Conv: c.Conv, Body: line}); err != nil {
				show.note("not sent: %v", err)
			} else if s := conn.State(); s.State != client.Online {
				show.note("%s; waiting to be sent: %d", cmp.Or(string(s.State), "connecting"), len(conn.Waiting()))
			}
		}
	}
}

// leave waits a while until everything is sent, and shown. It returns how many messages are still in the outbox.
func (c *chatCmd) leave(ctx context.Context, conn *client.Client, show *chatScreen, followed <-chan struct{}) int {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	select {
	case <-followed:
	case <-ctx.Done():
	}
	if conn.Flush(ctx) == nil && conn.Sync(ctx, c.Conv) == nil {
		_, upTo := conn.Events(c.Conv, 0, 0)
		show.wait(ctx, upTo.Seq)
	}
	return len(conn.Waiting())
}

// chatScreen prints what the client tells.
type chatScreen struct {
	env  *env
	conv string

	mu     sync.Mutex
	conn   *client.Client // nil: not yet
	cancel func()
	err    error         // why it is over
	seen   int64         // everything up to it was printed
	moved  chan struct{} // closed when seen has grown
}

// wait waits until everything up to seq was printed.
func (s *chatScreen) wait(ctx context.Context, seq int64) {
	for {
		s.mu.Lock()
		seen, moved := s.seen, s.moved
		s.mu.Unlock()
		if seen >= seq {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}

// printed notes that everything up to seq was printed, and marks it as read.
func (s *chatScreen) printed(seq int64) {
	s.mu.Lock()
	s.seen = seq
	close(s.moved)
	s.moved = make(chan struct{})
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		conn.MarkRead(s.conv, seq)
	}
}

func (s *chatScreen) ready(conn *client.Client, cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.cancel = conn, cancel
	if s.err != nil {
		cancel()
	}
}

// fail ends the command, unless it was about to end.
func (s *chatScreen) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.err != nil || errors.Is(err, context.Canceled) {
		return
	}
	s.err = err
	if s.cancel != nil {
		s.cancel()
	}
}

func (s *chatScreen) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *chatScreen) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return 0
	}
	return len(s.conn.Waiting())
}

func (s *chatScreen) note(format string, args ...any) {
	fmt.Fprintf(s.env.stderr, "("+format+")\n", args...)
}

func (s *chatScreen) update(u client.Update) {
	switch u := u.(type) {
	case client.Connection:
		s.connection(u)
	case client.Arrived:
		s.event(&u.Event)
		s.printed(u.Event.Seq)
	case client.Recalled:
		s.event(&u.Event)
	case client.Withheld:
		if u.Why == "trimmed" {
			s.note("%d to %d are no longer kept", u.From, u.To)
		}
		s.printed(u.To)
	case client.Dropped:
		if u.Err != nil {
			s.fail(u.Err)
		} else {
			s.note("the conversation was restored from a backup; it is shown anew")
		}
	case client.Ended:
		if u.Err != nil {
			s.note("not sent: %s: %v", printable(u.Body), u.Err)
		}
	case client.Asked:
		s.note("not sent, and kept: %s: %v", printable(u.Body), u.Err)
	case client.Lost:
		s.note("lost by a restore, send it again if it still matters: %s", printable(u.Body))
	}
}

func (s *chatScreen) connection(u client.Connection) {
	switch n := s.waiting(); {
	case u.State == client.Stopped && u.Err != nil:
		s.fail(u.Err)
	case u.State == client.Offline:
		s.note("offline: %v; again in %v", u.Err, u.Retry.Round(100*time.Millisecond))
	case u.State == client.Online && n > 0:
		s.note("online, resending %d", n)
	case u.State == client.Online:
		s.note("online")
	}
}

func (s *chatScreen) event(e *tidings.Event) {
	switch {
	case e.Kind == tidings.KindMsg && e.Recalled:
		fmt.Fprintf(s.env.stdout, "%d %s recalled this message\n", e.Seq, e.Sender)
	case e.Kind == tidings.KindMsg && e.Body != nil:
		fmt.Fprintf(s.env.stdout, "%d %s: %s\n", e.Seq, e.Sender, printable(*e.Body))
	case e.Kind == tidings.KindJoin:
		fmt.Fprintf(s.env.stdout, "%d %s joined\n", e.Seq, e.Sender)
	case e.Kind == tidings.KindLeave:
		fmt.Fprintf(s.env.stdout, "%d %s left\n", e.Seq, e.Sender)
	}
}

// printable keeps what others wrote from commanding the terminal: lines are indented, other control characters replaced.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString("\n    ")
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			b.WriteRune(unicode.ReplacementChar)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
