package lab_test

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// actions are the steps. rapid prefers the first ones of their names' order, so what moves tasks on comes before what stops
// them. A step that finds nothing to do is not taken.
func (m *model) actions() map[string]func(*rapid.T) {
	claim := func(r *rapid.T) { m.claim(r, false, false) }
	actions := map[string]func(*rapid.T){}
	for i, step := range []struct {
		name string
		take func(*rapid.T)
	}{
		{"claim", claim},
		{"finish", m.finish},
		{"submit", m.submit},
		{"take over", func(r *rapid.T) { m.claim(r, true, false) }},
		{"resolve", m.resolve},
		{"lose a lease", m.loseLease},
		{"settle", m.settle},
		{"wait", m.wait},
		{"receipt", m.receipt},
		{"lose a takeover's answer", func(r *rapid.T) { m.claim(r, true, true) }},
		{"lose a claim's answer", func(r *rapid.T) { m.claim(r, false, true) }},
		{"a key's window ends", m.ageCall},
		{"claim", claim},
		{"finish", m.finish},
		{"resolve", m.resolve},
		{"switch a channel", m.switchChannel},
		{"opt out or in", m.optOut},
		{"cancel, expire or lose the source", m.stopIntent},
		{"pause or resume", m.pause},
	} {
		actions[fmt.Sprintf("%02d %s", i, step.name)] = step.take
	}
	return actions
}

func (m *model) loseLease(*rapid.T) {
	t := m.pick(func(t *machine) bool { return t.state == tidings.Sending && !t.over })
	m.exec(`UPDATE tidings.task SET lease_until = statement_timestamp() - interval '10 s' WHERE id = $1`, t.id)
	t.over, t.lately = true, true
}

// wait lets the time of everything that is scheduled come.
func (m *model) wait(*rapid.T) {
	m.skipUnless(func(t *machine) bool { return !t.due && !t.state.Final() })
	m.elapse()
}

func (m *model) elapse() {
	for id, t := range m.tasks {
		m.exec(`UPDATE tidings.task SET next_attempt_at = statement_timestamp() WHERE id = $1 AND next_attempt_at > statement_timestamp()`, id)
		t.due = true
	}
}

// settle lets the settle time of what is in doubt pass.
func (m *model) settle(*rapid.T) {
	t := m.pick(func(t *machine) bool { return t.fresh || t.over && t.lately })
	m.exec(`UPDATE tidings.task SET doubt_at = doubt_at - interval '2 h',
		lease_until = CASE WHEN lease_until < statement_timestamp() THEN lease_until - interval '2 h' ELSE lease_until END WHERE id = $1`, t.id)
	t.fresh, t.lately = false, false
}

// ageCall lets two hours pass since the first call: then its key's window is over, and after two more nobody can be asked.
func (m *model) ageCall(*rapid.T) {
	t := m.pick(func(t *machine) bool {
		return t.called && (t.promise.key && t.age < 1 || t.promise.horizon && t.age < 2)
	})
	m.exec(`UPDATE tidings.task SET first_call_at = first_call_at - interval '2 h' WHERE id = $1`, t.id)
	t.age++
}

// seldom is true one time in four: what stops or delays tasks must not be all that happens to them.
func (m *model) seldom() bool { return m.chance("seldom") && m.chance("seldom") }

func (m *model) switchChannel(r *rapid.T) {
	if !m.seldom() {
		return
	}
	u, l := rapid.SampledFrom(m.readers).Draw(r, "reader"), rapid.SampledFrom(m.lanes).Draw(r, "lane")
	m.prefer(u, l.Channel, u.off[l.Channel])
}

func (m *model) optOut(r *rapid.T) {
	if !m.seldom() {
		return
	}
	u := rapid.SampledFrom(m.readers).Draw(r, "reader")
	change := m.store.PutOptout
	if u.out {
		change = m.store.DeleteOptout
	}
	changed, err := change(m.ctx, u.name, "category", "")
	m.must("change an opt-out", err)
	m.equal("opt-outs that were changed", true, changed)
	u.out = !u.out
}

