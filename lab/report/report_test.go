// Tests of the report, of cards, and of the program's exit codes.

package report_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/proc"
	"github.com/tidings-project/tidings/lab/report"
)

const (
	cardDir = "../promises"
	badDir  = "../testdata"

	promises = 14
)

// bench is a directory of evidence that makes the report accept, and one of cards, for a test to spoil.
type bench struct {
	*testing.T
	evidence, cards string
	n               int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, evidence: t.TempDir(), cards: t.TempDir()}
	if err := os.CopyFS(b.cards, os.DirFS(cardDir)); err != nil {
		t.Fatal(err)
	}
	for _, c := range lab.Catalogue {
		if c.NotRun == "" {
			b.add(c.ID, 1, nil)
		}
	}
	b.add(lab.Canary.ID, 97, fails)
	b.add(lab.Canary.ID, 98, nil)
	return b
}

// fails makes a record one of a run that failed.
func fails(r *lab.Record) { r.Lines[0].OK = false }

// add writes the record of a run that passed and lacks nothing, changed by change.
func (b *bench) add(id string, seed uint64, change func(*lab.Record)) (file string) {
	b.Helper()
	c, _ := lab.Find(id)
	b.n++
	started := time.Unix(int64(b.n), 0).UTC()
	r := lab.Record{ID: id, Run: started.Format("20060102T150405.000000000Z"), Started: started, Title: c.Title, Kind: c.Kind, Level: c.Level, Promise: c.Promise,
		Seed: seed, Commit: "c0ffee",
		Needs:  []lab.Need{lab.NeedFault, lab.NeedExamined, lab.NeedOverlap, lab.NeedExposed, lab.NeedFigure},
		Lines:  []lab.Line{{OK: true, Exposes: true, What: "it", Expected: "1", Observed: "1"}},
		Faults: []fault.Receipt{{Kind: "cut", At: time.Unix(0, 0).UTC(), What: "it", Proof: "seen"}}, Examined: map[string]int{"rows": 1},
		Overlapped: map[string]int{"claims": 2}, Figures: []lab.Figure{{Name: "time", Value: 1.5, Unit: "ms"}}, Versions: map[string]string{"go": "go1"}}
	if change != nil {
		change(&r)
	}
	r.Verdict, r.Reason = r.Judge()
	if err := r.Write(b.evidence); err != nil {
		b.Fatal(err)
	}
	return filepath.Join(b.evidence, id, r.Run+".json")
}

