// The state machine of tasks, as data.

package tidings

import "slices"

// State is what is known of a task.
type State string

// The six states. Sent, Failed and Suppressed are final.
const (
	Pending    State = "PENDING"    // not accepted by anyone, certainly; scheduled
	Sending    State = "SENDING"    // an attempt holds it: a call may be on its way
	Sent       State = "SENT"       // the channel accepted it
	Failed     State = "FAILED"     // certainly never accepted, and will not be tried again
	Unknown    State = "UNKNOWN"    // may have been accepted; scheduled, or waiting for a person (review)
	Suppressed State = "SUPPRESSED" // certainly never accepted, and must not be sent any more
)

// Action is what an attempt does.
type Action string

// The actions. An attempt with ActionNone makes no call: it records a receipt, an expiry or a decision.
const (
	ActionSend  Action = "SEND"
	ActionQuery Action = "QUERY"
	ActionNone  Action = "NONE"
)

// Outcome is what one attempt observed.
type Outcome string

// The outcomes.
const (
	Accepted       Outcome = "ACCEPTED"        // the provider answered that it took the message
	AcceptedReplay Outcome = "ACCEPTED_REPLAY" // the provider recognised the key: it had taken it before
	QueryFound     Outcome = "QUERY_FOUND"     // asked by our reference, the provider has it
	QueryNotFound  Outcome = "QUERY_NOT_FOUND" // asked by our reference, the provider has it not (yet)
	QueryFailed    Outcome = "QUERY_FAILED"    // the question got no usable answer
	Timeout        Outcome = "TIMEOUT"         // no answer in time: may have been accepted
	IOError        Outcome = "IO_ERROR"        // every other unknown; the reason is in the attempt's detail
	HTTP5xx        Outcome = "HTTP_5XX"        // a 5xx answer (or SMTP's 4yz); whether it proves non-acceptance is the contract's word
	Rejected       Outcome = "REJECTED"        // refused for good, certainly not accepted
	Throttled      Outcome = "THROTTLED"       // refused for now, certainly not accepted
	NotSent        Outcome = "NOT_SENT"        // the call could not be started: nothing left this process
	LeaseExpired   Outcome = "LEASE_EXPIRED"   // the holder did not report before its lease ended

	PrefDisabled        Outcome = "PREF_DISABLED" // also: opted out
	PrefDisabledInDoubt Outcome = "PREF_DISABLED_UNCERTAIN"
	TTLExpired          Outcome = "TTL_EXPIRED"
	TTLExpiredInDoubt   Outcome = "TTL_EXPIRED_UNCERTAIN"
	SourceGone          Outcome = "SOURCE_GONE"
	SourceGoneInDoubt   Outcome = "SOURCE_GONE_UNCERTAIN"
	Cancelled           Outcome = "CANCELLED"
	CancelledInDoubt    Outcome = "CANCELLED_UNCERTAIN"
	RecoveredInDoubt    Outcome = "RECOVERED_UNCERTAIN" // after a restore: may have been sent in the lost time
	ReceiptSeen         Outcome = "RECEIPT"             // the provider reported on it by itself
	ManualSent          Outcome = "MANUAL_SENT"
	ManualFailed        Outcome = "MANUAL_FAILED"
	ManualResend        Outcome = "MANUAL_RESEND"
)

// Outcomes lists every outcome; the schema's CHECK holds the same list, and a test compares them.
var Outcomes = []Outcome{
	Accepted, AcceptedReplay, QueryFound, QueryNotFound, QueryFailed, Timeout, IOError, HTTP5xx, Rejected, Throttled,
	NotSent, LeaseExpired, PrefDisabled, PrefDisabledInDoubt, TTLExpired, TTLExpiredInDoubt, SourceGone,
	SourceGoneInDoubt, Cancelled, CancelledInDoubt, RecoveredInDoubt, ReceiptSeen, ManualSent, ManualFailed, ManualResend,
}

// Token says what a transition does with the attempt token, the proof of holding a task.
type Token string

// What can happen to a token. A task has one exactly while it is Sending.
const (
	TokenNone   Token = "none"     // there was none and is none
	TokenTaken  Token = "taken"    // a claim writes one
	TokenNew    Token = "replaced" // a claim after a lost lease writes another: the former holder is superseded
	TokenGone   Token = "cleared"  // the attempt is over
	TokenDelete Token = "deleted"  // the row is purged
)

