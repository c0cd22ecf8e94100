// The check 11-purge-keeps-contiguity.

package lab_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-purge-keeps-contiguity",
		Expect: "2 gateways and commands of their own purge 3 conversations of what is older than 300 ms while 3 devices send and 3 read: at each commit the log is contiguous from min_seq to the " +
			"head and min_seq has not gone back, no page leaves a seq unexplained; purged once more, nothing changes; a doctored log and one whose min_seq goes back are found",
		Run: purgeKeepsContiguity,
	})
}

// auditContiguity looks, at the end of each transaction that writes a log, whether it is contiguous between them, and whether
// min_seq went back.
func (c *chat) auditContiguity() {
	c.Helper()
	c.exec(`CREATE TABLE tidings.lab_commit (contiguous boolean, purge boolean, back boolean)`)
	c.exec(`CREATE FUNCTION tidings.lab_look() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			c tidings.conversation;
			n bigint; least_seq bigint; greatest_seq bigint;
		BEGIN
			SELECT * INTO c FROM tidings.conversation x WHERE x.conv_id = NEW.conv_id;
			SELECT count(*), min(seq), max(seq) INTO n, least_seq, greatest_seq FROM tidings.event e WHERE e.conv_id = NEW.conv_id;
			INSERT INTO tidings.lab_commit VALUES (n = c.next_seq - c.min_seq AND (n = 0 OR least_seq = c.min_seq AND greatest_seq = c.next_seq - 1),
				NEW.min_seq > OLD.min_seq, NEW.min_seq < OLD.min_seq);
			RETURN NULL;
		END $$`)
	c.exec(`CREATE CONSTRAINT TRIGGER lab_look AFTER UPDATE ON tidings.conversation DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION tidings.lab_look()`)
}

// looked is how many commits were looked at, how many of them were purges, how many left a log that is not contiguous, and how many
// moved min_seq back.
func (c *chat) looked() (commits, purges, broken, back int) {
	c.Helper()
	c.Must("read the audit", c.pool.QueryRow(c.ctx, `SELECT count(*), count(*) FILTER (WHERE purge), count(*) FILTER (WHERE NOT contiguous), count(*) FILTER (WHERE back) FROM tidings.lab_commit`).
		Scan(&commits, &purges, &broken, &back))
	return commits, purges, broken, back
}

func purgeKeepsContiguity(t *lab.T) {
	const convs, steps, messages = 3, 20, 300 // at least
	c := newChat(t)
	quick, often := with("TIDINGS_GATEWAY_RATE", "100000"), with("TIDINGS_HOUSEKEEPING_EACH", "50ms")
	a, b := c.node("a", quick, often), c.node("b", quick, often)
	var senders, readers []*peer
	names := make([]string, convs)
	for i := range names {
		names[i] = fmt.Sprint("c-", i)
		a.conversation(names[i], "ana", "ben")
		a.keeps(names[i], 300*time.Millisecond)
		senders = append(senders, []*node{a, b}[i%2].device("ana", fmt.Sprint("ana-", i)))
		readers = append(readers, []*node{b, a}[i%2].device("ben", fmt.Sprint("ben-", i)))
	}
	c.auditContiguity()

	var over atomic.Bool
	var pages, trimmed atomic.Int64
	ended := func() bool { return over.Load() || c.Failed() || c.ctx.Err() != nil }
	c.Together("senders, readers and a purge", 2*convs+1, func(i int) {
		switch {
		case i < convs:
			for n := 0; !ended(); n++ {
				conv := names[(i+n)%convs]
				if f := senders[i].ask(message(conv, fmt.Sprintf("m-%d-%d", i, n), "hello")); f.t() != "sent" {
					c.Errorf("send: %v", f)
				}
				pauseABit()
			}
		case i < 2*convs:
			r := random(c.Rand().Uint64(), uint64(i))
			for at := int64(0); !ended(); {
				page := readers[i-convs].pages(names[i-convs])(at, 1+r.IntN(50))
				last, _, ok := explains(page)
				if !page.has("events") || !ok {
					c.Errorf("a page after %d leaves seq %d unexplained: %v", at, last+1, page)
					return
				}
				pages.Add(1)
				if page.flag("trimmed") {
					trimmed.Add(1)
				}
				at = r.Int64N(page.num("head") + 1) // from anywhere
				pauseABit()
			}
		default:
			for !ended() {
				c.purge()
				commits, purges, _, _ := c.looked()
				over.Store(purges >= steps && commits >= purges+messages && trimmed.Load() > 0)
			}
		}
	})
	commits, purges, broken, back := c.looked()
	c.Equal("commits after which a log was not contiguous", 0, broken)
	c.Equal("commits that moved min_seq back", 0, back)
	c.Examined("commits", commits)
	c.Examined("pages", int(pages.Load()))
	c.Figure("steps of purges", float64(purges), "")
	c.Figure("commits", float64(commits), "")
	c.Figure("pages that were trimmed", float64(trimmed.Load()), "")

	c.Until("everything is purged", soon, func() bool { return len(c.log("c-0"))+len(c.log("c-1"))+len(c.log("c-2")) == 0 })
	ends := func() string {
		return one[string](c.scene, `SELECT string_agg(conv_id || ' ' || min_seq || ' ' || next_seq, ', ' ORDER BY conv_id) FROM tidings.conversation`)
	}
	before := ends()
	c.Equal("purged once more: events", 0, c.purge().num("events"))
	c.Equal("purged once more: min_seq and next_seq of each", before, ends())
	senders[0].say("c-0", "m-after", "sent after that")
	_, broken = c.contiguous()
	c.Equal("logs with a hole or a wrong end in the end", 0, broken)

	a.conversation("c-doctored", "ana", "ben", "cid", "dan")
	for what, sql := range map[string]string{
		"an event that is missing":                 `DELETE FROM tidings.event WHERE conv_id = 'c-doctored' AND seq = 2`,
		"a prefix that is missing below min_seq":   `DELETE FROM tidings.event WHERE conv_id = 'c-doctored' AND seq = 1`,
		"a head without its event":                 `UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = 'c-doctored'`,
		"a min_seq that is ahead of the purge":     `UPDATE tidings.conversation SET min_seq = 3 WHERE conv_id = 'c-doctored'`,
		"a min_seq that goes back after the purge": `UPDATE tidings.conversation SET min_seq = 1 WHERE conv_id = 'c-1'`,
	} {
		c.True(what+" is found", c.doctored(sql))
	}
}

// doctored tells whether the audit finds what a statement does to the logs. It is undone.
func (c *chat) doctored(sql string) bool {
	c.Helper()
	tx, err := c.pool.Begin(c.ctx)
	c.Must("begin", err)
	defer tx.Rollback(c.ctx)
	found := 0
	for _, sql := range []string{`DELETE FROM tidings.lab_commit`, sql, `UPDATE tidings.conversation SET next_seq = next_seq`, `SET CONSTRAINTS ALL IMMEDIATE`} {
		_, err := tx.Exec(c.ctx, sql)
		c.Must("doctor a log", err)
	}
	c.Must("read the audit", tx.QueryRow(c.ctx, `SELECT count(*) FROM tidings.lab_commit WHERE NOT contiguous OR back`).Scan(&found))
	return found > 0
}
