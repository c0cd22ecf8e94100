// What tasks mean in words: what an attempt did, what a provider promises, what another send would risk, what a person can say.

package console

import (
	"fmt"
	"strings"
	"time"
)

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
	return verb{}, invalid("Say what became of it: it was sent, it was not sent, or send it once more.")
}
