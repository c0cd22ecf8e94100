// The check 11-recall-idempotent.

package lab_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-recall-idempotent",
		Expect: "the recall of seq 4 again, by the same and another device, over HTTP, with another history's epoch and when the window is over: each time seq 5, dup=true; with another target " +
			"IDEMPOTENCY_MISMATCH; 8 devices at once under one cmid: one recall; a client whose answer was lost asks again under its cmid and is told dup=true",
		Run: recallAgain,
	})
}

func recallAgain(t *lab.T) {
	g := newGroup(t)
	g.play(7)
	other := g.n.device("u-ana", "u-ana-d2")
	again := func(when string) {
		g.Helper()
		rows := g.rows()
		for what, f := range map[string]frame{
			"the same device": g.ana.ask(recallOf("rc-1-recall", 4)), "another device": other.ask(recallOf("rc-1-recall", 4)),
			"another epoch": g.ana.ask(frame{"t": "recall", "conv": "c-g", "cmid": "rc-1-recall", "target": 4, "epoch": 7}),
			"HTTP":          g.n.as("u-ana", http.MethodPost, "/v1/conversations/c-g/recalls", frame{"cmid": "rc-1-recall", "target": 4}).body,
		} {
			g.Equal(when+", "+what+": refusal, seq, dup", []any{"", 5, true}, []any{f.code(), int(f.num("seq")), f.flag("dup")})
		}
		for what, f := range map[string]frame{
			"the recall's cmid, another target": g.ana.ask(recallOf("rc-1-recall", 6)), "another target over HTTP": g.n.as("u-ana", http.MethodPost,
				"/v1/conversations/c-g/recalls", frame{"cmid": "rc-1-recall", "target": 6}).body,
			"a message's cmid": g.ana.ask(recallOf("rc-2", 6)), "a message under the recall's cmid": g.ana.ask(message("c-g", "rc-1-recall", "x")),
		} {
			g.Equal(when+", "+what, "IDEMPOTENCY_MISMATCH", f.code())
		}
		g.Equal(when+": the rows are as before", rows, g.rows())
		g.Examined("rows", len(rows))
	}
	again("at once")
	g.window(300*time.Millisecond, 4)
	again("when the window is over")

	g.window(time.Hour, 0)
	const devices = 8
	var peers []*peer
	for i := range devices {
		peers = append(peers, g.n.device("u-ana", fmt.Sprint("u-ana-e", i)))
	}
	answers := make([]frame, devices)
	g.Together("the same recall", devices, func(i int) { answers[i] = peers[i].ask(recallOf("rc-3-recall", 7)) })
	first := 0
	for _, f := range answers {
		if f.t() != "recalled" || f.num("seq") != 8 {
			g.Errorf("a recall at the same time: %v", f)
		}
		if !f.flag("dup") {
			first++
		}
	}
	g.at = 8
	g.Equal("answers with dup=false", 1, first)
	g.Equal("recalls of rc-3", 1, strings.Count(strings.Join(g.rows(), "\n"), "target 7"))

	g.lostAnswer()
}

// window sets the recall window and waits until it is over for the message at seq; 0: for none.
func (g *group) window(d time.Duration, seq int64) {
	g.Helper()
	a := g.n.server("", http.MethodPatch, "/v1/conversations/c-g", frame{"recall_window_ms": d.Milliseconds()})
	if a.status != http.StatusOK {
		g.Fatalf("set the recall window: %d %s", a.status, a.raw)
	}
	if seq > 0 {
		g.Until("the window is over by the database's clock", soon, func() bool { return g.age(seq) > 2*d })
	}
}

// age is how long ago a message was stored, by the database's clock.
func (g *group) age(seq int64) time.Duration {
	g.Helper()
	return time.Duration(one[float64](g.scene, `SELECT 1e9 * extract(epoch FROM clock_timestamp() - created_at)::float8 FROM tidings.event WHERE conv_id = 'c-g' AND seq = $1`, seq))
}

// lostAnswer has a client recall rc-2 while the answer to its first request is lost.
func (g *group) lostAnswer() {
	g.Helper()
	lost := 0
	way := g.n.relay(func(f frame, raw []byte) [][]byte {
		if f.t() == "recalled" && lost == 0 {
			lost++
			return nil
		}
		return [][]byte{raw}
	})
	app := g.app(way.url, "u-ana", "u-ana-d3", func(c *client.Config) { c.RequestTimeout = 2 * time.Second })
	app.hears(8)
	pending, err := app.Recall(client.Recall{Conv: "c-g", Target: client.Position{Seq: 6}})
	g.Must("queue a recall", err)
	sent := app.answered(pending)
	var cmids []string
	for _, f := range way.requests("recall") {
		cmids = append(cmids, f.str("cmid"))
	}
	proof := ""
	if lost == 1 && len(cmids) > 1 {
		proof = fmt.Sprintf("one frame recalled was taken out, and %d requests came", len(cmids))
	}
	g.Fault(fault.New("lose", "the answer to a recall", proof))
	g.Equal("the client's answer: seq, dup", []any{9, true}, []any{int(sent.Seq), sent.Dup})
	for _, cmid := range cmids {
		g.Equal("the cmid of each request", pending.Cmid, cmid)
	}
	g.Equal("recalls of rc-2", 1, strings.Count(strings.Join(g.rows(), "\n"), "target 6"))
	app.hears(9)
	g.Equal("its copy", "6 recalled", app.holds(6))
}
