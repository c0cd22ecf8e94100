// The checks 09-unread-count, 09-unread-cost.

package lab_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "09-unread-count",
		Expect: "after each of 150 random steps (messages of others and own, recalls, leaving and coming back, reads) the unread number in the list and in the answer to a read " +
			"equals a count by hand; beyond 1 000 it is 1 000 and more",
		Run: unreadCount,
	})
	lab.Register(lab.Check{
		ID:    "09-unread-cost",
		Level: lab.MultiProcess,
		Expect: "figures at 200 000 events of one conversation: the time of a list over HTTP for one who has read nothing, for one who is nearly done, and for one whose own messages " +
			"all of them are, which is the worst case; the rows, pages and plan of the count",
		Run: unreadCost,
	})
}

// recall marks a message as recalled and appends the recall, as the product will.
func (c *chat) recall(conv string, target int64) {
	c.Helper()
	err := pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) error {
		var seq int64
		err := tx.QueryRow(c.ctx, `UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = $1 RETURNING next_seq - 1`, conv).Scan(&seq)
		if err == nil {
			_, err = tx.Exec(c.ctx, `INSERT INTO tidings.event (conv_id, seq, kind, sender_user, target_seq)
				SELECT conv_id, $3, 'recall', sender_user, seq FROM tidings.event WHERE conv_id = $1 AND seq = $2`, conv, target, seq)
		}
		if err == nil {
			_, err = tx.Exec(c.ctx, `UPDATE tidings.event SET recalled_by = $3, body = NULL, data = NULL, request_hash = NULL WHERE conv_id = $1 AND seq = $2`, conv, target, seq)
		}
		return err
	})
	c.Must("recall a message", err)
}

// byHand is a log and a user's memberships, as this check has made them.
type byHand struct {
	events []handEvent
	spans  [][2]int64 // 0: open
	read   int64
}

type handEvent struct {
	seq           int64
	msg, recalled bool
	sender        string
}

func (h *byHand) member(seq int64) bool {
	return slices.ContainsFunc(h.spans, func(s [2]int64) bool { return s[0] <= seq && (s[1] == 0 || seq <= s[1]) })
}

func (h *byHand) here() bool { return h.spans[len(h.spans)-1][1] == 0 }

// visibleHead is the last seq that concerns the user.
func (h *byHand) visibleHead() int64 {
	if h.here() {
		return int64(len(h.events))
	}
	return h.spans[len(h.spans)-1][1]
}

func (h *byHand) unread(user string) (n int64) {
	for _, e := range h.events {
		if e.msg && !e.recalled && e.sender != user && e.seq > h.read && h.member(e.seq) {
			n++
		}
	}
	return n
}

func (h *byHand) append(msg bool, sender string) int64 {
	seq := int64(len(h.events) + 1)
	h.events = append(h.events, handEvent{seq: seq, msg: msg, sender: sender})
	return seq
}

func unreadCount(t *lab.T) {
	const steps = 150
	c := newChat(t)
	n := c.node("a", with("TIDINGS_GATEWAY_RATE", "100000"))
	n.conversation("c-1", "ana", "ben")
	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")
	h := &byHand{spans: [][2]int64{{2, 0}}}
	h.append(false, "ana")
	h.append(false, "ben")
	r := t.Rand()
	wrong, did := 0, map[string]int{}
	for i := range steps {
		what := []string{"other", "other", "other", "other", "own", "own", "recall", "recall", "move", "read"}[r.IntN(10)]
		switch what {
		case "other":
			c.Equal("sent at", h.append(true, "ana"), ana.say("c-1", fmt.Sprint("m-", i), "hello"))
		case "own":
			if !h.here() {
				continue
			}
			c.Equal("sent at", h.append(true, "ben"), ben.say("c-1", fmt.Sprint("m-", i), "hello"))
		case "recall":
			target := r.IntN(len(h.events))
			if e := &h.events[target]; e.msg && !e.recalled {
				e.recalled = true
				c.recall("c-1", e.seq)
				h.append(false, e.sender)
			} else {
				continue
			}
		case "move":
			last := &h.spans[len(h.spans)-1]
			if seq := h.append(false, "ben"); h.here() {
				last[1] = seq
				c.Equal("left at", seq, n.leave("c-1", "ben"))
			} else {
				h.spans = append(h.spans, [2]int64{seq, 0})
				c.Equal("back at", seq, n.join("c-1", "ben"))
			}
		case "read":
			h.read = max(h.read, 1+r.Int64N(h.visibleHead()))
			f := ben.ask(cursorTo("read", h.read))
			c.Equal("read: seq, unread", []int64{h.read, h.unread("ben")}, []int64{f.num("seq"), f.num("unread")})
		}
		did[what]++
		row := c.listed(ben, n, "c-1")
		if got := []int64{row.num("unread"), row.num("read"), row.num("head")}; !slices.Equal(got, []int64{h.unread("ben"), h.read, h.visibleHead()}) {
			wrong++
			c.Note("step %d, %s: unread, read, head %v instead of %v", i, what, got, []int64{h.unread("ben"), h.read, h.visibleHead()})
		}
		c.Examined("counts", 1)
	}
	c.Equal("steps after which the list is wrong", 0, wrong)
	c.Note("what was done: %v", did)
	c.whole()

	n.conversation("c-many", "ben", "ana")
	for _, x := range []struct {
		add, unread int64
		more        bool
	}{{999, 999, false}, {1, 1000, false}, {1, 1000, true}, {500, 1000, true}} {
		c.fill("c-many", "ana", "hello", int(x.add))
		row := c.listed(ben, n, "c-many")
		c.Equal(fmt.Sprintf("%d events: unread, more", c.head("c-many")), []any{x.unread, x.more}, []any{row.num("unread"), row.flag("unread_more")})
	}
}

