// The checks 11-backup-restore, 11-backup-keeps-recalled-bodies-absent: backups of conversations, and their copies.

package lab_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-backup-restore",
		Expect: "conversations with recalled messages, tombstones, cursors and intervals, dumped while 4 devices send and again when all is quiet: each copy is a prefix of its logs, the " +
			"quiet one has every row of every table; no violation by `tidings verify` and by the lab's own questions; each of 5 doctored sorts of rows in a copy is found by both",
		Run: backupAndRestore,
	})
	lab.Register(lab.Check{
		ID:     "11-backup-keeps-recalled-bodies-absent",
		Expect: "read as SQL, a dump from after the recall has neither body nor data of the message, but those of another; the dump from before has all of them",
		Run:    recalledIsNotInBackups,
	})
}

// backUp has `tidings backup` dump the chat's database and returns the file.
func (c *chat) backUp() string {
	c.Helper()
	file := filepath.Join(c.TempDir(), "backup")
	c.tidings("backup", "--to", file)
	return file
}

// copyAt has `tidings restore` put a backup into the empty database at url and returns a chat on it.
func (c *chat) copyAt(url, file string) *chat {
	c.Helper()
	pool, err := pgxpool.New(context.WithoutCancel(c.ctx), url)
	c.Must("open a pool on the copy", err)
	c.Cleanup(pool.Close)
	after := &chat{scene: &scene{T: c.T, ctx: c.ctx, pool: pool}, key: c.key}
	after.tidings("restore", "--from", file)
	return after
}

func (c *chat) copyOf(file string) *chat { c.Helper(); return c.copyAt(pgtest.NewEmptyURL(c), file) }

// recallBy has a device recall a message.
func (p *peer) recallBy(conv, cmid string, target int64) {
	p.c.Helper()
	if f := p.ask(frame{"t": "recall", "conv": conv, "cmid": cmid, "target": target}); f.t() != "recalled" {
		p.c.Fatalf("recall %d of %s: %v", target, conv, f)
	}
}

// purgeNow purges all events that a conversation has so far.
func (n *node) purgeNow(conv string) {
	n.c.Helper()
	head := n.c.head(conv)
	for _, retention := range []any{1, nil} {
		if a := n.server("", http.MethodPatch, "/v1/conversations/"+conv, map[string]any{"retention_ms": retention}); a.status != http.StatusOK {
			n.c.Fatalf("set a retention: %d %s", a.status, a.raw)
		}
		if retention != nil {
			n.c.tidings("purge", "--purge-after", "0", "--forget-after", "0", "--receipts-for", "0")
		}
	}
	if min := one[int64](n.c.scene, `SELECT min_seq FROM tidings.conversation WHERE conv_id = $1`, conv); min != head+1 {
		n.c.Fatalf("the purge has left min_seq %d behind the head %d", min, head)
	}
}

// live lets everything happen to conversations that a backup has to keep: c-1 has a recalled message, cursors, and a member who left and came
// back; all of c-2 was purged but what was said since.
func (c *chat) live(n *node) {
	c.Helper()
	n.conversation("c-1", "ana", "ben")
	n.conversation("c-2", "ana", "ben")
	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")
	for i := range 5 {
		ana.say("c-1", fmt.Sprint("m-", i), "to stay")
		ana.say("c-2", fmt.Sprint("m-", i), "to be purged")
	}
	ana.recallBy("c-1", "r-1", 4)
	n.leave("c-1", "ben")
	last := n.join("c-1", "ben")
	for _, f := range []frame{{"t": "ack", "conv": "c-1", "seq": last}, {"t": "read", "conv": "c-1", "seq": last - 1}} {
		if got := ben.ask(f).num("seq"); got != f["seq"] {
			c.Fatalf("%s to %v: %v", f.t(), f["seq"], got)
		}
	}
	n.purgeNow("c-2")
	ana.say("c-2", "m-9", "said since")
}

