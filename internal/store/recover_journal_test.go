// Tests of which journal lines a recovery replays, and which it refuses.

package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

// A recovery without the journal, or with another one, is made good by the next that has it. One that had it is not repeated.
func TestReplayAfterARecoveryWithoutTheJournal(t *testing.T) {
	b := backedUp(t)
	backup, dir, other := b.copied(), t.TempDir(), t.TempDir()
	b.takeBack()
	b.takings(dir)
	for _, o := range []store.RecoverOptions{{}, {Note: appendTo(other)}} {
		_, err := backup.Recover(t.Context(), o)
		backup.must(err)
	}
	if got := backup.content("c-1"); !slices.Contains(got, "4 m-2") {
		t.Fatalf("without the journal %q can be read", got)
	}
	backup.join("c-2", "u-cyd")
	journal, err := outside.ReadJournal(outside.JournalPath(other), outside.JournalPath(dir))
	b.must(err)
	r, err := backup.Recover(t.Context(), store.RecoverOptions{Journal: journal,
		Note: func(recovery []outside.Taking) error { return outside.NoteRecovery(other, journal, recovery) }})
	backup.must(err)
	if got := replayed(r.Replay); r.Replay.Unproven != r.Replay.Lines-1 || r.Replay.Older != 0 || !strings.HasPrefix(got, "erase 1; leave 1,") ||
		!strings.Contains(got, "; purge 1, 1 a later line says it again; recall 2,") {
		t.Errorf("with the journal at last: %s, %+v", got, r.Replay)
	}
	if got := fmt.Sprint(backup.content("c-1"), backup.content("c-3"), backup.content("c-4"), backup.members("c-1"), ", ", backup.members("c-2")); got != "[3 m-1 5 m-3] [6 m-4] []u-ana, u-ana u-ben u-cyd" {
		t.Errorf("after it: %s", got)
	}
	backup.whole()
	backup.kept()
	journal, err = outside.ReadJournal(outside.JournalPath(other), outside.JournalPath(dir))
	b.must(err)
	r, err = backup.Recover(t.Context(), store.RecoverOptions{Journal: journal})
	backup.must(err)
	if r.Replay.Unproven != 0 || r.Replay.Older != r.Replay.Lines-1 || len(r.Replay.Kinds) != 0 {
		t.Errorf("once more: %+v", r.Replay)
	}
}

// A recalled message that the copy does not have is not published again by a sender who repeats it.
func TestReplayKeepsTheKeysOfLostMessages(t *testing.T) {
	b := backedUp(t)
	backup, dir := b.copied(), t.TempDir()
	b.say(said("c-1", "lost")) // 6
	b.recalls("of what the copy has not", takes(6, "r-1"), "", 7, false)
	b.takings(dir)
	repaired := backup.copied()

	backup.recovered(dir)
	backup.recovered(dir)
	a := backup.say(said("c-1", "lost"), by("u-ben", "c-1", "lost"))
	if a[0].Code != tidings.OriginalExpired || a[0].Seq != 0 || a[1].Code != "" {
		t.Errorf("sent again: %+v", a)
	}
	if o, err := backup.Outcome(t.Context(), "c-1", "u-ana", "lost"); err != nil || o.Stored != "purged" || o.Seq != 0 {
		t.Errorf("the outcome: %+v, %v", o, err)
	}
	backup.kept()

	// It was sent again before the journal was replayed.
	_, err := repaired.Recover(t.Context(), store.RecoverOptions{})
	repaired.must(err)
	repaired.say(said("c-1", "lost"))
	if r := repaired.recovered(dir); replayed(r.Replay) != "recall 1" {
		t.Errorf("replayed: %s", replayed(r.Replay))
	}
	if got := repaired.content("c-1"); !slices.Equal(got, []string{"3 m-1", "4 m-2", "5 m-3"}) {
		t.Errorf("readable are %q", got)
	}
}

