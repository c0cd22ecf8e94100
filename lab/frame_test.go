// Tests of the frame itself.

package lab

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tidings-project/tidings/lab/fault"
)

// frameVar names the evidence directory in the process that runs a case of TestFrame.
const frameVar = "TIDINGS_LAB_FRAME"

var receipt = fault.New("SIGKILL", "worker", "reaped")

// Cases of the frame itself: what a check does, and the verdict that must come of it. Each runs in a process of its
// own, since most of them must fail.
var frameCases = []struct {
	name    string
	id      string // a check of the catalogue, for its kind and needs
	run     func(*T)
	verdict Verdict
	reason  string // part of it
}{
	{"passes", "33-N2", func(t *T) { t.Equal("states", []string{"SENT"}, []State{"SENT"}) }, Pass, ""},
	{"observes other than expected", "33-N2", func(t *T) { t.Equal("sends", 1, int64(2)) }, Fail, "sends: expected 1, observed 2"},
	{"ends early", "33-N2", func(t *T) { t.Must("connect", errors.New("refused")) }, Fail, "connect: refused"},
	{"fails in clean-up", "33-N2", func(t *T) {
		t.Cleanup(func() { t.T.Error("left something") })
		t.True("ok", true)
	}, Fail, "the test failed"},
	{"panics", "33-N2", func(t *T) { panic("oh") }, Fail, "panic: oh"},
	{"does not find out", "33-N2", func(t *T) { t.Unknown("answer lost") }, Unknown, "answer lost"},
	{"cannot run", "33-N2", func(t *T) { t.NotRun("needs root") }, NotRun, "needs root"},
	{"skips after a failure", "33-N2", func(t *T) { t.True("ok", false); t.NotRun("never mind") }, Fail, "ok: expected true"},
	{"compares nothing", "33-N2", func(t *T) {}, Invalid, "nothing was compared"},
	{"declares a fault and leaves no receipt", "33-T1", func(t *T) { t.True("ok", true) }, Invalid, "no fault left a receipt"},
	{"leaves a receipt without proof", "33-T1", func(t *T) {
		t.Fault(fault.New("cut", "COMMIT", ""))
		t.True("ok", true)
	}, Invalid, "has no proof"},
	{"leaves a receipt", "33-T1", func(t *T) { t.Fault(receipt); t.True("ok", true) }, Pass, ""},
	{"is an invariant that examined nothing", "33-model", func(t *T) { t.True("holds", true) }, Invalid, "nothing was examined"},
	{"is an invariant that examined no rows", "33-model", func(t *T) { t.Examined("rows", 0); t.True("holds", true) }, Invalid, "examined no rows"},
	{"is an invariant that examined", "33-model", func(t *T) { t.Examined("rows", 7); t.True("holds", true) }, Pass, ""},
	{"does not record an overlap", "33-C1", func(t *T) { t.True("ok", true) }, Invalid, "no overlap"},
	{"does not overlap", "33-C1", func(t *T) { t.Overlapped("claims", 1); t.True("ok", true) }, Invalid, "claims did not overlap"},
	{"overlaps", "33-C1", func(t *T) {
		both := make(chan struct{})
		t.Together("claims", 2, func(i int) {
			if i == 0 {
				both <- struct{}{}
			} else {
				<-both
			}
		})
		t.True("ok", true)
	}, Pass, ""},
	{"is a control that exposes nothing", "33-NC3", func(t *T) { t.Equal("naive rows", 1, 1) }, Invalid, "exposed nothing"},
	{"is a control whose naive way works", "33-NC3", func(t *T) { t.Exposed("sends", 1, 1) }, Fail, "other than 1"},
	{"is a control that exposes", "33-NC3", func(t *T) { t.Exposed("sends", 1, 2) }, Pass, ""},
}

// State is a string type of another package, as checks have them.
type State string

