// The check 40-stale-epoch.

package lab_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-stale-epoch",
		Expect: "after a recovery, sync, fetch, ack, read and recall with the former epoch, with one that never was, and with numbers that are right or beyond the head, over the WebSocket and " +
			"over HTTP: EPOCH_CHANGED with the present epoch each time, and no row of the conversation changes; with the present epoch each of them acts",
		Run: staleEpoch,
	})
}

// aged is a request that names an epoch and a seq, in both protocols.
type aged struct {
	t      string // of its frame
	method string
	path   string
	body   func(epoch, seq int64) any // nil: in the query
	frame  func(seq int64) frame
}

func agedRequests() []aged {
	return []aged{
		{"sync", http.MethodGet, "/events?after=%[2]d&epoch=%[1]d", nil, func(seq int64) frame { return frame{"after": seq} }},
		{"fetch", http.MethodGet, "/events/%[2]d?epoch=%[1]d", nil, func(seq int64) frame { return frame{"seq": seq} }},
		{"ack", http.MethodPut, "/delivered", func(epoch, seq int64) any {
			return frame{"epoch": epoch, "seq": seq, "device": "ana-1", "install": "ana-1-install"}
		}, func(seq int64) frame { return frame{"seq": seq} }},
		{"read", http.MethodPut, "/read", func(epoch, seq int64) any { return frame{"epoch": epoch, "seq": seq} }, func(seq int64) frame { return frame{"seq": seq} }},
		{"recall", http.MethodPost, "/recalls", func(epoch, seq int64) any {
			return frame{"epoch": epoch, "target": seq, "cmid": fmt.Sprint("http-", seq)}
		}, func(seq int64) frame { return frame{"target": seq, "cmid": fmt.Sprint("ws-", seq)} }},
	}
}

// ways are the two ways to make the request.
func (r aged) ways(p *peer, n *node) map[string]func(epoch, seq int64) frame {
	return map[string]func(epoch, seq int64) frame{
		"WebSocket": func(epoch, seq int64) frame {
			f := r.frame(seq)
			maps.Copy(f, frame{"t": r.t, "conv": "c-1", "epoch": epoch})
			return p.ask(f)
		},
		"HTTP": func(epoch, seq int64) frame {
			path, body := "/v1/conversations/c-1"+r.path, any(nil)
			if r.body != nil {
				body = r.body(epoch, seq)
			} else {
				path = fmt.Sprintf(path, epoch, seq)
			}
			a := n.as(p.user, r.method, path, body)
			a.body["status"] = float64(a.status)
			return a.body
		},
	}
}

// rows is everything that the database holds of a conversation, as text.
func (c *chat) rows(conv string) (rows []string) {
	c.Helper()
	for _, table := range []string{"conversation", "event", "member", "delivered", "read", "tombstone", "posted", "taken_back", "gone"} {
		rows = append(rows, one[[]string](c.scene, `SELECT coalesce(array_agg('`+table+` ' || t::text ORDER BY t::text), '{}') FROM tidings.`+table+` t WHERE conv_id = $1`, conv)...)
	}
	return rows
}

func staleEpoch(t *lab.T) {
	c := newChat(t)
	a := c.node("a")
	a.conversation("c-1", "ana", "ben")
	ana := a.device("ana", "ana-1")
	for i := 3; i <= 8; i++ {
		ana.say("c-1", fmt.Sprint("m-", i), "of the former history")
	}
	former := c.epoch("c-1")
	c.Equal("acked before", 3, ana.ask(frame{"t": "ack", "conv": "c-1", "epoch": former, "seq": 3}).num("seq"))
	c.Equal("read before", 3, ana.ask(frame{"t": "read", "conv": "c-1", "epoch": former, "seq": 3}).num("seq"))
	a.Terminate()
	c.True("the gateway exits with 0", a.Exit(soon).Success())
	c.tidings("recover", "--without-journal")
	now := c.epoch("c-1")
	proof := ""
	if now > former {
		proof = "the conversation has a greater epoch"
	}
	c.Fault(fault.New("recovery", "the database", proof))

	b := c.node("b")
	ana = b.device("ana", "ana-1")
	c.Until("what was posted is taken", soon, func() bool { return one[int](c.scene, `SELECT count(*) FROM tidings.posted`) == 0 })
	before := c.rows("c-1")
	for _, r := range agedRequests() {
		for way, ask := range r.ways(ana, b) {
			for what, epoch := range map[string]int64{"the former epoch": former, "one that never was": now + 1} {
				for _, seq := range []int64{5, 1000} {
					f := ask(epoch, seq)
					want, told := []any{"EPOCH_CHANGED", now, "resync"}, []any{f.code(), f.num("epoch"), f.str("retry")}
					if way == "HTTP" {
						want, told = append(want, http.StatusConflict), append(told, f.num("status"))
					}
					c.Equal(fmt.Sprintf("%s of %d with %s over %s: code, epoch, retry", r.t, seq, what, way), want, told)
					c.Examined("refused requests", 1)
				}
			}
		}
	}
	after := c.rows("c-1")
	c.Equal("rows of the conversation that differ", 0, len(slices.DeleteFunc(slices.Clone(after), func(r string) bool { return slices.Contains(before, r) }))+len(before)-len(after))
	c.Examined("rows", len(after))

	for _, r := range agedRequests() {
		for way, ask := range r.ways(ana, b) {
			seq := map[string]int64{"WebSocket": 5, "HTTP": 6}[way]
			f := ask(now, seq)
			c.Equal(fmt.Sprintf("%s of %d with the present epoch over %s: no refusal, epoch", r.t, seq, way), []any{"", now}, []any{f.code(), f.num("epoch")})
		}
	}
	c.Equal("stored: delivered, read", []int64{6, 6}, []int64{c.delivered("c-1", "ana", "ana-1"), c.readCursor("c-1", "ana")})
	c.Equal("recalled rows", 2, one[int](c.scene, `SELECT count(*) FROM tidings.event WHERE conv_id = 'c-1' AND seq IN (5, 6) AND recalled_by IS NOT NULL AND body IS NULL`))
	c.whole()
}