// A copy that violates a promise is verified before its lineage is recorded, which is left as it was unless it is wanted all the same.
func TestRecoverRecordsNoViolation(t *testing.T) {
	b := backedUp(t)
	dir := t.TempDir()
	row := func() string {
		t.Helper()
		return one[string](b, `SELECT string_agg(l::text, '; ' ORDER BY node) FROM tidings.lineage l`)
	}
	b.exec(`INSERT INTO tidings.lineage SELECT 'main: lost', system_identifier, timeline, lsn, database_oid, log_oid, generation, recorded_at FROM tidings.lineage`)
	b.exec(`UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = 'c-2'`)
	before := row()
	r, err := b.Recover(t.Context(), store.RecoverOptions{Note: appendTo(dir)})
	b.must(err)
	if r.Recorded || store.Violations(r.Findings) != 1 || r.Lineage != (store.Lineage{}) || row() != before || len(b.journal(dir)) != 1 {
		t.Errorf("with a hole in a log: %+v; lineage %s", r, row())
	}
	r, err = b.Recover(t.Context(), store.RecoverOptions{Journal: b.journal(dir), DespiteViolations: true})
	b.must(err)
	if got := one[int64](b, `SELECT generation FROM tidings.lineage`); !r.Recorded || got != r.Generation || store.Violations(r.Findings) != 1 {
		t.Errorf("all the same: %+v, generation %d", r, got)
	}
	b.exec(`UPDATE tidings.conversation SET next_seq = next_seq - 1 WHERE conv_id = 'c-2'`)
	r, err = b.Recover(t.Context(), store.RecoverOptions{Journal: b.journal(dir)})
	if b.must(err); !r.Recorded {
		t.Errorf("without a violation: %+v", r)
	}
	b.kept()
}

// A journal that cannot be this database's is refused before anything is done, by its file and line.
func TestRecoverRefusesForeignJournals(t *testing.T) {
	b := backedUp(t)
	ours, epoch := one[tidings.UUID](b, `SELECT id FROM tidings.installation`), one[int64](b, `SELECT generation FROM tidings.lineage`)
	year := int64(365 * 24 * 3600 * 1000 * 1024)
	line := func(epoch int64, installation tidings.UUID) outside.Taking {
		return outside.Taking{ID: tidings.UUID{1}, At: time.Now(), What: outside.TookLeave, Conv: "c-1", User: "u-ben", Epoch: epoch, Installation: installation}
	}
	for _, bad := range []outside.Taking{line(epoch, tidings.UUID{7}), line(1<<53-2, ours), line(epoch+11*year, ours)} {
		_, err := b.Recover(t.Context(), store.RecoverOptions{Journal: lines(line(epoch, ours), bad)})
		b.want(tidings.InvalidArgument, err)
		if !strings.Contains(err.Error(), "journal, line 2,") {
			t.Errorf("the error is %v", err)
		}
	}
	if got := b.members("c-1"); got != "u-ana u-ben" {
		t.Errorf("something was replayed: %s", got)
	}
	dir := t.TempDir()
	r, err := b.Recover(t.Context(), store.RecoverOptions{Journal: lines(line(epoch, tidings.UUID{}), line(epoch+9*year, ours)), Note: appendTo(dir)})
	b.must(err)
	if note := b.journal(dir)[0]; r.Generation != epoch+9*year+1 || note.Installation != ours || note.Epoch != r.Generation {
		t.Errorf("%+v, noted %+v", r, note)
	}
	// Beyond ten years of the clock, but not of the copy.
	_, err = b.Recover(t.Context(), store.RecoverOptions{Journal: lines(line(epoch+18*year, ours))})
	b.must(err)

	full := errors.New("no space left on device")
	_, err = b.Recover(t.Context(), store.RecoverOptions{Note: func([]outside.Taking) error { return full }})
	if !errors.Is(err, full) || !strings.Contains(err.Error(), full.Error()) {
		t.Errorf("a journal that cannot be written: %v", err)
	}
}
