// The check 40-model.

package lab_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-model",
		Expect: "600 random steps (sends, repeats, other contents, joins, leaves, acks, reads, syncs, fetches, lists, questions for outcomes, new installs, recalls by whomever " +
			"of whatever, ends of retentions, purges in steps, new epochs): every answer and after each step every row is that of a reference model, and R1-R6 hold",
		Run: logModel,
	})
}

const modelSteps = 600

// logModel drives the store and the reference model side by side.
func logModel(t *lab.T) {
	pool := pgtest.NewPlain(t)
	m := &chatModel{scene: &scene{T: t, ctx: t.Context(), pool: pool}, r: t.Rand(), store: store.New(pool), logs: map[string]*refLog{},
		installs: map[refDevice][]string{}, recalled: map[string]bool{}, taken: map[string]int{}, answers: map[string]int{}}
	m.Version("postgresql", one[string](m.scene, "SHOW server_version"))
	m.Must("record the lineage", m.store.EnsureLineage(m.ctx))
	m.generation = one[int64](m.scene, `SELECT generation FROM tidings.lineage`)
	for _, d := range m.devices() {
		m.install(d, "first")
	}
	for _, conv := range modelConvs[:3] {
		m.create(conv)
	}
	steps := m.steps()
	for range modelSteps {
		weight := m.r.IntN(100) // the steps' weights make 100
		next := slices.IndexFunc(steps, func(s modelStep) bool { weight -= s.weight; return weight < 0 })
		m.Log(steps[next].name)
		steps[next].take()
		m.taken[steps[next].name]++
		m.judge()
	}
	done := 0
	for _, n := range m.taken {
		done += n
	}
	m.Equal("steps without a difference", modelSteps, done)
	m.Examined("steps", modelSteps)
	m.Examined("events", m.events())
	m.Examined("recalled contents that no read gave", len(m.recalled))
	m.Note("steps by kind: %v", m.taken)
	m.Note("answers by kind: %v", m.answers)
	m.doctor()
}

type chatModel struct {
	*scene
	r          *rand.Rand
	store      *store.Store
	generation int64
	logs       map[string]*refLog
	installs   map[refDevice][]string // of a device, the current one last
	sent       []tidings.Message
	recalls    []store.Recall  // asked for so far
	recalled   map[string]bool // contents of recalled messages, each of which was sent once
	cmids      int
	taken      map[string]int
	answers    map[string]int
	before     map[string]int64 // the cursors after the step before
}

func (m *chatModel) events() (n int) {
	for _, l := range m.logs {
		n += len(l.events)
	}
	return n
}

// same ends the check when an answer is not the model's.
func (m *chatModel) same(what string, want, got any) {
	m.Helper()
	if diff := modelDiff(want, got); diff != "" {
		m.Fatalf("%s: -model +product\n%s", what, diff)
	}
}

func modelDiff(want, got any) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(refusal{}, refSpan{}, refDelivered{}, refKey{}, refDevice{}))
}

// refused is what an error says; the zero value for none.
func (m *chatModel) refused(err error) (no refusal) {
	m.Helper()
	var e *tidings.Error
	switch {
	case err == nil:
		m.answers["taken"]++
		return no
	case !errors.As(err, &e):
		m.Fatalf("an error without a code: %v", err)
	}
	m.answers[string(e.Code)]++
	return refusal{e.Code, e.Epoch, e.Head}
}

// judge ends the check when the rows are not the model's or break a promise.
func (m *chatModel) judge() {
	m.Helper()
	if all := m.differences(); len(all) > 0 {
		m.Fatalf("after this step: -model +product\n%s", strings.Join(all, "\n"))
	}
	m.complete()
}

// differences compares all rows with the model and looks at the promises.
func (m *chatModel) differences() (all []string) {
	m.Helper()
	see := func(what string, want, got any) {
		if d := modelDiff(want, got); d != "" {
			all = append(all, what+": "+d)
		}
	}
	var logs, broken int
	m.Must("look at the logs", m.pool.QueryRow(m.ctx, contiguousSQL).Scan(&logs, &broken))
	see("R2: logs, broken logs", []int{len(m.logs), 0}, []int{logs, broken})
	see("R1: request keys with two events", 0, one[int](m.scene, `SELECT count(*) FROM (
		SELECT FROM tidings.event WHERE cmid IS NOT NULL GROUP BY conv_id, sender_user, cmid HAVING count(*) > 1) x`))
	see("R6: recalled messages with content", 0, one[int](m.scene, `SELECT count(*) FROM tidings.event r JOIN tidings.event e ON e.conv_id = r.conv_id AND e.seq = r.target_seq
		WHERE r.kind = 'recall' AND (e.body IS NOT NULL OR e.data IS NOT NULL OR e.request_hash IS NOT NULL OR e.recalled_by IS DISTINCT FROM r.seq)`))
	cursors := map[string]int64{}
	for conv, l := range m.logs {
		var epoch, head, least int64
		m.Must("read a conversation", m.pool.QueryRow(m.ctx, `SELECT epoch, next_seq - 1, min_seq FROM tidings.conversation WHERE conv_id = $1`, conv).Scan(&epoch, &head, &least))
		see(conv+": epoch, head, min_seq", []int64{l.epoch, l.head(), l.min}, []int64{epoch, head, least})
		see(conv+": events", l.kept(), m.rows(l))
		see(conv+": tombstones", l.purged(), m.tombstones(conv))
		see(conv+": memberships", l.spans, m.spans(conv))
		see(conv+": the journal", l.taken, m.journal(conv))
		see(conv+": what notifications have to be told", l.gone, m.gone(conv))
		read, delivered := m.cursors(conv)
		see(conv+": read cursors", l.read, read)
		see(conv+": delivered cursors", l.delivered, delivered)
		for user, seq := range read {
			cursors[conv+" "+user] = seq
			see("R4: a read cursor beyond the head", false, seq > l.headOf(user))
		}
		for d, at := range delivered {
			cursors[fmt.Sprint(conv, d, at.install)] = at.seq
			see("R4: a delivered cursor beyond the head", false, at.seq > l.headOf(d.user))
		}
	}
	for name, was := range m.before {
		now, kept := cursors[name]
		see("R4: the cursor "+name+" fell", false, kept && now < was)
	}
	m.before = cursors
	return all
}

