// The scene of the checks of recalls, and 11-recall-online.

package lab_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-recall-online",
		Expect: "the recall of seq 4 is the event 5; the row has no body, data and hash; the copy of a member who is online loses the content; a receiver for whom the message still waited in the " +
			"gateway when it was recalled finds the recall on the wire and never the content",
		Run: recallOnline,
	})
}

// group is the group c-g of u-ana, u-ben and u-cai, whose joins are the events 1 to 3. Its story: 4 rc-1, 5 the recall of rc-1, 6 rc-2, 7 rc-3, 8 the recall of rc-3, 9 u-cai leaves, 10 rc-4.
type group struct {
	*chat
	n   *node
	ana *peer
	at  int64 // what has been played
}

func newGroup(t *lab.T) *group {
	c := newChat(t)
	g := &group{chat: c, n: c.node("a", with("TIDINGS_GATEWAY_RATE", "100000")), at: 3}
	g.n.conversation("c-g", "u-ana", "u-ben", "u-cai")
	g.ana = g.n.device("u-ana", "u-ana-d1")
	return g
}

// content is the body of a message of the story, by its cmid.
func content(cmid string) string { return "what " + cmid + " says" }

// play plays the story on, up to an event.
func (g *group) play(upTo int64) {
	g.Helper()
	for g.at < upTo {
		g.at++
		switch g.at {
		case 4, 6, 7, 10:
			g.say(map[int64]string{4: "rc-1", 6: "rc-2", 7: "rc-3", 10: "rc-4"}[g.at])
		case 5:
			g.takeBack("rc-1-recall", 4)
		case 8:
			g.takeBack("rc-3-recall", 7)
		case 9:
			g.is("the leave", g.n.leave("c-g", "u-cai"))
		}
	}
}

// is makes sure that an event of the story has its seq.
func (g *group) is(what string, seq int64) {
	g.Helper()
	if seq != g.at {
		g.Fatalf("%s is the event %d, not %d", what, seq, g.at)
	}
}

func (g *group) say(cmid string) {
	g.Helper()
	f := g.ana.ask(frame{"t": "send", "conv": "c-g", "cmid": cmid, "body": content(cmid), "data": frame{"also": content(cmid)}})
	g.is(cmid+" "+f.code(), f.num("seq"))
}

func (g *group) takeBack(cmid string, target int64) {
	g.Helper()
	f := g.ana.ask(recallOf(cmid, target))
	g.is(cmid+" "+f.code(), f.num("seq"))
}

// recallOf is the request that recalls a message of the group.
func recallOf(cmid string, target int64) frame {
	return frame{"t": "recall", "conv": "c-g", "cmid": cmid, "target": target, "epoch": 0}
}

// rows are the events of the group as they stand in the database: what they say is told by its presence alone.
func (g *group) rows() (list []string) {
	g.Helper()
	rows, err := g.pool.Query(g.ctx, `SELECT concat_ws(' ', seq, kind, sender_user, coalesce(cmid, '-'), 'target ' || target_seq, 'recalled by ' || recalled_by,
		CASE WHEN body IS NOT NULL THEN 'body' END, CASE WHEN data IS NOT NULL THEN 'data' END, CASE WHEN request_hash IS NOT NULL THEN 'hash' END)
		FROM tidings.event WHERE conv_id = 'c-g' ORDER BY seq`)
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	g.Must("read the rows", err)
	return list
}

// holds is what an application's copy has of an event of the group: its content, or that it was recalled.
func (a *app) holds(seq int64) string {
	events, _ := a.Events("c-g", seq, 1)
	switch {
	case len(events) == 0 || events[0].Seq != seq:
		return fmt.Sprint(seq, " is not there")
	case events[0].Body != nil && events[0].Data != nil && !events[0].Recalled:
		return fmt.Sprint(seq, " content")
	case events[0].Body == nil && events[0].Data == nil && events[0].Recalled:
		return fmt.Sprint(seq, " recalled")
	}
	return fmt.Sprintf("%d neither: recalled %t", seq, events[0].Recalled)
}

// hears waits until an application was told of an event.
func (a *app) hears(seq int64) {
	a.c.Helper()
	a.c.Until(fmt.Sprintf("event %d has arrived", seq), soon, func() bool {
		seqs := a.arrived("c-g")
		return len(seqs) > 0 && seqs[len(seqs)-1] >= seq
	})
}

