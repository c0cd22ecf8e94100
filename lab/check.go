// Package lab is the frame in which the promises of the project are checked: what a check is, what it has to leave
// behind, and which verdict follows. The checks themselves are in the test files of this package, the requirement
// cards in promises, and command tidings-lab joins cards and evidence into the acceptance report. See docs/lab.md.
package lab

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says what sort of question a check asks.
type Kind string

// The kinds. A control replaces a protection by the naive way and must expose the error that the protection
// prevents; an observation records figures and asserts only that they were taken.
const (
	Normal      Kind = "normal"
	Boundary    Kind = "boundary"
	Failure     Kind = "failure"
	Recovery    Kind = "recovery"
	Invariant   Kind = "invariant"
	Control     Kind = "control"
	Observation Kind = "observation"
)

// Kinds lists the kinds.
var Kinds = []Kind{Normal, Boundary, Failure, Recovery, Invariant, Control, Observation}

// Level names the environment in which a verdict was reached, and for which alone it holds.
type Level string

// The levels, from the least to the most that they include.
const (
	Model         Level = "model"
	RealComponent Level = "real component" // PostgreSQL, direct
	ChannelDouble Level = "real component + channel double"
	MultiProcess  Level = "local multi-process"
	Namespaces    Level = "network namespaces"
	HACluster     Level = "HA cluster" // several PostgreSQL instances
)

// Levels lists the levels in order.
var Levels = []Level{Model, RealComponent, ChannelDouble, MultiProcess, Namespaces, HACluster}

// Need is something that a run must leave behind, or its verdict is INVALID.
type Need string

// The needs. A failure needs a fault, an invariant needs to have examined something, a control an exposed error and
// an observation a figure, without saying so; every other check states its needs in the catalogue.
const (
	NeedFault    Need = "fault"    // a receipt of an injected fault
	NeedExamined Need = "examined" // how much was looked at: for invariants, restores and absences
	NeedOverlap  Need = "overlap"  // that concurrent operations really overlapped
	NeedExposed  Need = "exposed"  // the error that the naive way makes
	NeedFigure   Need = "figure"   // a figure
)

// Check is one check. The catalogue fixes everything but Expect and Run; a registration adds these, may add needs and
// may state another level, if that is where it really runs.
type Check struct {
	ID      string
	Title   string // what it must show, in one line
	Promise string // the promises it supports, separated by commas; may be empty
	Kind    Kind
	Level   Level
	Needs   []Need
	Expect  string // what this implementation of the check expects, in words, for its evidence
	Run     func(*T)

	// Of a check that this release does not run, and of no other. It is NOT_RUN in the report, and nothing can rest on it.
	NotRun   string // why, and what is looked at elsewhere instead
	Requires string // the condition under which it could run
}

// Family is the number that the check's id begins with, such as "04".
func (c Check) Family() string {
	family, _, _ := strings.Cut(c.ID, "-")
	return family
}

// Core tells whether the check is one of the families 04 to 11: what a messaging system has to show of its conversations, whoever builds it. Their
// numbers are fixed, and the report counts them by themselves.
func (c Check) Core() bool { return c.Family() >= "04" && c.Family() <= "11" }

// Canary is the check of the pipeline itself: it fails by rule for every seed divisible by CanaryDivisor. It is
// reported apart and never counted.
var Canary = Check{
	ID: "canary", Title: "a failing check is seen to fail, all the way to the report", Kind: Normal, Level: Model,
	Expect: "PASS, or FAIL when the seed is divisible by 97",
	Run:    func(t *T) { t.Equal("seed divisible by 97", false, t.Seed()%CanaryDivisor == 0) },
}

// CanaryDivisor is the rule by which the canary fails.
const CanaryDivisor = 97

// registered holds the checks that can run, by id. It is written by init functions only.
var registered = map[string]Check{}

// Register makes a check of the catalogue runnable. It is called from init functions and panics when the check is
// not in the catalogue, is registered twice, or contradicts the catalogue.
func Register(c Check) {
	known, ok := Find(c.ID)
	switch {
	case !ok || c.ID == Canary.ID:
		panic(fmt.Sprintf("lab: register %q: not in the catalogue", c.ID))
	case known.NotRun != "":
		panic(fmt.Sprintf("lab: register %s: the catalogue says that this release does not run it", c.ID))
	case c.Run == nil || c.Expect == "":
		panic(fmt.Sprintf("lab: register %s: Run and Expect are required", c.ID))
	case c.Title != "" || c.Promise != "" || c.Kind != "":
		panic(fmt.Sprintf("lab: register %s: title, promise and kind are the catalogue's to say", c.ID))
	case c.Level != "" && !slices.Contains(Levels, c.Level):
		panic(fmt.Sprintf("lab: register %s: unknown level %q", c.ID, c.Level))
	case registered[c.ID].Run != nil:
		panic(fmt.Sprintf("lab: register %s: registered twice", c.ID))
	}
	if c.Level != "" {
		known.Level = c.Level
	}
	known.Needs = append(slices.Clone(known.Needs), c.Needs...)
	known.Expect, known.Run = c.Expect, c.Run
	registered[c.ID] = known
}

// Find returns the catalogue's entry for an id; the canary has one too.
func Find(id string) (Check, bool) {
	if id == Canary.ID {
		return Canary, true
	}
	i := slices.IndexFunc(Catalogue, func(c Check) bool { return c.ID == id })
	if i < 0 {
		return Check{}, false
	}
	return Catalogue[i], true
}

// Promises returns the promises that the check supports.
func (c Check) Promises() []string {
	return strings.FieldsFunc(c.Promise, func(r rune) bool { return r == ',' || r == ' ' })
}

// needs returns what a run must leave behind: what is stated, and what follows from the kind.
func (c Check) needs() []Need {
	byKind := map[Kind]Need{Failure: NeedFault, Invariant: NeedExamined, Control: NeedExposed, Observation: NeedFigure}
	needs := slices.Clone(c.Needs)
	if n, ok := byKind[c.Kind]; ok {
		needs = append(needs, n)
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}
