// Tests of what the report counts and prints, in each format.

package report_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/report"
)

// written is a report in one format.
func written(t *testing.T, r report.Report, format string) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out, format); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestCounts(t *testing.T) {
	b := newBench(t)
	find := func(r report.Report, by, name string) report.CountRow {
		t.Helper()
		i := slices.IndexFunc(r.Counts, func(c report.CountRow) bool { return c.By == by && c.Name == name })
		if i < 0 {
			t.Fatalf("no count by %s of %q", by, name)
		}
		return r.Counts[i]
	}
	apart := 0
	for _, c := range lab.Catalogue {
		if c.NotRun != "" {
			apart++
		}
	}
	all := len(lab.Catalogue) - apart
	if apart == 0 {
		t.Fatal("nothing is counted apart")
	}
	r := b.build()
	for _, want := range []report.CountRow{
		{By: "all", Core: 71, CorePassed: 71, Checks: all, Passed: all},
		{By: "family", Name: "05", Core: 13, CorePassed: 13, Checks: 13, Passed: 13},
	} {
		if got := find(r, want.By, want.Name); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, by := range []string{"family", "kind", "level"} { // each is a partition
		var sum report.CountRow
		for _, c := range r.Counts {
			if c.By == by {
				sum.Core, sum.CorePassed, sum.Checks, sum.Passed = sum.Core+c.Core, sum.CorePassed+c.CorePassed, sum.Checks+c.Checks, sum.Passed+c.Passed
			}
		}
		if want := (report.CountRow{Core: 71, CorePassed: 71, Checks: all, Passed: all}); sum != want {
			t.Errorf("by %s: %+v, want %+v", by, sum, want)
		}
	}

	b.add("05-connect-hello", 2, fails)
	r = b.build()
	if got := find(r, "all", ""); got.CorePassed != 70 || got.Passed != all-1 {
		t.Errorf("one failed: %+v", got)
	}
	if got := find(r, "kind", "normal"); got.Core != 12 || got.CorePassed != 11 {
		t.Errorf("one failed: %+v", got)
	}
}

func TestFormats(t *testing.T) {
	b := newBench(t)
	good := b.build()
	b.add("33-F1", 2, fails)
	bad := b.build()

	for _, format := range report.Formats {
		t.Run(format+" says everything", func(t *testing.T) {
			text := written(t, good, format)
			wants := []string{"c0ffee", "go1"}
			for _, c := range good.Checks {
				wants = append(wants, c.ID, c.Title, c.Promise, c.Requires)
				if c.Requires != "" {
					wants = append(wants, c.Reason)
				}
			}
			for _, c := range good.Cards {
				wants = append(append(append(append(wants, c.ID, c.Promise), c.Assumptions...), c.Unknowns...), c.Checks...)
			}
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing", want)
				}
			}
			for _, p := range bad.Problems {
				if !strings.Contains(written(t, bad, format), p) {
					t.Errorf("the problem %q is missing", p)
				}
			}
		})
	}

	t.Run("text", func(t *testing.T) {
		for text, wants := range map[string][]string{
			written(t, good, "text"): {"Acceptance report: accepted\n", "71 of 71", `23-tls +NOT_RUN +the product`, `  23-tls +boundary +local multi-process +NOT_RUN +0/0 `,
				`level +local multi-process +\d+ of \d+`, "2 runs, 1 had to fail", "33-T1 +failure .* 1/1 +95.0 %"},
			written(t, bad, "text"): {"Acceptance report: NOT accepted, 1 problems\n", "kind +failure +12 of 12 +", "1 FAIL,", "Problems\n  33-F1: FAIL, 1 of 2 runs passed"},
		} {
			for _, want := range wants {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
		}
	})

	t.Run("markdown is made of tables and lists", func(t *testing.T) {
		tables, columns := 0, 0
		for _, line := range strings.Split(written(t, good, "markdown"), "\n") {
			cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") - 1
			switch {
			case line == "" || strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "- "):
				columns = 0
			case !strings.HasPrefix(line, "|"):
				t.Errorf("neither heading nor row: %s", line)
			case columns == 0:
				tables, columns = tables+1, cells
			case cells != columns:
				t.Errorf("%d cells in a table of %d columns: %s", cells, columns, line)
			}
		}
		if tables != 5 { // passed, promises, checks, not run, observations
			t.Errorf("%d tables", tables)
		}
	})

	t.Run("json is the report", func(t *testing.T) {
		for _, r := range []report.Report{good, bad} {
			var again report.Report
			decoder := json.NewDecoder(strings.NewReader(written(t, r, "json")))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&again); err != nil || !reflect.DeepEqual(r, again) {
				t.Errorf("read back: %v, the same: %v", err, reflect.DeepEqual(r, again))
			}
		}
	})
}

// TestNotRun: what this release does not run is told, passes nothing and spoils nothing.
func TestNotRun(t *testing.T) {
	r := newBench(t).build()
	n := 0
	for i, c := range lab.Catalogue {
		if c.NotRun == "" {
			continue
		}
		n++
		if row := r.Checks[i]; row.Verdict != lab.NotRun || row.Runs != 0 || row.Passes != 0 || row.Reason != c.NotRun || row.Requires != c.Requires || row.Bound != 0 {
			t.Errorf("row %+v", row)
		}
	}
	if n == 0 || !r.Accepted {
		t.Errorf("%d of them, problems %q", n, r.Problems)
	}
}
