// Tests of notifications that show the message which they are about.

package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/dispatch"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// shown is a conversation of u-ana and u-ben, and a channel that notes what it is given.
type shown struct {
	*store.Store
	t    *testing.T
	pool *pgxpool.Pool

	mu     sync.Mutex
	bodies []string
	answer func() channel.Outcome
}

func newShown(t *testing.T) *shown {
	t.Helper()
	pool := pgtest.New(t)
	s := &shown{Store: store.New(pool), t: t, pool: pool, answer: func() channel.Outcome { return channel.Outcome{Code: tidings.Accepted} }}
	s.must(s.EnsureLineage(t.Context()))
	_, err := s.CreateConversation(t.Context(), store.Conversation{Conv: "c-1", RecallWindow: time.Hour, Preview: true, Members: []string{"u-ana", "u-ben"}})
	s.must(err)
	return s
}

func (s *shown) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// say sends a message and returns its seq.
func (s *shown) say(cmid, body string) int64 {
	s.t.Helper()
	answers, err := s.Send(s.t.Context(), []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: cmid, Body: body}}, time.Second)
	s.must(err)
	return answers[0].Seq
}

// tell submits a notification with a preview about a message.
func (s *shown) tell(user string, seq int64) {
	s.t.Helper()
	_, err := s.PutPref(s.t.Context(), user, store.Pref{Channel: "test", Address: "somewhere", Enabled: true}, nil)
	s.must(err)
	_, err = s.pool.Exec(s.t.Context(), `SELECT tidings.notify_v1(json_build_object('user', $1::text, 'event_key', 'about-' || $2::bigint, 'title', 'New message', 'ttl_s', 3600,
		'about', json_build_object('conv', 'c-1', 'seq', $2::bigint), 'preview', true))`, user, seq)
	s.must(err)
}

// once lets a worker carry out what is due, and returns the bodies that its channel was given.
func (s *shown) once(contract channel.Contract) []string {
	s.t.Helper()
	s.bodies = nil
	w := worker(s.t, s.pool, &scripted{contract: contract, send: func(_ context.Context, m channel.Message) channel.Outcome {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bodies = append(s.bodies, m.Body)
		return s.answer()
	}}, func(c *dispatch.Config) { c.PreviewLength = 20 })
	until(s.t, "something is due", func() bool {
		n, err := w.RunOnce(s.t.Context())
		s.must(err)
		return n > 0
	})
	return s.bodies
}

func (s *shown) recall(seq int64) {
	s.t.Helper()
	a, err := s.Recall(s.t.Context(), store.Recall{Conv: "c-1", User: "u-ana", Cmid: fmt.Sprint("r-", seq), Target: seq}, false)
	s.must(err)
	if a.Code != "" {
		s.t.Fatal(a.Code)
	}
}

// ends are the states and the journals of all tasks.
func (s *shown) ends() (all []string) {
	for _, r := range tasks(s.t, s.pool) {
		all = append(all, strings.TrimSpace(fmt.Sprint(r.State, " ", r.Trail)))
	}
	return all
}

var byKey = channel.Contract{Key: &channel.Key{Window: time.Hour}}

func TestPreview(t *testing.T) {
	s := newShown(t)
	s.tell("u-ben", s.say("m-1", "hello"))
	if diff := cmp.Diff([]string{"hello"}, s.once(byKey)); diff != "" {
		t.Error(diff)
	}
	s.tell("u-ben", s.say("m-2", strings.Repeat("日", 30)))
	if diff := cmp.Diff([]string{strings.Repeat("日", 19) + "…"}, s.once(byKey)); diff != "" {
		t.Error(diff)
	}
	// Not a copy: the row of the notification has no text.
	var stored int
	s.must(s.pool.QueryRow(t.Context(), `SELECT count(*) FROM tidings.notification WHERE body IS NOT NULL`).Scan(&stored))
	if stored > 0 {
		t.Errorf("%d notifications have the text", stored)
	}
}

