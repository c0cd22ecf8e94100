// Joins cards and evidence.

package report

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/tidings-project/tidings/lab"
)

// Report is the acceptance report. It is accepted when there are no problems.
type Report struct {
	Accepted bool                `json:"accepted"`
	Problems []string            `json:"problems"`
	Commits  []string            `json:"commits"` // more than one is a problem
	Versions map[string][]string `json:"versions"`
	Counts   []CountRow          `json:"counts"`
	Cards    []CardRow           `json:"cards"`
	Checks   []CheckRow          `json:"checks"` // all of the catalogue, in its order
	Canary   CanaryRow           `json:"canary"`
}

// Status is what has become of a promise.
type Status string

// The statuses.
const (
	Shown    Status = "shown"
	NotShown Status = "not shown"
)

// CardRow is a card with what its evidence says.
type CardRow struct {
	ID          string    `json:"id"`
	Promise     string    `json:"promise"`
	Status      Status    `json:"status"`
	Reason      string    `json:"reason,omitempty"` // why it is not shown
	Level       lab.Level `json:"level"`
	Assumptions []string  `json:"assumptions"`
	Unknowns    []string  `json:"unknowns"`
	Checks      []string  `json:"checks"`
}

// CheckRow is a check with what its runs say.
type CheckRow struct {
	ID       string       `json:"id"`
	Title    string       `json:"title"`
	Kind     lab.Kind     `json:"kind"`
	Level    lab.Level    `json:"level"`
	Promise  string       `json:"promise"`
	Verdict  lab.Verdict  `json:"verdict"` // the worst of all runs
	Runs     int          `json:"runs"`
	Passes   int          `json:"passes"`
	Bound    float64      `json:"bound,omitempty"`    // if all runs passed: the rate of failure is below this, at 95 %
	Reason   string       `json:"reason,omitempty"`   // why the verdict is not PASS
	Requires string       `json:"requires,omitempty"` // of a check that this release does not run: what it would take
	Seed     uint64       `json:"seed,omitempty"`     // of a run with that verdict, if it is not PASS
	Figures  []lab.Figure `json:"figures,omitempty"`
}

// CanaryRow is the check of the pipeline, apart from all others.
type CanaryRow struct {
	OK     bool   `json:"ok"`
	Runs   int    `json:"runs"`
	ByRule int    `json:"by_rule"` // runs that had to fail
	Reason string `json:"reason,omitempty"`
}

const noEvidence = "no evidence"

// Build joins the cards and the evidence of two directories.
func Build(cardDir, evidenceDir fs.FS) Report {
	r := Report{Problems: []string{}}
	runs, refused := readEvidence(evidenceDir)
	cards, malformed := ReadCards(cardDir)
	for _, err := range slices.Concat(malformed, refused) {
		r.problem("%v", err)
	}
	r.sources(runs)
	for _, check := range lab.Catalogue {
		r.Checks = append(r.Checks, r.check(check, runs[check.ID]))
	}
	r.Counts = count(r.Checks)
	r.cards(cards)
	if r.Canary = canary(runs[lab.Canary.ID]); !r.Canary.OK {
		r.problem("canary: %s", r.Canary.Reason)
	}
	r.Accepted = len(r.Problems) == 0
	return r
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// readEvidence reads every record, by check, and the reasons against files that are none.
func readEvidence(dir fs.FS) (runs map[string][]lab.Record, refused []error) {
	runs = map[string][]lab.Record{}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == FileName || strings.HasPrefix(path.Base(name), ".") {
			return err
		}
		record, err := lab.ReadRecord(dir, name)
		if err != nil {
			refused = append(refused, err)
			return nil
		}
		runs[record.ID] = append(runs[record.ID], record)
		return nil
	})
	if err != nil {
		refused = append(refused, fmt.Errorf("read evidence: %w", err))
	}
	return runs, refused
}

// sources collects what the evidence was made from.
func (r *Report) sources(runs map[string][]lab.Record) {
	commits, versions := map[string]bool{}, map[string]map[string]bool{}
	for _, records := range runs {
		for _, record := range records {
			commits[record.Commit] = true
			for of, version := range record.Versions {
				if versions[of] == nil {
					versions[of] = map[string]bool{}
				}
				versions[of][version] = true
			}
		}
	}
	r.Commits = slices.Sorted(maps.Keys(commits))
	if len(r.Commits) > 1 {
		r.problem("evidence of %d states of the code, which is evidence of none: %s", len(r.Commits), strings.Join(r.Commits, ", "))
	}
	r.Versions = map[string][]string{}
	for of, all := range versions {
		r.Versions[of] = slices.Sorted(maps.Keys(all))
	}
}

