// The checks 09-read-max-wins, 09-read-bounded, 09-read-reaches-other-devices.

package lab_test

import (
	"net/http"
	"slices"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "09-read-max-wins",
		Expect: "1 000 reads at once from 5 devices at 2 gateways in a random order: the stored cursor never drops and ends at the greatest; no answer is below its own read, or " +
			"below an answer that was there before it was asked; the last answer is the stored value",
		Run: readMaxWins,
	})
	lab.Register(lab.Check{
		ID:     "09-read-bounded",
		Expect: "a read beyond the head is CURSOR_AHEAD with the head, one of another epoch EPOCH_CHANGED whatever its number, 0 and less INVALID_ARGUMENT: nothing is stored",
		Run:    readBounded,
	})
	lab.Register(lab.Check{
		ID: "09-read-reaches-other-devices",
		Expect: "a read on one device comes to the user's others at both gateways as cursor, with what is unread; not to the device itself, not to another user; one that was " +
			"offline has it in its list, and the client library tells it; a read that moves nothing is not told; one over HTTP comes to all of them",
		Run: readReachesOtherDevices,
	})
}

// readCursor is how far a user has read, as it stands in the database; 0 is none.
func (c *chat) readCursor(conv, user string) int64 {
	c.Helper()
	return one[int64](c.scene, `SELECT coalesce(max(seq), 0) FROM tidings.read WHERE conv_id = $1 AND user_id = $2`, conv, user)
}

// timedRead is a read and when it was asked and answered.
type timedRead struct {
	seq, stored     int64
	asked, answered time.Time
}

// below counts the answers that are less than an answer which was there before they were asked.
func below(reads []timedRead) (n int) {
	byAsked, byAnswered := slices.Clone(reads), slices.Clone(reads)
	slices.SortFunc(byAsked, func(a, b timedRead) int { return a.asked.Compare(b.asked) })
	slices.SortFunc(byAnswered, func(a, b timedRead) int { return a.answered.Compare(b.answered) })
	known, i := int64(0), 0
	for _, r := range byAsked {
		for ; byAnswered[i].answered.Before(r.asked); i++ {
			known = max(known, byAnswered[i].stored)
		}
		if r.stored < known {
			n++
		}
	}
	return n
}

func readMaxWins(t *lab.T) {
	const head, devices = 1000, 5
	c := newChat(t)
	quick := with("TIDINGS_GATEWAY_RATE", "100000")
	nodes := []*node{c.node("a", quick), c.node("b", quick)}
	nodes[0].conversation("c-1", "ben", "ana")
	c.fill("c-1", "ana", "hello", head-2)
	var peers []*peer
	for i := range devices {
		peers = append(peers, nodes[i%2].device("ben", "ben-"+string(rune('1'+i))))
	}

	done, watched := make(chan struct{}), make(chan []int64, 1)
	go func() { // received below
		var seen []int64
		for {
			select {
			case <-done:
				watched <- seen
				return
			default:
				seen = append(seen, c.readCursor("c-1", "ben"))
			}
		}
	}()
	order := t.Rand().Perm(head)
	reads := make([]timedRead, head)
	c.Together("reads of one user", head, func(i int) {
		r := timedRead{seq: int64(order[i] + 1), asked: time.Now()}
		f := peers[i%devices].ask(frame{"t": "read", "conv": "c-1", "epoch": 0, "seq": r.seq})
		r.stored, r.answered = f.num("seq"), time.Now()
		if f.t() != "read" {
			c.Errorf("read %d: %v", r.seq, f)
		}
		reads[i] = r
	})
	close(done)
	seen := <-watched
	own, beyond := 0, 0
	for _, r := range reads {
		if r.stored < r.seq {
			own++
		}
		if r.stored > head {
			beyond++
		}
	}
	c.Equal("answers below their own read, beyond the greatest", []int{0, 0}, []int{own, beyond})
	c.Equal("answers below one that was there before they were asked", 0, below(reads))
	c.True("no look found the cursor further back", slices.IsSorted(seen))
	c.Equal("stored in the end", head, c.readCursor("c-1", "ben"))
	c.Equal("answer to one more read of 1", head, peers[0].ask(cursorTo("read", 1)).num("seq"))
	c.Note("the stored cursor was looked at %d times", len(seen))
}

