// Tests of wake-ups between processes.

package bus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

const (
	patience = 30 * time.Second // for what has no bound of its own
	bound    = 5 * time.Second  // after which whatever was lost has been caught up with
)

func TestWakesAreHeardAndCoalesced(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	a, b := acquainted(t, url, url)
	const convs, rounds = 200, 50
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("u-", i))
	}
	for head := int64(1); head <= rounds; head++ {
		for i := range convs {
			a.Publish(bus.Wake{Conv: fmt.Sprint("c", i), Epoch: 7, Head: head})
		}
	}
	a.Publish(bus.Wake{Conv: "c0", Epoch: 7, Head: 3, Joined: names})
	a.Tell(bus.Item{Cursor: &bus.Cursor{User: "u", Conv: "c", Epoch: 7, Read: 3, Unread: 1, More: true}},
		bus.Item{Displaced: &bus.Displaced{Gateway: "gw-b", User: "u", Connection: tidings.UUID{1, 2}}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	b.await("every conversation has reached its head", patience, func() bool {
		heads := b.heads()
		for i := range convs {
			if heads[fmt.Sprint("c", i)] != rounds {
				return false
			}
		}
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	joined := map[string]bool{}
	var cursor *bus.Cursor
	var displaced *bus.Displaced
	for _, i := range b.items {
		switch {
		case i.Wake != nil:
			for _, name := range i.Wake.Joined {
				joined[name] = true
			}
		case i.Cursor != nil:
			cursor = i.Cursor
		case i.Displaced != nil:
			displaced = i.Displaced
		}
	}
	if len(joined) != len(names) {
		t.Errorf("%d of %d names were heard", len(joined), len(names))
	}
	if cursor == nil || *cursor != (bus.Cursor{User: "u", Conv: "c", Epoch: 7, Read: 3, Unread: 1, More: true}) {
		t.Errorf("the cursor is %+v", cursor)
	}
	if displaced == nil || displaced.Connection != (tidings.UUID{1, 2}) {
		t.Errorf("%+v was heard", displaced)
	}
	if len(b.items) > convs*rounds/2 {
		t.Errorf("%d wake-ups came as %d", convs*rounds, len(b.items))
	}
	if len(b.caught) != 0 {
		t.Errorf("nothing was lost, but it was caught up with %v", b.caught)
	}
}

func TestTheLongestIdsFit(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	worst := strings.Repeat("<", tidings.MaxID) // six bytes each in JSON
	a, b := open(t, url, worst), open(t, url, "gw-b")
	var names []string
	for i := range 20 {
		names = append(names, worst[:tidings.MaxID-2]+fmt.Sprintf("%02d", i))
	}
	a.Publish(bus.Wake{Conv: worst, Epoch: tidings.MaxNumber - 1, Head: tidings.MaxNumber - 1, Joined: names})
	a.Tell(bus.Item{Cursor: &bus.Cursor{User: worst, Conv: worst}}, bus.Item{Displaced: &bus.Displaced{Gateway: worst, User: worst}})
	b.await("all of it is heard", patience, func() bool {
		heard := map[string]bool{}
		others := 0
		for _, i := range b.items {
			if i.Wake == nil {
				others++
				continue
			}
			for _, name := range i.Wake.Joined {
				heard[name] = true
			}
		}
		return len(heard) == len(names) && others == 2
	})
}

func TestATerminatedListenerCatchesUp(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	a, b := acquainted(t, url, url)
	exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidings listen' AND datname = current_database()`)
	a.Publish(bus.Wake{Conv: "c", Head: 9}) // perhaps lost
	t.Logf("caught up after %v", b.await("it catches up with everybody", bound, b.caughtUp("*")))
	b.awaitHearing(a)
}

func TestABlackHoleIsNoticed(t *testing.T) {
	t.Parallel()
	direct := pgtest.NewEmptyURL(t)
	url, proxy := through(t, direct)
	a, b := acquainted(t, direct, url)
	receipt := proxy.Hold(tcpproxy.Both)
	if receipt.Proof == "" {
		t.Fatal("no connection was held")
	}
	a.Publish(bus.Wake{Conv: "c", Head: 9})
	t.Logf("caught up after %v", b.await("it catches up with everybody", bound, b.caughtUp("*")))
	b.forget()
	for range 2 { // again and again while it is deaf
		b.await("it catches up again", bound, func() bool { return len(b.caught) > 0 })
		b.forget()
	}
	proxy.Release(tcpproxy.Both)
	b.await("it listens again", bound, b.caughtUp("*"))
	b.awaitHearing(a)
}

func TestASilentSenderIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	direct := pgtest.NewEmptyURL(t)
	url, proxy := through(t, direct)
	a, b := acquainted(t, direct, url)
	if receipt := proxy.Hold(tcpproxy.ToServer); receipt.Proof == "" {
		t.Fatal("no connection was held")
	}
	b.Publish(bus.Wake{Conv: "c", Head: 9})
	t.Logf("caught up after %v", a.await("the silent sender is caught up with", bound, a.caughtUp("gw-b")))
	a.await("and again while it is silent", bound, a.caughtUp("gw-b+"))
	proxy.Release(tcpproxy.ToServer)
	a.awaitHead("c", 9) // it was told late, and not lost
	a.forget()
	b.Publish(bus.Wake{Conv: "c", Head: 10})
	a.awaitHead("c", 10)
}

func TestASenderThatWasNeverHeard(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	a := open(t, url, "gw-a")
	a.Expect([]string{"gw-a", "gw-mute"})
	a.await("it is caught up with", bound, a.caughtUp("gw-mute"))
	a.await("and again", bound, a.caughtUp("gw-mute+"))
	a.forget()
	a.Expect([]string{"gw-a"})
	a.await("and for the last time", bound, a.caughtUp("gw-mute"))
	a.forget()
	time.Sleep(bound) // nothing follows
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.caught) > 0 {
		t.Errorf("what has ended is caught up with: %v", a.caught)
	}
}

func TestOneWhoSaysGoodbyeIsNotMissed(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	a, b := acquainted(t, url, url)
	b.Publish(bus.Wake{Conv: "last", Head: 3})
	b.stop()
	a.awaitHead("last", 3)
	time.Sleep(bound)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.caught) > 0 {
		t.Errorf("it is caught up with %v", a.caught)
	}
}

