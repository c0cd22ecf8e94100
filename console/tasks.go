// Tasks as the API gives them, and what they mean in words: what a provider promises, what another send would risk.

package console

import (
	"fmt"
	"strings"
	"time"
)

// task is one that waits for a person, or any other.
type task struct {
	ID            string     `json:"id"`
	Notification  string     `json:"notification"`
	User          string     `json:"user"`
	Channel       string     `json:"channel"`
	Slot          string     `json:"slot"`
	Priority      int        `json:"priority"`
	State         string     `json:"state"`
	Review        bool       `json:"review"`
	InDoubt       bool       `json:"in_doubt"`
	AttemptCount  int        `json:"attempt_count"`
	BudgetLeft    int        `json:"budget_left"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	LeaseOwner    string     `json:"lease_owner"`
	LeaseUntil    *time.Time `json:"lease_until"`
	FirstCallAt   *time.Time `json:"first_call_at"`
	DoubtAt       *time.Time `json:"doubt_at"`
	SettledBy     string     `json:"settled_by"`
	ProviderMsgID string     `json:"provider_msg_id"`
	LastError     string     `json:"last_error"`
	EventKey      string     `json:"event_key"`
	Title         string     `json:"title"`
	Body          string     `json:"body"`
	Address       string     `json:"address"`
	Category      string     `json:"category"`
	CreatedAt     time.Time  `json:"created_at"`
	ExpiresAt     time.Time  `json:"expires_at"`
	CancelledAt   *time.Time `json:"cancelled_at"`
	ErasedAt      *time.Time `json:"erased_at"`
	Attempts      []attempt  `json:"attempts"`
	Unknown       string     `json:"unknown"`
	Contract      *contract  `json:"contract"`
}

// attempt is one row of a task's journal.
type attempt struct {
	N             int        `json:"n"`
	Action        string     `json:"action"`
	Worker        string     `json:"worker"`
	StartedAt     time.Time  `json:"started_at"`
	FinishedAt    *time.Time `json:"finished_at"`
	Outcome       string     `json:"outcome"`
	Detail        string     `json:"detail"`
	ProviderMsgID string     `json:"provider_msg_id"`
	LateOutcome   string     `json:"late_outcome"`
	LateDetail    string     `json:"late_detail"`
	LateAt        *time.Time `json:"late_at"`
}

// contract is what a channel's provider promises.
type contract struct {
	Source   string         `json:"source"`
	Renderer string         `json:"renderer"`
	Key      *keyContract   `json:"key"`
	Query    *queryContract `json:"query"`
	Replace  bool           `json:"replace"`
	Safe     []string       `json:"safe_statuses"`
	Receipts bool           `json:"receipts"`
}

// keyContract says how a provider recognises a repeated request.
type keyContract struct {
	Carrier      string `json:"carrier"`
	WindowS      int64  `json:"window_s"`
	SameBytes    bool   `json:"same_bytes"`
	StoredErrors bool   `json:"stored_errors"`
}

// queryContract says how it can be asked.
type queryContract struct {
	SettleMS      int64 `json:"settle_ms"`
	HorizonS      int64 `json:"horizon_s"`
	AbsenceProves bool  `json:"absence_proves"`
}

// Pick names a task together with the attempt count that its reader saw.
func (t task) Pick() string { return fmt.Sprintf("%s.%d", t.ID, t.AttemptCount) }

// Place is the task's channel with its slot.
func (t task) Place() string {
	if t.Slot == "" {
		return t.Channel
	}
	return t.Channel + "/" + t.Slot
}

// Reference is how a provider knows the task: its id without dashes.
func (t task) Reference() string { return strings.ReplaceAll(t.ID, "-", "") }

// Took is how long an attempt took.
func (a attempt) Took() time.Duration {
	if a.FinishedAt == nil {
		return 0
	}
	return a.FinishedAt.Sub(a.StartedAt)
}

// What is what an attempt did, in words.
func (a attempt) What() string {
	switch {
	case a.Action == "SEND":
		return "Send"
	case a.Action == "QUERY":
		return "Ask the provider"
	case strings.HasPrefix(a.Outcome, "MANUAL_"):
		return "A person's decision"
	default:
		return "Note, without a call"
	}
}

// Means is what an attempt's outcome says, in words.
func (a attempt) Means() string { return means(a.Outcome) }

// Late is what the outcome that came too late says, in words.
func (a attempt) Late() string { return means(a.LateOutcome) }

// means explains the outcomes of tidings.Outcomes.
func means(outcome string) string {
	switch outcome {
	case "":
		return "nothing is known of its end: it is under way, or its worker is gone"
	case "ACCEPTED":
		return "the provider answered that it took the message"
	case "ACCEPTED_REPLAY":
		return "the provider recognised the key: it had taken the message before"
	case "QUERY_FOUND":
		return "asked by our reference, the provider has it"
	case "QUERY_NOT_FOUND":
		return "asked by our reference, the provider does not have it, or not yet"
	case "QUERY_FAILED":
		return "the question got no usable answer"
	case "TIMEOUT":
		return "no answer in time: it may have been accepted"
	case "IO_ERROR":
		return "the connection failed or the answer could not be used: it may have been accepted"
	case "HTTP_5XX":
		return "the provider answered with a failure of its own"
	case "REJECTED":
		return "refused for good: certainly not accepted by this attempt"
	case "THROTTLED":
		return "refused for now: certainly not accepted by this attempt"
	case "NOT_SENT":
		return "nothing left the worker"
	case "LEASE_EXPIRED":
		return "its worker did not report in time: it may have been accepted"
	case "RECEIPT":
		return "the provider reported by itself that it has the message"
	case "MANUAL_SENT":
		return "recorded: it was sent"
	case "MANUAL_FAILED":
		return "recorded: it was not sent"
	case "MANUAL_RESEND":
		return "ordered: send once more, a second copy is acceptable"
	case "RECOVERED_UNCERTAIN":
		return "after a restore: it may have been sent in the time that was lost"
	}
	reason, doubt := strings.CutSuffix(outcome, "_UNCERTAIN")
	text := map[string]string{"TTL_EXPIRED": "it expired", "CANCELLED": "it was cancelled", "PREF_DISABLED": "the channel was switched off, or the user opted out",
		"SOURCE_GONE": "the message that it speaks of is gone"}[reason]
	if text != "" && doubt {
		text += "; an earlier attempt may have been accepted, so a person has to say"
	}
	return text
}

// Says is what the provider promises, sentence by sentence.
func (c *contract) Says() (says []string) {
	add := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	if k := c.Key; k != nil {
		add("It recognises a repeated request by its key (%s) for %s.", k.Carrier, span(time.Duration(k.WindowS)*time.Second))
		if k.SameBytes {
			add("Under the same key it refuses other bytes.")
		}
		if k.StoredErrors {
			add("It also repeats an error that it gave before; such an error proves nothing.")
		}
	} else {
		add("It recognises no repeated request.")
	}
	if q := c.Query; q != nil {
		from, until := "at once", ""
		if q.SettleMS > 0 {
			from = "from " + span(time.Duration(q.SettleMS)*time.Millisecond) + " after a call on"
		}
		if q.HorizonS > 0 {
			until = ", for " + span(time.Duration(q.HorizonS)*time.Second)
		}
		add("It can be asked by our reference %s%s.", from, until)
		if q.AbsenceProves {
			add("That it does not find the message then proves that nothing was accepted.")
		} else {
			add("That it does not find the message proves nothing.")
		}
	} else {
		add("It cannot be asked what became of a message.")
	}
	if c.Receipts {
		add("It reports by itself; a report that comes settles the task.")
	}
	if c.Replace {
		add("An outstanding copy can be replaced by a new one.")
	}
	if len(c.Safe) > 0 {
		add("These answers prove that nothing was accepted: %s.", strings.Join(c.Safe, ", "))
	} else {
		add("No status of an answer proves that nothing was accepted.")
	}
	return says
}

// Risk is what one more send could do, in words.
func (t task) Risk() string {
	const second = "if an earlier attempt was accepted, the user gets a second copy"
	switch c := t.Contract; {
	case c == nil:
		return "This process does not have the channel, so it cannot say what the provider promises. Reckon with a second copy: " + second + "."
	case c.Key != nil && t.FirstCallAt != nil:
		until := t.FirstCallAt.Add(time.Duration(c.Key.WindowS) * time.Second)
		if left := time.Until(until); left > 0 {
			return fmt.Sprintf("Small: until %s UTC, for %s more, the provider recognises the key. It should then answer as before and make no second copy, provided that the request is the same, byte for byte.",
				until.UTC().Format("2006-01-02 15:04:05"), span(left))
		}
		return fmt.Sprintf("The provider remembered the key until %s UTC; now it may take the request for a new one: %s.", until.UTC().Format("2006-01-02 15:04:05"), second)
	case c.Key != nil:
		return "The provider recognises a repeated key, but when the first call was made is not on record: " + second + " once the key is forgotten."
	case c.Query != nil:
		return "The provider recognises no repetition: " + second + ". A resend sends; it does not ask first."
	default:
		return "The provider recognises no repetition and cannot be asked: " + second + "."
	}
}

// verb is what a person can say about a task.
type verb struct{ State, Text, Means string }

var verbs = []verb{
	{"SENT", "It was sent", "The task ends as SENT. Nothing more is sent."},
	{"FAILED", "It was not sent", "The task ends as FAILED. Nothing more is sent, so the user will not get it here."},
	{"resend", "Send it once more", "One more attempt, whatever the contract says. A second copy is acceptable."},
}

// verbOf finds a verb by what it states.
func verbOf(state string) (verb, error) {
	for _, v := range verbs {
		if v.State == state {
			return v, nil
		}
	}
	return verb{}, &refusal{Status: 400, Code: "INVALID_ARGUMENT", Detail: "Say what became of it: it was sent, it was not sent, or send it once more."}
}