// rowsOfTables counts the rows of every table.
func (c *chat) rowsOfTables() map[string]int64 {
	c.Helper()
	tables := one[[]string](c.scene, `SELECT array_agg(tablename::text ORDER BY tablename) FROM pg_tables WHERE schemaname = 'tidings'`)
	rows := map[string]int64{}
	for _, table := range tables {
		rows[table] = one[int64](c.scene, "SELECT count(*) FROM "+pgx.Identifier{"tidings", table}.Sanitize())
	}
	return rows
}

// ownQuestions are the lab's: how many rows there are to look at, and how many of them are wrong.
var ownQuestions = map[string]string{
	"logs with a hole or a wrong end": contiguousSQL,
	"recalled messages with content": `SELECT count(*), count(*) FILTER (WHERE body IS NOT NULL OR data IS NOT NULL OR request_hash IS NOT NULL)
		FROM tidings.event WHERE recalled_by IS NOT NULL`,
	"cursors beyond the head": `SELECT count(*), count(*) FILTER (WHERE u.seq >= c.next_seq)
		FROM (SELECT conv_id, seq FROM tidings.delivered UNION ALL SELECT conv_id, seq FROM tidings.read) u JOIN tidings.conversation c USING (conv_id)`,
	"tombstones inside the log": `SELECT count(*), count(*) FILTER (WHERE t.seq >= c.min_seq) FROM tidings.tombstone t JOIN tidings.conversation c USING (conv_id)`,
	"intervals that overlap": `SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT FROM tidings.member n WHERE n.conv_id = m.conv_id AND n.user_id = m.user_id
		AND n.join_seq > m.join_seq AND n.join_seq <= coalesce(m.leave_seq, n.join_seq))) FROM tidings.member m`,
}

// askOwn asks the lab's questions of a copy and returns those that found something wrong.
func (c *chat) askOwn() (wrong []string) {
	c.Helper()
	for what, sql := range ownQuestions {
		var all, bad int
		c.Must("look for "+what, c.pool.QueryRow(c.ctx, sql).Scan(&all, &bad))
		c.Examined("rows in which were looked for "+what, all)
		if all == 0 {
			c.Errorf("nothing to look at for %s", what)
		}
		if bad > 0 {
			wrong = append(wrong, what)
		}
	}
	return wrong
}

// verify runs `tidings verify` and returns the names of the questions that found a violation.
func (c *chat) verify() (violated []string) {
	c.Helper()
	out, err := c.command("verify", "--json").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // it says so by its answer
	}
	c.Must("run tidings verify", err)
	var report struct {
		Violated int
		Findings []struct {
			Name, Promise        string
			Violations, Examined int
		}
	}
	c.Must("read what tidings verify says", json.Unmarshal(out, &report))
	for _, f := range report.Findings {
		c.Examined("rows that tidings verify looked at", f.Examined)
		if f.Violations > 0 && f.Promise != "" {
			violated = append(violated, f.Name)
		}
	}
	if (exit != nil) != (len(violated) > 0) || report.Violated != len(violated) {
		c.Errorf("verify counts %d violated questions of %v and ends with %v", report.Violated, violated, exit)
	}
	return violated
}