func (m *model) stopIntent(r *rapid.T) {
	if len(m.intents) == 0 {
		m.Skip("nothing was submitted")
	}
	if !m.seldom() {
		return
	}
	n := rapid.SampledFrom(m.intents).Draw(r, "notification")
	switch rapid.SampledFrom([]string{"cancel", "expire", "gone"}).Draw(r, "how") {
	case "cancel":
		cancelled, err := m.store.CancelNotification(m.ctx, n.id)
		m.must("cancel", err)
		m.equal("cancelled now", !n.cancelled, cancelled)
		n.cancelled = true
	case "expire":
		m.exec(`UPDATE tidings.notification SET created_at = created_at - interval '2 h', expires_at = statement_timestamp() WHERE id = $1`, n.id)
		n.expired = true
	default:
		m.exec(`UPDATE tidings.notification SET about_gone_at = statement_timestamp() WHERE id = $1`, n.id)
		n.gone = true
	}
}

func (m *model) pause(r *rapid.T) {
	if !slices.ContainsFunc(m.lanes, func(l store.Lane) bool { return m.paused[l.Channel] }) && !m.seldom() {
		return
	}
	l := rapid.SampledFrom(m.lanes).Draw(r, "lane")
	if m.paused[l.Channel] {
		m.must("resume", m.store.ResumeChannel(m.ctx, l.Channel))
	} else {
		m.must("pause", m.store.PauseChannel(m.ctx, l.Channel, nil, "a reason", "somebody"))
	}
	m.paused[l.Channel] = !m.paused[l.Channel]
}

// resolve is a person's word, more often about a task that waits for it, and sometimes from a page that is out of date.
func (m *model) resolve(r *rapid.T) {
	m.skipUnless(func(t *machine) bool { return t.review })
	any := m.seldom() && m.seldom()
	t := m.pick(func(t *machine) bool { return t.review || any })
	verb := rapid.SampledFrom([]string{store.VerbResend, store.VerbFailed, store.VerbSent}).Draw(r, "verb")
	count := len(t.journal)
	if m.seldom() && m.seldom() {
		count--
	}
	err := m.store.Resolve(m.ctx, store.Resolution{Task: t.id, Verb: verb, By: "somebody", AttemptCount: count})
	m.equal("the answer to "+verb, t.resolve(verb, count), tidings.ErrorCode(err))
}

// receipt is a provider's report about a message that it has, or about one of a time that was lost here.
func (m *model) receipt(*rapid.T) {
	m.skipUnless(func(t *machine) bool { return m.truth[t.id].sends > 0 })
	foreign := m.seldom() && m.seldom()
	t := m.pick(func(t *machine) bool { return m.truth[t.id].sends > 0 || foreign && t.state == tidings.Pending })
	before, final := t.state, t.state.Final()
	want := store.ReceiptResult{Matched: 1}
	status := fmt.Sprintf("report %d", len(t.journal))
	if !final {
		want.Settled = 1
	} else if before != tidings.Sent {
		want.Contradictions = 1
	}
	report := []store.Receipt{{Reference: t.id.Key(), Status: status}}
	got, err := m.store.RecordReceipts(m.ctx, t.channel, report)
	m.must("record a receipt", err)
	m.equal("what became of a receipt", want, got)
	t.receipt()
	got, err = m.store.RecordReceipts(m.ctx, t.channel, report)
	m.must("record a receipt again", err)
	m.equal("what became of it the second time", store.ReceiptResult{Replayed: 1}, got)
}

// seen is a task as it is stored.
type seen struct {
	ID                                                   tidings.UUID
	State                                                tidings.State
	Review, Doubt, Forced, Settled, Due, Scheduled, Call bool
	Budget, Count                                        int
	Token                                                *tidings.UUID
}