// What is gone between the claim and the call is not sent: recalled, purged, or never visible to the user.
func TestPreviewOfWhatIsGone(t *testing.T) {
	for name, gone := range map[string]func(s *shown, seq int64) (user string){
		"recalled": func(s *shown, seq int64) string { s.recall(seq); return "u-ben" },
		"purged": func(s *shown, seq int64) string {
			_, err := s.pool.Exec(t.Context(), `WITH e AS (DELETE FROM tidings.event) UPDATE tidings.conversation SET min_seq = $1::bigint + 1`, seq)
			s.must(err)
			return "u-ben"
		},
		"a stranger's": func(*shown, int64) string { return "u-eve" },
		"before they joined": func(s *shown, seq int64) string {
			_, err := s.Join(t.Context(), "c-1", "u-cyd", "")
			s.must(err)
			return "u-cyd"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShown(t)
			seq := s.say("m-1", "hello")
			s.tell(gone(s, seq), seq)
			if got := s.once(byKey); len(got) > 0 {
				t.Errorf("the provider got %q", got)
			}
			s.once(byKey)
			if diff := cmp.Diff([]string{"SUPPRESSED NOT_SENT SOURCE_GONE"}, s.ends()); diff != "" || len(s.bodies) > 0 {
				t.Errorf("the provider got %q\n%s", s.bodies, diff)
			}
		})
	}
}

// A repeat has the same text; when the message is gone by then nothing is sent, and the doubt stays for a person.
func TestPreviewInDoubt(t *testing.T) {
	s := newShown(t)
	seq := s.say("m-1", "hello")
	s.tell("u-ben", seq)
	s.answer = func() channel.Outcome { return channel.Outcome{Code: tidings.IOError} }
	for range 2 {
		if diff := cmp.Diff([]string{"hello"}, s.once(byKey)); diff != "" {
			t.Error(diff)
		}
	}
	s.recall(seq)
	if got := s.once(byKey); len(got) > 0 {
		t.Errorf("the provider got %q", got)
	}
	s.once(byKey)
	if diff := cmp.Diff([]string{"UNKNOWN IO_ERROR IO_ERROR NOT_SENT SOURCE_GONE_UNCERTAIN"}, s.ends()); diff != "" || len(s.bodies) > 0 {
		t.Errorf("the provider got %q\n%s", s.bodies, diff)
	}
}

// A message that cannot be read at the moment is not sent without its text, and keeps no other call waiting.
func TestPreviewThatCannotBeRead(t *testing.T) {
	s := newShown(t)
	s.tell("u-ben", s.say("m-1", "hello"))
	notify(t, s.pool, 1)
	lock, err := s.pool.Begin(t.Context())
	s.must(err)
	defer lock.Rollback(context.Background())
	_, err = lock.Exec(t.Context(), `LOCK TABLE tidings.event IN ACCESS EXCLUSIVE MODE`)
	s.must(err)
	if diff := cmp.Diff([]string{"hi"}, s.once(byKey)); diff != "" {
		t.Error(diff)
	}
	s.must(lock.Rollback(t.Context()))
	if diff := cmp.Diff([]string{"hello"}, s.once(byKey)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"SENT ACCEPTED", "SENT NOT_SENT ACCEPTED"}, s.ends()); diff != "" {
		t.Error(diff)
	}
}

// asked is a channel that can be asked and never needs a text for it.
type asked struct {
	scripted
	queries int
}

func (a *asked) Query(context.Context, channel.Ref) channel.Outcome {
	a.queries++
	return channel.Outcome{Code: tidings.QueryFound}
}

// A question needs no text: it is asked although the message is gone.
func TestPreviewNeedsNoTextToAsk(t *testing.T) {
	s := newShown(t)
	seq := s.say("m-1", "hello")
	s.tell("u-ben", seq)
	c := &asked{scripted: scripted{contract: channel.Contract{Query: &channel.Query{AbsenceProves: true}},
		send: func(context.Context, channel.Message) channel.Outcome { return channel.Outcome{Code: tidings.IOError} }}}
	w := worker(t, s.pool, c, nil)
	until(t, "it is sent", func() bool { _, err := w.RunOnce(t.Context()); s.must(err); return c.calls.Load() == 1 })
	s.recall(seq)
	until(t, "it is asked for", func() bool { _, err := w.RunOnce(t.Context()); s.must(err); return c.queries > 0 })
	if diff := cmp.Diff([]string{"SENT IO_ERROR QUERY_FOUND"}, s.ends()); diff != "" {
		t.Error(diff)
	}
}
