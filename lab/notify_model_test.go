package lab_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-model",
		Expect: "after each step of random sequences (submissions, claims, outcomes, lost answers and leases, stops, decisions, receipts, passing " +
			"time) rows, journal and answers are those of a reference machine, P1-P7 hold for providers that know the truth, and in the end nothing is stuck",
		Run: againstModel,
	})
}

func againstModel(t *lab.T) {
	const cases, length = 20, 50 // length: steps of a case on average
	pool := pgtest.New(t)
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(cases), "rapid.steps": strconv.Itoa(length),
		"rapid.seed": strconv.FormatUint(t.Seed(), 10), "rapid.nofailfile": "true", "rapid.shrinktime": "20s"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		t.Must("set up rapid", f.Value.Set(value))
		t.Cleanup(func() { _ = f.Value.Set(before) }) // it was valid
	}
	begun, done, taken, steps, moves := 0, 0, 0, map[string]int{}, map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		begun++
		m := newModel(r, t.Context(), pool, begun, moves)
		r.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.judge() },
			"step": func(r *rapid.T) {
				can := slices.DeleteFunc(m.steps(), func(s step) bool { return !s.can })
				next := can[rapid.IntRange(0, len(can)-1).Draw(r, "next")]
				r.Log(next.name)
				next.take(r)
				taken++
				m.turn++
				steps[next.name]++
			},
		})
		m.end()
		done++
	})
	t.Equal("cases without a difference", cases, done)
	t.Examined("steps", taken)
	t.Note("steps by kind: %v", steps)
	t.Note("changes of tasks: %v", moves)
}

// model drives the store and the reference machines side by side.
type model struct {
	*rapid.T
	ctx   context.Context
	pool  *pgxpool.Pool
	store *store.Store
	run   int // makes names of this case its own
	turn  int // counts the steps of this case

	readers []*reader
	intents []*intent
	tasks   map[tidings.UUID]*machine
	lanes   []store.Lane
	paused  map[string]bool
	calls   []*call
	truth   map[tidings.UUID]*truth
	before  map[string]line // the journal after the step before, by task and number
	was     map[tidings.UUID]string
	moves   map[string]int // how often a task changed its place, over all cases
}

// call is an attempt on its way: what it will report was decided when it began.
type call struct {
	task    *machine
	hold    hold
	token   tidings.UUID
	report  report
	reports int
}

// truth is what the provider knows about a task.
type truth struct {
	sends   int // external sends
	ordered int // sends that a person ordered
}

func newModel(r *rapid.T, ctx context.Context, pool *pgxpool.Pool, run int, moves map[string]int) *model {
	m := &model{T: r, ctx: ctx, pool: pool, store: store.New(pool), run: run, tasks: map[tidings.UUID]*machine{}, paused: map[string]bool{},
		truth: map[tidings.UUID]*truth{}, before: map[string]line{}, was: map[tidings.UUID]string{}, moves: moves}
	// What a case before left behind would only make the questions to all rows slower.
	m.exec(`TRUNCATE tidings.notification, tidings.task, tidings.attempt, tidings.receipt, tidings.channel_pref, tidings.optout, tidings.channel_state`)
	for _, p := range rapid.Permutation(promises).Draw(r, "promises")[:2] {
		l := store.Lane{Channel: fmt.Sprintf("%s-%d", p.name, run), Worker: "model", Renderer: "model/1", Lease: time.Hour, Timeout: time.Second,
			Query: p.query, AbsenceProves: p.proves}
		if p.key {
			l.KeyWindow = time.Hour
		}
		if p.settle {
			l.Settle = time.Hour
		}
		if p.horizon {
			l.Horizon = 3 * time.Hour
		}
		m.lanes = append(m.lanes, l)
	}
	for i := range 2 {
		u := &reader{name: fmt.Sprintf("reader-%d-%d", run, i), off: map[string]bool{}}
		m.readers = append(m.readers, u)
		for _, l := range m.lanes {
			m.prefer(u, l.Channel, true)
		}
	}
	return m
}

