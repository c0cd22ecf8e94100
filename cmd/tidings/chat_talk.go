// What the lines do that are given to the command chat.

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

// chatTalk carries the lines out.
type chatTalk struct {
	*chatCmd
	conn     *client.Client
	show     *chatScreen
	followed <-chan struct{} // closed when the conversation is here

	last *client.Pending // the newest message of these lines
}

func (t *chatTalk) line(ctx context.Context, line string) {
	if strings.HasPrefix(line, "/") {
		if line = line[1:]; !strings.HasPrefix(line, "/") {
			t.command(ctx, strings.Fields(line))
			return
		}
	}
	sent, err := t.conn.Send(client.Message{Conv: t.Conv, Body: line})
	if err != nil {
		t.show.note("not sent: %v", err)
		return
	}
	t.last = sent
	t.show.offline()
}

// command does what a line says that begins with a slash.
func (t *chatTalk) command(ctx context.Context, words []string) {
	switch {
	case len(words) > 0 && len(words) <= 2 && words[0] == "recall":
		if err := t.recall(ctx, words[1:]); err != nil {
			t.show.note("not recalled: %v", err)
		}
	case len(words) == 1 && words[0] == "resend":
		for _, e := range t.show.takeAsked() {
			t.conn.Resend(e.Conv, e.Cmid)
		}
	case len(words) == 1 && words[0] == "discard":
		for _, e := range t.show.takeAsked() {
			if err := t.conn.Discard(e.Conv, e.Cmid); err != nil {
				t.show.note("not discarded: %v", err)
			}
		}
	default:
		t.show.note("not sent: there is /recall or /recall SEQ, /resend, /discard, /quit; //text sends /text")
	}
}

// recall takes back the message at the seq that is given, or one's newest one.
func (t *chatTalk) recall(ctx context.Context, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, t.Wait)
	defer cancel()
	select {
	case <-t.followed:
	case <-ctx.Done():
		return errors.New("the conversation is not here yet")
	}
	target, err := t.target(ctx, words)
	if err != nil {
		return err
	}
	if _, err := t.conn.Recall(client.Recall{Conv: t.Conv, Target: target}); err != nil {
		return err
	}
	t.show.offline()
	return nil
}

func (t *chatTalk) target(ctx context.Context, words []string) (client.Position, error) {
	if len(words) > 0 {
		seq, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			return client.Position{}, fmt.Errorf("%s is no seq", words[0])
		}
		return client.Position{Seq: seq}, nil
	}
	_, upTo := t.conn.Events(t.Conv, 0, 0)
	t.show.wait(ctx, upTo.Seq)
	if t.last != nil {
		switch sent, err := t.last.Wait(ctx); {
		case tidings.ErrorCode(err) == tidings.OutcomeUnknown:
			return client.Position{}, errors.New("your last message has no answer yet")
		case err != nil:
			return client.Position{}, errors.New("your last message was not sent; /recall SEQ takes an earlier one")
		default:
			t.show.mine(client.Position{Epoch: sent.Epoch, Seq: sent.Seq})
		}
	}
	at := t.show.takeMine()
	if at.Seq == 0 {
		return at, errors.New("none of your messages is shown here; /recall SEQ takes any")
	}
	return at, nil
}
