// The checks 11-retention-purge, 29-tombstone-purge, and the control 11-control-no-tombstone.

package lab_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-retention-purge",
		Expect: "2 joins and 5 messages are older than the retention, 3 messages are younger: a purge takes 7 rows and keeps 5 keys, min_seq is 8; a sync from 0 is trimmed, withholds 1 to 7 and " +
			"has 3 events; a late resend of the first is ORIGINAL_EXPIRED with its seq, over the WebSocket and over HTTP (410), also by who has left, whose new message is NOT_MEMBER",
		Run: retentionPurge,
	})
	lab.Register(lab.Check{
		ID:     "11-control-no-tombstone",
		Expect: "with its tombstone a late resend is ORIGINAL_EXPIRED; without it, it is a second message, with the next seq and dup=false",
		Run:    noTombstone,
	})
	lab.Register(lab.Check{
		ID: "29-tombstone-purge",
		Expect: "of 5 tombstones 2 are older than they are kept: these are purged; a late resend of one of them is a new message, of one of the others ORIGINAL_EXPIRED; " +
			"clients are told to resend nothing that is older than that age less a day",
		Run: tombstonePurge,
	})
}

// keeps sets how long the events of a conversation are kept.
func (n *node) keeps(conv string, d time.Duration) {
	n.c.Helper()
	a := n.server("", http.MethodPatch, "/v1/conversations/"+conv, frame{"retention_ms": d.Milliseconds()})
	if a.status != http.StatusOK {
		n.c.Fatalf("set a retention: %d %s", a.status, a.raw)
	}
}

// purge purges what is over, in a process of its own, and returns what was done.
func (c *chat) purge(flags ...string) (done frame) {
	c.Helper()
	c.Must("read what was purged", json.Unmarshal([]byte(c.tidings(append([]string{"purge", "--json"}, flags...)...)), &done))
	return done
}

// seldom keeps a node from purging by itself while a check looks.
var seldom = with("TIDINGS_HOUSEKEEPING_EACH", "1h")

// retained makes c-ret with 2 joins, 5 messages of ana that are older than its retention, old-1 to old-5, and 3 that are not. Age comes from
// the rows, not from waiting, so that a busy machine does not make the younger ones too old.
func (c *chat) retained(n *node) (ana *peer) {
	c.Helper()
	a := n.server("", http.MethodPut, "/v1/conversations/c-ret", frame{"members": []string{"ana", "ben"}, "retention_ms": time.Hour.Milliseconds()})
	c.Equal("a conversation with a retention is created", http.StatusCreated, a.status)
	ana = n.device("ana", "ana-1")
	for i := 1; i <= 5; i++ {
		ana.say("c-ret", fmt.Sprint("old-", i), "an old message")
	}
	c.Equal("rows that are old", 7, c.exec(`UPDATE tidings.event SET created_at = created_at - interval '2 hours' WHERE conv_id = 'c-ret' AND seq <= 7`))
	for i := 1; i <= 3; i++ {
		ana.say("c-ret", fmt.Sprint("new-", i), "a new message")
	}
	return ana
}

// expired is what a sender gets for a late resend, over the WebSocket and over HTTP: code, seq, whether it is told to be purged.
func (c *chat) expired(what string, ana *peer, n *node, cmid string, seq int64) {
	c.Helper()
	f := ana.ask(message("c-ret", cmid, "an old message"))
	web := n.as("ana", http.MethodPut, "/v1/conversations/c-ret/messages/"+cmid, frame{"body": "an old message"})
	want := []any{"ORIGINAL_EXPIRED", "purged", "no", seq}
	c.Equal(what+" over the WebSocket: code, stored, retry, seq", want, []any{f.code(), f.str("stored"), f.str("retry"), f.num("seq")})
	c.Equal(what+" over HTTP: code, stored, retry, seq", want, []any{web.body.code(), web.body.str("stored"), web.body.str("retry"), web.body.num("seq")})
	c.Equal(what+" over HTTP: status", http.StatusGone, web.status)
	c.Examined("late resends", 2)
}

