// The reference model of one task, written from the rules and not from the product.

package lab_test

import (
	"github.com/tidings-project/tidings"
)

// The task state machine once more, in memory: written from the rules and not from the product's code, so that a mistake
// there does not repeat itself here. Times are reduced to what the rules ask of them.

// promise is a channel's contract as far as the machine depends on it.
type promise struct {
	name    string
	key     bool // a repeated request is recognised, until the window is over
	query   bool // it can be asked
	proves  bool // "not found" is proof, once settled and as long as it can be asked
	settle  bool // answers are reliable only some time after a call; otherwise at once
	horizon bool // it can be asked only for some time, which is longer than the key's window
}

var promises = []promise{
	{name: "keyed", key: true},
	{name: "asked", query: true, proves: true},
	{name: "vague", query: true},
	{name: "slow", query: true, proves: true, settle: true},
	{name: "both", key: true, query: true, proves: true, horizon: true},
	{name: "plain"},
}

// intent is a notification: what its tasks share.
type intent struct {
	id                       tidings.UUID
	reader                   *reader
	event, body, category    string
	duplicates               bool // a second copy is acceptable
	priority                 tidings.Priority
	cancelled, expired, gone bool
}

// reader is a user.
type reader struct {
	name string
	off  map[string]bool // channels that are switched off
	out  bool            // wants nothing of the category
}

// machine is one task.
type machine struct {
	id      tidings.UUID
	promise promise // its name is the channel's
	intent  *intent

	state   tidings.State
	review  bool
	doubt   bool
	forced  bool // a person ordered a send that was not claimed yet
	settled bool // by a person
	budget  int
	due     bool // of a scheduled one: its time has come
	over    bool // of a held one: its lease has ended
	called  bool // a send may have reached the provider
	age     int  // since the first call: 1 the key's window is over, 2 the time in which it can be asked too
	fresh   bool // what is in doubt is younger than the settle time
	lately  bool // of a held one: its lease ended less than the settle time ago
	keyLost bool
	token   tidings.UUID
	journal []line
}

// line is a row of the journal.
type line struct {
	Action        tidings.Action
	Outcome, Late tidings.Outcome
}

// hold is what a claim finds: the product's words for it are in tidings.Held and store.Claimed.
type hold struct {
	State     tidings.State
	Stop      tidings.Outcome
	Held      tidings.Held
	N         int
	FirstCall bool
	Keyed     bool
	Lost      bool
}

func (m *machine) keyHolds() bool { return m.promise.key && !m.keyLost && (!m.called || m.age < 1) }

// stop says why the task must not be sent any more.
func (m *machine) stop() tidings.Outcome {
	switch {
	case m.intent.cancelled:
		return tidings.Cancelled
	case m.intent.reader.off[m.promise.name] || m.intent.reader.out && m.intent.category != "":
		return tidings.PrefDisabled
	case m.intent.gone:
		return tidings.SourceGone
	case m.intent.expired:
		return tidings.TTLExpired
	}
	return ""
}

// fallback is what the contract leaves after an unknown outcome.
func (m *machine) fallback() tidings.Action {
	switch {
	case m.keyHolds():
		return tidings.ActionSend
	case m.promise.query:
		return tidings.ActionQuery
	case m.intent.duplicates:
		return tidings.ActionSend
	}
	return tidings.ActionNone
}

// waits: a question comes next, and it would come too early.
func (m *machine) waits(fresh bool) bool {
	return m.promise.query && !m.keyHolds() && m.promise.settle && fresh
}

func (m *machine) claimable() bool {
	scheduled := m.state == tidings.Pending || m.state == tidings.Unknown && !m.review
	return scheduled && m.due && (m.forced || !m.waits(m.fresh))
}

func (m *machine) lost() bool { return m.state == tidings.Sending && m.over && !m.waits(m.lately) }

// claim takes a claimable or lost task.
func (m *machine) claim(token tidings.UUID) hold {
	h := hold{Stop: m.stop(), Lost: m.state == tidings.Sending}
	if h.Lost {
		m.call().Outcome = tidings.LeaseExpired
		m.fresh = m.lately
	}
	m.doubt = m.state != tidings.Pending
	action := m.fallback()
	switch {
	case h.Stop != "" || m.budget == 0:
		action = tidings.ActionNone
	case !m.doubt || m.forced:
		action = tidings.ActionSend
	}
	h.Held = tidings.Held{Action: action, InDoubt: m.doubt, Forced: m.forced, Fallback: m.fallback(), Conclusive: m.promise.proves &&
		!(m.promise.settle && m.fresh) && (!m.promise.horizon || m.called && m.age < 2)}
	h.Keyed = m.doubt && m.keyHolds() && !m.forced
	m.token, m.over, m.forced = tidings.UUID{}, false, false
	switch {
	case action != tidings.ActionNone:
		h.FirstCall = action == tidings.ActionSend && !m.called
		if h.FirstCall {
			m.called, m.age = true, 0
		}
		m.budget--
		m.state, m.token = tidings.Sending, token
		m.note(action, "")
	case m.doubt:
		m.state, m.review = tidings.Unknown, true
		if h.Stop != "" {
			m.note(action, h.Stop+"_UNCERTAIN")
		}
	default:
		m.state = tidings.Suppressed
		if h.Stop == tidings.TTLExpired {
			m.state = tidings.Failed
		}
		m.note(action, h.Stop)
	}
	h.State, h.Held.Budget, h.N = m.state, m.budget, len(m.journal)
	return h
}

