// The checks 05-slow-receiver-bounded, 05-slow-receiver-recovers-by-sync.

package lab_test

import (
	"fmt"
	"strings"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "05-slow-receiver-bounded",
		Expect: "who reads nothing is disconnected with 4002 after at most 256 KiB waited for it for longer than a second, and 16 times as much for less; the queues of the gateway are empty then; " +
			"the others have got every event, in order",
		Run: func(t *lab.T) { slowReceiver(t) },
	})
	lab.Register(lab.Check{
		ID:     "05-slow-receiver-recovers-by-sync",
		Expect: "what it had received is the beginning of the log without a hole; it connects again, and sync from there gives the rest: the log, each event once",
		Run:    slowReceiverRecovers,
	})
}

const queueBytes = 16 * 256 << 10 // of events that wait for one receiver at most

// slow is a receiver that was disconnected because it did not read.
type slow struct {
	c   *chat
	n   *node
	got []frame // what it found in its socket when it read at last
}

// slowReceiver has sid stop reading while ana sends and ben receives, until the gateway has disconnected sid.
func slowReceiver(t *lab.T) slow {
	c := newChat(t)
	n := c.node("n1", with("TIDINGS_GATEWAY_RATE", "10000"))
	n.conversation("c-1", "ana", "ben", "sid")
	s := n.socket("sid", "sid-1")
	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")

	const cut = `tidings_gateway_closes_total{code="4002"}`
	const most, each, atOnce = 2000, 16_000, 4
	body := strings.Repeat("x", each)
	sent, waited := 0, 0.0
	for ; sent < most && n.metric(cut) == 0; sent += atOnce {
		rids := make([]string, atOnce)
		for i := range rids {
			rids[i] = ana.send(message("c-1", fmt.Sprint("m-", sent+i), body))
		}
		for _, rid := range rids {
			if f := ana.reply(rid); f.t() != "sent" {
				c.Fatalf("send: %v", f)
			}
		}
		waited = max(waited, n.metric("tidings_gateway_queue_bytes"))
	}
	proof := ""
	if sent < most {
		proof = fmt.Sprintf("it had read none of %d events of %d bytes when the gateway closed the connection", sent, each)
	}
	c.Fault(fault.New("reads nothing", "sid's device", proof))
	code, before := s.ends()
	c.Equal("sid's connection was closed with", 4002, code)
	c.Equal("connections closed as slow", 1, int(n.metric(cut)))
	// Those who read have something waiting, too, for a moment.
	c.True(fmt.Sprintf("at most %d bytes waited for the three at any look", 3*queueBytes), waited <= 3*queueBytes)
	c.Figure("most bytes that waited", waited, "B")

	for i := range 20 { // the marker: these are sent after the cut
		ana.say("c-1", fmt.Sprint("later-", i), body)
	}
	head := c.head("c-1")
	ben.event("c-1", head)
	ana.event("c-1", head)
	for _, p := range []*peer{ana, ben} {
		c.Equal("events at "+p.dev+", in order and without a hole", int(head)-3, run(p.received("event")))
	}
	c.Until("nothing waits any more", soon, func() bool { return n.metric("tidings_gateway_queue_bytes") == 0 })

	c.Equal("ana's and ben's connections live", []string{"conversations", "conversations"},
		[]string{ana.ask(frame{"t": "conversations"}).t(), ben.ask(frame{"t": "conversations"}).t()})
	return slow{c, n, before}
}

// run is how many messages there are among pushes, if they are the first of the log, each once and in order; otherwise -1. The joins
// of the members, events 1 to 3, may be pushed or not.
func run(pushes []frame) (n int) {
	for _, f := range pushes {
		seq := f.sub("event").num("seq")
		if seq < 4 {
			continue
		}
		if n++; seq != int64(3+n) {
			return -1
		}
	}
	return n
}

func slowReceiverRecovers(t *lab.T) {
	s := slowReceiver(t)
	c := s.c
	had := run(s.got)
	c.True("what it had received has no hole", had >= 0)
	from := int64(3 + max(had, 0))
	missed := c.head("c-1") - from
	c.True("it missed something", missed > 0)
	p := s.n.device("sid", "sid-1")
	var synced, stored []string
	for after, more := from, true; more; {
		page := p.ask(frame{"t": "sync", "conv": "c-1", "after": after, "limit": 50})
		if page.t() != "events" {
			c.Fatalf("sync: %v", page)
		}
		for _, e := range page.list("events") {
			after = e.num("seq")
			synced = append(synced, fmt.Sprint(after, " ", e.str("cmid"), " ", len(e.str("body"))))
		}
		more = page.flag("more")
	}
	for _, e := range c.log("c-1")[from:] {
		stored = append(stored, fmt.Sprint(e.seq, " ", e.cmid, " ", len(e.body)))
	}
	c.True("the rest by sync is the rest of the log", strings.Join(stored, "\n") == strings.Join(synced, "\n"))
	c.Equal("events it had missed", missed, len(synced))
	c.Examined("events of the log", had+len(synced))
	seq := s.n.device("ana", "ana-2").say("c-1", "afterwards", "x")
	c.Equal("and it is pushed to again", "afterwards", p.event("c-1", seq).str("cmid"))
}
