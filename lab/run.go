// Runs checks, and the canary.

package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	seedVar   = "TIDINGS_LAB_SEED"   // the seed of every run; random when not set
	canaryVar = "TIDINGS_LAB_CANARY" // set in the canary's own process: its seed
	checkTime = 3 * time.Minute      // after this the context of a check ends
)

// What this process has run so far; Main looks at it.
var (
	entered  atomic.Bool  // RunChecks was called
	executed atomic.Int64 // checks that were run
)

// Main runs the tests of a package of checks and returns the exit code: a run that matches nothing is an error, which
// the go command alone would call a success.
func Main(m *testing.M) int {
	code := m.Run()
	pattern := flag.Lookup("test.run").Value.String()
	if code != 0 || pattern == "" || flag.Lookup("test.list").Value.String() != "" {
		return code
	}
	if entered.Load() && executed.Load() > 0 || !entered.Load() && matches(pattern) {
		return code
	}
	fmt.Fprintf(os.Stderr, "lab: no check matches -run %q\n", pattern)
	return 1
}

// matches tells whether the package has a test whose name fits the first element of a -run pattern.
func matches(pattern string) bool {
	first, _, _ := strings.Cut(pattern, "/")
	names, err := exec.Command(os.Args[0], "-test.list", first).Output()
	return err == nil && len(names) > 0
}

// RunChecks runs every registered check as a subtest named by its id, in the order of the catalogue, then the canary.
func RunChecks(t *testing.T) {
	entered.Store(true)
	for _, c := range Catalogue {
		if r := registered[c.ID]; r.Run != nil {
			t.Run(r.ID, func(t *testing.T) { run(t, r, seed(), EvidenceDir()) })
		}
	}
	t.Run(Canary.ID, canary)
}

// run runs a check once and leaves its evidence, whatever happens. The evidence is written after all other clean-up.
func run(tt *testing.T, c Check, seed uint64, dir string) {
	executed.Add(1)
	started := time.Now().UTC()
	ctx, cancel := context.WithTimeout(tt.Context(), checkTime)
	t := &T{T: tt, ctx: ctx, rec: Record{
		ID: c.ID, Run: runName(started), Title: c.Title, Promise: c.Promise, Kind: c.Kind, Level: c.Level,
		Expect: c.Expect, Needs: c.needs(), Seed: seed, Started: started, Lines: []Line{},
		Examined: map[string]int{}, Overlapped: map[string]int{}, Versions: maps.Clone(versions()), Commit: commit(),
	}}
	tt.Cleanup(func() {
		cancel()
		r := t.finish()
		if r.Verdict == Invalid {
			tt.Errorf("invalid: %s", r.Reason)
		}
		if tt.Failed() {
			tt.Logf("%s; again: %s=%d go test ./lab -run '/^%s$'", r.Verdict, seedVar, seed, c.ID)
		}
		if err := r.Write(dir); err != nil {
			tt.Error(err)
		}
	})
	defer func() {
		if p := recover(); p != nil {
			t.Logf("%s", debug.Stack())
			t.Errorf("panic: %v", p)
		}
	}()
	c.Run(t)
}

// finish completes the record.
func (t *T) finish() Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rec
	r.DurationMS = time.Since(r.Started).Milliseconds()
	r.Verdict, r.Reason = r.Judge()
	switch { // what testing knows and the record does not
	case t.Failed() && (r.Verdict == Pass || r.Verdict == NotRun || r.Verdict == Invalid):
		r.Failures = append(r.Failures, "the test failed")
	case t.Skipped() && r.NotRun == "":
		r.NotRun = "skipped"
	}
	r.Verdict, r.Reason = r.Judge()
	return r
}

// seed returns the seed of the next run: at most 53 bits, so that it fits a number of JSON.
func seed() uint64 {
	const bits = 53
	fixed := os.Getenv(seedVar)
	if fixed == "" {
		return 1 + rand.Uint64N(1<<bits-1)
	}
	n, err := strconv.ParseUint(fixed, 10, bits)
	if err != nil {
		panic(fmt.Sprintf("lab: %s=%q is no seed: %v", seedVar, fixed, err))
	}
	return n
}

// canary runs the canary in processes of their own, with a seed by which it must fail and with that of the run: the
// failure takes the way that every failure takes, and is expected here.
func canary(t *testing.T) {
	if s, err := strconv.ParseUint(os.Getenv(canaryVar), 10, 64); err == nil {
		run(t, Canary, s, EvidenceDir())
		return
	}
	executed.Add(1)
	for _, s := range []uint64{CanaryDivisor, seed()} {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", canaryVar, s))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatalf("run the canary: %v", err)
		}
		if mustFail := s%CanaryDivisor == 0; mustFail != (err != nil) {
			t.Errorf("canary with seed %d: must fail: %v, and: %v\n%s", s, mustFail, err, out)
		}
	}
}