// judge compares every row with the reference machine and asks whether the promises hold.
func (m *model) judge() {
	m.Helper()
	rows, err := m.pool.Query(m.ctx, `SELECT id, state, needs_review, outcome_uncertain, force_send, settled_by IS NOT NULL,
		coalesce(next_attempt_at <= statement_timestamp(), false), next_attempt_at IS NOT NULL, first_call_at IS NOT NULL, budget_left, attempt_count, attempt_token
		FROM tidings.task WHERE channel = ANY ($1)`, []string{m.lanes[0].Channel, m.lanes[1].Channel})
	m.must("read the tasks", err)
	tasks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seen])
	m.must("read the tasks", err)
	m.equal("tasks", len(m.tasks), len(tasks))
	journal := m.journal()
	for _, got := range tasks {
		t, truth := m.tasks[got.ID], m.truth[got.ID]
		if t == nil {
			m.Fatalf("task %v belongs to nothing that was submitted", got.ID)
		}
		scheduled := t.state == tidings.Pending || t.state == tidings.Unknown && !t.review
		got.Forced = got.Forced && scheduled // before and after, it says nothing
		want := seen{ID: t.id, State: t.state, Review: t.review, Doubt: t.doubt, Forced: t.forced && scheduled, Settled: t.settled, Due: scheduled && t.due,
			Scheduled: scheduled, Call: t.called, Budget: t.budget, Count: len(t.journal), Token: got.Token}
		m.equal("task of "+t.channel, want, got)
		if to := place(t); m.was[t.id] != to {
			m.moves[m.was[t.id]+" to "+to]++
			m.was[t.id] = to
		}
		if held := got.Token != nil; held != (t.state == tidings.Sending) || held && *got.Token != t.token {
			m.Fatalf("P2: the token of a task in %s is not the one of the last claim", got.State)
		}
		m.equal("journal of "+t.channel, t.journal, journal[t.id])
		if (got.State == tidings.Failed || got.State == tidings.Suppressed) && !got.Settled && truth.sends > 0 {
			m.Fatalf("P4: %s is recorded, and the provider sent it %d times", got.State, truth.sends)
		}
		if truth.sends > 1+truth.ordered && !t.intent.duplicates {
			m.Fatalf("P6: %d external sends, %d ordered by a person", truth.sends, truth.ordered)
		}
	}
	findings, err := m.store.Verify(m.ctx)
	m.must("verify", err)
	for _, f := range findings {
		if f.Promise != "" && f.Violations > 0 {
			m.Fatalf("%s, %s: %d violations, one is %s", f.Promise, f.Title, f.Violations, f.Sample)
		}
	}
}

// place is where a task stands.
func place(t *machine) string {
	if t.review {
		return string(t.state) + "+review"
	}
	return string(t.state)
}

// journal reads the journals and sees to it that nothing in them was overwritten.
func (m *model) journal() map[tidings.UUID][]line {
	m.Helper()
	rows, err := m.pool.Query(m.ctx, `SELECT a.task_id, a.n, a.action, coalesce(a.outcome, ''), coalesce(a.late_outcome, '') FROM tidings.attempt a
		WHERE a.task_id = ANY ($1) ORDER BY a.task_id, a.n`, m.ids())
	m.must("read the journal", err)
	journal := map[tidings.UUID][]line{}
	var id tidings.UUID
	var n int
	var l line
	_, err = pgx.ForEachRow(rows, []any{&id, &n, &l.Action, &l.Outcome, &l.Late}, func() error {
		place := fmt.Sprint(id, n)
		if was := m.before[place]; was.Outcome != "" && was.Outcome != l.Outcome || was.Late != "" && was.Late != l.Late {
			m.Fatalf("P3: the journal said %+v and says %+v", was, l)
		}
		m.before[place] = l
		journal[id] = append(journal[id], l)
		return nil
	})
	m.must("read the journal", err)
	return journal
}

func (m *model) ids() (ids []tidings.UUID) {
	for id := range m.tasks {
		ids = append(ids, id)
	}
	return ids
}

// end lets all time pass and everything be accepted: then each task is final or waits for a person.
func (m *model) end() {
	m.Helper()
	for _, l := range m.lanes {
		m.must("resume", m.store.ResumeChannel(m.ctx, l.Channel))
	}
	m.paused = map[string]bool{}
	stuck := func() bool {
		return slices.ContainsFunc(m.ids(), func(id tidings.UUID) bool { return !m.tasks[id].state.Final() && !m.tasks[id].review })
	}
	for round := 0; stuck(); round++ {
		if round > 20 {
			m.Fatalf("P7: after %d rounds in which everything is accepted a task is still on its way", round)
		}
		m.elapse()
		for id, t := range m.tasks {
			m.exec(`UPDATE tidings.task SET doubt_at = doubt_at - interval '2 h', lease_until = statement_timestamp() - interval '2 h' WHERE id = $1 AND state = 'SENDING'`, id)
			m.exec(`UPDATE tidings.task SET doubt_at = doubt_at - interval '2 h' WHERE id = $1 AND state = 'UNKNOWN'`, id)
			t.over, t.lately, t.fresh = t.state == tidings.Sending, false, false
		}
		m.calls = nil
		for _, l := range m.lanes {
			m.claimOn(l, 100, true, false)
			m.claimOn(l, 100, false, false)
		}
		for _, c := range m.calls {
			c.report = report{Outcome: tidings.Accepted}
			if c.hold.Held.Action == tidings.ActionQuery {
				c.report.Outcome = tidings.QueryFound
			}
			m.report(c)
		}
	}
	m.judge()
}