// doctor changes rows behind the model's back and records that each change is seen.
func (m *chatModel) doctor() {
	m.Helper()
	seen := 0
	for _, x := range []struct{ what, sql string }{
		{"another body", `UPDATE tidings.event SET body = body || '!' WHERE (conv_id, seq) IN (SELECT conv_id, seq FROM tidings.event WHERE body <> '' LIMIT 1)`},
		{"a recall undone", `UPDATE tidings.event SET recalled_by = NULL, body = '' WHERE (conv_id, seq) IN (SELECT conv_id, seq FROM tidings.event WHERE recalled_by IS NOT NULL LIMIT 1)`},
		{"a lost line of the journal", `DELETE FROM tidings.taken_back WHERE (conv_id, id) IN (SELECT conv_id, id FROM tidings.taken_back LIMIT 1)`},
		{"a longer membership", `UPDATE tidings.member SET leave_seq = leave_seq + 1 WHERE (conv_id, user_id, join_seq) IN (
			SELECT conv_id, user_id, join_seq FROM tidings.member WHERE leave_seq IS NOT NULL LIMIT 1)`},
		{"a read cursor that fell", `UPDATE tidings.read SET seq = seq - 1 WHERE (conv_id, user_id) IN (SELECT conv_id, user_id FROM tidings.read LIMIT 1)`},
		{"a delivered cursor beyond the head", `UPDATE tidings.delivered SET seq = 1000000 WHERE (conv_id, user_id, device_id) IN (
			SELECT conv_id, user_id, device_id FROM tidings.delivered LIMIT 1)`},
		{"a lost event", `DELETE FROM tidings.event e USING tidings.conversation c 
			WHERE c.conv_id = (SELECT min(conv_id) FROM tidings.conversation WHERE min_seq < next_seq) AND e.conv_id = c.conv_id AND e.seq = c.next_seq - 1`},
	} {
		m.Equal("rows changed for "+x.what, 1, m.exec(x.sql))
		before := seen
		seen = len(m.differences())
		m.True("seen: "+x.what, seen > before)
	}
}

// complete has one user read one conversation from the start, page by page: R3 and R5.
func (m *chatModel) complete() {
	m.Helper()
	user, conv := m.user(), m.conv()
	l := m.logs[conv]
	if !l.known(user) {
		return
	}
	limit, after := 1+m.r.IntN(7), int64(0)
	got := map[int64]bool{} // visible or not
	for more := true; more; {
		p, err := m.store.Sync(m.ctx, user, conv, l.epoch, after, limit)
		m.Must("read a page", err)
		m.none("a page of "+user, p.Events...)
		for _, w := range p.Withheld {
			for seq := w.From; seq <= w.To; seq++ {
				got[seq] = false
			}
			after = max(after, w.To)
		}
		for _, e := range p.Events {
			got[e.Seq] = true
			after = max(after, e.Seq)
		}
		more = p.More
	}
	for seq := int64(1); seq <= l.headOf(user); seq++ {
		visible, explained := got[seq]
		if !explained {
			m.Fatalf("R5: %s reads %s to the end, and nothing explains %d", user, conv, seq)
		}
		if visible != l.visible(user, seq) {
			m.Fatalf("R3: %s reads %s, and %d is visible: %v", user, conv, seq, visible)
		}
	}
	m.same("R3: what was read behind the head", l.headOf(user), int64(len(got)))
}

// Random things. Their number is small, so that they meet.

var (
	modelUsers = []string{"ana", "ben", "cy", "dan", "eve"}
	modelConvs = []string{"c-1", "c-2", "c-3", "c-4"} // those that nobody has created yet are absent
)

func (m *chatModel) user() string { return modelUsers[m.r.IntN(len(modelUsers))] }
func (m *chatModel) conv() string { return modelConvs[min(m.r.IntN(10)/3, 3)] }

func (m *chatModel) devices() (all []refDevice) {
	for _, user := range modelUsers {
		all = append(all, refDevice{user, user + "-1"}, refDevice{user, user + "-2"})
	}
	return all
}

// some is a conversation that is there.
func (m *chatModel) some() *refLog {
	convs := slices.DeleteFunc(slices.Clone(modelConvs), func(c string) bool { return m.logs[c] == nil })
	return m.logs[convs[m.r.IntN(len(convs))]]
}

// seq is one from before the first to behind the last; epoch the current one, none, or seldom another.
func (m *chatModel) seq(l *refLog) int64 {
	if l == nil {
		return int64(m.r.IntN(5))
	}
	return int64(m.r.IntN(len(l.events)+4)) - 1
}

func (m *chatModel) epoch(l *refLog) int64 {
	switch n := m.r.IntN(8); {
	case n == 0:
		return m.generation + 99
	case n > 4 || l == nil:
		return 0
	}
	return l.epoch
}
