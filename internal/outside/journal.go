// The journal of what was taken back: a file to which lines are appended, and which is read by a recovery.

package outside

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tidings-project/tidings"
)

// journalName is the journal's name in its directory.
const journalName = "taken_back.jsonl"

// maxLine is the greatest length of a line. The longest that is written, of three ids, has less than a quarter of it.
const maxLine = 4096

// JournalPath is where a directory's journal is.
func JournalPath(dir string) string { return filepath.Join(dir, journalName) }

// Journal is an open journal. It is only ever appended to.
type Journal struct{ file *os.File }

// OpenJournal opens the journal of a directory; both are made if they are not there. Close it. Several processes may have it open, but
// only one may append at a time.
func OpenJournal(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the journal's directory: %w", err)
	}
	path := JournalPath(dir)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		if file, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err == nil {
			if err = syncDir(dir); err != nil {
				err = errors.Join(err, file.Close())
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &Journal{file}, nil
}

// syncDir makes a new name in dir last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close closes the journal.
func (j *Journal) Close() error { return j.file.Close() }

// Append writes a line for each taking, in one write, and returns when they are on disk. After an error none, some or all of them may
// be there: append them again, for duplicates are harmless.
//
// An append that was interrupted leaves a torn line. The next one closes it with an empty line, by which ReadJournal knows it, because
// cutting it off could take what another process has appended meanwhile.
func (j *Journal) Append(takings []Taking) error {
	if len(takings) == 0 {
		return nil
	}
	var lines bytes.Buffer
	whole, err := j.endsWhole()
	if err != nil {
		return fmt.Errorf("look at the journal's end: %w", err)
	}
	if !whole {
		lines.WriteString("\n\n")
	}
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, t := range takings {
		if err := errors.Join(t.check(), encoder.Encode(t)); err != nil { // a line that cannot be read would spoil the journal
			return fmt.Errorf("append to the journal: %w", err)
		}
	}
	if _, err := j.file.Write(lines.Bytes()); err != nil {
		return fmt.Errorf("append to the journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("flush the journal: %w", err)
	}
	return nil
}

// endsWhole tells whether the journal ends with a whole line, or with an empty one.
func (j *Journal) endsWhole() (bool, error) {
	info, err := j.file.Stat()
	if err != nil || info.Size() == 0 {
		return true, err
	}
	end := make([]byte, min(info.Size(), 2))
	_, err = j.file.ReadAt(end, info.Size()-int64(len(end)))
	return string(end) == "}\n" || string(end) == "\n\n", err
}

// Line is a taking as a journal has it.
type Line struct {
	Taking
	File string
	N    int // of the line in it

	// Recoveries are the generations that recoveries gave which had replayed this line: those that come after it in a file.
	Recoveries []int64
}

// Compare orders takings as they were made: a later history can run on a clock that is behind, so epochs come before times.
func Compare(a, b Taking) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), a.At.Compare(b.At))
}

// ReadJournal reads journals, those of several hosts or histories, and returns their lines in the order of Compare, each taking once. A
// line that an interrupted append has torn is left out: its row was not marked as copied and is appended again. Any other line that
// cannot be read is an error that names the file and the line.
func ReadJournal(paths ...string) ([]Line, error) {
	var all []Line
	place := map[tidings.UUID]int{} // in all
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read a journal: %w", err)
		}
		var recoveries []int64
		type behind struct{ i, recoveries int } // a line, and how many recoveries come no later
		var here []behind
		err = readLines(file, func(n int, t Taking) {
			i, seen := place[t.ID]
			if !seen {
				i = len(all)
				place[t.ID] = i
				all = append(all, Line{Taking: t, File: path, N: n})
			}
			if t.What == TookRecover {
				recoveries = append(recoveries, t.Epoch)
			}
			here = append(here, behind{i, len(recoveries)})
		})
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("read the journal %s: %w", path, err)
		}
		for _, b := range here {
			if line, after := &all[b.i], recoveries[b.recoveries:]; line.Recoveries == nil {
				line.Recoveries = slices.Clip(after)
			} else {
				line.Recoveries = append(line.Recoveries, after...)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Line) int { return Compare(a.Taking, b.Taking) })
	return all, nil
}

