// Tests of losses that what lies outside proves.

package store_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

// testifies writes the witness of a database: what a process writes that has acknowledged a log's events.
func (b *bench) testifies(dir, conv string) {
	b.t.Helper()
	ctx := b.t.Context()
	var w outside.Witness
	b.must(b.pool.QueryRow(ctx, `SELECT system_identifier::text, timeline, pg_current_wal_flush_lsn()::text, database_oid, log_oid, generation, recorded_at FROM tidings.lineage`).
		Scan(&w.SystemIdentifier, &w.Timeline, &w.LSN, &w.DatabaseOID, &w.LogOID, &w.Generation, &w.RecordedAt))
	rows, err := b.pool.Query(ctx, `SELECT e.conv_id, c.epoch, e.seq, e.mid, e.created_at FROM tidings.event e JOIN tidings.conversation c USING (conv_id) WHERE conv_id = $1 ORDER BY seq`, conv)
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var e outside.WitnessedEvent
		var mid *tidings.UUID
		b.must(rows.Scan(&e.Conv, &e.Epoch, &e.Seq, &mid, &e.At))
		if mid != nil {
			e.Mid = *mid
		}
		w.Events = append(w.Events, e)
	}
	b.must(rows.Err())
	b.must(outside.WriteWitness(dir, &w))
}

// lost is what a database is said not to have.
func (b *bench) lost(dir string) (what string, compared bool) {
	b.t.Helper()
	var paths []string
	if _, err := os.Stat(outside.JournalPath(dir)); err == nil {
		paths = append(paths, outside.JournalPath(dir))
	}
	journal, err := outside.ReadJournal(paths...)
	b.must(err)
	all, compared, err := b.Lost(b.t.Context(), dir, journal)
	b.must(err)
	return strings.Join(all, "; "), compared
}

// A copy that is said to have lost nothing is compared with what lies outside.
func TestLost(t *testing.T) {
	b := backedUp(t)
	none, witness, journal := t.TempDir(), t.TempDir(), t.TempDir()
	b.must(b.EnsureLineage(t.Context()))
	backup := b.copied()
	if what, compared := backup.lost(none); what != "" || compared {
		t.Errorf("nothing lies outside: %q, %t", what, compared)
	}

	b.testifies(witness, "c-1")
	whole := b.copied()
	if what, compared := whole.lost(witness); what != "" || !compared {
		t.Errorf("a copy of all that is witnessed: %q, %t", what, compared)
	}
	b.takeBack()
	b.testifies(witness, "c-1")
	b.takings(journal)
	now := b.copied()
	for _, dir := range []string{witness, journal} {
		if what, compared := now.lost(dir); what != "" || !compared {
			t.Errorf("a copy of all: %q, %t", what, compared)
		}
	}
	if what, _ := backup.lost(witness); !strings.Contains(what, "of conversation c-1") {
		t.Errorf("an older copy and the witness: %q", what)
	}
	if what, _ := backup.lost(journal); !strings.Contains(what, "of what the journal tells, such as the ") {
		t.Errorf("an older copy and the journal: %q", what)
	}

	// After a recovery the witness of before it says nothing; and a copy from before the recovery lacks that.
	r, err := backup.Recover(t.Context(), store.RecoverOptions{Note: appendTo(journal)})
	b.must(err)
	if what, compared := backup.lost(witness); what != "" || compared {
		t.Errorf("after a recovery: %q, %t", what, compared)
	}
	if what, _ := backup.lost(journal); what != "" {
		t.Errorf("after a recovery, of the journal: %q", what)
	}
	if what, _ := now.lost(journal); !strings.Contains(what, "the recovery of "+time.Now().UTC().Format("2006-")) || r.Generation == 0 {
		t.Errorf("before the recovery: %q", what)
	}
	backup.testifies(witness, "c-1")
	if what, _ := now.lost(witness); !strings.Contains(what, "the lineage of ") {
		t.Errorf("before the recovery, of its witness: %q", what)
	}
}