func TestFrame(t *testing.T) {
	t.Run("verdict", func(t *testing.T) {
		for _, c := range frameCases {
			t.Run(c.name, func(t *testing.T) {
				if dir := os.Getenv(frameVar); dir != "" {
					check, _ := Find(c.id)
					check.Run = c.run
					run(t, check, 1, dir)
					return
				}
				dir := t.TempDir()
				cmd := exec.Command(os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
				cmd.Env = append(os.Environ(), frameVar+"="+dir)
				out, err := cmd.CombinedOutput()
				if failed := err != nil; failed != (c.verdict != Pass && c.verdict != NotRun) {
					t.Errorf("verdict %s, and the test failed: %v\n%s", c.verdict, failed, out)
				}
				files, err := fs.Glob(os.DirFS(dir), c.id+"/*.json")
				if err != nil || len(files) != 1 {
					t.Fatalf("evidence: %v, %v\n%s", files, err, out)
				}
				r, err := ReadRecord(os.DirFS(dir), files[0])
				if err != nil {
					t.Fatal(err)
				}
				if r.Verdict != c.verdict || !strings.Contains(r.Reason, c.reason) {
					t.Errorf("got %s (%s), want %s (%s)", r.Verdict, r.Reason, c.verdict, c.reason)
				}
			})
		}
	})

	t.Run("same", func(t *testing.T) {
		for _, c := range []struct {
			a, b any
			want bool
		}{
			{1, int64(1), true}, {1, uint8(1), true}, {-1, uint64(1<<64 - 1), false}, {1, 2, false}, {1, "1", false}, {1, nil, false}, {nil, nil, true},
			{State("a"), "a", true}, {[]State{"a"}, []string{"a"}, true}, {[]string{"a"}, []string{"a", "a"}, false}, {[]string(nil), []string{}, true},
			{[]any{1, "a"}, []any{int32(1), State("a")}, true}, {[]any{1}, []int{1}, true}, {true, false, false}, {65, "A", false},
		} {
			if got := equal(c.a, c.b); got != c.want {
				t.Errorf("%T %v and %T %v: same is %v", c.a, c.a, c.b, c.b, got)
			}
		}
	})

	t.Run("evidence names no place of the machine", func(t *testing.T) {
		host, _ := os.Hostname()
		for _, place := range []string{Root(), filepath.Join(os.TempDir(), "x"), host} {
			if got := clean("open " + place + ": no"); len(place) > 3 && strings.Contains(got, place) {
				t.Errorf("%q holds %q", got, place)
			}
		}
	})
}

// TestDoctoredEvidence shows that evidence which is not exactly what a run left is refused.
func TestDoctoredEvidence(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		check, _ := Find("33-T1")
		started := time.Unix(0, 0).UTC()
		honest := Record{ID: "33-T1", Run: runName(started), Title: check.Title, Kind: Failure, Level: ChannelDouble, Promise: "P6", Needs: []Need{NeedFault}, Verdict: Pass,
			Commit: "c0ffee", Started: started, Lines: []Line{{OK: true, What: "sends", Expected: "1", Observed: "1"}}, Faults: []fault.Receipt{receipt}}
		name := honest.ID + "/" + honest.Run + ".json"
		read := func(name string, data []byte) error {
			_, err := ReadRecord(fstest.MapFS{name: {Data: data}}, name)
			return err
		}
		// resealed returns the file of a record that was changed by someone who also knows how to compute the checksum.
		resealed := func(change func(*Record)) []byte {
			r := honest
			r.Lines = append([]Line{}, honest.Lines...)
			change(&r)
			data, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		original := resealed(func(*Record) {})
		if err := read(name, original); err != nil {
			t.Fatalf("honest evidence was refused: %v", err)
		}
		for _, c := range []struct {
			name string
			file string
			data []byte
			want string
		}{
			{"an edited value", name, []byte(strings.Replace(string(original), `"observed": "1"`, `"observed": "2"`, 1)), "edited"},
			{"an added field", name, []byte(strings.Replace(string(original), `{`, `{"extra": 1,`, 1)), "edited"},
			{"no record", name, []byte("{"), "not a record"},
			{"PASS over a failing line", name, resealed(func(r *Record) { r.Lines[0].OK = false }), "says PASS where its content says FAIL"},
			{"PASS without its fault", name, resealed(func(r *Record) { r.Faults = nil }), "says PASS where its content says INVALID"},
			{"a need removed", name, resealed(func(r *Record) { r.Needs, r.Faults = nil, nil }), "does not need what"},
			{"a receipt without proof", name, resealed(func(r *Record) { r.Faults = []fault.Receipt{fault.New("cut", "it", "")} }), "says PASS where its content says INVALID"},
			{"FAIL turned into PASS", name, resealed(func(r *Record) { r.Failures = []string{"panic"} }), "says PASS where its content says FAIL"},
			{"a title changed", name, resealed(func(r *Record) { r.Title = "it works" }), "title, kind, promise or level"},
			{"a kind changed", name, resealed(func(r *Record) { r.Kind = Normal }), "title, kind, promise or level"},
			{"a promise added", name, resealed(func(r *Record) { r.Promise = "P6,R1" }), "title, kind, promise or level"},
			{"an invented level", name, resealed(func(r *Record) { r.Level = "production" }), "title, kind, promise or level"},
			{"no commit", name, resealed(func(r *Record) { r.Commit = "" }), "which state of the code"},
			{"an unknown check", "33-X/" + honest.Run + ".json", resealed(func(r *Record) { r.ID = "33-X" }), "unknown check"},
			{"a check that is not run", "23-tls/" + honest.Run + ".json", resealed(func(r *Record) { r.ID = "23-tls" }), "which this release does not run"},
			{"a run copied to count twice", "33-T1/r2.json", original, "is a copy"},
			{"a run copied under a name of its own", "33-T1/r2.json", resealed(func(r *Record) { r.Run = "r2" }), "is a copy"},
			{"a run copied to another check", "33-T2/" + honest.Run + ".json", original, "is a copy"},
		} {
			if err := read(c.file, c.data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
		}
	})
}

func TestRegister(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		noop := func(*T) {}
		for want, c := range map[string]Check{
			"not in the catalogue":     {ID: "33-nonsense", Expect: "x", Run: noop},
			"are required":             {ID: "33-N2", Run: noop},
			"the catalogue's to say":   {ID: "33-N2", Expect: "x", Kind: Failure, Run: noop},
			`unknown level "a desert"`: {ID: "33-N2", Expect: "x", Level: "a desert", Run: noop},
			"does not run it":          {ID: "23-tls", Expect: "x", Run: noop},
		} {
			func() {
				defer func() {
					if p, _ := recover().(string); !strings.Contains(p, want) {
						t.Errorf("got %q, want %q", p, want)
					}
				}()
				Register(c)
			}()
		}
	})
}

