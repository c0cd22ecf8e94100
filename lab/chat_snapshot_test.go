// The check 40-sync-one-snapshot.

package lab_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-sync-one-snapshot",
		Expect: "while 2 devices send, 2 users leave and join, and the gateways purge what is older than 300 ms, a member and one of those who come and go sync from anywhere, over the WebSocket " +
			"and over HTTP: each page is one moment of the log, every seq of it is that event or is withheld for the reason that it had then, by an oracle that knows the whole past " +
			"and rejects each of 9 lies",
		Run: syncOneSnapshot,
	})
}

// stir is what goes on in c-1 while pages of it are read.
type stir struct {
	*chat
	senders []*peer
	node    *node // that changes members
	readers []stirReader

	minSeq, head atomic.Int64 // committed for certain
	moves, done  atomic.Int64 // changes of members; readers that have read enough
	over         atomic.Bool
}

// stirReader is a user who reads by some way, and what was given.
type stirReader struct {
	user  string
	ask   pager
	given []told
}

func (s *stir) ended() bool { return s.over.Load() || s.Failed() || s.ctx.Err() != nil }

// send sends one message after the other.
func (s *stir) send(i int) {
	for n := 0; !s.ended(); n++ {
		if f := s.senders[i].ask(message("c-1", fmt.Sprintf("m-%d-%d", i, n), fmt.Sprintf("message %d of %d", n, i))); f.t() != "sent" {
			s.Errorf("send: %v", f)
		}
		pauseABit()
	}
}

// move has a user leave and join again and again.
func (s *stir) move(user string, stream uint64) {
	r := random(s.Rand().Uint64(), stream)
	for n := 0; !s.ended(); n++ {
		method := []string{http.MethodDelete, http.MethodPut}[n%2]
		if f := s.node.server("", method, "/v1/conversations/c-1/members/"+user, nil); f.status/100 != 2 {
			s.Errorf("%s %s: %s", method, user, f.raw)
		}
		s.moves.Add(1)
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond) // how often is random
	}
}

// watch notes what is committed, until enough has happened.
func (s *stir) watch(events, moves, purges int64) {
	for !s.ended() {
		var minSeq, head, steps int64
		err := s.pool.QueryRow(s.ctx, `SELECT c.min_seq, c.next_seq - 1, (SELECT count(*) FROM tidings.lab_purge) FROM tidings.conversation c WHERE c.conv_id = 'c-1'`).Scan(&minSeq, &head, &steps)
		if err != nil {
			s.Errorf("look at the conversation: %v", err)
		}
		s.minSeq.Store(minSeq)
		s.head.Store(head)
		s.over.Store(s.done.Load() == int64(len(s.readers)) && head >= events && s.moves.Load() >= moves && steps >= purges)
		pauseABit()
	}
}

// read reads pages from anywhere; so many are enough.
func (s *stir) read(x *stirReader, stream uint64, enough int) {
	r, head := random(s.Rand().Uint64(), stream), int64(4)
	for !s.ended() {
		t := told{user: x.user, minSeq: s.minSeq.Load()}
		if x.user == "ben" { // the head of one who has left does not grow
			t.head = s.head.Load()
		}
		if t.page = x.ask(r.Int64N(head+1), 1+r.IntN(60)); !t.page.has("events") {
			s.Errorf("sync of %s: %v", x.user, t.page)
			return
		}
		head = t.page.num("head")
		if x.given = append(x.given, t); len(x.given) == enough {
			s.done.Add(1)
		}
		pauseABit()
	}
}

func syncOneSnapshot(t *lab.T) {
	const pages, messages, moves, purges = 300, 300, 40, 8 // at least
	c := newChat(t)
	quick, often := with("TIDINGS_GATEWAY_RATE", "100000"), with("TIDINGS_HOUSEKEEPING_EACH", "100ms")
	a, b := c.node("a", quick, often), c.node("b", quick, often)
	a.conversation("c-1", "ana", "ben", "cid", "dan")
	c.auditLog("c-1")
	a.keeps("c-1", 300*time.Millisecond)
	s := &stir{chat: c, node: a, senders: []*peer{a.device("ana", "ana-1"), b.device("ana", "ana-2")}, readers: []stirReader{
		{user: "ben", ask: a.device("ben", "ben-1").pages("c-1")}, {user: "ben", ask: b.pages("ben", "c-1")},
		{user: "cid", ask: b.device("cid", "cid-1").pages("c-1")}, {user: "cid", ask: a.pages("cid", "c-1")}}}
	began := time.Now()
	c.Together("senders, movers, readers", 2+2+1+len(s.readers), func(i int) {
		switch {
		case i < 2:
			s.send(i)
		case i < 4:
			s.move([]string{"cid", "dan"}[i-2], uint64(i))
		case i == 4:
			s.watch(messages+moves, moves, purges)
		default:
			s.read(&s.readers[i-5], uint64(i), pages)
		}
	})

	p := c.audited("c-1")
	wrong, withheld, found := 0, map[string]int{}, map[string]int{}
	missed := map[string]bool{}
	for _, x := range s.readers {
		for _, t := range x.given {
			if why := p.judge(t); why != "" {
				if wrong++; wrong <= 5 {
					c.Errorf("a page of %s is wrong: %s: head %d, min_seq %d, after %d, withheld %v", x.user, why, t.page.num("head"), t.page.num("min_seq"), t.page.num("after"), t.page["withheld"])
				}
				continue
			}
			for _, w := range t.page.list("withheld") {
				withheld[w.str("why")]++
			}
			for name, lie := range p.doctored(t) {
				if found[name]++; p.judge(lie) == "" {
					missed[name] = true
				}
			}
		}
		c.Examined("pages", len(x.given))
	}
	c.Equal("pages that are no moment of the log", 0, wrong)
	c.True("some ranges are withheld for each reason", withheld["trimmed"] > 0 && withheld["not_member"] > 0)
	c.Equal("lies that were told", slices.Sorted(maps.Keys(lies)), slices.Sorted(maps.Keys(found)))
	c.Equal("lies that the oracle believes", 0, len(missed))
	c.Figure("events", float64(len(p.events)), "")
	c.Figure("in", time.Since(began).Seconds(), "s")
	c.Figure("steps of purges", float64(len(p.purges)-1), "")
	c.Figure("changes of members", float64(s.moves.Load()), "")
	c.whole()
}
