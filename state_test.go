// Tests of the state machine as data.

package tidings_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
)

var update = flag.Bool("update", false, "write the generated documents")

// TestStatesDocument keeps docs/states.md the print of the machine.
func TestStatesDocument(t *testing.T) {
	const path = "docs/states.md"
	want := statesDocument()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not the print of tidings.Edges: run `go test . -run TestStatesDocument -update`", path)
	}
}

func statesDocument() string {
	var b strings.Builder
	b.WriteString(`# The states of a task

Printed from ` + "`tidings.Edges`" + ` (state.go); do not edit. "UNKNOWN + review" is a task that waits for a person.

` + "```mermaid\nstateDiagram-v2\n")
	node := func(s tidings.State, review bool) string {
		switch {
		case s == "":
			return "[*]"
		case review:
			return "REVIEW"
		}
		return string(s)
	}
	b.WriteString("    REVIEW: UNKNOWN + review\n")
	for _, e := range tidings.Edges {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", node(e.From, e.FromReview), node(e.To, e.Review), e.Name)
	}
	b.WriteString("```\n\n| edge | from | to | token | journal | when |\n|---|---|---|---|---|---|\n")
	for _, e := range tidings.Edges {
		var on []string
		for _, o := range e.On {
			on = append(on, string(o))
		}
		name := func(s tidings.State, review bool) string {
			switch {
			case s == "":
				return "—"
			case review:
				return string(s) + " + review"
			}
			return string(s)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", e.Name, name(e.From, e.FromReview), name(e.To, e.Review), e.Token, strings.Join(on, ", "), e.When)
	}
	return b.String()
}

func TestEdgesAreWellFormed(t *testing.T) {
	names := map[string]bool{}
	for _, e := range tidings.Edges {
		if names[e.Name] {
			t.Errorf("two edges are called %s", e.Name)
		}
		names[e.Name] = true
		if e.FromReview && e.From != tidings.Unknown || e.Review && e.To != tidings.Unknown {
			t.Errorf("%s: only an unknown task waits for a person", e.Name)
		}
		if e.From.Final() && e.To != "" {
			t.Errorf("%s leaves a final state", e.Name)
		}
		held, holds := e.From == tidings.Sending, e.To == tidings.Sending
		want := map[[2]bool]tidings.Token{{false, false}: tidings.TokenNone, {false, true}: tidings.TokenTaken,
			{true, true}: tidings.TokenNew, {true, false}: tidings.TokenGone}[[2]bool{held, holds}]
		if e.To == "" {
			want = tidings.TokenDelete
		}
		if e.Token != want {
			t.Errorf("%s: the token is %s, want %s", e.Name, e.Token, want)
		}
		for _, o := range e.On {
			if !slices.Contains(tidings.Outcomes, o) {
				t.Errorf("%s: unknown outcome %s", e.Name, o)
			}
		}
	}
}

// TestFinishNeverForgetsADoubt walks through everything that Finish can be told.
func TestFinishNeverForgetsADoubt(t *testing.T) {
	edges := map[string]tidings.Edge{}
	for _, e := range tidings.Edges {
		edges[e.Name] = e
	}
	observations := append([]tidings.Outcome{"", "NONSENSE", tidings.LeaseExpired, tidings.ManualSent}, tidings.Outcomes...)
	taken := map[string]bool{}
	for _, action := range []tidings.Action{tidings.ActionSend, tidings.ActionQuery} {
		for _, fallback := range []tidings.Action{tidings.ActionSend, tidings.ActionQuery, tidings.ActionNone} {
			for bits := range 16 {
				h := tidings.Held{Action: action, Fallback: fallback, InDoubt: bits&1 != 0, Forced: bits&2 != 0, Conclusive: bits&4 != 0, Budget: bits >> 3 & 1}
				for _, o := range observations {
					for _, proof := range []bool{false, true} {
						v := tidings.Finish(h, tidings.Observation{Outcome: o, Proof: proof})
						taken[v.Edge] = true
						e, known := edges[v.Edge]
						if !known || e.From != tidings.Sending || e.To != v.To || e.Review != v.Review {
							t.Fatalf("%+v %s: verdict %+v is not an edge", h, o, v)
						}
						if !slices.Contains(e.On, v.Outcome) {
							t.Errorf("%+v %s: edge %s is not taken on %s", h, o, v.Edge, v.Outcome)
						}
						if h.InDoubt && (v.To == tidings.Failed || v.To == tidings.Pending || v.To == tidings.Suppressed) &&
							!(v.Outcome == tidings.QueryNotFound && h.Conclusive) {
							t.Errorf("%+v %s: a doubt became %s", h, o, v.To)
						}
						if (v.To == tidings.Unknown) != v.InDoubt {
							t.Errorf("%+v %s: in doubt and %s do not fit", h, o, v.To)
						}
						if v.To == tidings.Pending && h.Budget == 0 && !v.Refund {
							t.Errorf("%+v %s: scheduled without a budget", h, o)
						}
						if v.To == tidings.Unknown && !v.Review && h.Budget == 0 && !v.Refund {
							t.Errorf("%+v %s: in doubt and scheduled without a budget", h, o)
						}
						if v.Outcome == tidings.IOError && action == tidings.ActionSend && v.To != tidings.Unknown {
							t.Errorf("%+v %q: an unclassified outcome became %s", h, o, v.To)
						}
					}
				}
			}
		}
	}
	for _, name := range []string{"accept", "retry", "clear", "fail", "doubt", "park"} {
		if !taken[name] {
			t.Errorf("nothing takes the edge %s", name)
		}
	}
}
