// Command tidings-lab joins requirement cards and evidence into the acceptance report. See docs/lab.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/report"
)

type commands struct {
	Report   reportCommand   `cmd:"" help:"Print the acceptance report and save it next to the evidence; fail unless it is accepted."`
	Card     cardCommand     `cmd:"" help:"Fail unless a requirement card is well-formed."`
	Selftest selftestCommand `cmd:"" help:"Fail unless every malformed card that is kept for this is refused, and every real one is not."`
}

type reportCommand struct {
	Format   string `enum:"text,markdown,json" default:"text" help:"text, markdown or json."`
	Cards    string `default:"${cards}" help:"Directory of the requirement cards."`
	Evidence string `default:"${evidence}" help:"Directory of the evidence; TIDINGS_EVIDENCE if set."`
}

func (c reportCommand) Run() error {
	r := report.Build(os.DirFS(c.Cards), os.DirFS(c.Evidence))
	if err := r.Write(os.Stdout, c.Format); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if err := r.Save(c.Evidence); err != nil {
		return err
	}
	if !r.Accepted {
		return fmt.Errorf("not accepted: %d problems", len(r.Problems))
	}
	return nil
}

type cardCommand struct {
	File string `arg:"" help:"The card."`
}

func (c cardCommand) Run() error {
	data, err := os.ReadFile(c.File)
	if err != nil {
		return fmt.Errorf("read the card: %w", err)
	}
	if _, err := report.ReadCard(data); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(c.File), err)
	}
	return nil
}

type selftestCommand struct {
	Cards string `default:"${cards}" help:"Directory of the requirement cards."`
	Bad   string `default:"${bad}" help:"Directory of the malformed cards, bad-*.yaml."`
}

// Run judges every card by the exit code of this program, as a build does.
func (c selftestCommand) Run() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	refuse := func(file string) (reason string, code int, err error) {
		out, err := exec.Command(program, "card", file).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return strings.TrimSpace(string(out)), exit.ExitCode(), nil
		}
		return "", 0, err
	}
	bad, _ := filepath.Glob(filepath.Join(c.Bad, "bad-*.yaml")) // the pattern is a good one
	good, _ := filepath.Glob(filepath.Join(c.Cards, "*.yaml"))
	if len(bad) == 0 || len(good) == 0 {
		return errors.New("no cards to test with")
	}
	for _, file := range bad {
		reason, code, err := refuse(file)
		if err != nil {
			return fmt.Errorf("run this program: %w", err)
		}
		if code == 0 {
			return fmt.Errorf("malformed card accepted: %s", filepath.Base(file))
		}
		fmt.Printf("malformed card refused: %s (exit code %d)\n", strings.TrimPrefix(reason, "tidings-lab: error: "), code)
	}
	for _, file := range good {
		if reason, code, err := refuse(file); err != nil || code != 0 {
			return fmt.Errorf("card refused: %s: %v", reason, err)
		}
	}
	fmt.Printf("%d well-formed cards accepted\n", len(good))
	return nil
}

func main() {
	here := filepath.Join(lab.Root(), "lab")
	ctx := kong.Parse(&commands{}, kong.Name("tidings-lab"), kong.UsageOnError(),
		kong.Description("Joins requirement cards and evidence into the acceptance report."),
		kong.Vars{"cards": filepath.Join(here, "promises"), "bad": filepath.Join(here, "testdata"), "evidence": lab.EvidenceDir()})
	ctx.FatalIfErrorf(ctx.Run())
}
