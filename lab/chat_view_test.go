// Readers of a log on every path, which note that each seq is explained.

package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

// view is what a user can read of a conversation by one path.
type view struct {
	seqs     []int64
	withheld []string // "from-to why"
	head     int64
	events   []logged
	text     string // everything that was said, to look for what must not be in it
	pages    int
}

// pager asks for one page of a conversation.
type pager func(after int64, limit int) frame

// pages reads over the WebSocket.
func (p *peer) pages(conv string) pager {
	return func(after int64, limit int) frame {
		return p.askForContent(frame{"t": "sync", "conv": conv, "epoch": 0, "after": after, "limit": limit})
	}
}

// askForContent asks until there is an answer: one with content is taken back, as UNAVAILABLE, when something of the conversation was
// recalled before it was written.
func (p *peer) askForContent(request frame) frame {
	p.c.Helper()
	for tries := 0; ; tries++ {
		f := p.ask(request)
		if f.t() != "error" || f.str("code") != string(tidings.Unavailable) || tries == 100 {
			return f
		}
		pauseABit()
	}
}

// pages reads over HTTP, with the user's own token.
func (n *node) pages(user, conv string) pager {
	return func(after int64, limit int) frame {
		return n.as(user, http.MethodGet, fmt.Sprintf("/v1/conversations/%s/events?after=%d&limit=%d", conv, after, limit), nil).body
	}
}

// pagesFor reads over HTTP as a server in the user's name.
func (n *node) pagesFor(user, conv string) pager {
	return func(after int64, limit int) frame {
		return n.server(user, http.MethodGet, fmt.Sprintf("/v1/conversations/%s/events?after=%d&limit=%d", conv, after, limit), nil).body
	}
}

// explains tells whether a page has a reason for every seq after its after up to its last one, and none twice; withheld are its
// ranges.
func explains(page frame) (last int64, withheld []frame, ok bool) {
	events := page.list("events")
	withheld = page.list("withheld")
	last = page.num("after")
	hidden := withheld
	for len(events) > 0 || len(hidden) > 0 {
		if len(hidden) > 0 && hidden[0].num("from") == last+1 && hidden[0].num("to") > last {
			last, hidden = hidden[0].num("to"), hidden[1:]
		} else if len(events) > 0 && events[0].num("seq") == last+1 {
			last, events = last+1, events[1:]
		} else {
			return last, withheld, false
		}
	}
	return last, withheld, page.flag("more") || last == page.num("head")
}

// read reads a conversation from the beginning, limit events at a time, and records that every seq is explained.
func (c *chat) read(ask pager, limit int) (v view) {
	c.Helper()
	for after, more := int64(0), true; more; v.pages++ {
		page := ask(after, limit)
		if !page.has("events") {
			c.Fatalf("read a page after %d: %v", after, page)
		}
		last, withheld, ok := explains(page)
		if !ok || page.num("after") != after {
			c.Errorf("a page after %d leaves a seq unexplained at %d", after, last+1)
			return v
		}
		for _, e := range page.list("events") {
			v.seqs = append(v.seqs, e.num("seq"))
			v.events = append(v.events, logged{seq: e.num("seq"), kind: e.str("kind"), sender: e.str("sender"), cmid: e.str("cmid"), body: e.str("body")})
		}
		for _, w := range withheld {
			v.hide(w.num("from"), w.num("to"), w.str("why"))
		}
		v.text += textOf(page)
		v.head, after, more = page.num("head"), last, page.flag("more")
	}
	return v
}

// hide adds a range, to the one before where they are one.
func (v *view) hide(from, to int64, why string) {
	if n := len(v.withheld) - 1; n >= 0 {
		var f, t int64
		var w string
		if _, err := fmt.Sscanf(v.withheld[n], "%d-%d %s", &f, &t, &w); err == nil && t == from-1 && w == why {
			v.withheld, from = v.withheld[:n], f
		}
	}
	v.withheld = append(v.withheld, fmt.Sprintf("%d-%d %s", from, to, why))
}

