// The check 11-recall-rejections.

package lab_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-recall-rejections",
		Expect: "over WebSocket and HTTP NOT_SENDER, ALREADY_RECALLED, INVALID_ARGUMENT, NOT_FOUND (beyond the head, purged), NOT_MEMBER, EPOCH_CHANGED, RECALL_WINDOW_EXPIRED (window 300 ms, 600 ms later; " +
			"and for one that was asked in time and waited for the lock past the window): the rows stay as they are",
		Run: recallRefused,
	})
}

func recallRefused(t *lab.T) {
	g := newGroup(t)
	g.play(6)
	ben, eve := g.n.device("u-ben", "u-ben-d1"), g.n.device("u-eve", "u-eve-d1")
	tries := 0
	refused := func(code string, status int, p *peer, what string, change frame) {
		g.Helper()
		tries++
		f := recallOf(fmt.Sprint("rc-try-", tries), 6)
		for k, v := range change {
			f[k] = v
		}
		before := g.everything()
		g.Equal(what+" over WebSocket", code, p.ask(f).code())
		a := g.n.as(p.user, http.MethodPost, fmt.Sprintf("/v1/conversations/%s/recalls", f["conv"]), f)
		g.Equal(what+" over HTTP", []any{code, status}, []any{a.body.code(), a.status})
		g.True(what+": nothing has changed", before == g.everything())
		g.Examined("refusals", 2)
	}
	refused("NOT_SENDER", 403, ben, "by another member", nil)
	refused("ALREADY_RECALLED", 409, g.ana, "a recalled message under a new cmid", frame{"target": 4})
	refused("NOT_SENDER", 403, ben, "a recalled message, by another member", frame{"target": 4})
	refused("INVALID_ARGUMENT", 400, g.ana, "a join", frame{"target": 1})
	refused("INVALID_ARGUMENT", 400, g.ana, "a recall", frame{"target": 5})
	refused("NOT_FOUND", 404, g.ana, "beyond the head", frame{"target": 7})
	refused("NOT_MEMBER", 403, eve, "by a stranger", nil)
	refused("NOT_MEMBER", 403, g.ana, "in no conversation", frame{"conv": "c-none"})
	refused("EPOCH_CHANGED", 409, g.ana, "in another history", frame{"epoch": 7})

	g.window(300*time.Millisecond, 6)
	refused("RECALL_WINDOW_EXPIRED", 409, g.ana, "600 ms after the message", nil)
	g.waitsForTheLock()

	last := g.head("c-g")
	g.n.purgeNow("c-g")
	g.Equal("events that are left", 0, len(g.rows()))
	refused("NOT_FOUND", 404, g.ana, "purged", nil)
	refused("NOT_FOUND", 404, g.ana, "the purged recall again", frame{"target": 4, "cmid": "rc-1-recall"})
	g.Equal("the head is where it was", last, g.head("c-g"))
}

// everything is what a recall could change.
func (g *group) everything() string {
	g.Helper()
	return one[string](g.scene, `SELECT concat_ws(' ', (SELECT md5(string_agg(e::text, '|' ORDER BY e.seq)) FROM tidings.event e), (SELECT string_agg(c::text, '|' ORDER BY c.conv_id) FROM tidings.conversation c),
		(SELECT count(*) FROM tidings.taken_back), (SELECT count(*) FROM tidings.tombstone), (SELECT count(*) FROM tidings.gone))`)
}

// waitsForTheLock lets recalls wait for a conversation that somebody holds: one until its time is over, one for less.
func (g *group) waitsForTheLock() {
	g.Helper()
	const window = 3 * time.Second // less than a recall waits for a lock at most
	g.window(window, 0)
	held := func(cmid string, enough func(age time.Duration) bool) (answer frame, asked, judged time.Duration, changed bool) {
		g.Helper()
		said := g.ana.say("c-g", cmid, content(cmid))
		leave := g.occupy("c-g")
		before := g.everything()
		rid := g.ana.send(recallOf(cmid+"-recall", said))
		g.waits(1, "FOR NO KEY UPDATE")
		asked = g.age(said)
		g.Until("it has waited long enough", soon, func() bool { return enough(g.age(said)) })
		judged = g.age(said)
		leave()
		answer = g.ana.reply(rid)
		return answer, asked, judged, before != g.everything()
	}
	f, asked, judged, changed := held("rc-late", func(age time.Duration) bool { return age > window })
	proof := ""
	if asked < window && judged > window {
		proof = fmt.Sprintf("asked %v after the message, judged %v after it, with a window of %v", asked.Round(time.Millisecond), judged.Round(time.Millisecond), window)
	}
	g.Fault(fault.New("hold", "the conversation's row", proof))
	g.Equal("asked in time, and judged past it: refusal, rows changed", []any{"RECALL_WINDOW_EXPIRED", false}, []any{f.code(), changed})
	f, _, _, changed = held("rc-in-time", func(time.Duration) bool { return true })
	g.Equal("waited for less: answer, rows changed", []any{"recalled", true}, []any{f.t(), changed})
}
