// Tests of the journal file.

package outside_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

const epoch = 1 << 40

// recall is a taking of its own, told by n.
func recall(n int) outside.Taking {
	t := outside.Taking{At: time.Date(2026, 11, 30, 12, 0, n, 0, time.UTC), What: outside.TookRecall, Conv: "c-1", Mid: "00112233445566778899aabbccddeeff", Epoch: epoch}
	t.ID[0], t.ID[1], t.ID[15] = byte(n>>8), byte(n), 1
	return t
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// appended writes takings to a directory's journal as a process of its own would.
func appended(t *testing.T, dir string, takings ...outside.Taking) {
	t.Helper()
	j, err := outside.OpenJournal(dir)
	must(t, err)
	must(t, j.Append(takings))
	must(t, j.Close())
}

func read(t *testing.T, paths ...string) (all []outside.Taking) {
	t.Helper()
	lines, err := outside.ReadJournal(paths...)
	must(t, err)
	for _, line := range lines {
		all = append(all, line.Taking)
	}
	return all
}

func TestJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	cutoff := time.Date(2026, 11, 1, 0, 0, 0, 123000, time.UTC)
	all := []outside.Taking{recall(1), recall(2), recall(3), recall(4), recall(5), recall(6)}
	all[1] = outside.Taking{ID: all[1].ID, At: all[1].At, What: outside.TookPurge, Conv: "c-<&>", Cutoff: &cutoff, Epoch: epoch}
	all[2] = outside.Taking{ID: all[2].ID, At: all[2].At, What: outside.TookLeave, Conv: "c-1", User: "u-ana", Epoch: epoch}
	all[3] = outside.Taking{ID: all[3].ID, At: all[3].At, What: outside.TookJoin, Conv: "c-1", User: "u-ana", Epoch: epoch}
	all[4] = outside.Taking{ID: all[4].ID, At: all[4].At, What: outside.TookErase, User: "u-ana", Cutoff: &cutoff, Epoch: epoch}
	all[5] = outside.Taking{ID: all[5].ID, At: all[5].At, What: outside.TookRecover, Epoch: epoch + 1}
	// A later history whose clock is behind, in another journal, with one line that stands in both.
	behind := recall(7)
	behind.At, behind.Epoch = all[0].At.Add(-time.Hour), epoch+2
	other := t.TempDir()
	appended(t, other, behind, all[4])
	appended(t, dir, all[:4]...)
	appended(t, dir)
	appended(t, dir, all[3], all[5], all[4])

	got := read(t, outside.JournalPath(other), outside.JournalPath(dir))
	if want := append(all, behind); !slices.EqualFunc(got, want, equal) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
	if _, err := outside.ReadJournal(filepath.Join(dir, "none")); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("a journal that is not there: %v", err)
	}
}

func unwrapped(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || os.IsNotExist(err) {
			return err
		}
		err = inner.Unwrap()
	}
}

func equal(a, b outside.Taking) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// An append can be torn at any byte. What was whole before and what comes after is read.
func TestTornAppends(t *testing.T) {
	dir := t.TempDir()
	path := outside.JournalPath(dir)
	appended(t, dir, recall(1))
	one, err := os.ReadFile(path)
	must(t, err)
	appended(t, dir, recall(2), recall(3))
	both, err := os.ReadFile(path)
	must(t, err)
	for cut := len(one); cut <= len(both); cut++ {
		must(t, os.WriteFile(path, both[:cut], 0o600))
		whole := bytes.Count(both[:cut], []byte("}")) // a line whose end alone is missing is whole
		if got := read(t, path); len(got) != whole {
			t.Fatalf("cut at %d: %d takings are read, want %d", cut, len(got), whole)
		}
		appended(t, dir, recall(2), recall(3))
		appended(t, dir, recall(4))
		if got := read(t, path); len(got) != 4 {
			t.Fatalf("cut at %d and appended to: %+v", cut, got)
		}
		// And the closing of a torn line can be torn, as can the line after it.
		must(t, os.WriteFile(path, append(both[:cut:cut], "\n\n{\"id"...), 0o600))
		appended(t, dir, recall(5))
		if got := read(t, path); len(got) != whole+1 {
			t.Fatalf("cut at %d and torn again: %+v", cut, got)
		}
	}
}

