// The check 06-ack-monotonic-and-bounded.

package lab_test

import (
	"fmt"
	"sync"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "06-ack-monotonic-and-bounded",
		Expect: "acks out of order, repeated, many at once and beyond the head: each answer carries the stored cursor, which never goes back and never passes the head; " +
			"0 and less are INVALID_ARGUMENT; an ack beyond the head does not cover what comes later",
		Run: acks,
	})
}

// delivered is a device's cursor as it stands in the database; 0 is none.
func (c *chat) delivered(conv, user, device string) int64 {
	c.Helper()
	return one[int64](c.scene, `SELECT coalesce(max(seq), 0) FROM tidings.delivered WHERE conv_id = $1 AND user_id = $2 AND device_id = $3`, conv, user, device)
}

func acks(t *lab.T) {
	const last = 40 // seq
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")
	for i := 3; i <= last; i++ {
		ana.say("c-1", fmt.Sprint("m-", i), "hello")
	}
	ack := func(seq int64) frame { return frame{"t": "ack", "conv": "c-1", "seq": seq} }

	var cursor int64
	for _, seq := range []int64{5, 3, 5, 7, 2, 7, 1} {
		f := ben.ask(ack(seq))
		cursor = max(cursor, seq)
		c.Equal(fmt.Sprintf("ack %d: answer, seq", seq), []any{"acked", cursor}, []any{f.t(), f.num("seq")})
		c.Equal(fmt.Sprintf("ack %d: stored", seq), cursor, c.delivered("c-1", "ben", "ben-1"))
	}
	for _, seq := range []int64{0, -1} {
		c.Equal(fmt.Sprintf("ack %d", seq), "INVALID_ARGUMENT", ben.ask(ack(seq)).code())
	}
	c.Equal("stored after that", cursor, c.delivered("c-1", "ben", "ben-1"))

	// Many at once in a random order, while the stored cursor is looked at again and again.
	order := t.Rand().Perm(last - 1)
	var answers sync.Map // seq → stored value of the answer
	done, watched := make(chan struct{}), make(chan []int64, 1)
	go func() { // received below
		var seen []int64
		for {
			select {
			case <-done:
				watched <- seen
				return
			default:
				seen = append(seen, c.delivered("c-1", "ben", "ben-1"))
			}
		}
	}()
	c.Together("acks of one device", len(order), func(i int) {
		seq := int64(order[i] + 1) // up to the last but one
		answers.Store(seq, ben.ask(ack(seq)).num("seq"))
	})
	close(done)
	back, previous := 0, cursor
	seen := <-watched
	for _, at := range seen {
		if at < previous {
			back++
		}
		previous = at
	}
	c.Equal("looks that found the cursor further back", 0, back)
	c.Note("the stored cursor was looked at %d times", len(seen))
	below, beyond := 0, 0
	answers.Range(func(seq, stored any) bool {
		if stored.(int64) < seq.(int64) {
			below++
		}
		if stored.(int64) > last-1 {
			beyond++
		}
		return true
	})
	c.Equal("answers below their own ack, or beyond the greatest", []int{0, 0}, []int{below, beyond})
	c.Equal("stored in the end", last-1, c.delivered("c-1", "ben", "ben-1"))

	f := ben.ask(ack(last + 1000))
	c.Equal("beyond the head: answer, seq", []any{"acked", last}, []any{f.t(), f.num("seq")})
	c.Equal("beyond the head: stored", last, c.delivered("c-1", "ben", "ben-1"))
	next := ana.say("c-1", "m-next", "later")
	ben.event("c-1", next)
	c.Equal("after one more message: stored, head", []int64{last, last + 1}, []int64{c.delivered("c-1", "ben", "ben-1"), c.head("c-1")})
	list := ben.ask(frame{"t": "conversations"}).list("list")
	c.Equal("in the list: delivered, head", []int64{last, last + 1}, []int64{list[0].num("delivered"), list[0].num("head")})
	c.Equal("the other user's device", 0, c.delivered("c-1", "ana", "ana-1"))
}
