// The random steps of the model check.

package lab_test

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// step is something that can happen next, if it finds something to do.
type step struct {
	name string
	can  bool
	take func(*rapid.T)
}

// steps are what can happen. rapid prefers the first ones, so what moves tasks on comes before what stops them, which comes
// up only every so often.
func (m *model) steps() []step {
	some := func(fits func(*machine) bool) bool { return len(m.fitting(fits)) > 0 }
	claim, takeOver := len(m.busy(false)) > 0, len(m.busy(true)) > 0
	open := len(m.fitting(func(t *machine) bool { return !t.state.Final() }))
	return []step{
		{"claim", claim, func(r *rapid.T) { m.claim(r, false, false) }},
		{"finish", len(m.unreported()) > 0, m.finish},
		{"take over", takeOver, func(r *rapid.T) { m.claim(r, true, false) }},
		{"lose a lease", some((*machine).held), m.loseLease},
		{"resolve", some((*machine).waiting), m.resolve},
		{"submit", open < 4, m.submit}, // few at a time, so that much happens to each
		{"settle", some((*machine).unsettled), m.settle},
		{"wait", some((*machine).later), m.wait},
		{"receipt", some(m.reported), m.receipt},
		{"lose a takeover's answer", takeOver && m.turn%2 == 0, func(r *rapid.T) { m.claim(r, true, true) }},
		{"lose a claim's answer", claim && m.turn%4 == 0, func(r *rapid.T) { m.claim(r, false, true) }},
		{"a key's window ends", some((*machine).ageing), m.ageCall},
		{"finish", len(m.unreported()) > 0, m.finish},
		{"interfere", open > 0 && m.turn%4 == 1, m.interfere},
	}
}

func (t *machine) held() bool      { return t.state == tidings.Sending && !t.over }
func (t *machine) waiting() bool   { return t.review }
func (t *machine) unsettled() bool { return t.fresh || t.over && t.lately }
func (t *machine) later() bool {
	return !t.due && !t.state.Final() && !t.review && t.state != tidings.Sending
}
func (t *machine) ageing() bool {
	return t.called && !t.state.Final() && (t.promise.key && t.age < 1 || t.promise.horizon && t.age < 2)
}

// reported: its provider has something to report. About what is settled it does so too, but not all the time.
func (m *model) reported(t *machine) bool {
	return m.truth[t.id].sends > 0 && (!t.state.Final() || len(t.journal)%3 == 0)
}

func (m *model) loseLease(*rapid.T) {
	t := m.pick((*machine).held)
	m.exec(`UPDATE tidings.task SET lease_until = statement_timestamp() - interval '10 s' WHERE id = $1`, t.id)
	t.over, t.lately = true, true
}

// wait lets the time of everything that is scheduled come.
func (m *model) wait(*rapid.T) {
	for id, t := range m.tasks {
		m.exec(`UPDATE tidings.task SET next_attempt_at = statement_timestamp() WHERE id = $1 AND next_attempt_at > statement_timestamp()`, id)
		t.due = true
	}
}

