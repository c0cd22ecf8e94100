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

// Run asks the stored rows of notifications. A violated promise is the exit code 1; a finding that breaks no promise is only shown.
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
	violated, examined := 0, 0
	for _, f := range findings {
		examined += f.Examined
		if f.Promise != "" && f.Violations > 0 {
			violated++
		}
	}
	err = c.print(e, map[string]any{"findings": findings, "unshown": store.Unshown, "violated": violated}, func() {
		table(e.stdout, func(row func(...any)) {
			row("", "PROMISE", "EXAMINED", "VIOLATIONS", "")
			for _, f := range findings {
				row(verdict(f), f.Promise, f.Examined, f.Violations, f.Title+sample(f))
			}
		})
		fmt.Fprintln(e.stdout, "\nWhat rows cannot show:")
		for _, line := range store.Unshown {
			fmt.Fprintln(e.stdout, "  "+line)
		}
		switch {
		case violated > 0:
			fmt.Fprintf(e.stdout, "\n%d of %d questions found a violated promise of notifications. Conversations are not looked at.\n", violated, len(findings))
		case examined == 0:
			fmt.Fprintln(e.stdout, "\nThere are no notifications, so nothing was shown. Conversations are not looked at.")
		default:
			fmt.Fprintln(e.stdout, "\nNo promise of notifications is violated. Conversations are not looked at.")
		}
	})
	if err == nil && violated > 0 {
		return errNo
	}
	return err
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
