// Tests of the right to one call: used once, never late, never after it is sealed.

package channel

import (
	"context"
	"errors"
	"testing"
	"time"
)

func newCall(t *testing.T, late time.Duration) *call {
	ctx := WithStartBy(t.Context(), time.Now().Add(late))
	ctx, cancel := context.WithCancelCause(ctx)
	t.Cleanup(func() { cancel(nil) })
	return &call{ctx: ctx, cancel: cancel, stats: &doorStats{}}
}

func TestOneUseOfACallWrites(t *testing.T) {
	c := newCall(t, time.Hour)
	first, second := &use{c}, &use{c}
	if err := c.start(first); err != nil {
		t.Fatalf("the first use: %v", err)
	}
	if err := c.start(first); err != nil {
		t.Errorf("more bytes of the first use: %v", err)
	}
	if err := c.start(second); !errors.Is(err, errSecondRequest) {
		t.Errorf("the second use: %v", err)
	}
	if !errors.Is(context.Cause(c.ctx), errSecondRequest) {
		t.Error("the second use did not cancel the call")
	}
	if !c.seal() {
		t.Error("a call of which something left counts as not written")
	}
	if got := (DoorStats{Written: c.stats.written.Load(), Refused: c.stats.refused.Load()}); got != (DoorStats{Written: 1, Refused: 1}) {
		t.Errorf("stats %+v", got)
	}
}

func TestNothingLeavesASealedCall(t *testing.T) {
	c := newCall(t, time.Hour)
	if c.seal() {
		t.Fatal("a call of which nothing left counts as written")
	}
	if err := c.start(&use{c}); !errors.Is(err, errSealed) {
		t.Errorf("a use after the end: %v", err)
	}
}

func TestNothingLeavesALateCall(t *testing.T) {
	c := newCall(t, -time.Millisecond)
	if err := c.start(&use{c}); !errors.Is(err, errTooLate) {
		t.Errorf("a late use: %v", err)
	}
	if c.seal() {
		t.Error("a late call counts as written")
	}
}
