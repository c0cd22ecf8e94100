// The command verify.

package main

import (
	"fmt"

	"github.com/tidings-project/tidings/internal/store"
)

type verifyCmd struct {
	database
	asJSON
}

// Run asks the stored rows of conversations and notifications. A violated promise is the exit code 1; a finding that breaks no promise
// is only shown.
func (c *verifyCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	findings, err := s.Verify(e.ctx)
	if err != nil {
		return err
	}
	violated := store.Violations(findings)
	err = c.print(e, map[string]any{"findings": findings, "unshown": store.Unshown, "violated": violated}, func() {
		showFindings(e, findings)
		fmt.Fprintln(e.stdout, "\nWhat rows cannot show:")
		for _, line := range store.Unshown {
			fmt.Fprintln(e.stdout, "  "+line)
		}
		fmt.Fprintln(e.stdout, "\n"+verified(findings))
	})
	if err == nil && violated > 0 {
		return errNo
	}
	return err
}

func showFindings(e *env, findings []store.Finding) {
	table(e.stdout, func(row func(...any)) {
		row("", "PROMISE", "EXAMINED", "VIOLATIONS", "")
		for _, f := range findings {
			row(verdict(f), f.Promise, f.Examined, f.Violations, f.Title+sample(f))
		}
	})
}

// verified says in a sentence what came out.
func verified(findings []store.Finding) string {
	idle := 0
	for _, f := range findings {
		if f.Examined == 0 {
			idle++
		}
	}
	switch n := store.Violations(findings); {
	case n > 0:
		return fmt.Sprintf("%d of %d questions found a violated promise.", n, len(findings))
	case idle == len(findings):
		return "There are neither conversations nor notifications, so nothing was shown."
	case idle > 0:
		return fmt.Sprintf("No promise is violated, as far as rows can show it. %d of %d questions examined nothing, and so show nothing.", idle, len(findings))
	}
	return "No promise is violated, as far as rows can show it."
}

func verdict(f store.Finding) string {
	switch {
	case f.Violations > 0 && f.Promise != "":
		return "VIOLATED"
	case f.Violations > 0:
		return "look"
	case f.Examined == 0:
		return "nothing examined"
	}
	return "kept"
}

func sample(f store.Finding) string {
	if f.Sample == "" {
		return ""
	}
	return "; for example " + f.Sample
}
