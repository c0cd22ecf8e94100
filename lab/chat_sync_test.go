// The checks 07-sync-pages, 07-sync-during-writes, 07-limit-bounded.

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID:     "07-sync-pages",
		Expect: "a log of 1 000 events and more, read in pages of 37, 100 and 500 over the WebSocket and over HTTP: each reading is the log, every event once and in order",
		Run:    syncPages,
	})
	lab.Register(lab.Check{
		ID: "07-sync-during-writes",
		Expect: "3 devices at 2 gateways and an application whose transactions partly roll back write, while others read in small pages at both gateways: no page leaves a seq " +
			"unexplained, and what each has read in the end is the log",
		Run: syncDuringWrites,
	})
	lab.Register(lab.Check{
		ID: "07-limit-bounded",
		Expect: "asked for 10 000 of 700 events, a page has 500 and more=true, or what fills a frame of 64 KiB; without a limit 100; 0 and less are INVALID_ARGUMENT; " +
			"long messages end a page earlier, over HTTP at about a megabyte",
		Run: limitBounded,
	})
}

func syncPages(t *lab.T) {
	c := newChat(t)
	n := c.node("a", with("TIDINGS_GATEWAY_RATE", "100000"))
	n.conversation("c-1", "ben", "ana")
	c.fill("c-1", "ana", "hello", 1000)
	ben := n.device("ben", "ben-1")
	want := c.log("c-1")
	c.Equal("events in the log", 1002, len(want))
	for _, limit := range []int{37, 100, 500} {
		for way, ask := range map[string]pager{"WebSocket": ben.pages("c-1"), "HTTP": n.pages("ben", "c-1")} {
			v := c.read(ask, limit)
			what := fmt.Sprintf("pages of %d over %s", limit, way)
			c.Equal(what+": events that differ from the log", 0, differences(want, v.events))
			if way == "HTTP" || limit <= 100 { // a frame, with at most 64 KiB, holds fewer than 500
				c.Equal(what+": pages", (len(want)+limit-1)/limit, v.pages)
			}
			c.Equal(what+": withheld", []string{}, v.withheld)
			c.Examined("events", len(v.events))
		}
	}
}

// differences counts the places at which two logs differ.
func differences(want, got []logged) (n int) {
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			n++
		}
	}
	return n
}

// reading is a device that reads a log while it grows.
type reading struct {
	at          int64
	events      []logged
	pages, grew int // how many pages there were, and how many of them brought something
	fault       string
}

// follow reads pages of at most limit events until grown says that the log has grown for the last time and all of it is here.
func (r *reading) follow(ask pager, limit int, grown func() (head int64, done bool)) {
	for {
		head, done := grown()
		page := ask(r.at, limit)
		last, withheld, ok := explains(page)
		switch {
		case !page.has("events"):
			r.fault = "no page: " + textOf(page)
		case !ok || len(withheld) > 0:
			r.fault = fmt.Sprintf("seq %d is not explained", last+1)
		case page.num("head") < head:
			r.fault = fmt.Sprintf("the head is %d after it was %d", page.num("head"), head)
		}
		if r.fault != "" {
			return
		}
		for _, e := range page.list("events") {
			r.events = append(r.events, logged{seq: e.num("seq"), kind: e.str("kind"), sender: e.str("sender"), cmid: e.str("cmid"), body: e.str("body")})
		}
		r.pages++
		if last > r.at {
			r.grew++
		}
		if r.at = last; done && r.at == head {
			return
		}
	}
}

