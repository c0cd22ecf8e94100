// The checks 08-write-once, 08-fanout-observation.

package lab_test

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "08-write-once",
		Expect: "one message to a conversation of 1 000 members, some of them online at two gateways: one row in event, and not a row more in any other table; it is pushed to those " +
			"who are online, and one who was not has it unread",
		Run: writeOnce,
	})
	lab.Register(lab.Check{
		ID:     "08-fanout-observation",
		Expect: "figures: from the moment a message gets its seq, just before the commit, until the last of 200 online members at two gateways has it; and from send to sent",
		Run:    fanout,
	})
}

// members makes a conversation of n members, u-0 to u-(n-1), and returns them.
func (n *node) members(conv string, count int) (users []string) {
	n.c.Helper()
	for i := range count {
		users = append(users, fmt.Sprint("u-", i))
	}
	n.conversation(conv, users...)
	return users
}

// sizes are how many rows each table has.
func (c *chat) sizes() map[string]int64 {
	c.Helper()
	rows, err := c.pool.Query(c.ctx, `SELECT tablename FROM pg_tables WHERE schemaname = 'tidings'`)
	c.Must("list the tables", err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	c.Must("list the tables", err)
	sizes := map[string]int64{}
	for _, table := range tables {
		sizes[table] = one[int64](c.scene, `SELECT count(*) FROM tidings.`+pgx.Identifier{table}.Sanitize())
	}
	return sizes
}

func writeOnce(t *lab.T) {
	c := newChat(t)
	a, b := c.node("a"), c.node("b")
	a.members("c-1", 1000)
	sender := a.device("u-0", "d-0")
	online := []*peer{a.device("u-1", "d-1"), a.device("u-2", "d-2"), b.device("u-3", "d-3"), b.device("u-998", "d-998")}
	before := c.sizes()
	c.Equal("events before", 1000, before["event"])
	c.Equal("members", 1000, before["member"])

	c.Equal("sent as", 1001, sender.say("c-1", "m-1", "to a thousand"))
	for _, p := range append(online, sender) {
		p.event("c-1", 1001)
	}
	grown := []string{}
	for table, n := range c.sizes() {
		if n != before[table] {
			grown = append(grown, fmt.Sprintf("%s by %d", table, n-before[table]))
		}
	}
	c.Equal("tables that have grown", []string{"event by 1"}, grown)
	c.Equal("rows of the message", []int64{1001}, c.seqs("c-1", "u-0", "m-1"))
	list := b.as("u-500", http.MethodGet, "/v1/conversations", nil).body.list("list")
	c.Equal("who was not online: unread, last", []int64{1, 1001}, []int64{list[0].num("unread"), list[0].sub("last").num("seq")})
}

func fanout(t *lab.T) {
	const members, messages = 200, 10
	c := newChat(t)
	nodes := []*node{c.node("a"), c.node("b")}
	users := nodes[0].members("c-1", members)
	peers := make([]*peer, members)
	for i, user := range users {
		peers[i] = nodes[i%2].device(user, user+"-1")
	}
	var took, sent []float64
	for i := range messages {
		began := time.Now()
		seq := peers[0].say("c-1", fmt.Sprint("m-", i), "to all")
		sent = append(sent, float64(time.Since(began).Microseconds())/1000)
		at := int64(0)
		for _, p := range peers {
			at = p.event("c-1", seq).num("at")
		}
		took = append(took, float64(time.Since(time.UnixMilli(at)).Microseconds())/1000)
	}
	slices.Sort(took)
	slices.Sort(sent)
	c.Figure("members online", members, "")
	c.Figure("from seq to the last member, median", took[messages/2], "ms")
	c.Figure("from seq to the last member, greatest", took[messages-1], "ms")
	c.Figure("from send to sent, median", sent[messages/2], "ms")
	c.Equal("pushes of each message to each member", members*messages, func() (n int) {
		for _, p := range peers {
			n += len(p.pushed("c-1", members))
		}
		return n
	}())
}