func (b *bench) remove(id string) {
	b.Helper()
	if err := os.RemoveAll(filepath.Join(b.evidence, id)); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) write(file, data string) {
	b.Helper()
	if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) read(file string) string {
	b.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

func (b *bench) build() report.Report {
	return report.Build(os.DirFS(b.cards), os.DirFS(b.evidence))
}

func TestReport(t *testing.T) {
	// What must make the report refuse, and the problem that it must name.
	for _, c := range []struct {
		name  string
		spoil func(*bench)
		want  string // part of a problem; "" if the report is still accepted
	}{
		{"nothing", func(b *bench) {}, ""},
		{"a check never ran", func(b *bench) { b.remove("33-N2") }, "33-N2: never ran"},
		{"a check of a promise never ran", func(b *bench) { b.remove("33-N1") }, "promise P1 is not shown: 33-N1 is NOT_RUN: no evidence"},
		{"one run of two failed", func(b *bench) { b.add("33-F1", 2, fails) }, "33-F1: FAIL, 1 of 2 runs passed"},
		{"a run of a promise failed", func(b *bench) { b.add("33-T1", 2, fails) }, "promise P6 is not shown: 33-T1 is FAIL"},
		{"a run was invalid", func(b *bench) { b.add("33-F1", 2, func(r *lab.Record) { r.Faults = nil }) }, "33-F1: INVALID"},
		{"a run did not find out", func(b *bench) { b.add("33-F1", 2, func(r *lab.Record) { r.Unknown = "lost" }) }, "33-F1: UNKNOWN"},
		{"a check could not run", func(b *bench) {
			b.remove("33-drain")
			b.add("33-drain", 1, func(r *lab.Record) { r.NotRun = "no processes here" })
		}, ""},
		{"a check of a promise could not run", func(b *bench) {
			b.add("33-P1", 1, func(r *lab.Record) { r.NotRun = "no processes here" })
		}, "promise P3 is not shown: 33-P1 is NOT_RUN: no processes here"},
		{"evidence was edited", func(b *bench) {
			file := b.add("33-F1", 2, fails)
			b.write(file, strings.Replace(b.read(file), `"ok": false`, `"ok": true`, 1))
		}, "edited"},
		{"evidence was copied", func(b *bench) {
			file := b.add("33-F1", 2, nil)
			b.write(filepath.Join(filepath.Dir(file), "again.json"), b.read(file))
		}, "is a copy"},
		{"evidence of an unknown check", func(b *bench) {
			b.add("33-nonsense", 1, nil)
		}, "unknown check"},
		{"evidence of a check that is not run", func(b *bench) { b.add("23-tls", 1, nil) }, "of 23-tls, which this release does not run"},
		{"evidence under another title", func(b *bench) { b.add("33-F1", 2, func(r *lab.Record) { r.Title = "it works" }) }, "title, kind, promise or level"},
		{"a run told twice", func(b *bench) {
			b.add("33-F1", 2, func(r *lab.Record) { r.Run = strings.Replace(r.Run, "1970", "1971", 1) })
		}, "is a copy"},
		{"evidence of two states of the code", func(b *bench) { b.add("33-F1", 2, func(r *lab.Record) { r.Commit += "-dirty" }) }, "evidence of 2 states of the code"},
		{"evidence of no state of the code", func(b *bench) { b.add("33-F1", 2, func(r *lab.Record) { r.Commit = "" }) }, "which state of the code"},
		{"a stray file", func(b *bench) { b.write(filepath.Join(b.evidence, "33-N1", "notes.txt"), "it works") }, "not a record"},
		{"runs at two levels", func(b *bench) { b.add("33-F1", 2, func(r *lab.Record) { r.Level = lab.Model }) }, "two levels"},
		{"a level that is not reached", func(b *bench) {
			b.remove("33-P1")
			b.add("33-P1", 1, func(r *lab.Record) { r.Level = lab.ChannelDouble })
		}, `promise P3 is not shown: it claims "local multi-process"`},
		{"no canary", func(b *bench) { b.remove(lab.Canary.ID) }, "canary: no run with a seed divisible by 97"},
		{"no canary that must fail", func(b *bench) { b.remove(lab.Canary.ID); b.add(lab.Canary.ID, 98, nil) }, "no run with a seed divisible by 97"},
		{"a canary that must fail and did not", func(b *bench) { b.add(lab.Canary.ID, 194, nil) }, "canary: seed 194 must show FAIL and showed PASS"},
		{"a canary that failed without need", func(b *bench) { b.add(lab.Canary.ID, 99, fails) }, "canary: seed 99 must show PASS and showed FAIL"},
		{"a promise without a card", func(b *bench) { os.Remove(filepath.Join(b.cards, "P6.yaml")) }, "promise P6 has no card"},
		{"two cards for a promise", func(b *bench) {
			b.write(filepath.Join(b.cards, "P6a.yaml"), b.read(filepath.Join(b.cards, "P6.yaml")))
		}, "malformed card P6a.yaml: there is another card for P6"},
		{"a malformed card", func(b *bench) {
			b.write(filepath.Join(b.cards, "bad.yaml"), b.read(filepath.Join(badDir, "bad-unknown-field.yaml")))
		}, "malformed card bad.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.spoil(b)
			r := b.build()
			if r.Accepted != (c.want == "") || r.Accepted != (len(r.Problems) == 0) {
				t.Errorf("accepted: %v, problems %q", r.Accepted, r.Problems)
			}
			if !strings.Contains(strings.Join(r.Problems, "\n"), c.want) {
				t.Errorf("problems %q, want %q", r.Problems, c.want)
			}
		})
	}

	t.Run("rows", func(t *testing.T) {
		b := newBench(t)
		for range 4 {
			b.add("33-N1", 2, nil)
		}
		r := b.build()
		i := slices.IndexFunc(lab.Catalogue, func(c lab.Check) bool { return c.ID == "33-N1" })
		if n1 := r.Checks[i]; n1.ID != "33-N1" || n1.Runs != 5 || n1.Passes != 5 || n1.Verdict != lab.Pass || n1.Bound < 0.45 || n1.Bound > 0.46 {
			t.Errorf("row %+v", n1)
		}
		for _, c := range r.Cards {
			if c.Status != report.Shown || len(c.Checks) == 0 {
				t.Errorf("card %+v", c)
			}
		}
		if len(r.Cards) != promises {
			t.Errorf("%d cards", len(r.Cards))
		}
		for _, c := range r.Checks {
			if c.ID == lab.Canary.ID {
				t.Error("the canary is counted")
			}
		}
	})

	t.Run("saved, and read past the next time", func(t *testing.T) {
		b := newBench(t)
		if err := b.build().Save(b.evidence); err != nil {
			t.Fatal(err)
		}
		var saved struct{ Checks []map[string]any }
		if err := json.Unmarshal([]byte(b.read(filepath.Join(b.evidence, report.FileName))), &saved); err != nil || len(saved.Checks) != len(lab.Catalogue) {
			t.Errorf("%d checks: %v", len(saved.Checks), err)
		}
		for _, c := range saved.Checks {
			for _, field := range []string{"id", "kind", "level", "verdict", "runs", "passes", "promise"} {
				if _, there := c[field]; !there {
					t.Errorf("%v has no %s", c["id"], field)
				}
			}
		}
		if r := b.build(); !r.Accepted {
			t.Errorf("problems %q", r.Problems)
		}
	})
}

