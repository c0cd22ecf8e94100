// The command chat: a conversation on the terminal.

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
	"github.com/tidings-project/tidings/internal/wire"
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
	return "Lines are sent as messages; /quit or the end of the input leaves, and //text sends /text. With --outbox what is not sent is kept, and sent once at the next start. A second terminal of the same user needs another --device. Events are printed to the output, the state of the connection and refusals to standard error."
}

func (c *chatCmd) Run(e *env) error {
	if err := tidings.CheckID("the conversation", c.Conv); err != nil {
		return usage(err)
	}
	if strings.HasPrefix(c.Token, "tdk_") { // as internal/store makes them
		return usage(errors.New("this is an API key; chat takes a user's token, such as tidings token issue makes"))
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
	c.leave(ctx, conn, show, followed)
	cancel()
	<-followed
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close the outbox: %w", err)
	}
	err = c.unsent(show, conn.Waiting()) // after Close nothing leaves any more
	if why := show.failure(); why != nil {
		return why
	}
	return err
}

// unsent says of each message that is still in the outbox what is known of it.
func (c *chatCmd) unsent(show *chatScreen, waiting []client.Entry) error {
	doubted := 0
	for _, m := range waiting {
		if m.InDoubt {
			doubted++
			show.note("unknown: %s", printable(m.Body))
		} else {
			show.note("not sent: %s", printable(m.Body))
		}
	}
	switch n := len(waiting); {
	case n == 0:
	case c.Outbox != "":
		show.note("%s kept in %s, and sent at the next start with it", count(n, "message"), c.Outbox)
	case doubted > 0:
		return tidings.Errorf(tidings.OutcomeUnknown, "no answer to %s, which may be stored; --outbox FILE would keep what has no answer, and send it once", count(doubted, "message"))
	default:
		return tidings.Errorf(tidings.Unavailable, "not sent: %s; --outbox FILE would keep what is not sent, and send it later", count(n, "message"))
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
			if strings.HasPrefix(line, "/") {
				if line = line[1:]; !strings.HasPrefix(line, "/") {
					show.note("not sent: there is /quit; //text sends /text")
					continue
				}
			}
			if _, err := conn.Send(client.Message{Conv: c.Conv, Body: line}); err != nil {
				show.note("not sent: %v", err)
			} else if s := conn.State(); s.State != client.Online {
				show.note("%s; waiting to be sent: %d", cmp.Or(string(s.State), "connecting"), len(conn.Waiting()))
			}
		}
	}
}

// leave waits a while until everything is sent, and shown.
func (c *chatCmd) leave(ctx context.Context, conn *client.Client, show *chatScreen, followed <-chan struct{}) {
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
}

// chatScreen prints what the client tells.
type chatScreen struct {
	env  *env
	conv string
	out  sync.Mutex // lines come from the client and from the keyboard

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
	s.out.Lock()
	defer s.out.Unlock()
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
		switch {
		case tidings.ErrorCode(u.Err) == tidings.NotMember: // then there is no more to say
			s.note("not sent: %s", printable(u.Body))
			s.fail(u.Err)
		case u.Err != nil:
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
	case u.State == client.Stopped && u.Code == wire.CloseReplaced:
		s.fail(fmt.Errorf("%w: for a second terminal give --device another name", u.Err))
	case u.State == client.Stopped && u.Err != nil:
		s.fail(u.Err)
	case u.State == client.Offline:
		s.note("offline: %v; again in %v", u.Err, u.Retry.Round(100*time.Millisecond))
	case u.State == client.Online && n > 0:
		s.note("online, sending %d", n)
	case u.State == client.Online:
		s.note("online")
	}
}

func (s *chatScreen) event(e *tidings.Event) {
	s.out.Lock()
	defer s.out.Unlock()
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
