// Tests of copies of a cluster: files put back, archives, standbys.

package localpg

import (
	"context"
	"testing"
)

const (
	timelineSQL = `SELECT left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)`
	rowsSQL     = `SELECT count(*) FROM t`
)

func (s *Server) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCopyAndPutBack(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	url := s.URL("postgres")
	execute(t, url, `CREATE TABLE t AS SELECT 1`)
	s.must(t, s.Copy(t.Context(), "a"))
	before := query[string](t, url, timelineSQL)
	for range 2 {
		execute(t, url, `INSERT INTO t VALUES (2)`)
		if n := query[int](t, url, rowsSQL); n != 2 {
			t.Fatalf("%d rows", n)
		}
		s.must(t, s.PutBack(t.Context(), "a"))
		if n := query[int](t, url, rowsSQL); n != 1 {
			t.Fatalf("%d rows after the copy was put back", n)
		}
	}
	if got := query[string](t, url, timelineSQL); got != before {
		t.Errorf("the timeline went from %s to %s", before, got)
	}
	if err := s.PutBack(t.Context(), "none"); err == nil {
		t.Error("a copy was put back that there is not")
	}
	if n := query[int](t, url, rowsSQL); n != 1 {
		t.Errorf("%d rows after that", n)
	}
}

func TestRestoreToAPoint(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Archive: true})
	url := s.URL("postgres")
	execute(t, url, `CREATE TABLE t AS SELECT 1`)
	s.must(t, s.Backup(t.Context(), "a"))
	execute(t, url, `INSERT INTO t VALUES (2)`)
	execute(t, url, `SELECT pg_catalog.pg_create_restore_point('here')`)
	execute(t, url, `INSERT INTO t VALUES (3)`)
	s.must(t, s.RestoreTo(t.Context(), "a", map[string]string{"recovery_target_name": "here"}))
	if n, timeline := query[int](t, url, rowsSQL), query[string](t, url, timelineSQL); n != 2 || timeline != "00000002" {
		t.Errorf("%d rows on timeline %s", n, timeline)
	}
	s.must(t, s.RestoreTo(t.Context(), "a", map[string]string{"recovery_target_timeline": "1"}))
	if n := query[int](t, url, rowsSQL); n != 3 {
		t.Errorf("%d rows at the end of the first timeline", n)
	}
}

func TestStandby(t *testing.T) {
	t.Parallel()
	primary := start(t, Options{Archive: true})
	primary.must(t, primary.Backup(t.Context(), "a"))
	execute(t, primary.URL("postgres"), `SELECT pg_catalog.pg_create_restore_point('here')`)
	primary.must(t, primary.RestoreTo(t.Context(), "a", map[string]string{"recovery_target_name": "here"}))
	standby, err := Standby(t.Context(), primary, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standby.must(t, standby.Stop(context.Background())) })
	execute(t, primary.URL("postgres"), `CREATE TABLE t AS SELECT 1 AS i`)
	standby.must(t, standby.CatchUp(t.Context(), primary))
	if n := query[int](t, standby.URL("postgres"), rowsSQL); n != 1 {
		t.Errorf("%d rows on the standby", n)
	}
	standby.must(t, standby.StopReceiving(t.Context()))
	execute(t, primary.URL("postgres"), `INSERT INTO t VALUES (2)`)
	standby.must(t, primary.StopImmediate(t.Context()))
	standby.must(t, standby.Promote(t.Context()))
	execute(t, standby.URL("postgres"), `INSERT INTO t VALUES (3)`)
	if got := query[string](t, standby.URL("postgres"), timelineSQL); got != "00000003" {
		t.Errorf("the timeline is %s", got)
	}
	if got := query[string](t, standby.URL("postgres"), `SELECT string_agg(i::text, ',' ORDER BY i) FROM t`); got != "1,3" {
		t.Errorf("the promoted standby has %s", got)
	}
}