// TestCatalogue holds the catalogue to its own rules.
func TestCatalogue(t *testing.T) {
	t.Run("rules", func(t *testing.T) {
		seen := map[string]bool{Canary.ID: true}
		for _, c := range Catalogue {
			switch {
			case seen[c.ID]:
				t.Errorf("%s stands there twice", c.ID)
			case !slices.Contains(Kinds, c.Kind) || !slices.Contains(Levels, c.Level):
				t.Errorf("%s: kind %q, level %q", c.ID, c.Kind, c.Level)
			case c.Title == "" || len(c.Title) > 160:
				t.Errorf("%s: title of %d bytes", c.ID, len(c.Title))
			case c.Run != nil || c.Expect != "":
				t.Errorf("%s: is not data alone", c.ID)
			case (c.NotRun == "") != (c.Requires == ""):
				t.Errorf("%s: is not run and does not say what it would take, or the other way round", c.ID)
			case c.NotRun != "" && c.Core():
				t.Errorf("%s: a check of the families 04 to 11 has to run", c.ID)
			case c.NotRun == "" && registered[c.ID].Run == nil:
				t.Errorf("%s: nothing is registered for it; what this release does not run belongs to catalogue_not_run.go, with its reason", c.ID)
			}
			seen[c.ID] = true
		}
	})

	// What has to be shown of conversations is fixed, family by family and kind by kind: nobody makes the report better by leaving out a check.
	t.Run("numbers of the families 04 to 11", func(t *testing.T) {
		want := map[string]int{
			"04": 9, "05": 13, "06": 8, "07": 7, "08": 7, "09": 10, "10": 6, "11": 11, // 71
			"normal": 12, "boundary": 25, "failure": 12, "recovery": 7, "invariant": 2, "control": 10, "observation": 3,
		}
		got := map[string]int{}
		for _, c := range Catalogue {
			if c.Core() {
				got[c.Family()]++
				got[string(c.Kind)]++
			}
		}
		if !maps.Equal(want, got) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
