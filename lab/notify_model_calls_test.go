// What the model check does to channels.

package lab_test

import (
	"crypto/rand"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// claim claims on a lane, or takes over expired leases on it, and begins the calls, or loses the answer.
func (m *model) claim(r *rapid.T, takeover, lose bool) {
	lanes := m.busy(takeover)
	if m.seldom(2) {
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
		if t.promise.name == l.Channel && !m.paused[l.Channel] && (takeover && t.lost() || !takeover && t.claimable()) {
			free[id] = t
		}
	}
	return free
}

func (m *model) claimOn(l store.Lane, slots int, takeover, lose bool) {
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
}

// outcome makes the call of a claim at its provider, who knows the truth, and decides what will be seen of it.
func (m *model) outcome(t *machine, h hold) report {
	truth := m.truth[t.id]
	r := report{Later: m.seldom(2)}
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
