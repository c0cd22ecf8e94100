// The check 32-restore-twice.

package lab_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID:    "32-restore-twice",
		Level: lab.MultiProcess,
		Expect: "one backup restored twice, with takings and a conversation made again in both histories and all generations ahead of the clock: no (conv, epoch, seq) has two contents; both " +
			"times what was recalled, removed and purged in any history since stays so, who came back stays, the rest is untouched; on a backup of the second history the first one's lines do " +
			"nothing; a recovery without the journal brings what was recalled back, and the next one, with the journal, takes it back again",
		Run: restoredTwice,
	})
}

// ahead is how far the first history's generation is ahead of the clock: a month.
const ahead = 30 * 24 * 3600 * 1000 * 1024

// spot is where an event stands, and contents what was ever seen there: the events' own identity, without what a recall takes.
type spot struct {
	conv       string
	epoch, seq int64
}

type contents map[spot][]string

func (c contents) add(at spot, what string) {
	if !slices.Contains(c[at], what) {
		c[at] = append(c[at], what)
	}
}

// note adds every event of a chat's logs, as its database has them, and all that was pushed to devices.
func (s contents) note(c *chat, peers ...*peer) {
	c.Helper()
	rows, err := c.pool.Query(c.ctx, `SELECT e.conv_id, v.epoch, e.seq, concat_ws(' ', e.kind, e.sender_user, e.cmid, e.mid, nullif(e.target_seq, 0))
		FROM tidings.event e JOIN tidings.conversation v USING (conv_id)`)
	c.Must("read the logs", err)
	defer rows.Close()
	for rows.Next() {
		var at spot
		var what string
		c.Must("read an event", rows.Scan(&at.conv, &at.epoch, &at.seq, &what))
		s.add(at, what)
	}
	c.Must("read the logs", rows.Err())
	for _, p := range peers {
		for _, f := range p.received("event") {
			e := f.sub("event")
			words := []string{e.str("kind"), e.str("sender"), e.str("cmid"), e.str("mid")}
			if e.num("target") > 0 {
				words = append(words, fmt.Sprint(e.num("target")))
			}
			words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
			s.add(spot{e.str("conv"), f.num("epoch"), e.num("seq")}, strings.Join(words, " "))
		}
	}
}

// ended waits until the journal has everything, notes what there is, and kills the gateway.
func (n *node) ended(seen contents, peers ...*peer) {
	n.c.Helper()
	n.c.Until("the journal has everything", soon, func() bool {
		return one[int](n.c.scene, `SELECT count(*) FROM tidings.taken_back WHERE NOT copied`) == 0
	})
	seen.note(n.c, peers...)
	n.c.Fault(n.Kill())
}

// readable are the messages of a conversation that a member can read: "4 m-1".
func (n *node) readable(user, conv string) (all []string) {
	n.c.Helper()
	for _, e := range n.c.read(n.pages(user, conv), 100).events {
		if e.kind == "msg" && e.body != "" {
			all = append(all, fmt.Sprint(e.seq, " ", e.cmid))
		}
	}
	return all
}

// may tells which of some users can send to a conversation.
func (n *node) may(conv string, users ...string) (members []string) {
	n.c.Helper()
	for _, user := range users {
		a := n.as(user, http.MethodGet, "/v1/conversations/"+conv+"/messages/none", nil)
		open := one[bool](n.c.scene, `SELECT EXISTS (SELECT FROM tidings.member WHERE conv_id = $1 AND user_id = $2 AND leave_seq IS NULL)`, conv, user)
		if a.status == http.StatusOK && open {
			members = append(members, user)
		}
	}
	return members
}

func (c *chat) generation() int64 {
	c.Helper()
	return one[int64](c.scene, `SELECT generation FROM tidings.lineage WHERE node = 'main'`)
}

