// Tests of reviews.

package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func (b *bench) resolution(d store.TaskDetail, verb string) store.Resolution {
	return store.Resolution{Task: d.ID, Verb: verb, Note: "asked the provider", By: "ops", AttemptCount: d.AttemptCount}
}

func TestListReviews(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	var want []tidings.UUID
	for i := range 5 {
		want = append(want, b.parked("u-ana", fmt.Sprint("e", i)).ID)
	}
	b.parked("u-ben", "e")
	b.exec(`UPDATE tidings.task SET doubt_at = $1 WHERE id = ANY ($2)`, "2024-01-01T00:00:00.000001Z", want[1:3]) // equal times

	slices.SortFunc(want[1:3], func(x, y tidings.UUID) int { return strings.Compare(x.String(), y.String()) })
	want = slices.Concat(want[1:3], want[:1], want[3:])
	var got []tidings.UUID
	filter := store.ReviewFilter{Channel: "plain", User: "u-ana", Limit: 2}
	for pages := 0; ; pages++ {
		items, next, err := b.ListReviews(ctx, filter)
		b.must(err)
		for _, r := range items {
			got = append(got, r.ID)
			if !r.Review || r.EventKey == "" || r.User != "u-ana" || r.AttemptCount != 1 {
				t.Errorf("item %+v", r)
			}
		}
		if filter.After = next; next == "" {
			break
		}
		if pages > 5 {
			t.Fatal("the list does not end")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the list is %v, want %v", got, want)
	}
	if items, next, err := b.ListReviews(ctx, store.ReviewFilter{}); err != nil || len(items) != 6 || next != "" {
		t.Errorf("without a filter: %d items, next %q, %v", len(items), next, err)
	}
	if items, _, err := b.ListReviews(ctx, store.ReviewFilter{Channel: "push"}); err != nil || len(items) != 0 {
		t.Errorf("on another channel: %d items, %v", len(items), err)
	}
	for _, bad := range []string{"x", "eA", "MSAy"} {
		_, _, err := b.ListReviews(ctx, store.ReviewFilter{After: bad})
		b.want(tidings.InvalidArgument, err)
	}
}

func TestResolve(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for verb, want := range map[string]struct {
		state   tidings.State
		outcome tidings.Outcome
	}{store.VerbSent: {tidings.Sent, tidings.ManualSent}, store.VerbFailed: {tidings.Failed, tidings.ManualFailed}} {
		d := b.parked("u-ana", verb)
		r := b.resolution(d, verb)
		stale := r
		stale.AttemptCount--
		b.want(tidings.Conflict, b.Resolve(ctx, stale))
		b.must(b.Resolve(ctx, r))
		b.want(tidings.AlreadySettled, b.Resolve(ctx, r))
		d = b.detail(d.ID)
		if d.State != want.state || d.Review || d.SettledBy != "ops" || d.AttemptCount != 2 || !d.InDoubt || d.NextAttemptAt != nil {
			t.Errorf("%s made it %+v", verb, d.Task)
		}
		if a := d.Attempts[1]; a.Outcome != want.outcome || a.Worker != "ops" || a.Detail != "asked the provider" || a.Action != tidings.ActionNone || a.N != 2 {
			t.Errorf("%s wrote %+v", verb, a)
		}
	}
	pending := b.detail(b.task(push, "u-ana", "pending"))
	b.want(tidings.AlreadySettled, b.Resolve(ctx, b.resolution(pending, store.VerbSent)))
	b.want(tidings.NotFound, b.Resolve(ctx, store.Resolution{Task: tidings.UUID{1}, Verb: store.VerbSent, By: "ops"}))
	for _, r := range []store.Resolution{{Verb: "sent", By: "ops"}, {Verb: store.VerbSent}, {Verb: store.VerbSent, By: strings.Repeat("x", 129)},
		{Verb: store.VerbSent, By: "ops", Note: "\x00"}} {
		r.Task = pending.ID
		if r.Note != "" {
			d := b.parked("u-ana", "bad-note")
			r.Task, r.AttemptCount = d.ID, d.AttemptCount
		}
		b.want(tidings.InvalidArgument, b.Resolve(ctx, r))
	}
	b.kept()
}

func TestResend(t *testing.T) {
	b := newBench(t)
	d := b.parked("u-ana", "e1")
	b.must(b.Resolve(t.Context(), b.resolution(d, store.VerbResend)))
	again := b.detail(d.ID)
	if again.State != tidings.Unknown || again.Review || !again.Forced || again.BudgetLeft != d.BudgetLeft+1 || again.SettledBy != "" ||
		again.NextAttemptAt == nil || !again.InDoubt || !again.DoubtAt.Equal(*d.DoubtAt) {
		t.Fatalf("after the resend %+v", again.Task)
	}
	b.want(tidings.AlreadySettled, b.Resolve(t.Context(), b.resolution(again, store.VerbSent)))
	c := b.claimOne(plain)
	if c.Held.Action != tidings.ActionSend || !c.Held.Forced {
		t.Fatalf("the claim took %+v", c.Held)
	}
	b.finish(c, tidings.Timeout, "")
	// The page that was shown before cannot settle what was parked since.
	b.want(tidings.Conflict, b.Resolve(t.Context(), b.resolution(d, store.VerbSent)))
	b.must(b.Resolve(t.Context(), b.resolution(b.detail(d.ID), store.VerbSent)))
	if got, want := b.outcomes(d.ID), []tidings.Outcome{tidings.Timeout, tidings.ManualResend, tidings.Timeout, tidings.ManualSent}; !slices.Equal(got, want) {
		t.Errorf("journal %v, want %v", got, want)
	}
	b.kept()
}

// What must not be sent any more is not resent: the next claim would only park it again.
func TestResendRefused(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for why, stop := range map[string]func(d store.TaskDetail){
		"cancelled": func(d store.TaskDetail) { _, err := b.CancelNotification(ctx, d.Notification); b.must(err) },
		"expired":   func(d store.TaskDetail) { b.expire(d.Notification) },
		"gone": func(d store.TaskDetail) {
			b.exec(`UPDATE tidings.notification SET about_gone_at = now() WHERE id = $1`, d.Notification)
		},
		"optout":     func(d store.TaskDetail) { _, err := b.PutOptout(ctx, d.User, "news", ""); b.must(err) },
		"optout-one": func(d store.TaskDetail) { _, err := b.PutOptout(ctx, d.User, "news", "plain"); b.must(err) },
		"disabled": func(d store.TaskDetail) {
			_, err := b.PutPref(ctx, d.User, store.Pref{Channel: "plain", Address: "a"}, nil)
			b.must(err)
		},
		"deleted": func(d store.TaskDetail) { _, err := b.DeletePref(ctx, d.User, "plain", ""); b.must(err) },
	} {
		d := b.parked("u-"+why, "e1", func(n *tidings.Notification) { n.Category = "news" })
		stop(d)
		err := b.Resolve(ctx, b.resolution(d, store.VerbResend))
		b.want(tidings.InvalidArgument, err)
		if after := b.detail(d.ID); after.AttemptCount != d.AttemptCount || !after.Review {
			t.Errorf("%s: the refused resend left %+v", why, after.Task)
		}
		b.must(b.Resolve(ctx, b.resolution(d, store.VerbFailed)))
	}
	b.kept()
}

// expire ends a notification's time to live. Moving its creation too keeps the row valid.
func (b *bench) expire(id tidings.UUID) {
	b.t.Helper()
	b.exec(`UPDATE tidings.notification SET created_at = created_at - interval '1 day', expires_at = clock_timestamp() WHERE id = $1`, id)
}

// Of persons who settle a task at once, by different words, exactly one does.
func TestResolveAtOnce(t *testing.T) {
	b := newBench(t)
	verbs := []string{store.VerbSent, store.VerbFailed, store.VerbResend}
	for round := range 5 {
		d := b.parked("u-ana", fmt.Sprint("e", round))
		var won atomic.Int32
		atOnce(9, func(i int) {
			switch err := b.Resolve(t.Context(), b.resolution(d, verbs[i%3])); tidings.ErrorCode(err) {
			case "":
				won.Add(1)
			case tidings.AlreadySettled:
			default:
				t.Error(err)
			}
		})
		if after := b.detail(d.ID); won.Load() != 1 || after.AttemptCount != 2 || len(after.Attempts) != 2 {
			t.Fatalf("%d settled it; it has %d attempts", won.Load(), len(after.Attempts))
		}
		b.exec(`UPDATE tidings.task SET next_attempt_at = 'infinity' WHERE state = 'UNKNOWN'`) // out of the next round's way
	}
	b.kept()
}

func TestResolveMany(t *testing.T) {
	b := newBench(t)
	one, two := b.parked("u-ana", "e1"), b.parked("u-ana", "e2")
	answers := b.ResolveMany(t.Context(), []store.Resolution{
		b.resolution(two, store.VerbFailed), b.resolution(one, store.VerbSent), b.resolution(two, store.VerbSent), {Task: tidings.UUID{1}, Verb: store.VerbSent, By: "ops"},
	})
	for i, want := range []tidings.Code{"", "", tidings.AlreadySettled, tidings.NotFound} {
		b.want(want, answers[i])
	}
	if s1, s2 := b.detail(one.ID).State, b.detail(two.ID).State; s1 != tidings.Sent || s2 != tidings.Failed {
		t.Errorf("the tasks are %s and %s", s1, s2)
	}
}