func TestHostileJournals(t *testing.T) {
	good := `{"id":"00112233-4455-6677-8899-aabbccddeeff","at":"2026-11-30T12:00:00Z","what":"leave","conv":"c","user":"u","epoch":2000}`
	path := filepath.Join(t.TempDir(), "journal")
	for _, bad := range []string{
		`x`, `{`, `{}`, `[]`, `null`, `1`, `"`, "\x00\x00\x00", "\xff\xfe", strings.Repeat("a", 100_000), strings.Repeat("[", 4000), good + good,
		strings.Replace(good, "leave", "edit", 1), strings.Replace(good, "leave", "recall", 1), strings.Replace(good, "leave", "purge", 1), strings.Replace(good, "leave", "erase", 1),
		strings.Replace(good, `"u"`, `"u v"`, 1), strings.Replace(good, `"u"`, `""`, 1), strings.Replace(good, `"u"`, "\"\xff\"", 1), strings.Replace(good, `"u"`, `"\u0000"`, 1),
		strings.Replace(good, `"c"`, `"`+strings.Repeat("c", 129)+`"`, 1), strings.Replace(good, `"c"`, `7`, 1),
		strings.Replace(good, "2000", "0", 1), strings.Replace(good, "2000", "-5", 1), strings.Replace(good, "2000", "9007199254740992", 1), strings.Replace(good, "2000", "1e999", 1),
		strings.Replace(good, "2026-11-30T12:00:00Z", "0001-01-01T00:00:00Z", 1), strings.Replace(good, "2026-11-30T12:00:00Z", "yesterday", 1),
		strings.Replace(good, "00112233-4455-6677-8899-aabbccddeeff", "", 1), strings.Replace(good, "00112233-4455-6677-8899-aabbccddeeff", "0", 1),
		strings.Replace(good, "leave", "recall", 1) + `,"mid":"zz"}`,
	} {
		for _, text := range []string{good + "\n" + bad + "\n" + good + "\n", good + "\n" + bad + "\n"} {
			must(t, os.WriteFile(path, []byte(text), 0o600))
			if _, err := outside.ReadJournal(path); err == nil || !strings.Contains(err.Error(), "line 2: ") {
				t.Errorf("%.60q: %v", bad, err)
			}
		}
		must(t, os.WriteFile(path, []byte(good+"\n"+bad), 0o600)) // torn
		if got := read(t, path); len(got) != 1 {
			t.Errorf("%.60q as a torn end: %+v", bad, got)
		}
	}
	for _, fine := range []string{"", "\n", "\n\n\n" + good, good + "\n\r\n" + good, strings.Replace(good, `{`, `{"of a later release":[1],`, 1) + "\n"} {
		must(t, os.WriteFile(path, []byte(fine), 0o600))
		if got := read(t, path); len(got) != min(strings.Count(fine, "leave"), 1) {
			t.Errorf("%.60q: %+v", fine, got)
		}
	}
}

func FuzzReadJournal(f *testing.F) {
	f.Add([]byte("{\"id\":\"00112233-4455-6677-8899-aabbccddeeff\",\"at\":\"2026-11-30T12:00:00Z\",\"what\":\"leave\",\"conv\":\"c\",\"user\":\"u\",\"epoch\":2000}\n{\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		must(t, os.WriteFile(path, text, 0o600))
		before, err := outside.ReadJournal(path)
		if err != nil {
			return
		}
		must(t, os.Rename(path, outside.JournalPath(filepath.Dir(path))))
		path = outside.JournalPath(filepath.Dir(path))
		for _, x := range before { // what was read can be written
			appended(t, filepath.Dir(path), x.Taking)
		}
		if after := read(t, path); !slices.EqualFunc(before, after, func(a outside.Line, b outside.Taking) bool { return equal(a.Taking, b) }) {
			t.Errorf("%q: read %+v, and appended to it %+v", text, before, after)
		}
	})
}