// NoteRecovery appends the line of a recovery to the journal of a directory, after every line that the recovery has replayed: those that
// other journals have are copied into this one, so that it alone tells what the recovery had. It is refused when the journal
// has lines that were not replayed: something is still taken back in the history that was lost.
func NoteRecovery(dir string, replayed []Line, recovery []Taking) error {
	now, err := ReadJournal(JournalPath(dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	known, here := map[tidings.UUID]bool{}, map[tidings.UUID]bool{}
	for i := range replayed {
		known[replayed[i].ID] = true
	}
	for i := range now {
		if here[now[i].ID] = true; !known[now[i].ID] {
			return fmt.Errorf("%s, line %d, came while the recovery ran: a process still serves the history that was lost; stop it and recover again", now[i].File, now[i].N)
		}
	}
	var missing []Taking
	for i := range replayed {
		if !here[replayed[i].ID] {
			missing = append(missing, replayed[i].Taking)
		}
	}
	j, err := OpenJournal(dir)
	if err != nil {
		return err
	}
	return errors.Join(j.Append(append(missing, recovery...)), j.Close())
}

// readLines reads a journal line by line.
func readLines(r io.Reader, add func(n int, t Taking)) error {
	reader := bufio.NewReaderSize(r, maxLine)
	var torn error // of the line before: it is one if an empty line follows, or none
	for n := 1; ; n++ {
		line, err := reader.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = reader.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", n, err)
		}
		text := bytes.TrimSpace(line)
		switch {
		case len(text) == 0 && !long:
			if err == io.EOF {
				return torn // the line before was ended, so nothing has torn it
			}
			torn = nil
		case torn != nil:
			return torn
		default:
			var t Taking
			if torn = parse(text, long, &t); torn == nil {
				add(n, t)
			} else {
				torn = fmt.Errorf("line %d: %w", n, torn)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

func parse(text []byte, long bool, t *Taking) error {
	if long {
		return fmt.Errorf("it is longer than %d bytes", maxLine)
	}
	if err := json.Unmarshal(text, t); err != nil {
		return err
	}
	return t.check()
}

// check refuses what is no taking. A line of a newer release with another what is refused, too: leaving it out could bring something
// back.
func (t *Taking) check() error {
	var err error
	switch t.What {
	case TookRecall:
		_, mid := tidings.ParseUUID(t.Mid)
		err = errors.Join(tidings.CheckID("conv", t.Conv), mid)
	case TookPurge:
		err = errors.Join(tidings.CheckID("conv", t.Conv), t.needCutoff())
	case TookLeave, TookJoin:
		err = errors.Join(tidings.CheckID("conv", t.Conv), tidings.CheckID("user", t.User))
	case TookErase:
		err = errors.Join(tidings.CheckID("user", t.User), t.needCutoff())
	case TookRecover:
	default:
		return fmt.Errorf("%.40q is nothing that this release knows", t.What)
	}
	switch {
	case err != nil:
		return err
	case t.ID.IsZero():
		return errors.New("it has no id")
	case t.At.Year() < 2000 || t.At.Year() > 9999:
		return errors.New("it has no time that could be right")
	case t.Epoch <= 1 || t.Epoch >= tidings.MaxNumber:
		return fmt.Errorf("%d is no epoch", t.Epoch)
	}
	return nil
}

func (t *Taking) needCutoff() error {
	if t.Cutoff == nil || t.Cutoff.Year() < 1 || t.Cutoff.Year() > 9999 {
		return errors.New("it has no cutoff that could be right")
	}
	return nil
}
