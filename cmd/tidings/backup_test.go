// Tests of backup and restore.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
)

// talk puts a conversation with two messages into a database.
func talk(t testing.TB, url string) {
	t.Helper()
	s, err := server.OpenStore(url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Pool().Close()
	if err := s.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConversation(t.Context(), store.Conversation{Conv: "c-1", Members: []string{"ana", "ben"}}); err != nil {
		t.Fatal(err)
	}
	for _, cmid := range []string{"m-1", "m-2"} {
		if answers, err := s.Send(t.Context(), []tidings.Message{{Conv: "c-1", Sender: "ana", Cmid: cmid, Body: "hello"}}, 0); err != nil || answers[0].Code != "" {
			t.Fatalf("send: %v, %v", answers, err)
		}
	}
}

func query[T any](t testing.TB, url, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// change executes a statement that has to change something.
func change(t testing.TB, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if tag, err := conn.Exec(t.Context(), sql); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%s: %v, %v", sql, tag, err)
	}
}

// notThere fails if a file is there.
func notThere(t testing.TB, files ...string) {
	t.Helper()
	for _, file := range files {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

func TestBackupAndRestore(t *testing.T) {
	url := pgtest.NewPlainURL(t)
	talk(t, url)
	park(t, url, 2)
	file := filepath.Join(t.TempDir(), "backup")
	backup := func(code int, args ...string) string {
		t.Helper()
		return want(t, code, append([]string{"backup", "--database-url", url, "--to", file}, args...)...)
	}
	restore := func(code int, url, from string, args ...string) string {
		t.Helper()
		return want(t, code, append([]string{"restore", "--database-url", url, "--from", from}, args...)...)
	}
	m := decode[manifest](t, backup(exitDone, "--json"))
	if m.Contents.Rows["event"] != 4 || m.Contents.Rows["member"] != 2 || m.Contents.Rows["attempt"] != 2 || m.Contents.Schema < 2 || m.Contents.Major < 14 {
		t.Errorf("the manifest is %+v", m)
	}
	notThere(t, file+".partial", manifestOf(file)+".partial")
	for _, name := range []string{file, manifestOf(file)} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", filepath.Base(name), info.Mode(), err)
		}
	}
	if sum, n, err := digest(file); err != nil || sum != m.SHA256 || n != m.Bytes {
		t.Errorf("the dump has %d bytes and the sum %s, %v", n, sum, err)
	}

	// Nothing is overwritten.
	if out := backup(exitUsage); !strings.Contains(out, "not overwritten") {
		t.Errorf("a second backup: %s", out)
	}
	kept := file
	file = filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(manifestOf(file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	backup(exitUsage)
	notThere(t, file)
	file = kept

	// A copy can be used when all its rows are there and no promise is violated; and serves nobody before a recovery.
	copied := pgtest.NewEmptyURL(t)
	if out := restore(exitDone, copied, file); !strings.Contains(out, "as in the manifest") || !strings.Contains(out, "No promise is violated") || !strings.Contains(out, "tidings recover --lost-since 20") || !strings.Contains(out, " --stopped-at TIME --database-url ") || !strings.Contains(out, " --outside-dir ") {
		t.Errorf("restore: %s", out)
	}
	if out := restore(exitError, strings.Replace(copied, "/"+query[string](t, copied, `SELECT current_database()`), "/no_such_one", 1), file); !strings.Contains(out, `"no_such_one" does not exist`) {
		t.Errorf("restore into a database that is not there: %s", out)
	}
	if n := query[int](t, copied, `SELECT count(*) FROM tidings.event`); n != 4 {
		t.Errorf("%d events were restored", n)
	}
	if out := want(t, exitError, "serve", "--database-url", copied, "--roles", "api", "--listen", "127.0.0.1:0"); !strings.Contains(out, "recover") {
		t.Errorf("serve on a copy: %s", out)
	}
	if out := restore(exitUsage, copied, file); !strings.Contains(out, "create an empty database") {
		t.Errorf("restore into what is not empty: %s", out)
	}

	// What is not the backup is not restored, what differs is not called usable.
	dump, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	altered := func(name string, dump []byte, change func(*manifest)) string {
		t.Helper()
		name = filepath.Join(t.TempDir(), name)
		m := m
		m.Contents.Rows = maps.Clone(m.Contents.Rows)
		change(&m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(name, dump, 0o600), os.WriteFile(manifestOf(name), text, 0o600)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	fresh := pgtest.NewEmptyURL(t)
	empty := func(what string) {
		t.Helper()
		if !query[bool](t, fresh, `SELECT to_regnamespace('tidings') IS NULL`) {
			t.Fatalf("%s: something was restored", what)
		}
	}
	broken := append([]byte(nil), dump...)
	broken[len(broken)/2] ^= 1
	if out := restore(exitError, fresh, altered("flipped", broken, func(*manifest) {})); !strings.Contains(out, "not the one of its manifest") {
		t.Errorf("a flipped bit: %s", out)
	}
	short := altered("short", dump[:len(dump)-100], func(*manifest) {})
	restore(exitError, fresh, short)
	if err := os.Remove(manifestOf(short)); err != nil {
		t.Fatal(err)
	}
	restore(exitError, fresh, short)
	restore(exitError, fresh, altered("later", dump, func(m *manifest) { m.Format++ }))
	if out := restore(exitUsage, fresh, altered("newer", dump, func(m *manifest) { m.Contents.Major++ })); !strings.Contains(out, "the server is older") {
		t.Errorf("a dump of a newer server: %s", out)
	}
	empty("refused")
	cut := dump[:len(dump)-100] // the sum is right, the dump is not whole
	if out := restore(exitError, fresh, altered("cut", cut, func(m *manifest) {
		name := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(name, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		m.SHA256, m.Bytes, _ = digest(name)
	})); !strings.Contains(out, "nothing was restored") {
		t.Errorf("a dump that ends early: %s", out)
	}
	empty("a dump that ends early")
	if out := restore(exitNo, fresh, altered("fewer", dump, func(m *manifest) { m.Contents.Rows["event"]++ })); !strings.Contains(out, "Do not use this copy") || !strings.Contains(out, "event has 4 rows, not 5") {
		t.Errorf("a copy without one of its rows: %s", out)
	}

	// The copy of a database in which a promise is violated.
	change(t, url, `UPDATE tidings.conversation SET next_seq = next_seq + 1`)
	file = filepath.Join(t.TempDir(), "violated")
	backup(exitDone)
	if out := restore(exitNo, pgtest.NewEmptyURL(t), file); !strings.Contains(out, "Do not use this copy") || !strings.Contains(out, "VIOLATED") {
		t.Errorf("a copy that violates a promise: %s", out)
	}
	if report := decode[restored](t, restore(exitNo, pgtest.NewEmptyURL(t), file, "--json")); report.Usable || !report.Verified || len(report.Differ) > 0 {
		t.Errorf("as JSON: %+v", report)
	}
}

// fake puts a program in the place of pg_dump.
func fake(t testing.TB, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	major := query[string](t, pgtest.NewPlainURL(t), `SELECT current_setting('server_version_num')::int / 10000 || '.0'`)
	text = "#!/bin/sh\n[ \"$1\" != --version ] || { echo \"pg_dump (PostgreSQL) " + major + "\"; exit; }\nfor arg; do case $arg in --file=*) file=${arg#--file=};; esac; done\n" + text
	if err := os.WriteFile(filepath.Join(dir, "pg_dump"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TIDINGS_PG_BIN", dir)
	return dir
}

// A backup that fails or is interrupted leaves no file under the final name, nor under another.
func TestInterruptedBackup(t *testing.T) {
	url := pgtest.NewPlainURL(t)
	file := filepath.Join(t.TempDir(), "backup")
	args := []string{"backup", "--database-url", url, "--to", file}
	nothing := func() {
		t.Helper()
		notThere(t, file, manifestOf(file), file+".partial", manifestOf(file)+".partial")
	}
	fake(t, `echo half >"$file"; echo "pg_dump: error: no space left on device" >&2; exit 1`)
	if out := want(t, exitError, args...); !strings.Contains(out, "no space left") {
		t.Errorf("a failed pg_dump: %s", out)
	}
	nothing()

	// exec, so that the signal meets the one that waits.
	dir := fake(t, `echo half >"$file"; : >"${0%/*}/started"; exec sleep 60`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, &strings.Builder{}, &strings.Builder{}) }()
	await(t, "the start of pg_dump", func() bool { _, err := os.Stat(filepath.Join(dir, "started")); return err == nil }, func() string { return "" })
	if out := want(t, exitUsage, args...); !strings.Contains(out, "another backup is under way") {
		t.Errorf("beside another backup: %s", out)
	}
	if _, err := os.Stat(file + ".partial"); err != nil {
		t.Errorf("the other backup's file: %v", err)
	}
	cancel()
	select {
	case code := <-ended:
		if code != exitError {
			t.Errorf("an interrupted backup exits with %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("an interrupted backup does not end")
	}
	nothing()

	t.Setenv("TIDINGS_PG_BIN", t.TempDir())
	if out := want(t, exitUsage, args...); !strings.Contains(out, "find pg_dump") {
		t.Errorf("without pg_dump: %s", out)
	}
	nothing()
}

// A copy with the schema of an earlier release is not called usable before it was migrated.
func TestRestoreOfAnOlderSchema(t *testing.T) {
	url := pgtest.NewPlainURL(t)
	talk(t, url)
	change(t, url, `DELETE FROM tidings.migration WHERE version_id = (SELECT max(version_id) FROM tidings.migration)`)
	s, err := server.OpenStore(url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Pool().Close()
	_, major, err := s.Vacant(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dump, err := localpg.FindClient("pg_dump", major, major)
	if err != nil {
		t.Fatal(err)
	}
	c := backupCmd{database: database{URL: url}, To: filepath.Join(t.TempDir(), "backup")}
	m := manifest{Format: manifestFormat, PgDump: dump.Version}
	if err := s.Export(t.Context(), func(snapshot string, contents store.Contents) error {
		m.Contents = contents
		return c.write(t.Context(), dump, snapshot, &m)
	}); err != nil {
		t.Fatal(err)
	}
	if out := want(t, exitNo, "restore", "--database-url", pgtest.NewEmptyURL(t), "--from", c.To); !strings.Contains(out, "as in the manifest") ||
		!strings.Contains(out, "not known yet") || !strings.Contains(out, "tidings migrate") || strings.Contains(out, "can be used after") {
		t.Errorf("restore of an older schema: %s", out)
	}
}