func TestCards(t *testing.T) {
	t.Run("good", func(t *testing.T) {
		cards, refused := report.ReadCards(os.DirFS(cardDir))
		if len(cards) != promises || len(refused) != 0 {
			t.Errorf("%d cards, refused: %v", len(cards), refused)
		}
	})
	t.Run("a pattern with its count", func(t *testing.T) {
		if _, err := report.ReadCard([]byte(`{id: P6, promise: x, level: model, assumptions: [x], unknowns: [x], checks: [{"33-T[12]*": 2}]}`)); err != nil {
			t.Errorf("refused: %v", err)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		want := map[string]string{
			"bad-unknown-field.yaml":      "field proof not found",
			"bad-unknown-check.yaml":      `unknown check "33-P9"`,
			"bad-unknown-level.yaml":      `unknown level "production"`,
			"bad-no-level.yaml":           "level is missing",
			"bad-empty.yaml":              "not a card",
			"bad-not-run.yaml":            "22-partition-worker-db is not run in this release",
			"bad-unknown-promise.yaml":    `"Q3" is not the name of a promise`,
			"bad-wrong-kind.yaml":         "of kind control",
			"bad-wrong-type.yaml":         "cannot unmarshal",
			"bad-foreign-check.yaml":      "33-N1 does not support P3",
			"bad-check-twice.yaml":        "33-T3 is named twice",
			"bad-no-assumptions.yaml":     "assumptions are missing",
			"bad-no-unknowns.yaml":        "unknowns are missing",
			"bad-no-promise.yaml":         "promise is missing",
			"bad-no-checks.yaml":          "checks are missing",
			"bad-wildcard-count.yaml":     "selects 1, not 2",
			"bad-wildcard-uncounted.yaml": "a pattern has a count",
			"bad-wildcard-zero.yaml":      "a count is at least 1",
			"bad-wildcard-two.yaml":       "a pattern with one count is expected",
			"bad-count-of-one-check.yaml": "a pattern has a count, and nothing else has",
			"bad-pattern.yaml":            "syntax error in pattern",
			"bad-two-documents.yaml":      "more than one document",
		}
		files, err := filepath.Glob(filepath.Join(badDir, "bad-*.yaml"))
		if err != nil || len(files) != len(want) {
			t.Errorf("%d malformed cards, want %d: %v", len(files), len(want), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(file)
			if _, err := report.ReadCard(data); err == nil || want[name] == "" || !strings.Contains(err.Error(), want[name]) {
				t.Errorf("%s: got %v, want %q", name, err, want[name])
			}
		}
	})
}

// TestCommand looks at the exit codes of the real program.
func TestCommand(t *testing.T) {
	t.Run("exit codes", func(t *testing.T) {
		program := proc.Build(t, "../cmd/tidings-lab")
		run := func(want int, say string, args ...string) {
			t.Helper()
			cmd := exec.Command(program, args...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), say) {
				t.Errorf("%v: exit code %d, want %d with %q\n%s", args, code, want, say, out)
			}
		}
		b := newBench(t)
		run(0, "Acceptance report: accepted", "report", "--cards", b.cards, "--evidence", b.evidence)
		run(0, "## Acceptance report: accepted", "report", "--format", "markdown", "--cards", b.cards, "--evidence", b.evidence)
		run(0, `"accepted": true`, "report", "--format", "json", "--cards", b.cards, "--evidence", b.evidence)
		b.write(filepath.Join(b.cards, "bad.yaml"), b.read(filepath.Join(badDir, "bad-wrong-kind.yaml")))
		run(1, "malformed card bad.yaml", "report", "--cards", b.cards, "--evidence", b.evidence)
		run(1, "never ran", "report", "--cards", cardDir, "--evidence", filepath.Join(t.TempDir(), "none"))

		run(0, "", "card", filepath.Join(cardDir, "P1.yaml"))
		run(1, "of kind control", "card", filepath.Join(badDir, "bad-wrong-kind.yaml"))
		run(0, "malformed card refused: bad-wrong-kind.yaml", "selftest")
		run(0, "malformed card refused: bad-not-run.yaml", "selftest")
		b.write(filepath.Join(b.cards, "bad-card-that-is-good.yaml"), b.read(filepath.Join(cardDir, "P1.yaml")))
		run(1, "malformed card accepted", "selftest", "--bad", b.cards)
		run(1, "card refused", "selftest", "--cards", badDir)
	})
}
