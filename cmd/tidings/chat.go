// The command chat: a conversation on the terminal.

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/server"
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
	return "Lines are sent as messages; /quit or the end of the input leaves, and //text sends /text. /recall takes back your newest message, /recall SEQ any of yours. Messages that are not sent without your word are told, and /resend or /discard decides about them. With --outbox what is not sent is kept, and sent once at the next start. A second terminal of the same user needs another --device. Events are printed to the output, the state of the connection and refusals to standard error."
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
		URL: c.URL, Device: c.Device, Outbox: c.Outbox, Name: "tidings-chat/" + server.Version(),
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
	c.talk(ctx, conn, show, followed)
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

// unsent says of each message and recall that is still in the outbox what is known of it.
func (c *chatCmd) unsent(show *chatScreen, waiting []client.Entry) error {
	doubted := 0
	for _, m := range waiting {
		if m.InDoubt {
			doubted++
			show.note("unknown: %s", entryText(m))
		} else {
			show.note("not sent: %s", entryText(m))
		}
	}
	what := "message"
	if slices.ContainsFunc(waiting, func(m client.Entry) bool { return m.Target.Seq > 0 }) {
		what = "request"
	}
	switch n := len(waiting); {
	case n == 0:
	case c.Outbox != "":
		show.note("%s kept in %s, and sent at the next start with it", count(n, what), c.Outbox)
	case doubted > 0:
		return tidings.Errorf(tidings.OutcomeUnknown, "no answer to %s, which may be stored; --outbox FILE would keep what has no answer, and send it once", count(doubted, what))
	default:
		return tidings.Errorf(tidings.Unavailable, "not sent: %s; --outbox FILE would keep what is not sent, and send it later", count(n, what))
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
func (c *chatCmd) talk(ctx context.Context, conn *client.Client, show *chatScreen, followed <-chan struct{}) {
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
	talk := chatTalk{chatCmd: c, conn: conn, show: show, followed: followed}
	for {
		select {
		case <-ctx.Done():
			return
		case line, more := <-lines:
			if !more || line == "/quit" {
				return
			}
			talk.line(ctx, line)
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