// Edge is one allowed change of a task. Edges is the whole machine; everything that changes a state names its edge.
type Edge struct {
	Name       string // stands in the `-- edge:` comment of the statement that makes the change
	From       State  // "" on creation
	FromReview bool   // leaves review: only a person, a receipt or a purge does
	To         State  // "" on deletion
	Review     bool   // waits for a person afterwards
	Token      Token
	On         []Outcome // the observations or decisions that cause it, as recorded in the journal; empty: none is recorded
	When       string    // the rule, for the printed diagram
}

// Edges is the task state machine. The diagram in docs/states.md is printed from it, the transition trigger of test
// databases is generated from it, and a test compares it with the SQL statements both ways.
var Edges = []Edge{
	{Name: "create", From: "", To: Pending, Token: TokenNone, When: "created, preference enabled"},

	{Name: "claim", From: Pending, To: Sending, Token: TokenTaken, When: "claim: due"},
	{Name: "claim-unknown", From: Unknown, To: Sending, Token: TokenTaken, When: "claim: due, and the contract leaves an action"},
	{Name: "reclaim", From: Sending, To: Sending, Token: TokenNew, On: []Outcome{LeaseExpired},
		When: "claim: the lease is over; now in doubt"},

	{Name: "suppress", From: Pending, To: Suppressed, Token: TokenNone, On: []Outcome{Cancelled, PrefDisabled, SourceGone},
		When: "claim: cancelled, disabled, opted out, or its source is gone"},
	{Name: "expire", From: Pending, To: Failed, Token: TokenNone, On: []Outcome{TTLExpired}, When: "claim: expired"},
	{Name: "park-unknown", From: Unknown, To: Unknown, Review: true, Token: TokenNone,
		On:   []Outcome{CancelledInDoubt, PrefDisabledInDoubt, SourceGoneInDoubt, TTLExpiredInDoubt},
		When: "claim: must not be sent any more, no budget, or no action left"},
	{Name: "park-lease", From: Sending, To: Unknown, Review: true, Token: TokenGone,
		On:   []Outcome{LeaseExpired, CancelledInDoubt, PrefDisabledInDoubt, SourceGoneInDoubt, TTLExpiredInDoubt},
		When: "claim: the lease is over, and it must not be sent any more, no budget, or no action left"},

	{Name: "accept", From: Sending, To: Sent, Token: TokenGone, On: []Outcome{Accepted, AcceptedReplay, QueryFound},
		When: "accepted"},
	{Name: "retry", From: Sending, To: Pending, Token: TokenGone, On: []Outcome{NotSent, HTTP5xx, Throttled},
		When: "certainly not accepted, nothing in doubt, budget left"},
	{Name: "clear", From: Sending, To: Pending, Token: TokenGone, On: []Outcome{QueryNotFound},
		When: "conclusively not there: the doubt is cleared; budget left"},
	{Name: "fail", From: Sending, To: Failed, Token: TokenGone, On: []Outcome{Rejected, HTTP5xx, QueryNotFound},
		When: "rejected or budget spent, and certainly never accepted"},
	{Name: "doubt", From: Sending, To: Unknown, Token: TokenGone,
		On:   []Outcome{Timeout, IOError, HTTP5xx, QueryFailed, QueryNotFound, NotSent, Throttled},
		When: "may have been accepted; an action and budget are left"},
	{Name: "park", From: Sending, To: Unknown, Review: true, Token: TokenGone,
		On:   []Outcome{Timeout, IOError, HTTP5xx, QueryFailed, QueryNotFound, Rejected, NotSent, Throttled},
		When: "may have been accepted; rejected now, no action or no budget left"},

	{Name: "resolve-sent", From: Unknown, FromReview: true, To: Sent, Token: TokenNone, On: []Outcome{ManualSent}, When: "a person: it was sent"},
	{Name: "resolve-failed", From: Unknown, FromReview: true, To: Failed, Token: TokenNone, On: []Outcome{ManualFailed}, When: "a person: it was not sent"},
	{Name: "resend", From: Unknown, FromReview: true, To: Unknown, Token: TokenNone, On: []Outcome{ManualResend},
		When: "a person orders one more send and accepts a possible duplicate"},

	{Name: "receipt-pending", From: Pending, To: Sent, Token: TokenNone, On: []Outcome{ReceiptSeen}, When: "a receipt: it was accepted"},
	{Name: "receipt-unknown", From: Unknown, To: Sent, Token: TokenNone, On: []Outcome{ReceiptSeen}, When: "a receipt: it was accepted"},
	{Name: "receipt-review", From: Unknown, FromReview: true, To: Sent, Token: TokenNone, On: []Outcome{ReceiptSeen}, When: "a receipt: it was accepted"},
	{Name: "receipt-sending", From: Sending, To: Sent, Token: TokenGone, On: []Outcome{ReceiptSeen}, When: "a receipt: it was accepted"},

	{Name: "recover-pending", From: Pending, To: Unknown, Token: TokenNone, On: []Outcome{RecoveredInDoubt}, When: "recover: may have been sent in the lost time"},
	{Name: "recover-sending", From: Sending, To: Unknown, Token: TokenGone, On: []Outcome{RecoveredInDoubt}, When: "recover: may have been sent in the lost time"},

	{Name: "purge-sent", From: Sent, To: "", Token: TokenDelete, When: "purge"},
	{Name: "purge-failed", From: Failed, To: "", Token: TokenDelete, When: "purge"},
	{Name: "purge-suppressed", From: Suppressed, To: "", Token: TokenDelete, When: "purge"},
}

