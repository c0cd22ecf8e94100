// What is said of outcomes, contracts and times.

package console

import (
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
)

// Each outcome of the state machine has its sentence.
func TestOutcomesHaveWords(t *testing.T) {
	said := map[string]tidings.Outcome{}
	for _, o := range tidings.Outcomes {
		text := means(string(o))
		if text == "" {
			t.Errorf("nothing is said of %s", o)
		}
		if other, ok := said[text]; ok {
			t.Errorf("the same is said of %s and %s", o, other)
		}
		said[text] = o
	}
	if means("LATER_WORD") != "" || means("") == "" {
		t.Error("something is said of what is not known, or nothing of an open end")
	}
}

// What a resend risks depends on what the provider promises, and until when.
func TestRisk(t *testing.T) {
	ago := func(d time.Duration) *time.Time { at := time.Now().Add(-d); return &at }
	keyed := &contract{Key: &keyContract{WindowS: 3600}}
	for _, c := range []struct {
		name string
		task task
		says string
		not  string
	}{
		{"within the window", task{Contract: keyed, FirstCallAt: ago(50 * time.Minute)}, "Small: until", "gets a second copy"},
		{"behind the window", task{Contract: keyed, FirstCallAt: ago(70 * time.Minute)}, "now it may take the request for a new one", "Small"},
		{"with a key, of which no call is on record", task{Contract: keyed}, "not on record", "Small"},
		{"with a query", task{Contract: &contract{Query: &queryContract{}}, FirstCallAt: ago(time.Minute)}, "does not ask first", "Small"},
		{"with nothing", task{Contract: &contract{}, FirstCallAt: ago(time.Minute)}, "gets a second copy", "Small"},
		{"unknown", task{}, "does not have the channel", "Small"},
	} {
		if got := c.task.Risk(); !strings.Contains(got, c.says) || strings.Contains(got, c.not) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestContractInWords(t *testing.T) {
	all := strings.Join((&contract{Key: &keyContract{Carrier: "header K", WindowS: 86400, SameBytes: true, StoredErrors: true}, Query: &queryContract{SettleMS: 5000, HorizonS: 7200},
		Replace: true, Receipts: true, Safe: []string{"400", "410"}}).Says(), " ")
	for _, word := range []string{"(header K) for 24 h", "refuses other bytes", "repeats an error", "from 5 s after a call on, for 2 h", "proves nothing.", "reports by itself", "replaced", "400, 410"} {
		if !strings.Contains(all, word) {
			t.Errorf("%q does not say %q", all, word)
		}
	}
	none := strings.Join((&contract{}).Says(), " ")
	for _, word := range []string{"no repeated request", "cannot be asked", "No status"} {
		if !strings.Contains(none, word) {
			t.Errorf("%q does not say %q", none, word)
		}
	}
}

// Of what may have been recorded, nobody says that it was not.
func TestResultsInWords(t *testing.T) {
	for why, c := range map[string]struct{ says, not string }{
		"OUTCOME_UNKNOWN: the answer was lost":   {"Whether it was recorded is not known.", "Nothing was changed"},
		"INTERNAL":                               {"Whether it was recorded is not known.", "Nothing was changed"},
		"ALREADY_SETTLED: the task is not there": {"Nothing was changed", "not known"},
	} {
		var page strings.Builder
		data := map[string]any{"Data": results{State: "SENT", Open: []open{{Why: why, Tasks: []string{"t"}}}}}
		if err := parsePages("")["results"].ExecuteTemplate(&page, "main", data); err != nil {
			t.Fatal(err)
		}
		if got := page.String(); !strings.Contains(got, c.says) || strings.Contains(got, c.not) || strings.Contains(got, "Nothing was refused") {
			t.Errorf("%s: %s", why, got)
		}
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 250 * time.Millisecond: "250 ms", 59 * time.Second: "59 s", 60 * time.Second: "1 min", 90 * time.Second: "1 min 30 s", 12*time.Minute + 5*time.Second: "12 min",
		time.Hour: "1 h", 90 * time.Minute: "1 h 30 min", 47 * time.Hour: "47 h", 49 * time.Hour: "2 days 1 h", 100 * 24 * time.Hour: "100 days",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, not %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "now", 90 * time.Second: "1 min 30 s ago", -2 * time.Hour: "in 2 h"} {
		if got := ago(d); got != want {
			t.Errorf("%v is %q, not %q", d, got, want)
		}
	}
}