func readBounded(t *lab.T) {
	c, n := cursors(t, 10)
	ben := n.device("ben", "ben-1")
	epoch := c.epoch("c-1")
	for _, before := range []int64{0, 4} {
		if before > 0 {
			ben.ask(cursorTo("read", before))
		}
		for _, x := range []struct {
			epoch, seq int64
			code       string
			status     int
		}{
			{0, 11, "CURSOR_AHEAD", http.StatusConflict}, {epoch, 1 << 50, "CURSOR_AHEAD", http.StatusConflict},
			{epoch - 1, 6, "EPOCH_CHANGED", http.StatusConflict}, {epoch + 1, 11, "EPOCH_CHANGED", http.StatusConflict},
			{epoch, 0, "INVALID_ARGUMENT", http.StatusBadRequest}, {epoch, -1, "INVALID_ARGUMENT", http.StatusBadRequest},
		} {
			f := ben.ask(frame{"t": "read", "conv": "c-1", "epoch": x.epoch, "seq": x.seq})
			c.Equal("code", x.code, f.code())
			a := n.as("ben", http.MethodPut, "/v1/conversations/c-1/read", map[string]any{"epoch": x.epoch, "seq": x.seq})
			c.Equal("over HTTP: status, code", []any{x.status, x.code}, []any{a.status, a.body.code()})
			switch x.code {
			case "CURSOR_AHEAD":
				c.Equal("head, epoch", [][]int64{{10, epoch}, {10, epoch}}, [][]int64{{f.num("head"), f.num("epoch")}, {a.body.num("head"), a.body.num("epoch")}})
			case "EPOCH_CHANGED":
				c.Equal("epoch", []int64{epoch, epoch}, []int64{f.num("epoch"), a.body.num("epoch")})
			}
			c.Equal("stored", before, c.readCursor("c-1", "ben"))
		}
	}
	f := ben.ask(frame{"t": "read", "conv": "c-1", "epoch": epoch, "seq": 10})
	c.Equal("the head itself: answer, seq, epoch", []any{"read", 10, epoch}, []any{f.t(), f.num("seq"), f.num("epoch")})
	c.Equal("stored in the end", 10, c.readCursor("c-1", "ben"))
}

func readReachesOtherDevices(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.conversation("c-1", "ben", "ana")
	c.fill("c-1", "ana", "hello", 8)
	first, second, third, ana := a.device("ben", "ben-1"), a.device("ben", "ben-2"), b.device("ben", "ben-3"), a.device("ana", "ana-1")
	epoch := c.epoch("c-1")
	told := func(f frame) []any {
		return []any{f.str("conv"), f.num("epoch"), f.num("read"), f.num("unread"), f.flag("unread_more")}
	}
	isCursor := func(f frame) bool { return f.t() == "cursor" }

	f := first.ask(cursorTo("read", 6))
	c.Equal("the reply: seq, unread", []int64{6, 4}, []int64{f.num("seq"), f.num("unread")})
	for _, p := range []*peer{second, third} {
		c.Equal(p.dev+" is told: conv, epoch, read, unread, more", []any{"c-1", epoch, 6, 4, false}, told(p.await("a cursor", soon, isCursor)))
	}
	first.ask(cursorTo("read", 5)) // moves nothing
	third.ask(cursorTo("read", 9))
	for _, p := range []*peer{first, second} {
		c.Equal(p.dev+" is told next", []any{"c-1", epoch, 9, 1, false}, told(p.await("a cursor", soon, isCursor)))
	}
	seq := ana.say("c-1", "m-last", "after that")
	for _, p := range []*peer{first, second, third, ana} {
		p.event("c-1", seq)
	}
	c.Equal("told in all: ben-1, ben-2, ben-3, ana-1", []int{1, 2, 1, 0},
		[]int{len(first.received("cursor")), len(second.received("cursor")), len(third.received("cursor")), len(ana.received("cursor"))})

	row := c.listed(b.device("ben", "ben-4"), b, "c-1")
	c.Equal("one that was offline: read, unread", []int64{9, 2}, []int64{row.num("read"), row.num("unread")})
	app := c.app(b.url, "ben", "ben-5")
	moved := func() (last client.ReadMoved) {
		for _, u := range app.told() {
			if m, ok := u.(client.ReadMoved); ok {
				last = m
			}
		}
		return last
	}
	c.Until("the client library tells it", soon, func() bool { return moved().Seq == 9 })
	c.Equal("it tells: unread", 2, moved().Unread)
	first.ask(cursorTo("read", 10))
	c.Until("it tells what is read while it is online", soon, func() bool { return moved().Seq == 10 })
	c.Equal("it tells: unread", 1, moved().Unread)

	web := b.as("ben", http.MethodPut, "/v1/conversations/c-1/read", map[string]any{"seq": seq})
	c.Equal("a read over HTTP: status", http.StatusOK, web.status)
	for _, p := range []*peer{first, second, third} {
		c.Equal(p.dev+" is told of it", []any{"c-1", epoch, seq, 0, false},
			told(p.await("a cursor", soon, func(f frame) bool { return isCursor(f) && f.num("read") == seq })))
	}
}
