// Counts checks by family, kind and level.

package report

import (
	"slices"

	"github.com/tidings-project/tidings/lab"
)

// CountRow says of a group of checks how many there are and how many passed: of the families 04 to 11, and of all. Checks that this release does not
// run are in none.
type CountRow struct {
	By         string `json:"by"`   // all, family, kind or level
	Name       string `json:"name"` // of the group; empty when it is all
	Core       int    `json:"core"` // of the families 04 to 11
	CorePassed int    `json:"core_passed"`
	Checks     int    `json:"checks"`
	Passed     int    `json:"passed"`
}

// count returns all groups that have a check: everything, the families in the order of the catalogue, kinds and levels in their own.
func count(rows []CheckRow) []CountRow {
	var families []string
	for _, row := range rows {
		if f := family(row); !slices.Contains(families, f) {
			families = append(families, f)
		}
	}
	slices.Sort(families)
	counts := []CountRow{countIn("all", "", rows, func(CheckRow) bool { return true })}
	for _, f := range families {
		counts = append(counts, countIn("family", f, rows, func(c CheckRow) bool { return family(c) == f }))
	}
	for _, k := range lab.Kinds {
		counts = append(counts, countIn("kind", string(k), rows, func(c CheckRow) bool { return c.Kind == k }))
	}
	for _, l := range lab.Levels {
		counts = append(counts, countIn("level", string(l), rows, func(c CheckRow) bool { return c.Level == l }))
	}
	return slices.DeleteFunc(counts, func(c CountRow) bool { return c.Checks == 0 })
}

func family(row CheckRow) string { return lab.Check{ID: row.ID}.Family() }

func countIn(by, name string, rows []CheckRow, in func(CheckRow) bool) CountRow {
	c := CountRow{By: by, Name: name}
	for _, row := range rows {
		if row.Requires != "" || !in(row) {
			continue
		}
		core, passed := lab.Check{ID: row.ID}.Core(), row.Verdict == lab.Pass
		c.Checks++
		if passed {
			c.Passed++
		}
		if core {
			c.Core++
		}
		if core && passed {
			c.CorePassed++
		}
	}
	return c
}
