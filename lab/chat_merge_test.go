// The checks 07-push-out-of-order, 07-gap-triggers-sync.

package lab_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "07-push-out-of-order",
		Expect: "the pushes of 300 messages and the answers to syncs reach a client in a random order, some of them twice, some again much later: to the application " +
			"everything comes once and in order, and the copy is the log",
		Run: pushOutOfOrder,
	})
	lab.Register(lab.Check{
		ID:     "07-gap-triggers-sync",
		Expect: "3 pushes in a row are lost and the 4th arrives: the client asks once, for these 3 and no more, and has the log; what comes later comes without a sync",
		Run:    gapTriggersSync,
	})
}

// shuffler keeps pushes and pages back until there are some, and passes them on in a random order, some twice. It is a mangler's state.
type shuffler struct {
	rand  *rand.Rand
	lot   int // how many at a time; 0: what is there goes out with the next frame
	held  []shuffled
	older []shuffled // a few of those that were passed before

	last          int64
	late, doubled int // pushes after a greater seq; passed once more
}

type shuffled struct {
	seq int64 // 0: a page
	raw []byte
}

func (s *shuffler) mangle(f frame, raw []byte) (out [][]byte) {
	if f.t() != "event" && f.t() != "events" {
		return [][]byte{raw}
	}
	s.held = append(s.held, shuffled{f.sub("event").num("seq"), raw})
	if len(s.held) < s.lot {
		return nil
	}
	for _, h := range s.held {
		switch {
		case h.seq == 0: // a second answer to one request is nothing a network does
		case s.rand.IntN(4) == 0:
			s.held = append(s.held, h)
			s.doubled++
		case s.rand.IntN(8) == 0:
			s.older = append(s.older, h)
		}
	}
	if len(s.older) > 8 {
		i := s.rand.IntN(len(s.older))
		s.held = append(s.held, s.older[i])
		s.older = append(s.older[:i], s.older[i+1:]...)
		s.doubled++
	}
	s.rand.Shuffle(len(s.held), func(i, j int) { s.held[i], s.held[j] = s.held[j], s.held[i] })
	for _, h := range s.held {
		if h.seq > 0 && h.seq < s.last {
			s.late++
		}
		s.last = max(s.last, h.seq)
		out = append(out, h.raw)
	}
	s.held = nil
	return out
}

func pushOutOfOrder(t *lab.T) {
	const messages = 300
	c := newChat(t)
	n := c.node("a", with("TIDINGS_GATEWAY_RATE", "100000"))
	n.conversation("c-1", "ben", "ana")
	s := &shuffler{rand: t.Rand()}
	way := n.relay(s.mangle)
	ana, ben := n.device("ana", "ana-1"), c.app(way.url, "ben", "ben-1")
	arrived := func(seq int64) {
		c.Helper()
		c.Until(fmt.Sprintf("%d events have arrived", seq), soon, func() bool { return len(ben.arrived("c-1")) >= int(seq) })
	}
	arrived(ana.say("c-1", "m-first", "in order"))

	lot := func(n int) {
		way.mu.Lock()
		defer way.mu.Unlock()
		s.lot = n
	}
	lot(12)
	for i := range messages {
		ana.say("c-1", fmt.Sprint("m-", i), fmt.Sprint("message ", i))
	}
	lot(0) // the next push takes along what is held
	arrived(ana.say("c-1", "m-last", "in order again"))
	way.mu.Lock()
	late, doubled := s.late, s.doubled
	way.mu.Unlock()
	proof := ""
	if late > 0 && doubled > 0 {
		proof = fmt.Sprintf("%d pushes came after a later one, %d once more", late, doubled)
	}
	c.Fault(fault.New("reorder and duplicate", "pushes and pages on the way to the client", proof))

	want := c.log("c-1")
	c.Equal("events in the log", messages+4, len(want))
	c.Equal("what the application was told, against the log: differences", 0, differences(want, ben.copied("c-1", 0)))
	events, upTo := ben.Events("c-1", 1, len(want)+1)
	var seqs []int64
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	c.Equal("the copy: seqs", seqsTo(1, int64(len(want))), seqs)
	c.Equal("the copy is complete up to", len(want), upTo.Seq)
	c.Until("everything is acknowledged", soon, func() bool { return c.delivered("c-1", "ben", "ben-1") == int64(len(want)) })
	c.Note("the client asked for %d syncs", len(way.requests("sync")))
}

func gapTriggersSync(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ben", "ana")
	lost := 0
	way := n.relay(func(f frame, raw []byte) [][]byte {
		if seq := f.sub("event").num("seq"); f.t() == "event" && 5 <= seq && seq <= 7 {
			lost++
			return nil
		}
		return [][]byte{raw}
	})
	ana, ben := n.device("ana", "ana-1"), c.app(way.url, "ben", "ben-1")
	ben.becomes(client.Online)
	arrived := func(seq int64) {
		c.Helper()
		c.Until(fmt.Sprintf("event %d has arrived", seq), soon, func() bool { return len(ben.arrived("c-1")) >= int(seq) })
	}
	ana.say("c-1", "m-3", "before")
	arrived(ana.say("c-1", "m-4", "before"))
	before := len(way.requests("sync"))

	for seq := 5; seq <= 8; seq++ {
		ana.say("c-1", fmt.Sprint("m-", seq), "lost but for the last one")
	}
	arrived(8)
	proof := ""
	if lost == 3 {
		proof = "the pushes of the seqs 5, 6 and 7 were taken out"
	}
	c.Fault(fault.New("lose", "3 pushes on their way to the client", proof))
	arrived(ana.say("c-1", "m-9", "after"))
	ben.queue("c-1", "m-10", "the other way")
	arrived(10)

	var asked []string
	for _, f := range way.requests("sync")[before:] {
		asked = append(asked, fmt.Sprintf("after %d, limit %d", f.num("after"), f.num("limit")))
	}
	c.Equal("syncs since then", []string{"after 4, limit 3"}, asked)
	c.Equal("what the application was told, against the log: differences", 0, differences(c.log("c-1"), ben.copied("c-1", 0)))
	c.Equal("fetches", 0, len(way.requests("fetch")))
}