func restoredTwice(t *lab.T) {
	seen, dir := contents{}, filepath.Join(t.TempDir(), "outside")
	outside := with("TIDINGS_OUTSIDE_DIR", dir)
	c := newChat(t)
	c.node("first", outside).Terminate()
	c.exec(`UPDATE tidings.lineage SET generation = generation + $1, recorded_at = clock_timestamp()`, int64(ahead))
	g0 := c.generation()
	t.True("the generation is ahead of the clock", g0 > time.Now().Add(24*time.Hour).UnixMilli()*1024)

	// What the backup has.
	n := c.node("a", outside)
	n.conversation("talk", "ana", "ben", "cai", "dan")
	n.conversation("old", "ana", "ben")
	n.conversation("late", "ana", "ben")
	ana, ben := n.device("ana", "ana-1"), n.device("ben", "ben-1")
	for i := 1; i <= 4; i++ {
		ana.say("talk", fmt.Sprint("m-", i), "said before the backup") // 5 to 8
		ana.say("old", fmt.Sprint("m-", i), "said before the backup")
		ana.say("late", fmt.Sprint("m-", i), "said before the backup")
	}
	backup := c.backUp()

	// The first history.
	lost := ana.say("talk", "lost-1", "said after the backup")
	ana.say("talk", "lost-2", "said after the backup")
	ana.recallBy("talk", "r-1", 6)
	ana.recallBy("talk", "r-2", lost)
	n.leave("talk", "ben")
	n.leave("talk", "cai")
	n.join("talk", "cai")
	seen.note(c)
	n.purgeNow("old")
	n.conversation("new", "ana", "ben")
	ana.recallBy("new", "r-1", ana.say("new", "n-1", "said in the first history"))
	n.leave("new", "ben")
	n.ended(seen, ana, ben)

	// The second history.
	r := c.copyOf(backup)
	r.tidings("recover", "--outside-dir", dir)
	g1 := r.generation()
	m := r.node("b", outside)
	ana, ben = m.device("ana", "ana-2"), m.device("ben", "ben-2")
	right := func(restored string, n *node, old []string, members ...string) {
		t.Helper()
		t.Equal(restored+": readable in talk", old, n.readable("ana", "talk"))
		t.Equal(restored+": readable in old", []string(nil), n.readable("ana", "old"))
		t.Equal(restored+": members of talk", members, n.may("talk", "ana", "ben", "cai", "dan"))
		t.Equal(restored+": questions that find a violation", []string{}, n.c.verify())
		t.Equal(restored+": epochs that are not the generation", 0, one[int](n.c.scene, `SELECT count(*) FROM tidings.conversation WHERE epoch <> $1`, n.c.generation()))
	}
	right("once", m, []string{"5 m-1", "7 m-3", "8 m-4"}, "ana", "cai", "dan")
	t.Equal("once: readable in late", 4, len(m.readable("ana", "late")))
	ana.say("talk", "again-1", "said in the second history")
	m.join("talk", "ben")
	m.leave("talk", "dan")
	ana.recallBy("talk", "r-3", 7)
	seen.note(r, ana, ben)
	m.purgeNow("late")
	m.conversation("new", "ana", "ben")
	ana.say("new", "n-1", "said in the second history")
	ben.say("new", "n-2", "said in the second history")
	second := r.backUp()
	m.ended(seen, ana, ben)

	// The third, from the same backup.
	q := c.copyOf(backup)
	q.tidings("recover", "--outside-dir", dir)
	g2 := q.generation()
	o := q.node("c", outside)
	right("twice", o, []string{"5 m-1", "8 m-4"}, "ana", "ben", "cai")
	t.Equal("twice: readable in late", []string(nil), o.readable("ana", "late"))
	ana = o.device("ana", "ana-3")
	ana.say("talk", "again-2", "said in the third history")
	o.conversation("new", "ben", "ana")
	ana.say("new", "n-3", "said in the third history")
	o.ended(seen, ana)

	// A backup of the second history, for which the first one's lines are nothing.
	s := c.copyOf(second)
	s.tidings("recover", "--outside-dir", dir)
	v := s.node("d", outside)
	right("the second history", v, []string{"5 m-1", "8 m-4", fmt.Sprint(one[int64](s.scene, `SELECT seq FROM tidings.event WHERE cmid = 'again-1'`), " again-1")}, "ana", "ben", "cai")
	t.Equal("the second history: readable in new", []string{"3 n-1", "4 n-2"}, v.readable("ana", "new"))
	t.Equal("the second history: members of new", []string{"ana", "ben"}, v.may("new", "ana", "ben"))
	v.ended(seen)

	t.True("each generation is greater", g0 < g1 && g1 < g2 && g2 < s.generation())
	t.True("each by its journal alone: the clock is behind", s.generation() < g0+4<<20)
	twice, shared := 0, 0
	for at, what := range seen {
		if len(what) > 1 {
			twice++
			t.Note("%v names %q", at, what)
		}
		if at.epoch == g0 && len(seen[spot{at.conv, g1, at.seq}]) > 0 && seen[spot{at.conv, g1, at.seq}][0] != what[0] {
			shared++
		}
	}
	t.Equal("places with two contents", 0, twice)
	t.Examined("places in all histories", len(seen))
	t.Examined("seqs that have other contents in the second history", shared)

	// The journal was forgotten, and is found. The directory was, too: a witness that knows of a later history would refuse this one.
	w := c.copyOf(backup)
	w.tidings("recover", "--without-journal")
	u := w.node("e")
	t.Equal("without the journal: readable in talk", []string{"5 m-1", "6 m-2", "7 m-3", "8 m-4"}, u.readable("ana", "talk"))
	u.ended(seen)
	w.tidings("recover", "--outside-dir", dir)
	right("at last", w.node("f", outside), []string{"5 m-1", "8 m-4"}, "ana", "ben", "cai")
}