// check sums up the runs of a check.
func (r *Report) check(c lab.Check, runs []lab.Record) CheckRow {
	row := CheckRow{ID: c.ID, Title: c.Title, Kind: c.Kind, Level: c.Level, Promise: c.Promise, Verdict: lab.Pass, Runs: len(runs)}
	if c.NotRun != "" { // there is no evidence, or it was refused
		row.Verdict, row.Reason, row.Requires = lab.NotRun, c.NotRun, c.Requires
		return row
	}
	if len(runs) == 0 {
		row.Verdict, row.Reason = lab.NotRun, noEvidence
		r.problem("%s: never ran", c.ID)
		return row
	}
	row.Level, row.Figures = runs[0].Level, runs[len(runs)-1].Figures
	for _, run := range runs {
		if run.Level != row.Level {
			r.problem("%s: evidence from two levels, %s and %s", c.ID, row.Level, run.Level)
		}
		if run.Verdict == lab.Pass {
			row.Passes++
		}
		if slices.Index(lab.Verdicts, run.Verdict) > slices.Index(lab.Verdicts, row.Verdict) {
			row.Verdict, row.Reason, row.Seed = run.Verdict, run.Reason, run.Seed
		}
	}
	switch row.Verdict {
	case lab.Pass:
		// The rate p for which that many passes in a row would still happen once in 20 times: (1-p)^n = 0.05. For
		// many runs this is the rule of three, 3/n.
		row.Bound = 1 - math.Pow(0.05, 1/float64(row.Runs))
	case lab.NotRun:
	default:
		r.problem("%s: %s, %d of %d runs passed: %s", c.ID, row.Verdict, row.Passes, row.Runs, row.Reason)
	}
	return row
}

// cards judges every card, and finds promises that have none.
func (r *Report) cards(cards []Card) {
	slices.SortFunc(cards, func(a, b Card) int { return cmp.Compare(a.ID, b.ID) })
	promised := map[string]bool{}
	for _, check := range lab.Catalogue {
		for _, id := range check.Promises() {
			promised[id] = true
		}
	}
	for _, card := range cards {
		row := r.card(card)
		if r.Cards = append(r.Cards, row); row.Status == NotShown {
			r.problem("promise %s is not shown: %s", row.ID, row.Reason)
		}
		delete(promised, card.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(promised)) {
		r.problem("promise %s has no card", id)
	}
}

func (r *Report) card(c Card) CardRow {
	row := CardRow{ID: c.ID, Promise: strings.TrimSpace(c.Promise), Level: c.Level, Assumptions: c.Assumptions, Unknowns: c.Unknowns}
	selected, err := c.selected()
	if err != nil { // ReadCard has refused such a card
		row.Status, row.Reason = NotShown, err.Error()
		return row
	}
	reached := -1
	for _, check := range selected {
		row.Checks = append(row.Checks, check.ID)
		shown := r.Checks[slices.IndexFunc(r.Checks, func(other CheckRow) bool { return other.ID == check.ID })]
		reached = max(reached, slices.Index(lab.Levels, shown.Level))
		if shown.Verdict != lab.Pass && row.Reason == "" {
			row.Reason = fmt.Sprintf("%s is %s: %s", shown.ID, shown.Verdict, shown.Reason)
		}
	}
	if row.Reason == "" && reached < slices.Index(lab.Levels, c.Level) {
		row.Reason = fmt.Sprintf("it claims %q, and its evidence reaches %q", c.Level, lab.Levels[reached])
	}
	if row.Status = Shown; row.Reason != "" {
		row.Status = NotShown
	}
	return row
}

// canary judges the runs of the canary by its rule.
func canary(runs []lab.Record) CanaryRow {
	row := CanaryRow{Runs: len(runs)}
	for _, run := range runs {
		want := lab.Pass
		if run.Seed%lab.CanaryDivisor == 0 {
			row.ByRule++
			want = lab.Fail
		}
		if run.Verdict != want {
			row.Reason = fmt.Sprintf("seed %d must show %s and showed %s", run.Seed, want, run.Verdict)
			return row
		}
	}
	if row.OK = row.ByRule > 0; !row.OK {
		row.Reason = fmt.Sprintf("no run with a seed divisible by %d", lab.CanaryDivisor)
	}
	return row
}