// settle lets the settle time of what is in doubt pass.
func (m *model) settle(*rapid.T) {
	t := m.pick((*machine).unsettled)
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

// seldom is true one time in 2^n.
func (m *model) seldom(n int) bool {
	for range n {
		if !m.chance("seldom") {
			return false
		}
	}
	return true
}

// interfere does something that stops tasks, or lets them go on.
func (m *model) interfere(r *rapid.T) {
	u, l := rapid.SampledFrom(m.readers).Draw(r, "reader"), rapid.SampledFrom(m.lanes).Draw(r, "lane")
	n := rapid.SampledFrom(m.intents).Draw(r, "notification")
	switch rapid.SampledFrom([]string{"switch", "opt", "pause", "cancel", "expire", "gone"}).Draw(r, "how") {
	case "switch":
		m.prefer(u, l.Channel, u.off[l.Channel])
	case "opt":
		change := m.store.PutOptout
		if u.out {
			change = m.store.DeleteOptout
		}
		changed, err := change(m.ctx, u.name, "category", "")
		m.must("change an opt-out", err)
		m.equal("opt-outs that were changed", true, changed)
		u.out = !u.out
	case "pause":
		if m.paused[l.Channel] {
			m.must("resume", m.store.ResumeChannel(m.ctx, l.Channel))
		} else {
			m.must("pause", m.store.PauseChannel(m.ctx, l.Channel, nil, "a reason", "somebody"))
		}
		m.paused[l.Channel] = !m.paused[l.Channel]
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

// resolve is a person's word, more often about a task that waits for it, and sometimes from a page that is out of date.
func (m *model) resolve(r *rapid.T) {
	all := m.seldom(4)
	t := m.pick(func(t *machine) bool { return t.review || all })
	verb := rapid.SampledFrom([]string{store.VerbResend, store.VerbFailed, store.VerbSent}).Draw(r, "verb")
	count := len(t.journal)
	if m.seldom(4) {
		count--
	}
	err := m.store.Resolve(m.ctx, store.Resolution{Task: t.id, Verb: verb, By: "somebody", AttemptCount: count})
	m.equal("the answer to "+verb, t.resolve(verb, count), tidings.ErrorCode(err))
}

// receipt is a provider's report about a message that it has, or about one of a time that was lost here.
func (m *model) receipt(*rapid.T) {
	all := m.seldom(4)
	t := m.pick(func(t *machine) bool { return m.reported(t) || all && t.state == tidings.Pending })
	before, final := t.state, t.state.Final()
	want := store.ReceiptResult{Matched: 1}
	status := fmt.Sprintf("report %d", len(t.journal))
	if !final {
		want.Settled = 1
	} else if before != tidings.Sent {
		want.Contradictions = 1
	}
	report := []store.Receipt{{Reference: t.id.Key(), Status: status}}
	got, err := m.store.RecordReceipts(m.ctx, t.promise.name, report)
	m.must("record a receipt", err)
	m.equal("what became of a receipt", want, got)
	t.receipt()
	got, err = m.store.RecordReceipts(m.ctx, t.promise.name, report)
	m.must("record a receipt again", err)
	m.equal("what became of it the second time", store.ReceiptResult{Replayed: 1}, got)
}

// seen is a task as it is stored.
type seen struct {
	ID                                                                   tidings.UUID
	State                                                                tidings.State
	Review, Doubt, Fresh, Forced, Settled, Due, Scheduled, Call, KeyLost bool
	Budget, Count                                                        int
	Token                                                                *tidings.UUID
}

// judge compares every row with the reference machine and asks whether the promises hold.
func (m *model) judge() {
	m.Helper()
	rows, err := m.pool.Query(m.ctx, `SELECT id, state, needs_review, outcome_uncertain, coalesce(doubt_at > statement_timestamp() - interval '1 h', false),
		force_send, settled_by IS NOT NULL, coalesce(next_attempt_at <= statement_timestamp(), false), next_attempt_at IS NOT NULL,
		first_call_at IS NOT NULL, key_lost, budget_left, attempt_count, attempt_token
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
		got.Forced, got.Fresh = got.Forced && scheduled, got.Fresh && t.state == tidings.Unknown // otherwise they say nothing
		want := seen{ID: t.id, State: t.state, Review: t.review, Doubt: t.doubt, Fresh: t.fresh && t.state == tidings.Unknown, Forced: t.forced && scheduled, Settled: t.settled, Due: scheduled && t.due,
			Scheduled: scheduled, Call: t.called, KeyLost: t.keyLost, Budget: t.budget, Count: len(t.journal), Token: got.Token}
		m.equal("task of "+t.promise.name, want, got)
		if to := place(t); m.was[t.id] != to {
			m.moves[m.was[t.id]+" to "+to]++
			m.was[t.id] = to
		}
		if held := got.Token != nil; held != (t.state == tidings.Sending) || held && *got.Token != t.token {
			m.Fatalf("P2: the token of a task in %s is not the one of the last claim", got.State)
		}
		m.equal("journal of "+t.promise.name, t.journal, journal[t.id])
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
		m.wait(m.T)
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