func (m *model) must(doing string, err error) {
	m.Helper()
	if err != nil {
		m.Fatalf("%s: %v", doing, err)
	}
}

func (m *model) equal(what string, want, got any) {
	m.Helper()
	if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
		m.Fatalf("%s:\nthe reference machine %s\nthe product           %s", what, w, g)
	}
}

func (m *model) exec(sql string, args ...any) {
	m.Helper()
	_, err := m.pool.Exec(m.ctx, sql, args...)
	m.must("change the database", err)
}

// fitting are the tasks that fit, in the order of their submission, which does not depend on ids.
func (m *model) fitting(fits func(*machine) bool) []*machine {
	var all []*machine
	for _, t := range m.tasks {
		if fits(t) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *machine) int { return m.order(a.id) - m.order(b.id) })
	return all
}

// pick draws one of the tasks that fit.
func (m *model) pick(fits func(*machine) bool) *machine {
	all := m.fitting(fits)
	return all[rapid.IntRange(0, len(all)-1).Draw(m.T, "task")]
}

// order is a task's place in the order of submission.
func (m *model) order(id tidings.UUID) int {
	t := m.tasks[id]
	if t == nil {
		return -1
	}
	return 10*slices.Index(m.intents, t.intent) + slices.IndexFunc(m.lanes, func(l store.Lane) bool { return l.Channel == t.channel })
}

func (m *model) chance(what string) bool { return rapid.Bool().Draw(m.T, what) }

// promise is the contract of a channel.
func (m *model) promise(channel string) promise {
	name, _, _ := strings.Cut(channel, "-")
	return promises[slices.IndexFunc(promises, func(p promise) bool { return p.name == name })]
}

func (m *model) prefer(u *reader, channel string, on bool) {
	m.Helper()
	_, err := m.store.PutPref(m.ctx, u.name, store.Pref{Channel: channel, Address: "somewhere", Enabled: on}, nil)
	m.must("store a preference", err)
	u.off[channel] = !on
}

// submit submits a notification that is new, or one that is known with the same or another content.
func (m *model) submit(r *rapid.T) {
	known := len(m.intents) > 0 && (len(m.intents) >= 20 || m.seldom())
	var n *intent
	if known {
		n = rapid.SampledFrom(m.intents).Draw(r, "which")
	} else {
		n = &intent{event: fmt.Sprintf("event-%d", len(m.intents)), body: "body", duplicates: m.chance("duplicates"),
			priority: tidings.Priority(rapid.IntRange(0, 2).Draw(r, "priority")), user: rapid.SampledFrom(m.readers).Draw(r, "reader").name}
		if m.chance("category") {
			n.category = "category"
		}
	}
	out := tidings.Notification{User: n.user, EventKey: n.event, Body: n.body, Category: n.category, Priority: &n.priority,
		TTL: tidings.Seconds(time.Hour), MaxAttempts: rapid.IntRange(1, 3).Draw(r, "attempts")}
	if n.duplicates {
		out.Duplicates = tidings.Allow
	}
	differs := known && m.chance("differs")
	if differs {
		out.Body = "another body"
	}
	answers, err := outbox.Notify(m.ctx, m.pool, out)
	m.must("submit", err)
	reader := m.reader(n.user)
	if !known {
		n.id = answers[0].ID
		m.intents = append(m.intents, n)
		for _, l := range m.lanes {
			if reader.off[l.Channel] {
				continue
			}
			var id tidings.UUID
			m.must("find a task", m.pool.QueryRow(m.ctx, `SELECT id FROM tidings.task WHERE notification_id = $1 AND channel = $2`, n.id, l.Channel).Scan(&id))
			m.tasks[id] = &machine{id: id, channel: l.Channel, promise: m.promise(l.Channel), intent: n, reader: reader,
				state: tidings.Pending, budget: out.MaxAttempts, due: true}
			m.truth[id] = &truth{}
		}
	}
	tasks := 0
	for _, t := range m.tasks {
		if t.intent == n {
			tasks++
		}
	}
	m.equal("submission", tidings.Notified{ID: n.id, Created: !known, Tasks: tasks, PayloadDiffers: differs}, answers[0])
}

