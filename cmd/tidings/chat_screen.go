// What the command chat prints of that which the client tells.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/wire"
)

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
	own    []chatOwn     // the user's messages, by seq
	asked  []client.Entry
}

// chatOwn is a message of the user.
type chatOwn struct {
	client.Position
	taken bool // recalled, or on its way to be
}

// mine notes a message of the user, if it is not known yet.
func (s *chatScreen) mine(at client.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := slices.BinarySearchFunc(s.own, at.Seq, func(o chatOwn, seq int64) int { return cmp.Compare(o.Seq, seq) })
	if !known {
		s.own = slices.Insert(s.own, i, chatOwn{Position: at})
	}
}

// takeMine is the newest message of the user that was not taken yet.
func (s *chatScreen) takeMine() client.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range slices.Backward(s.own) {
		if !o.taken {
			s.own[i].taken = true
			return o.Position
		}
	}
	return client.Position{}
}

// recalled notes that a message of the user needs no recall.
func (s *chatScreen) recalled(seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.own {
		s.own[i].taken = s.own[i].taken || s.own[i].Seq == seq
	}
}

// takeAsked are the entries about which the user has to decide.
func (s *chatScreen) takeAsked() []client.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// offline says that what was just queued has to wait.
func (s *chatScreen) offline() {
	if state := s.conn.State(); state.State != client.Online {
		s.note("%s; waiting to be sent: %d", cmp.Or(string(state.State), "connecting"), len(s.conn.Waiting()))
	}
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

// user is who one is, empty while that is not known.
func (s *chatScreen) user() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return ""
	}
	return s.conn.User()
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
		if u.Event.Kind == tidings.KindMsg && u.Event.Sender == s.user() {
			s.mine(client.Position{Epoch: u.Epoch, Seq: u.Event.Seq})
		}
		if u.Event.Recalled {
			s.recalled(u.Event.Seq)
		}
		s.printed(u.Event.Seq)
	case client.Recalled:
		s.event(&u.Event)
		s.recalled(u.Event.Seq)
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
			s.mu.Lock()
			s.own = nil
			s.mu.Unlock()
		}
	case client.Ended:
		s.ended(&u)
	case client.Asked:
		s.mu.Lock()
		s.asked = append(s.asked, u.Entry)
		s.mu.Unlock()
		why := "it is so old that the server may have it and not know any more"
		if u.Err != nil {
			why = u.Err.Error()
		}
		s.note("not sent, and kept: %s: %s; /resend or /discard", entryText(u.Entry), why)
	case client.Lost:
		s.note("lost by a restore, send it again if it still matters: %s", printable(u.Body))
	}
}

func (s *chatScreen) ended(u *client.Ended) {
	switch {
	case u.Err != nil && u.Target.Seq > 0:
		s.note("not recalled: %d: %v", u.Target.Seq, u.Err)
	case u.Err != nil && tidings.ErrorCode(u.Err) != tidings.NotMember:
		s.note("not sent: %s: %v", entryText(u.Entry), u.Err)
	case u.Err != nil: // there is no more to say
		s.note("not sent: %s", entryText(u.Entry))
		s.fail(u.Err)
	case u.Target.Seq > 0:
		s.note("%d is recalled", u.Target.Seq)
	}
}

// entryText says on one line what an entry of the outbox is.
func entryText(e client.Entry) string {
	if e.Target.Seq > 0 {
		return fmt.Sprintf("the recall of %d", e.Target.Seq)
	}
	return printable(e.Body)
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