// told is what a sender tells, as the listener reads it.
func told(t *testing.T, url, sender, run string, number int64, conv string, head int64) {
	t.Helper()
	text := map[string]any{"g": sender, "r": run, "n": number}
	if conv != "" {
		text["i"] = []any{map[string]any{"w": map[string]any{"c": conv, "h": head}}}
	}
	payload, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, url, `SELECT pg_notify($1, $2)`, bus.Channel, string(payload))
}

func TestAHoleIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	a := open(t, url, "gw-a")
	caught := func(want int) {
		t.Helper()
		exec(t, url, `NOTIFY other`) // what came before it was judged when it is heard
		a.mu.Lock()
		woken := a.woken
		a.mu.Unlock()
		a.await("the channel's other end", patience, func() bool { return a.woken > woken || len(a.caught) > want })
		a.mu.Lock()
		defer a.mu.Unlock()
		n := 0
		for _, c := range a.caught {
			if c == "x" {
				n++
			}
		}
		if n != want {
			t.Fatalf("caught up %d times with x, want %d", n, want)
		}
	}
	told(t, url, "x", "run-1", 5, "c", 1) // unknown
	a.awaitHead("c", 1)
	caught(1)
	told(t, url, "x", "run-1", 6, "c", 2)
	a.awaitHead("c", 2)
	told(t, url, "x", "run-1", 6, "", 0) // a repetition
	told(t, url, "x", "run-1", 6, "c", 99)
	caught(1)
	told(t, url, "x", "run-1", 8, "c", 3) // 7 is missing
	a.awaitHead("c", 3)
	caught(2)
	told(t, url, "x", "run-1", 9, "", 0) // 9 was something else
	a.await("the hole before a repetition is noticed", patience, func() bool { return len(a.caught) >= 4 })
	told(t, url, "x", "run-2", 1, "c", 4) // a new process of the name
	a.awaitHead("c", 4)
	caught(4)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.items {
		if i.Wake.Head == 99 {
			t.Error("what was heard twice was given twice")
		}
	}
}
