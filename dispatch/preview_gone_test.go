// Tests of what previews leave behind, and of members who must not see them any more.

package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/dispatch"
	"github.com/tidings-project/tidings/internal/store"
)

// hashed lets a worker with a length of previews carry out what is due, on a channel that reports the hash of what it was given, and returns
// the bodies.
func (s *shown) hashed(length int, contract channel.Contract) (bodies []string) {
	s.t.Helper()
	w := worker(s.t, s.pool, &scripted{contract: contract, send: func(_ context.Context, m channel.Message) channel.Outcome {
		s.mu.Lock()
		defer s.mu.Unlock()
		bodies = append(bodies, m.Body)
		hash := channel.HashParts([]byte(m.Body))
		if len(m.FirstHash) > 0 {
			s.t.Error("a channel is to compare its bytes with those of another call")
		}
		o := s.answer()
		o.RequestHash = hash
		return o
	}}, func(c *dispatch.Config) { c.PreviewLength = length })
	until(s.t, "something is due", func() bool {
		n, err := w.RunOnce(s.t.Context())
		s.must(err)
		return n > 0
	})
	return bodies
}

// A hash of the text would outlive its recall: none is kept.
func TestPreviewLeavesNoHash(t *testing.T) {
	s := newShown(t)
	for _, text := range []string{"hello", "you"} {
		s.tell("u-ben", s.say("m-"+text, text))
		if diff := cmp.Diff([]string{text}, s.hashed(20, byKey)); diff != "" {
			t.Error(diff)
		}
	}
	var hashes, tasks int
	s.must(s.pool.QueryRow(t.Context(), `SELECT count(DISTINCT request_hash), count(request_hash) FROM tidings.task`).Scan(&hashes, &tasks))
	if hashes != 1 || tasks != 2 {
		t.Errorf("%d calls left %d different hashes", tasks, hashes)
	}
}

// Other bytes than those of the first request are not sent under its key: only another length of the preview makes some.
func TestPreviewOfAnotherLength(t *testing.T) {
	s := newShown(t)
	s.tell("u-ben", s.say("m-1", "hello world"))
	s.answer = func() channel.Outcome { return channel.Outcome{Code: tidings.IOError} }
	for _, want := range []string{"hello…", "hello…"} {
		if diff := cmp.Diff([]string{want}, s.hashed(6, byKey)); diff != "" {
			t.Error(diff)
		}
	}
	if got := s.hashed(20, byKey); len(got) > 0 {
		t.Errorf("the provider got %q", got)
	}
	s.hashed(6, byKey)
	if diff := cmp.Diff([]string{"UNKNOWN IO_ERROR IO_ERROR NOT_SENT"}, s.ends()); diff != "" {
		t.Error(diff)
	}
}

// Whoever has left or read between the claim and the call does not get the text.
func TestPreviewOfWhatIsLeftOrRead(t *testing.T) {
	for name, gone := range map[string]func(s *shown, seq int64) error{
		"left": func(s *shown, _ int64) error {
			_, err := s.Leave(t.Context(), "c-1", "u-ben", "")
			return err
		},
		"read": func(s *shown, seq int64) error {
			_, err := s.Read(t.Context(), "u-ben", "c-1", 0, seq)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShown(t)
			seq := s.say("m-1", "hello")
			s.tell("u-ben", seq)
			s.must(gone(s, seq))
			if got := s.once(byKey); len(got) > 0 {
				t.Errorf("the provider got %q", got)
			}
			s.once(byKey)
			if diff := cmp.Diff([]string{"SUPPRESSED NOT_SENT SOURCE_GONE"}, s.ends()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// When the message of a notification was purged before its call, its reader is told of the next one.
func TestPreviewOfWhatIsPurgedIsFollowed(t *testing.T) {
	s := newShown(t)
	ctx := t.Context()
	soon, yes := time.Millisecond, true
	_, err := s.ChangeSettings(ctx, "c-1", store.SettingsChange{NotifyAfter: &soon, Preview: &yes})
	s.must(err)
	_, err = s.PutPref(ctx, "u-ben", store.Pref{Channel: "test", Address: "somewhere", Enabled: true}, nil)
	s.must(err)
	first := s.say("m-1", "first")
	s.say("m-2", "second")
	notified := func() bool {
		done, err := s.NotifyUnread(ctx, store.UnreadNotice{Title: "New message", TTL: time.Hour})
		s.must(err)
		return done.Notifications == 1
	}
	queued := func() (n int) {
		s.must(s.pool.QueryRow(ctx, `SELECT count(*) FROM tidings.unread_due`).Scan(&n))
		return n
	}
	until(t, "they are notified of the first", notified)
	until(t, "all is looked at", func() bool { notified(); return queued() == 0 })
	_, err = s.pool.Exec(ctx, `WITH e AS (DELETE FROM tidings.event WHERE seq <= $1::bigint) UPDATE tidings.conversation SET min_seq = $1::bigint + 1`, first)
	s.must(err)
	if got := s.once(byKey); len(got) > 0 {
		t.Errorf("the provider got %q", got)
	}
	if queued() != 1 {
		t.Fatal("nobody looks again")
	}
	until(t, "they are notified of the second", notified)
	for len(s.bodies) == 0 {
		s.once(byKey)
	}
	if diff := cmp.Diff([]string{"second"}, s.bodies); diff != "" {
		t.Error(diff)
	}
}

// A conversation that shows no texts any more shows none of what was to be shown, and a repeat is no longer the same request.
func TestPreviewThatIsSwitchedOff(t *testing.T) {
	s := newShown(t)
	seq := s.say("m-1", "hello")
	s.tell("u-ben", seq)
	s.answer = func() channel.Outcome { return channel.Outcome{Code: tidings.IOError} }
	if diff := cmp.Diff([]string{"hello"}, s.hashed(20, byKey)); diff != "" {
		t.Error(diff)
	}
	no := false
	_, err := s.ChangeSettings(t.Context(), "c-1", store.SettingsChange{Preview: &no})
	s.must(err)
	s.answer = func() channel.Outcome { return channel.Outcome{Code: tidings.Accepted} }
	_, err = s.Join(t.Context(), "c-1", "u-cyd", "")
	s.must(err)
	s.tell("u-cyd", s.say("m-2", "hello"))
	var got []string
	until(t, "both are gone through", func() bool {
		got = append(got, s.hashed(20, byKey)...)
		return strings.Count(strings.Join(s.ends(), " "), "IO_ERROR NOT_SENT") == 1 && len(got) > 0
	})
	if diff := cmp.Diff([]string{""}, got); diff != "" {
		t.Error(diff)
	}
}
