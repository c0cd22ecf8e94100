// The checks 07-control-time-cursor, 08-control-current-membership, 09-control-last-write-wins.

package lab_test

import (
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/outbox"
)

// Each control reads, or keeps a cursor, without one rule of the product and shows what it is there for. What is naive stands here.

func init() {
	lab.Register(lab.Check{
		ID:     "07-control-time-cursor",
		Expect: "a message that was written before another and committed after it: who goes on from the time of the newest one never gets it, who goes on from seqs does",
		Run:    cursorByTime,
	})
	lab.Register(lab.Check{
		ID:     "08-control-current-membership",
		Level:  lab.MultiProcess,
		Expect: "a member who left and came back: judged by who is a member now, the messages between are readable; judged by intervals they are not",
		Run:    currentMembership,
	})
	lab.Register(lab.Check{
		ID:     "09-control-last-write-wins",
		Expect: "200 reads at once in a random order: stored as they come they move the cursor back many times and leave it anywhere; as the greatest of both never",
		Run:    lastWriteWins,
	})
}

func cursorByTime(t *lab.T) {
	c := newChat(t)
	convs := []string{"c-1", "c-2"}
	for _, conv := range convs {
		c.bare(conv, "ana", "ben")
	}
	say := func(db outbox.DB, conv string) {
		c.Helper()
		_, err := outbox.Post(c.ctx, db, tidings.Message{Conv: conv, Sender: "ana", Cmid: "m-1", Body: "hello"})
		c.Must("post", err)
	}
	// Two readers of both conversations: one goes on from the time of the newest message, one from each conversation's seq.
	start := one[int64](c.scene, `SELECT (1e6 * extract(epoch FROM clock_timestamp()))::bigint`)
	after, seqs := start, map[string]int64{"c-1": 2, "c-2": 2}
	byTime, bySeq := []string{}, []string{}
	read := func() {
		c.Helper()
		rows, err := c.pool.Query(c.ctx, `SELECT conv_id, (1e6 * extract(epoch FROM created_at))::bigint FROM tidings.event
			WHERE kind = 'msg' AND (1e6 * extract(epoch FROM created_at))::bigint > $1 ORDER BY created_at`, after)
		c.Must("read by time", err)
		var conv string
		_, err = pgx.ForEachRow(rows, []any{&conv, &after}, func() error { byTime = append(byTime, conv); return nil })
		c.Must("read by time", err)
		for _, conv := range convs {
			n := one[int64](c.scene, `SELECT coalesce(max(seq), $2) FROM tidings.event WHERE conv_id = $1 AND seq > $2`, conv, seqs[conv])
			for ; seqs[conv] < n; seqs[conv]++ {
				bySeq = append(bySeq, conv)
			}
		}
	}
	tx, err := c.pool.Begin(c.ctx)
	c.Must("begin", err)
	defer tx.Rollback(c.ctx)
	say(tx, "c-1")     // written first
	say(c.pool, "c-2") // and committed first
	read()
	c.Equal("before the late commit: by time, by seq", [][]string{{"c-2"}, {"c-2"}}, [][]string{byTime, bySeq})
	c.Must("commit late", tx.Commit(c.ctx))
	read()
	c.Equal("after it: by seq", []string{"c-2", "c-1"}, bySeq)
	c.Exposed("after it: by time", bySeq, byTime)
}

func currentMembership(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	ana := n.device("ana", "ana-1")
	left := n.leave("c-1", "ben")
	ana.say("c-1", "m-1", "not for ben")
	ana.say("c-1", "m-2", "nor this")
	n.join("c-1", "ben")
	v := c.read(n.pages("ben", "c-1"), 100)
	c.Equal("by intervals", []int64{2, left, 6}, v.seqs)

	rows, err := c.pool.Query(c.ctx, `SELECT e.seq FROM tidings.event e WHERE e.conv_id = 'c-1' AND e.seq >= 2
		AND EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = e.conv_id AND m.user_id = 'ben' AND m.leave_seq IS NULL) ORDER BY e.seq`)
	c.Must("read as a member of now", err)
	naive, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	c.Must("read as a member of now", err)
	c.Exposed("by who is a member now", v.seqs, naive)
}

func lastWriteWins(t *lab.T) {
	const reads = 200
	c := newChat(t)
	c.bare("c-1", "ana")
	// store has all reads stored at once by a rule, and returns how often the cursor went back, and where it ends.
	store := func(what, rule string) (back, end int64) {
		c.Helper()
		c.exec(`INSERT INTO tidings.read (conv_id, user_id, seq) VALUES ('c-1', $1, 0)`, what)
		order := t.Rand().Perm(reads)
		var backwards atomic.Int64
		c.Together("reads stored as "+what, reads, func(i int) {
			err := pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) error {
				var old, now int64
				if err := tx.QueryRow(c.ctx, `SELECT seq FROM tidings.read WHERE conv_id = 'c-1' AND user_id = $1 FOR UPDATE`, what).Scan(&old); err != nil {
					return err
				}
				err := tx.QueryRow(c.ctx, `UPDATE tidings.read SET seq = `+rule+` WHERE conv_id = 'c-1' AND user_id = $1 RETURNING seq`, what, order[i]+1).Scan(&now)
				if now < old {
					backwards.Add(1)
				}
				return err
			})
			if err != nil {
				c.Errorf("store a read: %v", err)
			}
		})
		return backwards.Load(), one[int64](c.scene, `SELECT seq FROM tidings.read WHERE conv_id = 'c-1' AND user_id = $1`, what)
	}
	back, end := store("the greatest", "greatest(seq, $2)")
	c.Equal("as the greatest of both: steps back, end", []int64{0, reads}, []int64{back, end})
	naiveBack, naiveEnd := store("they come", "$2")
	c.Exposed("as they come: steps back", back, naiveBack)
	c.Note("as they come the cursor ended at %d of %d", naiveEnd, reads)
}