// fetches are what fetching each seq from 1 to last gives, as "seq kind" or "seq CODE", over the WebSocket and over HTTP.
func (c *chat) fetches(p *peer, n *node, conv string, last int64) (got []string, text string) {
	c.Helper()
	for seq := int64(1); seq <= last; seq++ {
		ws := p.ask(frame{"t": "fetch", "conv": conv, "epoch": 0, "seq": seq})
		web := n.as(p.user, http.MethodGet, fmt.Sprintf("/v1/conversations/%s/events/%d", conv, seq), nil)
		said := ws.code() + ws.sub("event").str("kind")
		if other := web.body.code() + web.body.sub("event").str("kind"); said != other {
			said += " but over HTTP " + other
		}
		got = append(got, fmt.Sprintf("%d %s", seq, said))
		text += textOf(ws) + web.raw
	}
	return got, text
}

// listed is a conversation as it stands in the list of the peer's user, which HTTP has to give the same.
func (c *chat) listed(p *peer, n *node, conv string) frame {
	c.Helper()
	find := func(list []frame) frame {
		i := slices.IndexFunc(list, func(f frame) bool { return f.str("conv") == conv })
		if i < 0 {
			return nil
		}
		return list[i]
	}
	ws := find(p.askForContent(frame{"t": "conversations"}).list("list"))
	web := n.as(p.user, http.MethodGet, "/v1/conversations?device="+p.dev, nil)
	if a, b := textOf(ws), textOf(find(web.body.list("list"))); a != b {
		c.Errorf("the list of %s: %s, over HTTP %s", p.user, a, b)
	}
	return ws
}

// pushed are the seqs of a conversation after a seq that were pushed to the device, in order. Whoever connects while a conversation is
// new may be pushed the first joins, too.
func (p *peer) pushed(conv string, after int64) (seqs []int64) {
	for _, f := range p.received("event") {
		if e := f.sub("event"); e.str("conv") == conv && e.num("seq") > after {
			seqs = append(seqs, e.num("seq"))
		}
	}
	return seqs
}

// heard is everything that the device was told, as text.
func (p *peer) heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.pushes, p.replies)
}

// mentions counts how often texts contain a word.
func mentions(word string, texts ...string) (n int) {
	for _, t := range texts {
		n += strings.Count(t, word)
	}
	return n
}

func textOf(f frame) string {
	data, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("write a frame: %v", err))
	}
	return string(data)
}

// seqsTo are first to last.
func seqsTo(first, last int64) (seqs []int64) {
	for s := first; s <= last; s++ {
		seqs = append(seqs, s)
	}
	return seqs
}

// fill appends n messages of a member by one statement, for a check that needs many: their cmids are m-<seq>.
func (c *chat) fill(conv, sender, body string, n int) {
	c.Helper()
	added := c.exec(`WITH c AS (UPDATE tidings.conversation SET next_seq = next_seq + $3::bigint WHERE conv_id = $1 RETURNING next_seq)
		INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, request_hash, body)
		SELECT $1::text, s, 'msg', gen_random_uuid(), $2::text, 'm-' || s, tidings.message_hash($4::text, NULL), $4::text
		  FROM c, generate_series(c.next_seq - $3::bigint, c.next_seq - 1) s`, conv, sender, n, body)
	c.Equal("messages that were added to "+conv, n, added)
}

// sync waits until the client's copy of a conversation is as far as the log.
func (a *app) sync(conv string) {
	a.c.Helper()
	ctx, cancel := context.WithTimeout(a.c.ctx, soon)
	defer cancel()
	a.c.Must("sync "+conv, a.Sync(ctx, conv))
}

// copied is what has arrived of one history of a conversation, in the order in which it did; epoch 0 is any.
func (a *app) copied(conv string, epoch int64) (events []logged) {
	for _, u := range a.told() {
		if x, ok := u.(client.Arrived); ok && x.Event.Conv == conv && (epoch == 0 || x.Epoch == epoch) {
			e := logged{seq: x.Event.Seq, kind: string(x.Event.Kind), sender: x.Event.Sender, cmid: x.Event.Cmid}
			if x.Event.Body != nil {
				e.body = *x.Event.Body
			}
			events = append(events, e)
		}
	}
	return events
}