func backupAndRestore(t *lab.T) {
	c := newChat(t)
	// Its senders send as fast as they are answered.
	n := c.node("a", with("TIDINGS_GATEWAY_DRAIN", "100ms"), with("TIDINGS_GATEWAY_RATE", "100000"))
	c.live(n)

	// A dump while others send.
	n.conversation("c-3", "ana")
	var over atomic.Bool
	var said atomic.Int64
	var busy *chat
	t.Together("senders and the backup", 5, func(i int) {
		if i == 0 {
			defer over.Store(true)
			n.sendsPass(&said, 20)
			busy = c.copyOf(c.backUp())
			n.sendsPass(&said, said.Load()+20)
			return
		}
		p := n.device("ana", fmt.Sprint("busy-", i))
		for k := 0; !over.Load() && !t.Failed(); k++ {
			p.say("c-3", fmt.Sprintf("b-%d-%d", i, k), "under load")
			said.Add(1)
		}
	})
	if busy == nil {
		t.Fatal("there is no copy")
	}
	logs := c.log("c-3")
	part := busy.log("c-3")
	if !t.True("the copy made under load has a part of what was sent", len(part) > 20 && len(part) < len(logs)) {
		return
	}
	t.True("its log is the beginning of the log", slices.Equal(logs[:len(part)], part))
	t.Equal("its questions that find a violation", []string{}, busy.verify())
	t.Equal("the lab's own", []string{}, busy.askOwn())

	// A dump when all is quiet.
	n.Terminate()
	n.Exit(soon)
	rows := c.rowsOfTables()
	for _, table := range []string{"event", "member", "delivered", "read", "tombstone", "device", "taken_back", "lineage"} {
		if rows[table] == 0 {
			t.Errorf("there is nothing in %s to be restored", table)
		}
	}
	file := c.backUp()
	quiet := c.copyOf(file)
	t.Equal("rows of each table", rows, quiet.rowsOfTables())
	t.True("the log of c-1 is the same", slices.Equal(c.log("c-1"), quiet.log("c-1")))
	t.Equal("questions that find a violation", []string{}, quiet.verify())
	t.Equal("the lab's own", []string{}, quiet.askOwn())

	quiet.exec(`ALTER TABLE tidings.event DROP CONSTRAINT event_shape`)
	doctored := []struct{ verify, own, sql string }{
		{"recalled-has-no-content", "recalled messages with content", `UPDATE tidings.event SET body = 'back again' WHERE recalled_by IS NOT NULL`},
		{"read-within-the-log", "cursors beyond the head", `UPDATE tidings.read SET seq = seq + 1000`},
		{"intervals-apart", "intervals that overlap", `UPDATE tidings.member SET leave_seq = leave_seq + 1 WHERE leave_seq IS NOT NULL`},
		{"tombstone-below-its-log", "tombstones inside the log", `UPDATE tidings.tombstone SET seq = 1000`},
		{"log-without-holes", "logs with a hole or a wrong end", `DELETE FROM tidings.event WHERE conv_id = 'c-1' AND seq = 5`},
	}
	for _, d := range doctored {
		if quiet.exec(d.sql) == 0 {
			t.Fatalf("nothing was doctored for %s", d.verify)
		}
	}
	violated, own := quiet.verify(), quiet.askOwn()
	for _, d := range doctored {
		t.True("verify finds in the doctored copy that not "+d.verify, slices.Contains(violated, d.verify))
		t.True("the lab's own questions find "+d.own, slices.Contains(own, d.own))
	}
}

// sendsPass waits until more messages than n were sent.
func (n *node) sendsPass(said *atomic.Int64, most int64) {
	for deadline := time.Now().Add(soon); said.Load() <= most && time.Now().Before(deadline) && !n.c.Failed(); {
		pauseABit()
	}
}

func recalledIsNotInBackups(t *lab.T) {
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	ana := n.device("ana", "ana-1")
	send := func(cmid, body, data string) int64 {
		t.Helper()
		f := ana.ask(frame{"t": "send", "conv": "c-1", "cmid": cmid, "body": body, "data": frame{"x": data}})
		if f.t() != "sent" {
			t.Fatalf("send %s: %v", cmid, f)
		}
		return f.num("seq")
	}
	recalled := send("m-1", "body-to-be-recalled", "data-to-be-recalled")
	send("m-2", "body-that-stays", "data-that-stays")
	marks := []string{"body-to-be-recalled", "data-to-be-recalled", "body-that-stays", "data-that-stays"}
	in := func(file string) (found []bool) {
		t.Helper()
		text := file + ".sql"
		c.postgres("pg_restore", "--file="+text, file)
		sql, err := os.ReadFile(text)
		t.Must("read the dump as SQL", err)
		t.Examined("bytes of SQL", len(sql))
		for _, mark := range marks {
			found = append(found, strings.Contains(string(sql), mark))
		}
		return found
	}
	before := c.backUp()
	ana.recallBy("c-1", "r-1", recalled)
	after := c.backUp()
	t.Equal("in the dump from before: "+strings.Join(marks, ", "), []bool{true, true, true, true}, in(before))
	t.Equal("in the dump from after", []bool{false, false, true, true}, in(after))
}
