// The outbox on disk: an append-only file, its lines, lock and compaction.

package client

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
)

// outboxFile is the outbox on disk: lines of JSON that are only appended. The first one says whose it is. What queue writes is
// there when it returns, also after the machine has lost its power. The other lines may be lost, which costs a repetition.
//
// docs/decisions/client-outbox.md says why it is no database.
type outboxFile struct {
	path, device, install string
	lock                  io.Closer

	syncing sync.Mutex // one flush at a time, which serves all that wrote before it; taken before mu
	mu      sync.Mutex
	file    *os.File
	size    int64 // bytes of whole lines
	synced  int64
	lines   int   // since the last rewrite
	failed  error // no line is taken any more
}

// outboxState is what the lines of a file come to.
type outboxState struct {
	User    string
	Waiting []Entry     // in the order in which they were queued
	Sent    []sentEntry // the newest, at most maxSent, oldest first
}

type sentEntry struct {
	Entry
	Sent Sent
}

// line is one line of the file.
type line struct {
	Op      string          `json:"op"` // outbox, user, queue, recall, sent, end
	Version int             `json:"version,omitempty"`
	Device  string          `json:"device,omitempty"`
	Install string          `json:"install,omitempty"`
	User    string          `json:"user,omitempty"`
	Conv    string          `json:"conv,omitempty"`
	Cmid    string          `json:"cmid,omitempty"`
	Body    string          `json:"body,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Queued  time.Time       `json:"queued,omitzero"`
	Target  int64           `json:"target,omitempty"` // of a recall, with the epoch
	Seq     int64           `json:"seq,omitempty"`
	Mid     string          `json:"mid,omitempty"`
	Epoch   int64           `json:"epoch,omitempty"`
	At      int64           `json:"at,omitempty"`
	Dup     bool            `json:"dup,omitempty"`
}

// outboxVersion is the form that is written. The one before it had no recalls.
const outboxVersion = 2

// queueLine is the line of an entry that waits.
func queueLine(e *Entry) line {
	l := line{Op: "queue", Conv: e.Conv, Cmid: e.Cmid, Body: e.Body, Data: e.Data, Queued: e.At}
	if e.recall() {
		l.Op, l.Target, l.Epoch = "recall", e.Target.Seq, e.Target.Epoch
	}
	return l
}

func endLine(e *entry) line { return line{Op: "end", Conv: e.Conv, Cmid: e.Cmid} }

func sentLine(e *Entry, s Sent) line {
	l := queueLine(e)
	l.Op, l.Seq, l.Mid, l.Epoch, l.At, l.Dup = "sent", s.Seq, s.Mid, s.Epoch, s.At, s.Dup
	return l
}

// openOutbox opens or makes the file. It fails when another process has it open, or when it is another device's or installation's.
func openOutbox(path, device, install string) (*outboxFile, outboxState, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, outboxState{}, fmt.Errorf("lock the outbox %s: %w", path, err)
	}
	f := &outboxFile{path: path, device: device, install: install, lock: lock}
	state, err := f.load()
	if err == nil {
		err = f.rewrite(state) // without what was torn and what is over
	}
	if err != nil {
		if f.file != nil {
			_ = f.file.Close()
		}
		_ = lock.Close()
		return nil, outboxState{}, fmt.Errorf("open the outbox %s: %w", path, err)
	}
	return f, state, nil
}

// load plays the lines. A last line without an end was torn by a crash and counts as never written.
func (f *outboxFile) load() (state outboxState, err error) {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		if f.install == "" {
			f.install = rand.Text()
		}
		return state, nil
	}
	if err != nil {
		return state, err
	}
	defer file.Close()
	r, p := bufio.NewReader(file), player{latest: map[key]*record{}}
	for n := 1; ; n++ {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && n > 1 {
			return p.state(), nil
		}
		if err != nil {
			return state, fmt.Errorf("line %d: %w", n, err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return state, fmt.Errorf("line %d is damaged: %w", n, err)
		}
		if n > 1 {
			p.play(&l)
		} else if err := f.owned(&l); err != nil {
			return state, err
		}
	}
}

// owned judges the first line.
func (f *outboxFile) owned(l *line) error {
	switch {
	case l.Op != "outbox":
		return errors.New("the file is no outbox")
	case l.Version < 1 || l.Version > outboxVersion:
		return fmt.Errorf("it has the version %d, which is not known here", l.Version)
	case l.Device != f.device:
		return tidings.Errorf(tidings.InvalidArgument, "%s belongs to the device %s, not to %s", f.path, l.Device, f.device)
	case f.install != "" && l.Install != f.install:
		return tidings.Errorf(tidings.InvalidArgument, "%s belongs to the installation %s, not to %s", f.path, l.Install, f.install)
	}
	f.install = l.Install
	return nil
}

// player collects what the lines say; of each message the last one counts.
type player struct {
	user    string
	records []*record
	latest  map[key]*record
}

type record struct {
	entry Entry
	sent  *Sent
	gone  bool
}

func (p *player) play(l *line) {
	if l.Op == "user" {
		p.user = l.User
		return
	}
	k := key{l.Conv, l.Cmid}
	if had := p.latest[k]; had != nil {
		had.gone = true
	}
	next := &record{entry: Entry{Message: Message{l.Conv, l.Cmid, l.Body, l.Data}, At: l.Queued}, gone: l.Op == "end"}
	switch l.Op {
	case "recall":
		next.entry.Target = Position{l.Epoch, l.Target}
	case "sent":
		next.sent = &Sent{l.Seq, l.Mid, l.Epoch, l.At, l.Dup}
	}
	p.latest[k] = next
	p.records = append(p.records, next)
}

func (p *player) state() outboxState {
	s := outboxState{User: p.user}
	for _, r := range p.records {
		switch {
		case r.gone:
		case r.sent == nil:
			s.Waiting = append(s.Waiting, r.entry)
		default:
			s.Sent = append(s.Sent, sentEntry{r.entry, *r.sent})
		}
	}
	s.Sent = s.Sent[max(0, len(s.Sent)-maxSent):]
	return s
}

// queue writes an entry and waits until it is on the disk.
func (f *outboxFile) queue(e *Entry) error {
	end, err := f.append(queueLine(e))
	if err == nil {
		err = f.flush(end)
	}
	if err != nil {
		return tidings.Errorf(tidings.OutcomeUnknown, "put an entry into the outbox: %w", err)
	}
	return nil
}

// append writes a line and returns where it ends.
func (f *outboxFile) append(l line) (end int64, err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return 0, f.failed
	}
	if _, err := f.file.Write(append(text, '\n')); err != nil {
		f.failed = fmt.Errorf("the file has failed before: %w", err) // it may have a torn line, behind which nothing may stand
		return 0, err
	}
	f.size += int64(len(text) + 1)
	f.lines++
	return f.size, nil
}

// flush waits until the file is on the disk up to end.
func (f *outboxFile) flush(end int64) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	size, synced, failed := f.size, f.synced, f.failed
	f.mu.Unlock()
	if end <= synced {
		return nil
	}
	if failed != nil {
		return failed
	}
	err := f.file.Sync() // file changes only under syncing
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.failed = fmt.Errorf("the file has failed before: %w", err) // a second flush would say nothing about the first
		return err
	}
	f.synced = size
	return nil
}

// crowded tells whether most lines are over, when live of them are not.
func (f *outboxFile) crowded(live int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed == nil && f.lines > 2*live+1000
}

// compact replaces the file by one with what lives. Lines that come later and say again what state has do no harm.
func (f *outboxFile) compact(state outboxState) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return f.failed
	}
	if err := f.rewrite(state); err != nil {
		return fmt.Errorf("compact the outbox: %w", err)
	}
	return nil
}

// rewrite makes a new file and puts it in place of the old one, which stays as it is when something fails before. When the new one
// stands there and it is not known whether it will after a loss of power, no line is taken any more: the old one might come back.
func (f *outboxFile) rewrite(state outboxState) error {
	file, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".new-*")
	if err != nil {
		return err
	}
	size, err := writeState(file, line{Op: "outbox", Version: outboxVersion, Device: f.device, Install: f.install}, state)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(file.Name(), f.path)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
		return err
	}
	if f.file != nil {
		_ = f.file.Close() // replaced
	}
	f.file, f.size, f.synced, f.lines = file, size, size, 0
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		f.failed = fmt.Errorf("the file has failed before: %w", err)
		return err
	}
	return nil
}

func writeState(to io.Writer, head line, state outboxState) (size int64, err error) {
	w := bufio.NewWriter(to)
	write := func(l line) {
		text, _ := json.Marshal(l) // data was JSON when it came in, and everything else is text
		size += int64(len(text) + 1)
		_, _ = w.Write(append(text, '\n')) // Flush tells
	}
	write(head)
	if state.User != "" {
		write(line{Op: "user", User: state.User})
	}
	for i := range state.Sent {
		write(sentLine(&state.Sent[i].Entry, state.Sent[i].Sent))
	}
	for i := range state.Waiting {
		write(queueLine(&state.Waiting[i]))
	}
	return size, w.Flush()
}

func (f *outboxFile) close() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = errClosed
	return errors.Join(f.file.Close(), f.lock.Close())
}