func (m *machine) note(action tidings.Action, o tidings.Outcome) {
	m.journal = append(m.journal, line{Action: action, Outcome: o})
}

// report is how an attempt ended.
type report struct {
	Outcome tidings.Outcome
	Proof   bool // of an HTTP_5XX: the contract declares that it proves non-acceptance
	KeyLost bool // of a NOT_SENT: other bytes than the first request's
	Later   bool // the next attempt is not due at once
}

// finish ends the attempt that a claim began, and tells whether it was superseded.
func (m *machine) finish(h hold, token tidings.UUID, r report) (stale bool) {
	o := r.Outcome
	if o == "" {
		o = tidings.IOError
	}
	if h.Held.Action == tidings.ActionQuery && (o == tidings.Timeout || o == tidings.IOError || o == tidings.HTTP5xx || o == tidings.Rejected) {
		o = tidings.QueryFailed
	}
	row := &m.journal[h.N-1]
	if row.Outcome == "" {
		row.Outcome = o
	} else if row.Late == "" {
		row.Late = o
	}
	if m.token != token {
		return true
	}
	m.token, m.over, m.due = tidings.UUID{}, false, !r.Later
	m.keyLost = m.keyLost || r.KeyLost
	left, fallback := m.budget > 0, h.Held.Fallback != tidings.ActionNone
	switch {
	case o == tidings.Accepted || o == tidings.AcceptedReplay || o == tidings.QueryFound:
		m.state, m.doubt = tidings.Sent, false
	case o == tidings.NotSent || o == tidings.Throttled:
		m.budget++
		m.forced = h.Held.Forced && o == tidings.NotSent
		if h.FirstCall && o == tidings.NotSent && !m.doubt {
			m.called = false
		}
		m.certain(tidings.Pending, m.forced || fallback)
	case o == tidings.Rejected:
		m.certain(tidings.Failed, false)
	case o == tidings.HTTP5xx && r.Proof && left:
		m.certain(tidings.Pending, fallback)
	case o == tidings.HTTP5xx && r.Proof:
		m.certain(tidings.Failed, false)
	case o == tidings.QueryNotFound && h.Held.Conclusive && left:
		m.state, m.doubt = tidings.Pending, false
	case o == tidings.QueryNotFound && h.Held.Conclusive:
		m.state, m.doubt = tidings.Failed, false
	case o == tidings.QueryNotFound || o == tidings.QueryFailed:
		m.unknown(left && fallback)
	default: // TIMEOUT, IO_ERROR, an HTTP_5XX that proves nothing
		m.fresh = true
		m.unknown(left && fallback)
	}
	m.fresh = m.fresh && m.doubt
	return false
}

// certain is a refusal: it settles a task that is not in doubt, and leaves the doubt where there is one.
func (m *machine) certain(to tidings.State, actionLeft bool) {
	m.state = to
	if m.doubt {
		m.unknown(actionLeft)
	}
}

// unknown leaves the task in doubt: scheduled while something can be done, otherwise with a person.
func (m *machine) unknown(actionLeft bool) {
	m.state, m.review, m.doubt = tidings.Unknown, !actionLeft, true
}

// release gives an attempt back that made no call, because the claim's answer was lost.
func (m *machine) release(h hold) {
	m.call().Outcome = tidings.NotSent
	m.token, m.due, m.budget, m.forced = tidings.UUID{}, true, m.budget+1, h.Held.Forced
	m.state = tidings.Pending
	if m.doubt {
		m.state = tidings.Unknown
	} else if h.FirstCall {
		m.called = false
	}
}

// call is the journal's row of the last call.
func (m *machine) call() *line {
	for i := len(m.journal) - 1; ; i-- {
		if m.journal[i].Action != tidings.ActionNone {
			return &m.journal[i]
		}
	}
}

// resolve is a person's word; "" when it is taken.
func (m *machine) resolve(verb string, count int) tidings.Code {
	switch {
	case !m.review:
		return tidings.AlreadySettled
	case count != len(m.journal):
		return tidings.Conflict
	case verb == "resend" && m.stop() != "":
		return tidings.InvalidArgument
	}
	m.review = false
	switch verb {
	case "SENT":
		m.state, m.settled = tidings.Sent, true
		m.note(tidings.ActionNone, tidings.ManualSent)
	case "FAILED":
		m.state, m.settled = tidings.Failed, true
		m.note(tidings.ActionNone, tidings.ManualFailed)
	default:
		m.forced, m.due, m.budget = true, true, m.budget+1
		m.note(tidings.ActionNone, tidings.ManualResend)
	}
	return ""
}

// receipt is a provider's own report.
func (m *machine) receipt() {
	if !m.state.Final() {
		m.state, m.review, m.doubt, m.forced, m.token, m.over = tidings.Sent, false, false, false, tidings.UUID{}, false
	}
	m.note(tidings.ActionNone, tidings.ReceiptSeen)
}