func syncDuringWrites(t *lab.T) {
	const each = 80
	c := newChat(t)
	quick := with("TIDINGS_GATEWAY_RATE", "100000")
	nodes := []*node{c.node("a", quick), c.node("b", quick)}
	nodes[0].conversation("c-1", "ben", "ana")
	writers := []*peer{nodes[0].device("ana", "ana-1"), nodes[0].device("ana", "ana-2"), nodes[1].device("ana", "ana-3")}
	readers := []pager{nodes[0].device("ben", "ben-1").pages("c-1"), nodes[1].device("ben", "ben-2").pages("c-1"), nodes[1].pages("ben", "c-1")}

	var writing atomic.Int64
	var head atomic.Int64 // of what the writers know to be committed
	head.Store(2)
	seen := func(seq int64) {
		for h := head.Load(); h < seq && !head.CompareAndSwap(h, seq); h = head.Load() {
		}
	}
	grown := func() (int64, bool) { // in this order: what is done has moved the head before
		done := writing.Load() == 0
		return head.Load(), done
	}
	writing.Store(int64(len(writers) + 1))
	read := make([]reading, len(readers))
	c.Together("writers and readers", len(writers)+1+len(readers), func(i int) {
		switch r := i - len(writers) - 1; {
		case i < len(writers):
			defer writing.Add(-1)
			for m := range each {
				f := writers[i].ask(message("c-1", fmt.Sprintf("d%d-%d", i, m), "hello"))
				if f.t() != "sent" {
					c.Errorf("send: %v", f)
					return
				}
				seen(f.num("seq"))
			}
		case r < 0:
			defer writing.Add(-1)
			for m := range each / 4 {
				seq, err := c.postSome("c-1", m, m%3 == 0)
				if err != nil {
					c.Errorf("post: %v", err)
					return
				}
				seen(seq)
			}
		default:
			read[r].follow(readers[r], 5+10*r, grown)
		}
	})
	want := c.log("c-1")
	for i, r := range read {
		what := fmt.Sprintf("reader %d", i+1)
		c.Equal(what+": fault", "", r.fault)
		c.Equal(what+": events that differ from the log", 0, differences(want, r.events))
		c.True(what+": the log grew while it read", r.grew > 1)
		c.Examined("pages", r.pages)
		c.Examined("events", len(r.events))
	}
	c.whole()
}

// postSome posts three messages in one transaction, and returns the last one's seq; 0 when it undoes them.
func (c *chat) postSome(conv string, n int, undo bool) (seq int64, err error) {
	undone := errors.New("undone")
	err = pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) error {
		var batch []tidings.Message
		for i := range 3 {
			batch = append(batch, tidings.Message{Conv: conv, Sender: "ben", Cmid: fmt.Sprintf("p%d-%d", n, i), Body: "posted"})
		}
		answers, err := outbox.Post(context.WithoutCancel(c.ctx), tx, batch...)
		if err != nil {
			return err
		}
		if undo {
			return undone
		}
		seq = answers[len(answers)-1].Seq
		return nil
	})
	if errors.Is(err, undone) {
		return 0, nil
	}
	return seq, err
}

func limitBounded(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ben", "ana")
	c.fill("c-1", "ana", "hello", 698)
	const long, many = 16384, 100
	n.conversation("c-long", "ben", "ana")
	c.fill("c-long", "ana", strings.Repeat("x", long), many)
	ben := n.device("ben", "ben-1")
	page := func(f frame) []any { return []any{len(f.list("events")), f.flag("more"), f.num("head")} }

	for way, ask := range map[string]pager{"WebSocket": ben.pages("c-1"), "HTTP": n.pages("ben", "c-1")} {
		f := ask(0, 10_000)
		most := 500
		if way == "WebSocket" {
			c.True("10 000 over WebSocket: the frame is at most 64 KiB", len(textOf(f)) <= 64<<10)
			most = min(most, len(f.list("events"))) // what is beyond the frame comes with the next one
			c.True("10 000 over WebSocket: the frame is nearly full", len(textOf(f)) > 60<<10)
		}
		c.Equal("10 000 over "+way+": events, more, head", []any{most, true, 700}, page(f))
		c.Equal("the rest over "+way+": events, more, head", []any{200, false, 700}, page(ask(500, 10_000)))
		c.Equal("exactly the rest over "+way+": events, more, head", []any{200, false, 700}, page(ask(500, 200)))
		c.Equal("after the head over "+way+": events, more, head", []any{0, false, 700}, page(ask(700, 1)))
		c.Equal("0 over "+way, "INVALID_ARGUMENT", ask(0, 0).code())
		c.Equal("-1 over "+way, "INVALID_ARGUMENT", ask(0, -1).code())
	}
	c.Equal("no limit over WebSocket: events, more, head", []any{100, true, 700}, page(ben.ask(frame{"t": "sync", "conv": "c-1", "after": 0})))
	c.Equal("no limit over HTTP: events, more, head", []any{100, true, 700},
		page(n.as("ben", http.MethodGet, "/v1/conversations/c-1/events?after=0", nil).body))

	for way, ask := range map[string]pager{"WebSocket": ben.pages("c-long"), "HTTP": n.pages("ben", "c-long")} {
		f := ask(0, 500)
		size, most := len(textOf(f)), map[string]int{"WebSocket": 64 << 10, "HTTP": 1<<20 + 2*long}[way]
		c.True(fmt.Sprintf("long messages over %s: a page of %d bytes has at most %d", way, size, most), size <= most)
		c.Equal("long messages over "+way+": more", true, f.flag("more"))
		c.Equal("long messages over "+way+": events in the end", many+2, len(c.read(ask, 500).seqs))
	}
}