func retentionPurge(t *lab.T) {
	c := newChat(t)
	n := c.node("a", seldom)
	ana := c.retained(n)
	other := n.device("ana", "ana-2") // the first to join: nothing is hidden from her but by the purge
	done := c.purge()
	c.Equal("purged conversations, events, keys that are kept", []int64{1, 7, 5}, []int64{done.num("conversations"), done.num("events"), done.num("message_keys_kept")})
	c.Equal("min_seq", 8, one[int64](c.scene, `SELECT min_seq FROM tidings.conversation WHERE conv_id = 'c-ret'`))
	c.Equal("rows that are left", 3, len(c.log("c-ret")))
	c.Equal("tombstones", []string{"3 old-1", "4 old-2", "5 old-3", "6 old-4", "7 old-5"},
		one[[]string](c.scene, `SELECT array_agg(seq || ' ' || cmid ORDER BY seq) FROM tidings.tombstone WHERE conv_id = 'c-ret' AND sender_user = 'ana'`))
	again := c.purge()
	c.Equal("a second purge: events", 0, again.num("events"))

	for way, ask := range map[string]pager{"WebSocket": other.pages("c-ret"), "HTTP": n.pages("ana", "c-ret")} {
		page := ask(0, 100)
		c.Equal("sync from 0 over "+way+": trimmed, min_seq, head, events, more", []any{true, 8, 10, 3, false},
			[]any{page.flag("trimmed"), page.num("min_seq"), page.num("head"), len(page.list("events")), page.flag("more")})
		v := c.read(ask, 100)
		c.Equal("sync from 0 over "+way+": events, withheld", []any{[]int64{8, 9, 10}, []string{"1-7 trimmed"}}, []any{v.seqs, v.withheld})
		c.Examined("pages", 1)
	}
	for _, seq := range []int64{1, 3, 7} {
		c.Equal(fmt.Sprintf("fetch of %d", seq), "NOT_FOUND", other.ask(frame{"t": "fetch", "conv": "c-ret", "seq": seq}).code())
	}
	c.expired("a late resend", ana, n, "old-1", 3)
	kept := ana.ask(message("c-ret", "new-1", "a new message"))
	c.Equal("a late resend of what is kept: seq, dup", []any{8, true}, []any{kept.num("seq"), kept.flag("dup")})
	c.Equal("the leave", 11, n.leave("c-ret", "ana"))
	c.expired("a late resend of one who has left", ana, n, "old-1", 3)
	c.Equal("a new message of one who has left", "NOT_MEMBER", ana.ask(message("c-ret", "new-4", "a new message")).code())
	c.Equal("rows in the end", 4, len(c.log("c-ret")))
	c.whole()
}

func noTombstone(t *lab.T) {
	c := newChat(t)
	n := c.node("a", seldom)
	ana := c.retained(n)
	c.Equal("purged events", 7, c.purge().num("events"))
	resend := func(cmid string) []any {
		f := ana.ask(message("c-ret", cmid, "an old message"))
		return []any{f.t(), f.code(), f.num("seq"), f.flag("dup")}
	}
	guarded := resend("old-2")
	c.Equal("a late resend: answer, code, seq, dup", []any{"error", "ORIGINAL_EXPIRED", 4, false}, guarded)
	before := len(c.log("c-ret"))
	c.Equal("tombstones that are deleted", 5, c.exec(`DELETE FROM tidings.tombstone WHERE conv_id = 'c-ret'`))
	naive := resend("old-2")
	c.Exposed("a late resend without its tombstone: answer, code, seq, dup", guarded, naive)
	c.Equal("it is a second message with the next seq", []any{"sent", "", 11, false}, naive)
	c.Exposed("rows after it", before, len(c.log("c-ret")))
}

func tombstonePurge(t *lab.T) {
	c := newChat(t)
	n := c.node("a", seldom, with("TIDINGS_TOMBSTONES_FOR", "48h"))
	ana := c.retained(n)
	c.Equal("purged events", 7, c.purge("--tombstones-for=48h").num("events"))
	c.Equal("tombstones that are older than 48 hours", 2, c.exec(`UPDATE tidings.tombstone SET purged_at = purged_at - interval '49 hours' WHERE conv_id = 'c-ret' AND seq <= 4`))
	done := c.purge("--tombstones-for=48h")
	c.Equal("keys that are forgotten", 2, done.num("message_keys_forgotten"))
	c.Equal("tombstones that are left", []string{"old-3", "old-4", "old-5"},
		one[[]string](c.scene, `SELECT array_agg(cmid ORDER BY seq) FROM tidings.tombstone WHERE conv_id = 'c-ret'`))
	c.expired("a late resend whose tombstone is there", ana, n, "old-3", 5)
	f := ana.ask(message("c-ret", "old-1", "an old message"))
	c.Equal("a late resend whose tombstone is purged is a new message, the stated limit: answer, seq, dup", []any{"sent", 11, false}, []any{f.t(), f.num("seq"), f.flag("dup")})
	c.Equal("it is stored", []int64{11}, c.seqs("c-ret", "ana", "old-1"))
	fresh, _, err := n.open()
	c.Must("open a WebSocket", err)
	limits := fresh.hello(token("ben"), "ben-1", "ben-1-install").sub("limits")
	c.Equal("clients may resend for, in hours", 24, limits.num("resend_ms")/time.Hour.Milliseconds())
	c.whole()
}
