// The check 33-model.

package lab_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
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
	done, taken, steps, moves := 0, 0, map[string]int{}, map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		m := newModel(r, t.Context(), pool, moves)
		r.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.judge() },
			"step": func(r *rapid.T) {
				can := slices.DeleteFunc(m.steps(), func(s step) bool { return !s.can })
				if len(can) == 0 { // all channels are paused, or the like
					can = []step{{"interfere", true, m.interfere}}
				}
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

// newModel begins a case: two channels, two users, and nothing else in the database.
func newModel(r *rapid.T, ctx context.Context, pool *pgxpool.Pool, moves map[string]int) *model {
	m := &model{T: r, ctx: ctx, pool: pool, store: store.New(pool), tasks: map[tidings.UUID]*machine{}, paused: map[string]bool{},
		truth: map[tidings.UUID]*truth{}, before: map[string]line{}, was: map[tidings.UUID]string{}, moves: moves}
	m.exec(`TRUNCATE tidings.notification, tidings.task, tidings.attempt, tidings.receipt, tidings.channel_pref, tidings.optout, tidings.channel_state`)
	for _, p := range rapid.Permutation(promises).Draw(r, "promises")[:2] {
		l := store.Lane{Channel: p.name, Worker: "model", Renderer: "model/1", Lease: time.Hour, Timeout: time.Second,
			Query: p.query, AbsenceProves: p.proves}
		if p.key {
			l.KeyWindow = time.Hour
		}
		if p.settle {
			l.Settle = time.Hour
		}
		if p.horizon {
			l.Horizon = 3*time.Hour + l.Lease // judged for the end of the lease
		}
		m.lanes = append(m.lanes, l)
	}
	for i := range 2 {
		u := &reader{name: fmt.Sprintf("reader-%d", i), off: map[string]bool{}}
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
	return 10*slices.Index(m.intents, t.intent) + slices.IndexFunc(m.lanes, func(l store.Lane) bool { return l.Channel == t.promise.name })
}

func (m *model) chance(what string) bool { return rapid.Bool().Draw(m.T, what) }

func (m *model) prefer(u *reader, channel string, on bool) {
	m.Helper()
	_, err := m.store.PutPref(m.ctx, u.name, store.Pref{Channel: channel, Address: "somewhere", Enabled: on}, nil)
	m.must("store a preference", err)
	u.off[channel] = !on
}

// submit submits a notification that is new, or one that is known with the same or another content.
func (m *model) submit(r *rapid.T) {
	known := len(m.intents) > 0 && (len(m.intents) >= 20 || m.seldom(2))
	var n *intent
	if known {
		n = rapid.SampledFrom(m.intents).Draw(r, "which")
	} else {
		n = &intent{event: fmt.Sprintf("event-%d", len(m.intents)), body: "body", duplicates: m.chance("duplicates"),
			priority: tidings.Priority(rapid.IntRange(0, 2).Draw(r, "priority")), reader: rapid.SampledFrom(m.readers).Draw(r, "reader")}
		if m.chance("category") {
			n.category = "category"
		}
	}
	out := tidings.Notification{User: n.reader.name, EventKey: n.event, Body: n.body, Category: n.category, Priority: &n.priority,
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
	if !known {
		n.id = answers[0].ID
		m.intents = append(m.intents, n)
		for _, l := range m.lanes {
			if n.reader.off[l.Channel] {
				continue
			}
			var id tidings.UUID
			m.must("find a task", m.pool.QueryRow(m.ctx, `SELECT id FROM tidings.task WHERE notification_id = $1 AND channel = $2`, n.id, l.Channel).Scan(&id))
			p := promises[slices.IndexFunc(promises, func(p promise) bool { return p.name == l.Channel })]
			m.tasks[id] = &machine{id: id, promise: p, intent: n, state: tidings.Pending, budget: out.MaxAttempts, due: true}
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