// Final tells whether nothing can follow but a purge.
func (s State) Final() bool { return s == Sent || s == Failed || s == Suppressed }

// Held is what a claim found out about a task, as far as the end of its attempt depends on it.
type Held struct {
	Action     Action // what the attempt does
	InDoubt    bool   // an earlier attempt may have been accepted
	Forced     bool   // a person ordered this send
	Budget     int    // attempts left after this one
	Fallback   Action // what the contract leaves after an unknown outcome: SEND, QUERY, or NONE
	Conclusive bool   // "not found" would be proof now
}

// Observation is what the attempt brought.
type Observation struct {
	Outcome Outcome // "" counts as IOError: forgetting to classify is safe
	Proof   bool    // HTTP5xx only: the contract declares that this status proves non-acceptance
}

// Verdict is what becomes of a task at the end of an attempt.
type Verdict struct {
	Edge    string  // the edge taken
	Outcome Outcome // as recorded
	To      State
	Review  bool // waits for a person
	InDoubt bool // may have been accepted
	Refund  bool // the attempt is given back to the budget
	Reforce bool // the ordered send did not start and stays ordered
}

// Finish decides what becomes of a held task after an observation. It is the only place that does.
func Finish(h Held, o Observation) Verdict {
	out := o.Outcome
	switch {
	case h.Action == ActionQuery && !slices.Contains(answers, out):
		out = QueryFailed // a question that failed says nothing about the message
	case h.Action != ActionQuery && !slices.Contains(observable, out):
		out = IOError
	}
	v := Verdict{Outcome: out}
	switch out {
	case Accepted, AcceptedReplay, QueryFound:
		return v.take("accept")
	case NotSent, Throttled:
		v.Refund = true
		v.Reforce = h.Forced && out == NotSent
		if !h.InDoubt {
			return v.take("retry")
		}
		return v.unsure(v.Reforce || h.Fallback != ActionNone)
	case HTTP5xx:
		if o.Proof && !h.InDoubt {
			if h.Budget > 0 {
				return v.take("retry")
			}
			return v.take("fail")
		}
	case Rejected:
		if !h.InDoubt {
			return v.take("fail")
		}
		return v.unsure(false)
	case QueryNotFound:
		if h.Conclusive && h.Budget > 0 {
			return v.take("clear")
		}
		if h.Conclusive {
			return v.take("fail")
		}
	}
	return v.unsure(h.Budget > 0 && h.Fallback != ActionNone)
}

// What a SEND and a QUERY can bring. Anything else that an adapter says counts as unknown.
var (
	observable = []Outcome{Accepted, AcceptedReplay, Timeout, IOError, HTTP5xx, Rejected, Throttled, NotSent}
	answers    = []Outcome{QueryFound, QueryNotFound, QueryFailed, Throttled, NotSent}
)

// unsure leaves the task in doubt: scheduled when something can still be done, otherwise parked for a person.
func (v Verdict) unsure(actionLeft bool) Verdict {
	v.InDoubt = true
	if actionLeft {
		return v.take("doubt")
	}
	return v.take("park")
}

func (v Verdict) take(name string) Verdict {
	i := slices.IndexFunc(Edges, func(e Edge) bool { return e.Name == name })
	v.Edge, v.To, v.Review = name, Edges[i].To, Edges[i].Review
	return v
}
