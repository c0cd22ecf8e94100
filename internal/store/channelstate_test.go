// Tests of pauses, and of what is told of channels.

package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestPauseAndResume(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.task(push, "u-ana", "e1")
	b.must(b.PauseChannel(ctx, "push", nil, "provider is down", "ops"))
	if n := len(b.claim(push, 1)); n != 0 {
		t.Fatalf("%d tasks of a paused channel were claimed", n)
	}
	states, err := b.ChannelStates(ctx)
	b.must(err)
	if len(states) != 1 || states[0].Channel != "push" || !states[0].Paused || states[0].Until != nil || states[0].Reason != "provider is down" || states[0].By != "ops" {
		t.Errorf("ChannelStates = %+v", states)
	}

	until := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	b.must(b.PauseChannel(ctx, "push", &until, "a minute ago", "ops"))
	states, err = b.ChannelStates(ctx)
	b.must(err)
	if len(states) != 1 || states[0].Paused || !states[0].Until.Equal(until) || states[0].Reason != "a minute ago" {
		t.Errorf("ChannelStates = %+v", states)
	}
	if n := len(b.claim(push, 1)); n != 1 {
		t.Fatalf("%d tasks were claimed after the pause was over", n)
	}

	b.must(b.PauseChannel(ctx, "push", nil, "", "ops"))
	b.must(b.ResumeChannel(ctx, "push"))
	b.must(b.ResumeChannel(ctx, "push"))
	if states, err = b.ChannelStates(ctx); err != nil || len(states) != 0 {
		t.Errorf("ChannelStates = %+v, %v", states, err)
	}
	b.want(tidings.InvalidArgument, b.PauseChannel(ctx, "a b", nil, "", "ops"))
}

func TestChannelHealth(t *testing.T) {
	b := newBench(t)
	b.parked("u-ana", "parked")
	for i := range 3 {
		b.task(push, "u-ana", fmt.Sprint("due", i))
	}
	b.claim(push, 1)
	later := time.Now().Add(time.Hour)
	b.task(push, "u-ana", "later", func(n *tidings.Notification) { n.NotBefore = &later })
	health, err := b.ChannelHealth(t.Context(), []string{"push", "plain", "none"})
	b.must(err)
	if h := health[0]; h.Channel != "push" || h.Due != 2 || h.InFlight != 1 || h.Review != 0 || h.OldestDue == nil || h.OldestDue.After(time.Now()) {
		t.Errorf("push: %+v", h)
	}
	if h := health[1]; h.Due != 0 || h.InFlight != 0 || h.Review != 1 || h.OldestDue != nil {
		t.Errorf("plain: %+v", h)
	}
	if h := health[2]; h.Due != 0 || h.InFlight != 0 || h.Review != 0 || h.OldestDue != nil {
		t.Errorf("none: %+v", h)
	}
}

func TestGauges(t *testing.T) {
	b := newBench(t)
	urgent := tidings.Urgent
	b.parked("u-ana", "parked")
	b.task(push, "u-ana", "code", func(n *tidings.Notification) { n.Priority = &urgent })
	b.task(push, "u-ana", "order")
	b.exec(`UPDATE tidings.task SET next_attempt_at = next_attempt_at - interval '1 hour' WHERE channel = 'push' AND priority = 1`)
	b.claim(push, 1) // the urgent one
	if _, err := b.RecordReceipts(t.Context(), "push", receipts("foreign", "", "delivered")); err != nil {
		t.Fatal(err)
	}
	hold, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = hold.Rollback(t.Context()) }()
	_, err = hold.Exec(t.Context(), `INSERT INTO tidings.channel_state SELECT 'x', now(), '', '', now()`)
	b.must(err)

	b.task(store.Lane{Channel: "nobody"}, "u-ana", "lost")
	b.exec(`UPDATE tidings.task SET next_attempt_at = next_attempt_at - interval '1 hour' WHERE channel = 'nobody'`)
	if scheduled, err := b.ScheduledChannels(t.Context()); err != nil || !slices.Equal(scheduled, []string{"nobody", "push"}) {
		t.Errorf("tasks are scheduled on %v, %v", scheduled, err)
	}

	g, err := b.Gauges(t.Context(), []string{"push", "plain"})
	b.must(err)
	for _, o := range g.OldestDue {
		if hour := o.Channel != "plain" && o.Priority == tidings.Normal; hour && (o.Seconds < 3600 || o.Seconds > 3700) || !hour && o.Seconds != 0 {
			t.Errorf("oldest due %+v", o)
		}
	}
	if len(g.OldestDue) != 9 || g.InFlight["push"] != 1 || g.InFlight["plain"] != 0 || g.Review["plain"] != 1 || g.Review["push"] != 0 || g.UnmatchedReceipts != 1 {
		t.Errorf("Gauges = %+v", g)
	}
	if h := g.Horizon; !h.Known || h.Seconds <= 0 || h.Seconds > 60 || h.Transactions < 1 {
		t.Errorf("a transaction is open, the horizon is %+v", h)
	}
}
