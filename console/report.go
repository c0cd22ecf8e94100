// The acceptance report: promises, and the checks that show them.

package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// report is the JSON that `tidings-lab report` writes, as far as the page shows it.
type report struct {
	Accepted bool                `json:"accepted"`
	Problems []string            `json:"problems"`
	Commits  []string            `json:"commits"`
	Versions map[string][]string `json:"versions"`
	Counts   []struct {
		By         string `json:"by"`
		Name       string `json:"name"`
		Core       int    `json:"core"`
		CorePassed int    `json:"core_passed"`
		Checks     int    `json:"checks"`
		Passed     int    `json:"passed"`
	} `json:"counts"`
	Cards  []card  `json:"cards"`
	Checks []check `json:"checks"`
	Canary struct {
		OK     bool   `json:"ok"`
		Runs   int    `json:"runs"`
		ByRule int    `json:"by_rule"`
		Reason string `json:"reason"`
	} `json:"canary"`
}

// card is a promise with what it rests on.
type card struct {
	ID          string   `json:"id"`
	Promise     string   `json:"promise"`
	Status      string   `json:"status"`
	Reason      string   `json:"reason"`
	Level       string   `json:"level"`
	Assumptions []string `json:"assumptions"`
	Unknowns    []string `json:"unknowns"`
	Checks      []string `json:"checks"`
}

// check is one with what its runs brought.
type check struct {
	ID       string  `json:"id"`
	Title    string  `json:"title"`
	Kind     string  `json:"kind"`
	Level    string  `json:"level"`
	Promise  string  `json:"promise"`
	Verdict  string  `json:"verdict"`
	Runs     int     `json:"runs"`
	Passes   int     `json:"passes"`
	Bound    float64 `json:"bound"` // if all passed: the rate of failure that they leave possible at 95 %
	Reason   string  `json:"reason"`
	Requires string  `json:"requires"`
}

// Percent is the bound in percent.
func (c check) Percent() float64 { return 100 * c.Bound }

// NotRun are the checks that did not run, each with its reason.
func (r report) NotRun() (all []check) {
	for _, c := range r.Checks {
		if c.Verdict == "NOT_RUN" {
			all = append(all, c)
		}
	}
	return all
}

// Of are the versions of what took part, a line for each.
func (r report) Of() (lines []string) {
	for _, of := range slices.Sorted(maps.Keys(r.Versions)) {
		lines = append(lines, of+" "+strings.Join(r.Versions[of], ", "))
	}
	return lines
}

func showReport(v *visit) error {
	var text json.RawMessage
	err := v.get("/v1/operator/report", nil, &text)
	var r report
	if err == nil && json.Unmarshal(text, &r) != nil {
		err = &refusal{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "The file of the setting report-file is no report: its parts are not those that tidings-lab report writes."}
	}
	if problem := refusalOf(err); err != nil && problem.Status == http.StatusNotFound {
		v.show(http.StatusNotFound, "no-report", "Acceptance report", "report", problem)
		return nil
	}
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "report", "Acceptance report", "report", r)
	return nil
}
