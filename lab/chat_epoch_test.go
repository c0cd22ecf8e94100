// The check 07-cursor-ahead-and-epoch.

package lab_test

import (
	"fmt"
	"net/http"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "07-cursor-ahead-and-epoch",
		Expect: "after > head is CURSOR_AHEAD with head and epoch, another epoch is EPOCH_CHANGED whatever the number; a client whose log lost its end to a restore drops its copy, " +
			"has the new history whole, and tells of its own message that is gone, both when the epoch changed and when only the end is missing",
		Run: cursorAheadAndEpoch,
	})
}

// rewind takes the end of a log away, as a restore of an older backup does, and gives it another epoch if it should.
func (c *chat) rewind(conv string, head int64, epoch int64) {
	c.Helper()
	c.exec(`DELETE FROM tidings.event WHERE conv_id = $1 AND seq > $2`, conv, head)
	c.exec(`UPDATE tidings.delivered SET seq = least(seq, $2) WHERE conv_id = $1`, conv, head)
	c.exec(`UPDATE tidings.read SET seq = least(seq, $2) WHERE conv_id = $1`, conv, head)
	c.Equal("logs that were rewound", 1, c.exec(`UPDATE tidings.conversation SET next_seq = $2 + 1, epoch = $3 WHERE conv_id = $1`, conv, head, epoch))
}

func (c *chat) epoch(conv string) int64 {
	c.Helper()
	return one[int64](c.scene, `SELECT epoch FROM tidings.conversation WHERE conv_id = $1`, conv)
}

func cursorAheadAndEpoch(t *lab.T) {
	c := newChat(t)
	a := c.node("a")
	a.conversation("c-1", "ben", "ana")
	way := a.relay(nil)
	ana := a.device("ana", "ana-1")
	ben := c.app(way.url, "ben", "ben-1")
	for i := 3; i <= 6; i++ {
		ana.say("c-1", fmt.Sprint("m-", i), "first history")
	}
	own := ben.answered(ben.queue("c-1", "b-7", "will be gone"))
	ana.say("c-1", "m-8", "first history")
	arrives := func(epoch int64, n int) {
		c.Helper()
		c.Until(fmt.Sprintf("%d events have arrived", n), soon, func() bool { return len(ben.copied("c-1", epoch)) >= n })
	}
	first := c.epoch("c-1")
	arrives(first, 8)
	acknowledges := func(seq int64) { // a gateway that is killed leaves nothing that the database is still busy with
		c.Helper()
		c.Until(fmt.Sprintf("%d is acknowledged", seq), soon, func() bool { return c.delivered("c-1", "ben", "ben-1") == seq })
	}
	acknowledges(8)
	c.resyncs(a, ana, first)

	// A restore: the log ends at 5, in another history, which goes on with other messages.
	c.Note("stopped: %v", a.Kill())
	second := first + 1
	c.rewind("c-1", 5, second)
	b := c.node("b")
	ana = b.device("ana", "ana-1")
	ana.say("c-1", "n-6", "second history")
	way.to(b)
	arrives(second, 6)
	c.Equal("the second history, against the log: differences", 0, differences(c.log("c-1"), ben.copied("c-1", second)))
	c.Until("the client tells of its own message", soon, func() bool { return len(ben.fates(first)) > 1 })
	c.Equal("dropped and lost", []string{"dropped: epoch +1", fmt.Sprintf("lost: b-7 of seq %d", own.Seq)}, ben.fates(first))
	ana.say("c-1", "n-7", "pushed")
	arrives(second, 7)
	acknowledges(7)

	// Another one that nobody has declared: the same epoch, and the log ends at 6.
	c.Note("stopped: %v", b.Kill())
	c.rewind("c-1", 6, second)
	d := c.node("d")
	way.to(d)
	ben.becomes(client.Online)
	ben.sync("c-1")
	c.Equal("events in the copy after the sync", 6, func() int { e, _ := ben.Events("c-1", 1, 100); return len(e) }())
	d.device("ana", "ana-2").say("c-1", "n-8", "instead")
	arrives(second, 7+7)
	c.Equal("told since, against the log: differences", 0, differences(c.log("c-1"), ben.copied("c-1", second)[7:]))
	c.Equal("dropped and lost in the end", []string{"dropped: epoch +1", fmt.Sprintf("lost: b-7 of seq %d", own.Seq), "dropped: epoch +1"}, ben.fates(first))
	c.whole()
}

// fates are what the application was told of histories that ended, epochs counted from first; an event of a former history after its
// end is one too.
func (a *app) fates(first int64) (told []string) {
	now := first
	for _, u := range a.told() {
		switch u := u.(type) {
		case client.Dropped:
			now = u.Epoch
			told = append(told, fmt.Sprintf("dropped: epoch +%d", now-first))
		case client.Lost:
			told = append(told, fmt.Sprintf("lost: %s of seq %d", u.Cmid, u.Sent.Seq))
		case client.Arrived:
			if u.Epoch != now {
				told = append(told, fmt.Sprintf("arrived: %d of epoch +%d", u.Event.Seq, u.Epoch-first))
			}
		}
	}
	return told
}

// resyncs are the refusals of a server to a device that is ahead or knows another history.
func (c *chat) resyncs(n *node, p *peer, epoch int64) {
	c.Helper()
	head := c.head("c-1")
	for _, x := range []struct {
		what         string
		epoch, after int64
		code         string
		head         bool
	}{
		{"after the head", 0, head, "", false},
		{"beyond the head", 0, head + 1, "CURSOR_AHEAD", true},
		{"beyond the head in the right epoch", epoch, head + 1000, "CURSOR_AHEAD", true},
		{"an older epoch", epoch - 1, 0, "EPOCH_CHANGED", false},
		{"a later epoch", epoch + 1, 0, "EPOCH_CHANGED", false},
		{"an older epoch, beyond the head", epoch - 1, head + 1, "EPOCH_CHANGED", false},
	} {
		for way, f := range map[string]frame{
			"WebSocket": p.ask(frame{"t": "sync", "conv": "c-1", "epoch": x.epoch, "after": x.after, "limit": 100}),
			"HTTP": n.as(p.user, http.MethodGet,
				fmt.Sprintf("/v1/conversations/c-1/events?epoch=%d&after=%d", x.epoch, x.after), nil).body,
		} {
			want, retry := []any{x.code, epoch, "resync"}, f.str("retry")
			if x.code == "" {
				retry = "resync" // no error has one
			}
			if c.Equal(x.what+" over "+way+": code, epoch, retry", want, []any{f.code(), f.num("epoch"), retry}) && x.head {
				c.Equal(x.what+" over "+way+": head", head, f.num("head"))
			}
		}
	}
}
