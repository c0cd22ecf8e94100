// Tests of when a call is over: the clock decides, not a timer.

package smtp

import (
	"testing"
	"time"
)

// After a sleep the clock says that the call is over before any timer has run.
func TestExpiredAsksTheClock(t *testing.T) {
	for until, want := range map[time.Duration]bool{-time.Second: true, time.Minute: false} {
		c := &conn{ctx: t.Context(), until: time.Now().Add(until)}
		if got := c.expired(); got != want {
			t.Errorf("a call that ends in %v: expired is %v", until, got)
		}
	}
}
