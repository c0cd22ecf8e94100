// Yesterday's backup: taken, and put back under the eyes of those who are connected.

package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
)

// Copies say how the database is backed up and put back: by this program's own commands.
type Copies struct {
	Dir     string                                               // where the backup is kept from one run to the next
	Backup  func(ctx context.Context, file string) error         // makes file, and file.json that says what is in it
	Restore func(ctx context.Context, url, file string) error    // into an empty database
	Recover func(ctx context.Context, lostSince time.Time) error // makes the restored database fit to be served
}

// backup is the one that can be put back.
type backup struct {
	At time.Time `json:"at"`
}

// The words of what goes on with the database.
const (
	backingUp = "backup"
	restoring = "restore"
)

// copyPatience bounds each of them.
const copyPatience = 3 * time.Minute

// noticePatience is how long the processes may take to notice that the database is another, or that it is fit again.
const noticePatience = 20 * time.Second

func (c *Copies) file() string { return filepath.Join(c.Dir, "backup") }

// due is a file that says that the database is the one of a backup, and of which instant, until it was recovered.
func (c *Copies) due() string { return filepath.Join(c.Dir, "recovery-due") }

// note makes that file, whole or not at all.
func (c *Copies) note(at time.Time) error {
	part := c.due() + ".partial"
	err := os.WriteFile(part, []byte(at.Format(time.RFC3339Nano)), 0o600)
	if err == nil {
		err = os.Rename(part, c.due())
	}
	if err != nil {
		return fmt.Errorf("note that a recovery is due: %w", err)
	}
	return nil
}

// Finish ends a restore that was cut short: before anything serves the database, it is recovered.
func (c *Copies) Finish(ctx context.Context) error {
	text, err := os.ReadFile(c.due())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var at time.Time
	if err == nil {
		at, err = time.Parse(time.RFC3339Nano, string(text))
	}
	if err == nil {
		err = c.Recover(ctx, at)
	}
	if err == nil {
		err = os.Remove(c.due())
	}
	if err != nil {
		return fmt.Errorf("finish a restore that was cut short: %w", err)
	}
	return nil
}

// last is the backup that is there; nil: none.
func (c *Copies) last() (*backup, error) {
	text, err := os.ReadFile(c.file() + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m struct {
		Contents backup `json:"contents"`
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("read what is in the backup: %w", err)
	}
	return &m.Contents, nil
}

// take makes a backup in the place of the one before.
func (c *Copies) take(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make a place for the backup: %w", err)
	}
	next := filepath.Join(c.Dir, "next")
	for _, file := range []string{next, next + ".json", next + ".partial", next + ".json.partial"} { // of one that was cut short
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make room for the backup: %w", err)
		}
	}
	if err := c.Backup(ctx, next); err != nil {
		return err
	}
	// The manifest goes first and comes last: there never is one beside another backup.
	err := os.Remove(c.file() + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, end := range []string{"", ".json"} {
		if err == nil {
			err = os.Rename(next+end, c.file()+end)
		}
	}
	if err != nil {
		return fmt.Errorf("put the backup into its place: %w", err)
	}
	return nil
}

func (f *Front) takeBackup(w http.ResponseWriter, r *http.Request) {
	f.copying(w, r, backingUp, func(ctx context.Context) error {
		err := f.o.Copies.take(ctx)
		last, unread := f.o.Copies.last() // the one before, or none, when that one failed
		f.mu.Lock()
		f.backup = last
		f.mu.Unlock()
		if err = errors.Join(err, unread); err != nil {
			return err
		}
		f.log.add("the database was backed up")
		return nil
	})
}

func (f *Front) putBack(w http.ResponseWriter, r *http.Request) {
	f.copying(w, r, restoring, func(ctx context.Context) error {
		f.mu.Lock()
		last := f.backup
		f.mu.Unlock()
		if last == nil {
			return tidings.Errorf(tidings.Conflict, "there is no backup")
		}
		if err := f.restore(ctx, last); err != nil {
			return err
		}
		f.log.add("the backup of %s was restored: every conversation has another epoch", last.At.Local().Format(time.TimeOnly))
		return nil
	})
}

// restore puts the backup into the place of the database, lets the processes notice, and makes it fit to be served.
func (f *Front) restore(ctx context.Context, last *backup) error {
	c := &f.o.Copies
	if err := f.o.Box.Exchange(ctx, func(url string) error {
		if err := c.Restore(ctx, url, c.file()); err != nil {
			return err
		}
		return c.note(last.At)
	}); err != nil {
		return err
	}
	// From here on the end of the development server does not cut it short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyPatience)
	defer cancel()
	f.log.add("the database is that of the backup now: nobody is served until it is recovered")
	noticing, noticed := context.WithTimeout(ctx, noticePatience)
	defer noticed()
	blind := f.o.Children.await(noticing, func(status int, text string) bool {
		return status == http.StatusServiceUnavailable && strings.Contains(text, "tidings recover")
	})
	for _, p := range blind { // it is started again, and looks
		_ = p.kill() // one that has ended already
	}
	if err := c.Finish(ctx); err != nil {
		return err
	}
	for _, p := range f.o.Children.all { // one that found no database, and ended
		p.start()
	}
	serving, served := context.WithTimeout(ctx, noticePatience)
	defer served()
	if idle := f.o.Children.await(serving, func(status int, _ string) bool { return status == http.StatusOK }); len(idle) > 0 {
		return fmt.Errorf("after the recovery %s does not serve", idle[0].title)
	}
	return nil
}

// copying does something with the database, one thing at a time, to its end even if whoever asked for it goes away. It answers with the state.
func (f *Front) copying(w http.ResponseWriter, r *http.Request, what string, do func(context.Context) error) {
	var nothing struct{}
	err := read(w, r, &nothing)
	if err == nil {
		err = f.occupy(what)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	defer f.copies.Done()
	ctx, cancel := context.WithTimeout(f.life, copyPatience)
	defer cancel()
	err = do(ctx)
	f.vacate()
	if err != nil {
		f.log.add("%s: %v", what, err)
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, f.state())
}

// occupy refuses what would come in the way of what goes on.
func (f *Front) occupy(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.life.Err() != nil:
		return unavailable("the development server stops")
	case f.busy != "":
		return tidings.Errorf(tidings.Conflict, "busy: there is a %s going on", f.busy)
	}
	f.busy, f.over = what, make(chan struct{})
	f.copies.Add(1)
	return nil
}

// vacate ends what goes on.
func (f *Front) vacate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.over)
	f.busy, f.over = "", nil
}

// settled returns when nothing goes on with the database, or ctx ends, or it takes too long: what only looks waits for an answer instead of getting an error.
func (f *Front) settled(ctx context.Context) {
	f.mu.Lock()
	over := f.over
	f.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	case <-f.life.Done():
	case <-time.After(noticePatience):
	}
}