// losses are the seqs that an application was told have lost their content.
func (a *app) losses() (seqs []int64) {
	for _, u := range a.told() {
		if r, ok := u.(client.Recalled); ok {
			seqs = append(seqs, r.Event.Seq)
		}
	}
	return seqs
}

func recallOnline(t *lab.T) {
	g := newGroup(t)
	ben := g.app(g.n.url, "u-ben", "u-ben-d1")
	cai := g.clogged()
	before := g.waiting()
	g.play(4)
	ben.hears(4)
	g.ana.event("c-g", 4)
	g.Equal("the online member's copy before", "4 content", ben.holds(4))
	g.Until("the message waits for the receiver that reads nothing", soon, func() bool { return g.waiting() >= before+len(content("rc-1")) })

	g.play(5)
	ben.hears(5)
	g.Equal("the online member's copy", "4 recalled", ben.holds(4))
	g.Equal("told as recalled", []int64{4}, ben.losses())
	recall := g.ana.event("c-g", 5)
	g.Equal("the event: kind, target, sender", []any{"recall", 4, "u-ana"}, []any{recall.str("kind"), int(recall.num("target")), recall.str("sender")})
	g.Equal("the rows", []string{"4 msg u-ana rc-1 recalled by 5", "5 recall u-ana rc-1-recall target 4"}, g.rows()[3:])
	g.Equal("rows with the content in any column", 0, one[int](g.scene, `SELECT count(*) FROM tidings.event e WHERE strpos(e::text, $1) > 0`, content("rc-1")))

	frames, found, seqs := 0, 0, []int64{}
	for len(seqs) == 0 || seqs[len(seqs)-1] < 5 { // the recall is the marker
		opcode, payload, err := cai.read()
		g.Must("read what waited", err)
		frames++
		if strings.Contains(string(payload), content("rc-1")) {
			found++
		}
		var f frame
		if opcode == 1 {
			g.Must("read a frame", json.Unmarshal(payload, &f))
		}
		if e := f.sub("event"); e.str("conv") == "c-g" && e.num("seq") > 3 {
			seqs = append(seqs, e.num("seq"))
		}
	}
	g.Equal("on the slow receiver's wire: events of the story", []int64{5}, seqs)
	g.Equal("on the slow receiver's wire: frames with the content", 0, found)
	g.Examined("frames on the slow receiver's wire", frames)

	later := g.n.device("u-cai", "u-cai-d2").ask(frame{"t": "sync", "conv": "c-g", "epoch": 0, "after": 3, "limit": 100})
	web := g.n.as("u-ben", http.MethodGet, "/v1/conversations/c-g/events?after=3", nil)
	for way, page := range map[string]frame{"WebSocket": later, "HTTP": web.body} {
		events := page.list("events")
		if g.Equal("events by a sync over "+way, 2, len(events)) {
			g.Equal("over "+way+": recalled, and the fields are there", []bool{true, false, false}, []bool{events[0].flag("recalled"), events[0].has("body"), events[0].has("data")})
		}
	}
}

// clogged is a device of u-cai that reads nothing, and for which so much waits that more stays in the gateway.
func (g *group) clogged() *socket {
	g.Helper()
	g.n.conversation("c-fill", "u-fil", "u-cai")
	fil := g.n.device("u-fil", "u-fil-d1")
	s := g.n.socket("u-cai", "u-cai-d1")
	const most, each, settled = 200, 8, 5 // so many at once that the gateway does not give the receiver up for them
	body := strings.Repeat("x", 16_000)
	for i := range most {
		var last int64
		var rids []string
		for k := range each {
			rids = append(rids, fil.send(message("c-fill", fmt.Sprint("fill-", i, "-", k), body)))
		}
		for _, rid := range rids {
			last = max(last, fil.reply(rid).num("seq"))
		}
		fil.event("c-fill", last) // what is fil's does not wait any more
		looks := 0
		for looks < settled && g.waiting() > 0 {
			looks++
			pauseABit()
		}
		if looks == settled {
			g.Note("%d messages of 16 000 bytes until the way was full", (i+1)*each)
			return s
		}
	}
	g.Fatalf("%d messages of 16 000 bytes do not fill the way to a receiver that reads nothing", most*each)
	return nil
}

// waiting is how many bytes wait in the gateway.
func (g *group) waiting() int { return int(g.n.metric("tidings_gateway_queue_bytes")) }
