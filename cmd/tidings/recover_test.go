// Tests of recover and erase.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
)

// What is taken back again, and what is said of a recovery without a journal.
func TestRecoverAndErase(t *testing.T) {
	url := pgtest.NewPlainURL(t)
	db := []string{"--database-url", url}
	ctx := t.Context()
	s, err := server.OpenStore(url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Pool().Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.EnsureLineage(ctx))
	_, err = s.CreateConversation(ctx, store.Conversation{Conv: "c-1", Members: []string{"u-ana", "u-ben"}})
	must(err)
	sent, err := s.Send(ctx, []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: "m-1", Body: "one"}, {Conv: "c-1", Sender: "u-ben", Cmid: "m-1", Body: "two"}}, 0)
	must(err)
	_, err = s.PutPref(ctx, "u-ben", store.Pref{Channel: "push", Address: "x", Enabled: true}, nil)
	must(err)
	body := func(cmid string) (text string) {
		t.Helper()
		must(s.Pool().QueryRow(ctx, `SELECT string_agg(sender_user || coalesce(' ' || body, ''), ', ' ORDER BY seq) FROM tidings.event WHERE cmid = $1`, cmid).Scan(&text))
		return text
	}

	dir, other := t.TempDir(), t.TempDir()
	for _, forgotten := range [][]string{{}, {"--outside-dir", dir}} {
		if out := want(t, exitUsage, with(db, append([]string{"recover"}, forgotten...)...)...); !strings.Contains(out, "--without-journal") || !strings.Contains(out, "is a member again") {
			t.Errorf("without a journal, %q: %s", forgotten, out)
		}
	}
	out := want(t, exitDone, with(db, "recover", "--without-journal", "--json")...)
	if !strings.Contains(out, "no journal is replayed") || !strings.Contains(out, "a clock that is behind") {
		t.Errorf("without a journal: %s", out)
	}
	report := decode[recovered](t, out[:strings.LastIndex(out, "}\n")+2])
	if report.Conversations != 1 || report.Verified == nil || !*report.Verified || report.Replay.Lines != 0 {
		t.Errorf("the report is %+v", report)
	}
	if out := want(t, exitDone, with(db, "recover", "--outside-dir", dir, "--without-journal")...); !strings.Contains(out, "no journal is replayed") || !strings.Contains(out, "invariants verified") {
		t.Errorf("with an empty directory: %s", out)
	}

	// A journal of another host has a recall; the own one has the recovery.
	var generation int64
	must(s.Pool().QueryRow(ctx, `SELECT generation FROM tidings.lineage`).Scan(&generation))
	own, err := outside.ReadJournal(outside.JournalPath(dir))
	must(err)
	if len(own) != 1 || own[0].What != outside.TookRecover || own[0].Epoch != generation {
		t.Errorf("the journal has %+v, the generation is %d", own, generation)
	}
	j, err := outside.OpenJournal(other)
	must(err)
	must(j.Append([]outside.Taking{{ID: tidings.UUID{1}, At: time.Now(), What: outside.TookRecall, Conv: "c-1", Mid: sent[0].Mid.String(), Epoch: generation + 5},
		{ID: tidings.UUID{2}, At: time.Now(), What: outside.TookLeave, Conv: "c-9", User: "u-ben", Epoch: generation},
		{ID: tidings.UUID{3}, At: time.Now(), What: outside.TookLeave, Conv: "c-9", User: "u-ben", Epoch: generation - 5}}))
	must(j.Close())
	t.Setenv("TIDINGS_OUTSIDE_DIR", dir)
	out = want(t, exitDone, with(db, "recover", "--journal", outside.JournalPath(other))...)
	for _, line := range []string{"journal: 4 lines, 0 skipped: ", "1 are of earlier histories", "leaves: 0 replayed; skipped: 1 a later line says it again, 1 not in this copy", "recalls: 1 replayed\n",
		"1 conversation with a new epoch", "invariants verified: No promise is violated"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in %s", line, out)
		}
	}
	if got := body("m-1"); got != "u-ana, u-ben two" {
		t.Errorf("the messages are %s", got)
	}
	// The lines of the other journal are in the own one now, so that the next recovery knows that this one had them.
	if out := want(t, exitDone, with(db, "recover", "--journal", outside.JournalPath(other))...); !strings.Contains(out, "journal: 5 lines, 4 skipped: ") || strings.Contains(out, "replayed now") {
		t.Errorf("a second time: %s", out)
	}
	want(t, exitUsage, with(db, "recover", "--without-journal")...)
	for _, bad := range []string{filepath.Join(other, "none"), other} {
		want(t, exitError, with(db, "recover", "--journal", bad)...)
	}
	must(os.WriteFile(filepath.Join(other, "bad"), []byte("{}\n"), 0o600))
	if out := want(t, exitError, with(db, "recover", "--journal", filepath.Join(other, "bad"))...); !strings.Contains(out, "line 1:") {
		t.Errorf("a bad journal: %s", out)
	}

	want(t, exitUsage, with(db, "erase", "user", "u-ben")...)
	want(t, exitUsage, with(db, "erase", "user", "u ben", "--by", "op")...)
	if out := want(t, exitNo, with(db, "erase", "user", "u-bne", "--by", "op")...); !strings.Contains(out, "no such user is known here") {
		t.Errorf("an erasure of nobody: %s", out)
	}
	if out := want(t, exitDone, with(db, "erase", "user", "u-ben", "--by", "op-1")...); !strings.Contains(out, "1 message recalled in 1 conversation") || !strings.Contains(out, "1 preference deleted") {
		t.Errorf("an erasure: %s", out)
	}
	if did := decode[store.EraseReport](t, want(t, exitDone, with(db, "erase", "user", "u-ben", "--by", "op-1", "--json")...)); did.User != "u-ben" || did.Messages != 0 || did.CutoffAt.IsZero() {
		t.Errorf("a second one: %+v", did)
	}
	if got := body("m-1"); got != "u-ana, u-ben" {
		t.Errorf("the messages are %s", got)
	}
	conn, err := pgx.Connect(ctx, url)
	must(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `UPDATE tidings.conversation SET next_seq = next_seq + 1`)
	must(err)
	recorded := func() (row string) {
		t.Helper()
		must(conn.QueryRow(ctx, `SELECT l::text FROM tidings.lineage l`).Scan(&row))
		return row
	}
	before := recorded()
	if out := want(t, exitNo, with(db, "recover")...); !strings.Contains(out, "DO NOT HOLD") || !strings.Contains(out, "not recorded") || recorded() != before {
		t.Errorf("with a hole in a log: %s\n%s", out, recorded())
	}
	if out := want(t, exitNo, with(db, "recover", "--despite-violations")...); !strings.Contains(out, "DO NOT HOLD") || recorded() == before {
		t.Errorf("with a hole in a log, all the same: %s\n%s", out, recorded())
	}
}