func (m *model) reader(name string) *reader {
	return m.readers[slices.IndexFunc(m.readers, func(u *reader) bool { return u.name == name })]
}

// claim claims on a lane, or takes over expired leases on it, and begins the calls, or loses the answer.
func (m *model) claim(r *rapid.T, takeover, lose bool) {
	lanes := m.busy(takeover)
	if m.seldom() {
		lanes = m.lanes
	}
	m.claimOn(rapid.SampledFrom(lanes).Draw(r, "lane"), rapid.IntRange(1, 4).Draw(r, "slots"), takeover, lose)
}

// busy are the lanes on which a claim or a takeover finds something.
func (m *model) busy(takeover bool) (lanes []store.Lane) {
	for _, l := range m.lanes {
		if len(m.free(l, takeover)) > 0 {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// free are the tasks of a lane that a claim or a takeover finds.
func (m *model) free(l store.Lane, takeover bool) map[tidings.UUID]*machine {
	free := map[tidings.UUID]*machine{}
	for id, t := range m.tasks {
		if t.channel == l.Channel && !m.paused[l.Channel] && (takeover && t.lost() || !takeover && t.claimable()) {
			free[id] = t
		}
	}
	return free
}

func (m *model) claimOn(l store.Lane, slots int, takeover, lose bool) int {
	m.Helper()
	free := m.free(l, takeover)
	var claimID store.ClaimID
	_, _ = rand.Read(claimID[:]) // never fails
	claim := func() ([]store.Claimed, error) { return m.store.Claim(m.ctx, l, slots, claimID, nil) }
	if takeover {
		claim = func() ([]store.Claimed, error) { return m.store.Reclaim(m.ctx, l, slots, claimID) }
	}
	rows, err := claim()
	m.must("claim", err)
	m.equal("tasks that a claim takes", min(slots, len(free)), len(rows))
	slices.SortFunc(rows, func(a, b store.Claimed) int { return m.order(a.ID) - m.order(b.ID) }) // what is drawn must not depend on ids
	given := 0
	for _, row := range rows {
		t := free[row.ID]
		if t == nil {
			m.Fatalf("a claim took task %v, which cannot be claimed", row.ID)
		}
		delete(free, row.ID)
		ordered := t.forced
		h := t.claim(row.Token)
		m.equal("what a claim finds", h, hold{State: row.State, Stop: row.Stop, Held: row.Held, N: row.N, FirstCall: row.FirstCall, Keyed: row.Keyed, Lost: row.Lost})
		switch {
		case h.State != tidings.Sending:
		case lose:
			t.release(h)
			given++
		default:
			if h.Stop != "" {
				m.Fatalf("P5: a call begins for a task that must not be sent: %s", h.Stop)
			}
			if ordered {
				m.truth[t.id].ordered++
			}
			m.calls = append(m.calls, &call{task: t, hold: h, token: row.Token, report: m.outcome(t, h)})
		}
	}
	if !takeover { // urgent ones leave first
		for _, row := range rows {
			for _, left := range free {
				if left.intent.priority < row.Priority {
					m.Fatalf("a claim left a task of priority %d and took one of %d", left.intent.priority, row.Priority)
				}
			}
		}
	}
	if lose {
		n, err := m.store.Release(m.ctx, l.Channel, claimID)
		m.must("release", err)
		m.equal("tasks that were given back", given, n)
	}
	return len(rows)
}

// outcome makes the call of a claim at its provider, who knows the truth, and decides what will be seen of it.
func (m *model) outcome(t *machine, h hold) report {
	truth := m.truth[t.id]
	r := report{Later: m.seldom()}
	if h.Held.Action == tidings.ActionQuery {
		switch rapid.SampledFrom([]string{"answer", "failed", "timeout", "not sent", "throttled"}).Draw(m.T, "query") {
		case "failed":
			r.Outcome = tidings.QueryFailed
		case "timeout":
			r.Outcome = tidings.Timeout
		case "not sent":
			r.Outcome = tidings.NotSent
		case "throttled":
			r.Outcome = tidings.Throttled
		default:
			r.Outcome = tidings.QueryNotFound
			if truth.sends > 0 && (h.Held.Conclusive || m.chance("shown")) {
				r.Outcome = tidings.QueryFound
			}
		}
		return r
	}
	accept := func() tidings.Outcome {
		if truth.sends > 0 && t.keyHolds() {
			return tidings.AcceptedReplay
		}
		truth.sends++
		return tidings.Accepted
	}
	switch rapid.SampledFrom([]string{"unknown", "lost", "not sent", "proven 5xx", "other bytes", "throttled", "accepted", "rejected"}).Draw(m.T, "send") {
	case "accepted":
		r.Outcome = accept()
	case "unknown":
		accept()
		r.Outcome = rapid.SampledFrom([]tidings.Outcome{tidings.Timeout, tidings.IOError, tidings.HTTP5xx, ""}).Draw(m.T, "seen")
	case "lost":
		r.Outcome = rapid.SampledFrom([]tidings.Outcome{tidings.Timeout, tidings.IOError, tidings.HTTP5xx, ""}).Draw(m.T, "seen")
	case "proven 5xx":
		r.Outcome, r.Proof = tidings.HTTP5xx, true
	case "rejected":
		r.Outcome = tidings.Rejected
	case "throttled":
		r.Outcome = tidings.Throttled
	case "not sent":
		r.Outcome = tidings.NotSent
	default:
		r.Outcome, r.KeyLost = tidings.NotSent, h.Keyed
	}
	return r
}

// finish reports one or more calls, also those that were superseded, and some a second time.
func (m *model) finish(r *rapid.T) {
	open := m.unreported()
	i := rapid.IntRange(0, len(open)-1).Draw(r, "first")
	m.report(open[i:min(len(open), i+rapid.IntRange(1, 3).Draw(r, "many"))]...)
}

// unreported are the calls that were not reported twice yet.
func (m *model) unreported() (open []*call) {
	for _, c := range m.calls {
		if c.reports < 2 {
			open = append(open, c)
		}
	}
	return open
}

// report hands the ends of calls to the store as the worker does.
func (m *model) report(calls ...*call) {
	m.Helper()
	var batch []store.Finish
	var stale []tidings.UUID
	for _, c := range calls {
		v := tidings.Finish(c.hold.Held, tidings.Observation{Outcome: c.report.Outcome, Proof: c.report.Proof})
		send := c.hold.Held.Action == tidings.ActionSend
		f := store.Finish{ID: c.task.id, N: c.hold.N, Token: c.token, Verdict: v, KeyLost: c.report.KeyLost, Detail: "model",
			Doubted:   send && (v.Outcome == tidings.Timeout || v.Outcome == tidings.IOError || v.Outcome == tidings.HTTP5xx && !c.report.Proof),
			Unstarted: v.Outcome == tidings.NotSent && c.hold.FirstCall && !v.InDoubt}
		if c.report.Later {
			f.Delay = time.Hour
		}
		if send && v.Outcome != tidings.NotSent {
			f.RequestHash = []byte("the same bytes")
		}
		batch = append(batch, f)
		if c.task.finish(c.hold, c.token, c.report) {
			stale = append(stale, c.token)
		}
		c.reports++
	}
	got, err := m.store.Finish(m.ctx, batch)
	m.must("finish", err)
	sorted := func(tokens []tidings.UUID) []tidings.UUID {
		slices.SortFunc(tokens, func(a, b tidings.UUID) int { return slices.Compare(a[:], b[:]) })
		return tokens
	}
	m.equal("ends that were superseded", sorted(stale), sorted(got))
}
