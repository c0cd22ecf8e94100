// The check 29-tombstone-restore.

package lab_test

import (
	"fmt"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "29-tombstone-restore",
		Expect: "3 messages purged before the backup and 2 after it; on the copy, after a recovery without journal, the 3 are ORIGINAL_EXPIRED at their old seqs, the 2 are there again " +
			"with their content and answered with dup=true at theirs; nothing is appended, and the next message gets the next seq",
		Run: tombstonesRestored,
	})
}

func tombstonesRestored(t *lab.T) {
	const before, after = 3, 2
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	ana := n.device("ana", "ana-1")
	send := func(p *peer, cmid string) frame {
		t.Helper()
		return p.ask(frame{"t": "send", "conv": "c-1", "cmid": cmid, "body": "text of " + cmid})
	}
	stored := map[string]int64{}
	say := func(prefix string, count int) {
		t.Helper()
		for i := range count {
			cmid := fmt.Sprint(prefix, i)
			stored[cmid] = ana.say("c-1", cmid, "text of "+cmid)
		}
	}
	say("old-", before)
	n.purgeNow("c-1")
	say("new-", after)
	file := c.backUp()
	rows := c.rowsOfTables()
	t.Equal("tombstones in the backup", before, rows["tombstone"])
	n.purgeNow("c-1")
	for cmid, seq := range stored {
		f := send(ana, cmid)
		t.Equal("before the restore: "+cmid+" again", []any{"ORIGINAL_EXPIRED", seq}, []any{f.code(), f.num("seq")})
	}
	n.Kill()

	r := c.copyOf(file)
	t.Equal("tombstones of the copy", before, r.rowsOfTables()["tombstone"])
	r.tidings("recover", "--without-journal")
	m := r.node("b")
	ana = m.device("ana", "ana-1")
	head := r.head("c-1")
	for i := range before {
		cmid := fmt.Sprint("old-", i)
		f := send(ana, cmid)
		t.Equal(cmid+" again", []any{"ORIGINAL_EXPIRED", stored[cmid]}, []any{f.code(), f.num("seq")})
	}
	texts := map[string]string{}
	for _, e := range r.log("c-1") {
		texts[e.cmid] = e.body
	}
	for i := range after {
		cmid := fmt.Sprint("new-", i)
		f := send(ana, cmid)
		t.Equal(cmid+" again", []any{"sent", stored[cmid], true}, []any{f.t(), f.num("seq"), f.flag("dup")})
		t.True("it has its text", texts[cmid] == "text of "+cmid)
	}
	t.Examined("late repetitions", len(stored))
	t.Equal("the next message's seq", head+1, ana.say("c-1", "next", "a new one"))
	t.Equal("questions that find a violation", []string{}, r.verify())
}
