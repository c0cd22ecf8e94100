// Tests of the databases that tests get.

package pgtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// modeEnv makes TestChild do what other tests watch from outside.
const modeEnv = "PGTEST_MODE"

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

// child runs TestChild in a process of its own and returns what it prints and how it ends.
func child(mode string, env ...string) (string, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(append(os.Environ(), modeEnv+"="+mode), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestChild is a part of other tests, and nothing by itself.
func TestChild(t *testing.T) {
	switch os.Getenv(modeEnv) {
	case "use":
		pool := pgtest.New(t)
		if _, err := pool.Exec(t.Context(), `SELECT FROM tidings.task`); err != nil {
			t.Fatal(err)
		}
	case "leak":
		if _, err := pgtest.New(t).Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	case "panic":
		var dir string
		if err := pgtest.New(t).QueryRow(t.Context(), `SHOW data_directory`).Scan(&dir); err != nil {
			t.Fatal(err)
		}
		t.Logf("data in <%s>", dir)
		go panic("a test that panics where nothing can recover")
		<-t.Context().Done()
	}
}

func TestDatabasesAreApart(t *testing.T) {
	var names []string
	for range 3 {
		t.Run("", func(t *testing.T) {
			pool := pgtest.New(t)
			if _, err := pool.Exec(t.Context(), `CREATE TABLE mark ()`); err != nil {
				t.Fatal(err)
			}
			names = append(names, pool.Config().ConnConfig.Database)
		})
	}
	// They were dropped when their tests ended.
	var left int
	const leftSQL = `SELECT count(*) FROM pg_catalog.pg_database WHERE datname = ANY ($1)`
	if err := pgtest.NewPlain(t).QueryRow(t.Context(), leftSQL, names).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if len(names) != 3 || left != 0 {
		t.Errorf("%d of the databases %q are left", left, names)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	triggers := func(url string) (tables, triggers int) {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		const countSQL = `
			SELECT (SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'tidings'),
			       (SELECT count(*) FROM pg_catalog.pg_trigger WHERE NOT tgisinternal AND tgrelid = to_regclass('tidings.task'))`
		if err := conn.QueryRow(t.Context(), countSQL).Scan(&tables, &triggers); err != nil {
			t.Fatal(err)
		}
		return tables, triggers
	}
	if n, _ := triggers(pgtest.NewEmptyURL(t)); n != 0 {
		t.Errorf("the empty database has %d tables", n)
	}
	tables, without := triggers(pgtest.NewPlainURL(t))
	same, with := triggers(pgtest.NewURL(t))
	if tables == 0 || tables != same || with <= without {
		t.Errorf("tables: %d plain, %d with the trigger; triggers: %d plain, %d with the trigger", tables, same, without, with)
	}
}

// Test processes that share a server, as `go test ./...` runs them, find or build the templates together, even if one of
// them died in the middle of it.
func TestSharedServer(t *testing.T) {
	t.Parallel()
	s, err := localpg.Start(t.Context(), localpg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, half := range []bool{false, true} {
		if half {
			conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			const unfinishedSQL = `UPDATE pg_catalog.pg_database SET datistemplate = false WHERE datname LIKE 'tidings\_%'`
			tag, err := conn.Exec(t.Context(), unfinishedSQL)
			if err := errors.Join(err, conn.Close(t.Context())); err != nil || tag.RowsAffected() != 2 {
				t.Fatalf("%d templates, %v", tag.RowsAffected(), err)
			}
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if out, err := child("use", "TIDINGS_TEST_POSTGRES="+s.URL("postgres")); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		wg.Wait()
	}
}

func TestNoPostgres(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"TIDINGS_PG_BIN=/nonexistent", "TIDINGS_TEST_POSTGRES=nonsense", "TIDINGS_TEST_POSTGRES=postgres://127.0.0.1:1/x"} {
		out, err := child("use", env)
		if err == nil || !strings.Contains(out, "FAIL: TestChild") {
			t.Errorf("%s did not make the test fail: %v\n%s", env, err, out)
		}
	}
}

func TestLeakedConnection(t *testing.T) {
	t.Parallel()
	out, err := child("leak")
	if err == nil || !strings.Contains(out, "1 connections of the test's pool were not released") {
		t.Errorf("a leak was not reported: %v\n%s", err, out)
	}
}

func TestServerEndsWithThePanic(t *testing.T) {
	t.Parallel()
	out, err := child("panic")
	_, rest, _ := strings.Cut(out, "data in <")
	dir, _, found := strings.Cut(rest, ">")
	if err == nil || !found || !strings.Contains(out, "where nothing can recover") {
		t.Fatalf("no panic: %v\n%s", err, out)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", dir)
		}
	}
}