func TestAppendRefuses(t *testing.T) {
	dir := t.TempDir()
	j, err := outside.OpenJournal(dir)
	must(t, err)
	bad := recall(1)
	bad.Conv = "c 1"
	if err := j.Append([]outside.Taking{recall(2), bad}); tidings.ErrorCode(err) != tidings.InvalidArgument {
		t.Errorf("an id that is none: %v", err)
	}
	must(t, j.Close())
	if err := j.Append([]outside.Taking{recall(1)}); err == nil {
		t.Error("a closed journal takes a line")
	}
	if got := read(t, outside.JournalPath(dir)); len(got) != 0 {
		t.Errorf("something was appended: %+v", got)
	}
	if _, err := outside.OpenJournal(outside.JournalPath(dir)); err == nil {
		t.Error("a file is a directory")
	}
}

// A process that is killed while it appends loses nothing that it was told is there.
func TestKilledAppends(t *testing.T) {
	if dir := os.Getenv("TIDINGS_TEST_APPENDS_TO"); dir != "" {
		j, err := outside.OpenJournal(dir)
		must(t, err)
		first, err := strconv.Atoi(os.Getenv("TIDINGS_TEST_APPENDS_FROM"))
		must(t, err)
		for n := first; ; n++ {
			must(t, j.Append([]outside.Taking{recall(n)}))
			fmt.Println("appended", n)
		}
	}
	dir := t.TempDir()
	for round := range 3 {
		first := 10_000 * round
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAppends$")
		cmd.Env = append(os.Environ(), "TIDINGS_TEST_APPENDS_TO="+dir, fmt.Sprint("TIDINGS_TEST_APPENDS_FROM=", first))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		told := 0
		for told < first+50 {
			if _, err := fmt.Fscanf(out, "appended %d\n", &told); err != nil {
				t.Fatalf("read what was appended: %v", err)
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		appended(t, dir, recall(first+9_999))
		got := map[tidings.UUID]bool{}
		for _, x := range read(t, outside.JournalPath(dir)) {
			got[x.ID] = true
		}
		for n := first; n <= told; n++ {
			if !got[recall(n).ID] {
				t.Fatalf("%d was appended and is not read", n)
			}
		}
	}
}

// A line tells which recoveries had it: those whose lines come after it in the same file. Noting a recovery makes that so for the lines of
// other files, and is refused when something came that was not replayed.
func TestRecoveries(t *testing.T) {
	recovery := func(n int, epoch int64) []outside.Taking {
		r := recall(n)
		return []outside.Taking{{ID: r.ID, At: r.At, What: outside.TookRecover, Epoch: epoch}}
	}
	own, other := t.TempDir(), t.TempDir()
	paths := []string{outside.JournalPath(own), outside.JournalPath(other)}
	recoveries := func() (all []string) {
		t.Helper()
		lines, err := outside.ReadJournal(paths...)
		must(t, err)
		for _, l := range lines {
			all = append(all, fmt.Sprintf("%d: %s:%d %d", l.At.Second(), filepath.Base(filepath.Dir(l.File)), l.N, l.Recoveries))
		}
		return all
	}
	at := func(dir string, format string, args ...any) string {
		return fmt.Sprintf(format, append([]any{filepath.Base(dir)}, args...)...)
	}
	appended(t, own, recall(1))
	must(t, outside.NoteRecovery(own, lines(t, paths[0]), recovery(2, epoch+10)))
	appended(t, own, recall(3))
	appended(t, other, recall(4))
	if got, want := recoveries(), []string{at(own, "1: %s:1 [%d]", epoch+10), at(own, "3: %s:3 []"), at(other, "4: %s:1 []"), at(own, "2: %s:2 []")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	before := lines(t, paths...)
	appended(t, own, recall(5))
	if err := outside.NoteRecovery(own, before, recovery(6, epoch+20)); err == nil || !strings.Contains(err.Error(), paths[0]+", line 4,") {
		t.Errorf("a line that was not replayed: %v", err)
	}
	must(t, outside.NoteRecovery(own, lines(t, paths...), recovery(6, epoch+20)))
	if got, want := recoveries(), []string{at(own, "1: %s:1 [%d %d]", epoch+10, epoch+20), at(own, "3: %s:3 [%d]", epoch+20), at(own, "4: %s:5 [%d]", epoch+20), at(own, "5: %s:4 [%d]", epoch+20),
		at(own, "2: %s:2 [%d]", epoch+20), at(own, "6: %s:6 []")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func lines(t *testing.T, paths ...string) []outside.Line {
	t.Helper()
	all, err := outside.ReadJournal(paths...)
	must(t, err)
	return all
}
