// Tests of recover --lossless against what lies outside.

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/server"
)

// That nothing was lost is not believed when the servers' directory knows better.
func TestLosslessIsCompared(t *testing.T) {
	url, dir := pgtest.NewPlainURL(t), t.TempDir()
	talk(t, url)
	s, err := server.OpenStore(url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Pool().Close()
	lossless := func(code int) string {
		t.Helper()
		return want(t, code, "recover", "--database-url", url, "--lossless", "--outside-dir", dir)
	}
	if out := lossless(exitDone); !strings.Contains(out, "there is no witness and no journal") {
		t.Errorf("with an empty directory: %s", out)
	}
	w := outside.Witness{Events: []outside.WitnessedEvent{{Conv: "c-1", Seq: 9, Mid: tidings.UUID{1}, At: time.Now()}}}
	if err := s.Pool().QueryRow(t.Context(), `SELECT system_identifier::text, timeline, lsn::text, database_oid, log_oid, generation, recorded_at, c.epoch
		FROM tidings.lineage, tidings.conversation c`).Scan(&w.SystemIdentifier, &w.Timeline, &w.LSN, &w.DatabaseOID, &w.LogOID, &w.Generation, &w.RecordedAt, &w.Events[0].Epoch); err != nil {
		t.Fatal(err)
	}
	if err := outside.WriteWitness(dir, &w); err != nil {
		t.Fatal(err)
	}
	if out := lossless(exitNo); !strings.Contains(out, "event 9 of conversation c-1, which was acknowledged") || !strings.Contains(out, "without --lossless") {
		t.Errorf("with a witness of more: %s", out)
	}
	if at := query[time.Time](t, url, `SELECT recorded_at FROM tidings.lineage`); !at.Equal(w.RecordedAt) {
		t.Error("the lineage was recorded")
	}
	w.Events = nil
	if err := outside.WriteWitness(dir, &w); err != nil {
		t.Fatal(err)
	}
	if out := lossless(exitDone); strings.Contains(out, "there is no witness") {
		t.Errorf("with a witness of all: %s", out)
	}
}

func TestRecoverJudgesTimes(t *testing.T) {
	db := []string{"--database-url", pgtest.NewPlainURL(t), "--without-journal"}
	for _, bad := range []struct{ says, stopped, lost string }{
		{"such as 2026-11-30T03:11:59Z", "2026-11-30 03:20", "2026-11-30T03:00:00Z"},
		{"such as 2026-11-30T03:11:59Z", "2026-11-30T03:20:00Z", "yesterday"},
		{"later than --stopped-at", "2025-11-30T03:00:00Z", "2025-11-30T03:20:00Z"},
		{"in the future", time.Now().Add(2 * time.Hour).Format(time.RFC3339), time.Now().Add(time.Hour).Format(time.RFC3339)},
	} {
		if out := want(t, exitUsage, with(db, "recover", "--stopped-at", bad.stopped, "--lost-since", bad.lost)...); !strings.Contains(out, bad.says) {
			t.Errorf("%s, %s: %s", bad.stopped, bad.lost, out)
		}
	}
}

func TestConnectionStringsAreShownWithoutPasswords(t *testing.T) {
	for _, x := range [][2]string{
		{"postgres://u:secret@h:5432/d?sslmode=disable", "'postgres://u@h:5432/d?sslmode=disable'"},
		{"postgresql:///d?host=/run&password=secret", "'postgresql:///d?host=%2Frun'"},
		{"host=h password=secret", `"$TIDINGS_DATABASE_URL"`},
	} {
		if got := shown(x[0]); got != x[1] {
			t.Errorf("%s is shown as %s", x[0], got)
		}
	}
}
