// A run's evidence, and how it is judged.

package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tidings-project/tidings/lab/fault"
)

// Verdict is the result of one run, or of all runs of a check.
type Verdict string

// The verdicts, from the best to the worst. Only PASS supports a promise.
const (
	Pass    Verdict = "PASS"
	NotRun  Verdict = "NOT_RUN" // it could not run
	Unknown Verdict = "UNKNOWN" // it ran and could not find out
	Invalid Verdict = "INVALID" // it ran and did not do what its result would have to rest on
	Fail    Verdict = "FAIL"
)

// Verdicts lists the verdicts in that order.
var Verdicts = []Verdict{Pass, NotRun, Unknown, Invalid, Fail}

// Line is one comparison.
type Line struct {
	OK       bool   `json:"ok"`
	Exposes  bool   `json:"exposes,omitempty"` // in a control: the naive way must differ
	What     string `json:"what"`
	Expected string `json:"expected"`
	Observed string `json:"observed"`
}

// Figure is one measured value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Record is the evidence of one run: one JSON file. It holds no paths, names of machines or users, and nothing of what
// a notification says.
type Record struct {
	ID         string            `json:"id"`
	Run        string            `json:"run"` // unique; the file is named by it
	Title      string            `json:"title"`
	Promise    string            `json:"promise"`
	Kind       Kind              `json:"kind"`
	Level      Level             `json:"level"`
	Expect     string            `json:"expect"`
	Verdict    Verdict           `json:"verdict"`
	Reason     string            `json:"reason,omitempty"` // why it is not PASS
	Seed       uint64            `json:"seed"`
	Started    time.Time         `json:"started"`
	DurationMS int64             `json:"duration_ms"`
	Lines      []Line            `json:"lines"`
	Failures   []string          `json:"failures,omitempty"` // what ended or failed it besides its lines
	Unknown    string            `json:"unknown,omitempty"`
	NotRun     string            `json:"not_run,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	Needs      []Need            `json:"needs,omitempty"`
	Faults     []fault.Receipt   `json:"faults,omitempty"`
	Examined   map[string]int    `json:"examined,omitempty"`
	Overlapped map[string]int    `json:"overlapped,omitempty"`
	Figures    []Figure          `json:"figures,omitempty"`
	Versions   map[string]string `json:"versions"`
	Commit     string            `json:"commit"`
	Checksum   string            `json:"checksum"` // SHA-256 of the record without it: an edit is noticed, a forger is not
}

// Judge says which verdict follows from what the run left behind, and why it is not PASS.
func (r Record) Judge() (Verdict, string) {
	for _, l := range r.Lines {
		if !l.OK {
			return Fail, fmt.Sprintf("%s: expected %s, observed %s", l.What, l.Expected, l.Observed)
		}
	}
	switch {
	case len(r.Failures) > 0:
		return Fail, r.Failures[0]
	case r.Unknown != "":
		return Unknown, r.Unknown
	case r.NotRun != "":
		return NotRun, r.NotRun
	}
	if reason := r.invalid(); reason != "" {
		return Invalid, reason
	}
	return Pass, ""
}

// invalid says what is missing from a run that nothing in it contradicts.
func (r Record) invalid() string {
	for _, f := range r.Faults {
		if f.Proof == "" {
			return fmt.Sprintf("the fault %s (%s) has no proof", f.Kind, f.What)
		}
	}
	for what, n := range r.Examined {
		if n <= 0 {
			return fmt.Sprintf("examined no %s", what)
		}
	}
	for what, n := range r.Overlapped {
		if n < 2 {
			return fmt.Sprintf("%s did not overlap", what)
		}
	}
	exposes := slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Exposes })
	for _, m := range []struct {
		need Need
		met  bool
		why  string
	}{
		{NeedFault, len(r.Faults) > 0, "no fault left a receipt"},
		{NeedExamined, len(r.Examined) > 0, "nothing was examined"},
		{NeedOverlap, len(r.Overlapped) > 0, "no overlap was recorded"},
		{NeedExposed, exposes, "the control exposed nothing"},
		{NeedFigure, len(r.Figures) > 0, "no figure was taken"},
	} {
		if slices.Contains(r.Needs, m.need) && !m.met {
			return m.why
		}
	}
	if len(r.Lines) == 0 && r.Kind != Observation {
		return "nothing was compared"
	}
	return ""
}

// encode returns the file of the record, with its checksum filled in.
func (r Record) encode() ([]byte, error) {
	r.Checksum = ""
	bare, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode evidence of %s: %w", r.ID, err)
	}
	sum := sha256.Sum256(bare)
	r.Checksum = hex.EncodeToString(sum[:])
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// runName names a run by the moment at which it began.
func runName(started time.Time) string { return started.Format("20060102T150405.000000000Z") }

// Write stores the record under dir. It never replaces a file.
func (r Record) Write(dir string) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, r.ID), 0o755); err != nil {
		return fmt.Errorf("write evidence of %s: %w", r.ID, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, r.ID, r.Run+".json"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write evidence of %s: %w", r.ID, err)
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return fmt.Errorf("write evidence of %s: %w", r.ID, err)
	}
	return f.Close()
}

// ReadRecord reads the file name, relative to the evidence directory, and refuses it unless it is exactly what a run
// of a known check wrote there: unedited, in its place, and with the verdict that follows from its content.
func ReadRecord(dir fs.FS, name string) (Record, error) {
	data, err := fs.ReadFile(dir, name)
	if err != nil {
		return Record{}, fmt.Errorf("read evidence: %w", err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("evidence %s: not a record: %w", name, err)
	}
	if again, err := r.encode(); err != nil || !bytes.Equal(again, data) {
		return Record{}, fmt.Errorf("evidence %s: edited: its checksum is not that of its content", name)
	}
	c, known := Find(r.ID)
	verdict, _ := r.Judge()
	switch {
	case !known:
		return Record{}, fmt.Errorf("evidence %s: unknown check %q", name, r.ID)
	case c.NotRun != "":
		return Record{}, fmt.Errorf("evidence %s: of %s, which this release does not run", name, r.ID)
	case name != r.ID+"/"+r.Run+".json" || r.Run != runName(r.Started):
		return Record{}, fmt.Errorf("evidence %s: is a copy of run %s/%s", name, r.ID, runName(r.Started))
	case r.Title != c.Title || r.Kind != c.Kind || r.Promise != c.Promise || !slices.Contains(Levels, r.Level):
		return Record{}, fmt.Errorf("evidence %s: title, kind, promise or level are not those of the catalogue", name)
	case r.Commit == "":
		return Record{}, fmt.Errorf("evidence %s: does not say which state of the code it is of", name)
	case !contains(r.Needs, c.needs()):
		return Record{}, fmt.Errorf("evidence %s: does not need what %s needs: %v", name, r.ID, c.needs())
	case verdict != r.Verdict:
		return Record{}, fmt.Errorf("evidence %s: says %s where its content says %s", name, r.Verdict, verdict)
	}
	return r, nil
}

func contains(all, some []Need) bool {
	return !slices.ContainsFunc(some, func(n Need) bool { return !slices.Contains(all, n) })
}
