// Tests of what is left of a backup, and of the note of a restore, when something goes wrong on the way.

package front

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// backups writes backups whose content and manifest say n; one is cut short before its manifest.
func backups(t *testing.T, whole bool) func(context.Context, string) error {
	return func(_ context.Context, file string) error {
		if err := os.WriteFile(file, []byte("dump"), 0o600); err != nil {
			t.Fatal(err)
		}
		if !whole {
			return nil
		}
		return os.WriteFile(file+".json", []byte(`{"contents":{"at":"2026-01-02T03:04:05Z"}}`), 0o600)
	}
}

// A manifest never stands beside another backup's dump.
func TestBackupCutShort(t *testing.T) {
	c := Copies{Dir: filepath.Join(t.TempDir(), "backup"), Backup: backups(t, true)}
	for range 2 {
		if err := c.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last, err := c.last(); err != nil || last == nil {
			t.Fatalf("there is %v, %v", last, err)
		}
	}
	c.Backup = backups(t, false) // its manifest cannot be put into its place
	if err := c.take(t.Context()); err == nil {
		t.Error("a backup without a manifest was taken")
	}
	if last, err := c.last(); err != nil || last != nil {
		t.Errorf("the manifest of the backup before is still there: %v, %v", last, err)
	}
	c.Backup = func(context.Context, string) error { return errors.New("no") }
	if err := c.take(t.Context()); err == nil {
		t.Error("an error is lost")
	}
}

// A note of a restore is whole or not there, and is kept until the recovery has succeeded.
func TestFinish(t *testing.T) {
	var asked []time.Time
	var fails error
	c := Copies{Dir: t.TempDir(), Recover: func(_ context.Context, at time.Time) error { asked = append(asked, at); return fails }}
	if err := c.Finish(t.Context()); err != nil || len(asked) > 0 {
		t.Errorf("nothing is due: %v, asked %v", err, asked)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	if err := os.WriteFile(c.due()+".partial", []byte("2026-"), 0o600); err != nil { // the end came while it was written
		t.Fatal(err)
	}
	if err := c.Finish(t.Context()); err != nil || len(asked) > 0 {
		t.Errorf("half a note: %v, asked %v", err, asked)
	}
	if err := c.note(at); err != nil {
		t.Fatal(err)
	}
	fails = errors.New("the database is away")
	if err := c.Finish(t.Context()); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("a recovery that failed: %v", err)
	}
	fails = nil
	for range 2 {
		if err := c.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(asked) != 2 || !asked[0].Equal(at) || !asked[1].Equal(at) {
		t.Errorf("asked to recover since %v", asked)
	}
}

// Who only looks waits while something goes on with the database.
func TestSettled(t *testing.T) {
	f := &Front{life: t.Context()}
	f.settled(t.Context()) // nothing goes on
	if err := f.occupy(restoring); err != nil {
		t.Fatal(err)
	}
	if err := f.occupy(backingUp); err == nil {
		t.Error("two things go on at once")
	}
	given, up := context.WithCancel(t.Context())
	up()
	f.settled(given)
	waited := make(chan struct{})
	go func() { // waited for below
		f.settled(t.Context())
		close(waited)
	}()
	select {
	case <-waited:
		t.Error("it did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	f.vacate()
	<-waited
	if err := f.occupy(backingUp); err != nil {
		t.Error(err)
	}
	f.vacate()
}