// unreadSQL counts as the product does, written out here for its plan: of $1's conversation c-1 after the seq $2.
const unreadSQL = `SELECT count(*) FROM (
	SELECT FROM tidings.member m CROSS JOIN LATERAL (
		SELECT FROM tidings.event e JOIN tidings.conversation c ON c.conv_id = e.conv_id
		 WHERE e.conv_id = m.conv_id AND e.seq >= greatest(m.join_seq, c.min_seq) AND e.seq <= coalesce(m.leave_seq, c.next_seq - 1)
		   AND e.seq > $2 AND e.kind = 'msg' AND e.sender_user <> $1 AND e.recalled_by IS NULL
		 LIMIT 1001) e
	 WHERE m.conv_id = 'c-1' AND m.user_id = $1 LIMIT 1001) counted`

// plan is a node of EXPLAIN (FORMAT JSON).
type plan struct {
	Node  string  `json:"Node Type"`
	Of    string  `json:"Relation Name"`
	Rows  float64 `json:"Actual Rows"`
	Cut   float64 `json:"Rows Removed by Filter"`
	Hits  float64 `json:"Shared Hit Blocks"`
	Reads float64 `json:"Shared Read Blocks"`
	Plans []plan  `json:"Plans"`
}

// explained is a statement that was run for its plan.
type explained struct {
	Plan plan    `json:"Plan"`
	Time float64 `json:"Execution Time"` // ms
}

// explain runs a statement under the settings with which the store reads by key.
func (c *chat) explain(sql string, args ...any) explained {
	c.Helper()
	var found []explained
	err := pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) error {
		for _, off := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_material", "enable_sort", "jit"} {
			if _, err := tx.Exec(c.ctx, "SET LOCAL "+off+" = off"); err != nil {
				return err
			}
		}
		var raw []byte
		if err := tx.QueryRow(c.ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...).Scan(&raw); err != nil {
			return err
		}
		return json.Unmarshal(raw, &found)
	})
	c.Must("explain a statement", err)
	return found[0]
}

// on lists how tables are read, and how many rows of event are looked at.
func (p *plan) on() (reads []string, looked float64) {
	if p.Of != "" {
		reads = append(reads, p.Node+" on "+p.Of)
	}
	if p.Of == "event" {
		looked = p.Rows + p.Cut
	}
	for i := range p.Plans {
		more, n := p.Plans[i].on()
		reads, looked = append(reads, more...), looked+n
	}
	return reads, looked
}

func unreadCost(t *lab.T) {
	const events, asks = 200_000, 15
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben", "cy")
	c.fill("c-1", "ana", strings.Repeat("a message of some length ", 4), events-3)
	c.exec(`VACUUM (ANALYZE) tidings.event`)
	for _, x := range []struct {
		what, user string
		read       int64
		unread     int64
	}{{"nothing read", "ben", 0, 1000}, {"10 unread", "cy", events - 10, 10}, {"all are own", "ana", 0, 0}} {
		if x.read > 0 {
			a := n.as(x.user, http.MethodPut, "/v1/conversations/c-1/read", map[string]any{"seq": x.read})
			c.Equal(x.what+": status of the read", http.StatusOK, a.status)
		}
		var took []float64
		for range asks {
			began := time.Now()
			list := n.as(x.user, http.MethodGet, "/v1/conversations", nil).body.list("list")
			took = append(took, float64(time.Since(began).Microseconds())/1000)
			if len(list) != 1 || list[0].num("unread") != x.unread {
				c.Fatalf("%s: the list is %v", x.what, list)
			}
		}
		slices.Sort(took)
		c.Figure(x.what+": a list over HTTP, median", took[asks/2], "ms")

		e := c.explain(unreadSQL, x.user, x.read)
		reads, looked := e.Plan.on()
		c.Figure(x.what+": the count alone", e.Time, "ms")
		c.Figure(x.what+": rows of event looked at", looked, "")
		c.Figure(x.what+": pages read", e.Plan.Hits+e.Plan.Reads, "")
		c.Note("%s: %s", x.what, strings.Join(reads, ", "))
	}
}
