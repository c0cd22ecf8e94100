// Prints the report.

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tidings-project/tidings/lab"
)

// FileName is the report's place in the directory of evidence.
const FileName = "report.json"

// Save writes the report, as JSON, next to the evidence.
func (r Report) Save(dir string) error {
	var data bytes.Buffer
	err := r.Write(&data, "json")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, FileName), data.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	return nil
}

// Formats are the formats that Write knows.
var Formats = []string{"text", "markdown", "json"}

// Write writes the report for people, or as JSON.
func (r Report) Write(w io.Writer, format string) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false) // it is read by people, too, and stands in no page
		return encoder.Encode(r)
	}
	var text strings.Builder
	for _, s := range r.sections() {
		if format == "markdown" {
			s.markdown(&text)
		} else {
			s.text(&text)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// section is a headed table, or a headed list when its rows have one column.
type section struct {
	title   string
	columns []string
	rows    [][]string
}

func (r Report) sections() []section {
	verdict := "accepted"
	if !r.Accepted {
		verdict = fmt.Sprintf("NOT accepted, %d problems", len(r.Problems))
	}
	head := section{title: "Acceptance report: " + verdict}
	head.add("commit " + strings.Join(r.Commits, ", "))
	for _, of := range slices.Sorted(maps.Keys(r.Versions)) {
		head.add(of + " " + strings.Join(r.Versions[of], ", "))
	}
	head.add(r.tally())

	counts := section{title: "Passed", columns: []string{"by", "", "families 04 to 11", "all that run"}}
	for _, c := range r.Counts {
		core := ""
		if c.Core > 0 {
			core = fmt.Sprintf("%d of %d", c.CorePassed, c.Core)
		}
		counts.add(c.By, c.Name, core, fmt.Sprintf("%d of %d", c.Passed, c.Checks))
	}

	promises := section{title: "Promises", columns: []string{"", "status", "level", "checks", "promise"}}
	terms := section{title: "What the promises rest on"}
	for _, c := range r.Cards {
		promises.add(c.ID, string(c.Status), string(c.Level), strings.Join(c.Checks, ", "), c.Promise)
		terms.add(c.ID + " assumes: " + strings.Join(c.Assumptions, "; "))
		terms.add(c.ID + " does not tell: " + strings.Join(c.Unknowns, "; "))
	}

	checks := section{title: "Checks", columns: []string{"check", "kind", "level", "verdict", "passes/runs", "fails below", "promise", "shows"}}
	notRun := section{title: "Not run", columns: []string{"check", "verdict", "reason", "would take"}}
	figures := section{title: "Observations", columns: []string{"check", "figure", "value"}}
	for _, c := range r.Checks {
		bound := ""
		if c.Bound > 0 {
			bound = fmt.Sprintf("%.1f %%", 100*c.Bound)
		}
		checks.add(c.ID, string(c.Kind), string(c.Level), string(c.Verdict), fmt.Sprintf("%d/%d", c.Passes, c.Runs), bound, c.Promise, c.Title)
		if c.Verdict == lab.NotRun {
			notRun.add(c.ID, string(c.Verdict), c.Reason, c.Requires)
		}
		for _, f := range c.Figures {
			figures.add(c.ID, f.Name, fmt.Sprintf("%g %s", f.Value, f.Unit))
		}
	}

	canary := section{title: "Canary"}
	canary.add(fmt.Sprintf("%d runs, %d had to fail", r.Canary.Runs, r.Canary.ByRule))
	if !r.Canary.OK {
		canary.add(r.Canary.Reason)
	}
	problems := section{title: "Problems"}
	for _, p := range r.Problems {
		problems.add(p)
	}
	return []section{head, counts, promises, terms, checks, notRun, figures, canary, problems}
}

// tally counts the checks by verdict; observations, and checks that this release does not run, apart.
func (r Report) tally() string {
	verdicts, checks, observations, taken, apart := map[lab.Verdict]int{}, 0, 0, 0, 0
	for _, c := range r.Checks {
		switch {
		case c.Requires != "":
			apart++
		case c.Kind != lab.Observation:
			checks++
			verdicts[c.Verdict]++
		default:
			if observations++; c.Verdict == lab.Pass {
				taken++
			}
		}
	}
	parts := []string{fmt.Sprintf("%d checks", checks)}
	for _, v := range lab.Verdicts {
		parts = append(parts, fmt.Sprintf("%d %s", verdicts[v], v))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d of %d observations taken", taken, observations),
		fmt.Sprintf("and %d checks that this release does not run", apart)), ", ")
}

func (s *section) add(cells ...string) { s.rows = append(s.rows, cells) }

func (s section) text(w *strings.Builder) {
	if len(s.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\n", s.title)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := s.rows
	if s.columns != nil {
		rows = append([][]string{s.columns}, rows...)
	}
	for _, cells := range rows {
		fmt.Fprintf(table, "  %s\n", strings.Join(cells, "\t"))
	}
	_ = table.Flush() // a Builder takes everything
	w.WriteByte('\n')
}

func (s section) markdown(w *strings.Builder) {
	if len(s.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "## %s\n\n", s.title)
	if s.columns != nil {
		fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(s.columns, " | "), strings.Repeat("---|", len(s.columns)))
	}
	escape := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, cells := range s.rows {
		line := make([]string, len(cells))
		for i, cell := range cells {
			line[i] = escape.Replace(cell)
		}
		if s.columns == nil {
			fmt.Fprintf(w, "- %s\n", line[0])
		} else {
			fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		}
	}
	w.WriteByte('\n')
}
