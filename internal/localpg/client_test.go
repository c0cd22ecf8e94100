// Tests of PostgreSQL's client programs: found, and called.

package localpg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutPassword(t *testing.T) {
	t.Setenv("PGPASSWORD", "from-env")
	for _, c := range []struct{ connection, shown, password string }{
		{"postgres://ana:s3cret@db.example.org/tidings", "postgres://ana@db.example.org/tidings", "s3cret"},
		{"postgres://ana:s%40c@db/tidings?sslmode=disable&pool_max_conns=4", "postgres://ana@db/tidings?sslmode=disable", "s@c"},
		{"postgresql://ana@db:5433/tidings?password=s3cret&connect_timeout=3", "postgresql://ana@db:5433/tidings?connect_timeout=3", "s3cret"},
		{"postgresql://ana@db/tidings?pass%77ord=s3cret&connect_timeout=3", "postgresql://ana@db/tidings?connect_timeout=3", "s3cret"},
		{"postgresql://ana@db/tidings?%70%61%73%73%77%6F%72%64=s3cret", "postgresql://ana@db/tidings", "s3cret"},
		{"postgresql://ana@db/tidings?application_name=a%26b&pool%5Fmax_conns=3&sslpass%77ord=x", "postgresql://ana@db/tidings?application_name=a%26b", "from-env"},
		{"postgres://db/tidings?sslmode=disable", "postgres://db/tidings?sslmode=disable", "from-env"},
		{"host=db user=ana password=s3cret dbname=tidings", "host=db user=ana dbname=tidings", "s3cret"},
		{`host=db password = 'it''s' dbname=x`, "", ""},
		{`host=db password='a b\'c' application_name='password=x y' sslmode=disable`, `host=db application_name='password=x y' sslmode=disable`, "a b'c"},
		{`password=a\ b host=db`, "host=db", "a b"},
	} {
		shown, password, err := withoutPassword(c.connection)
		if c.shown == "" {
			if err == nil && (strings.Contains(shown, "it") || strings.Contains(shown, "'s'")) {
				t.Errorf("%q is shown as %q", c.connection, shown)
			}
			continue
		}
		if err != nil || shown != c.shown || password != c.password {
			t.Errorf("%q becomes %q with the password %q, %v", c.connection, shown, password, err)
		}
	}
}

func TestBadlyEscapedSetting(t *testing.T) {
	if shown, _, err := withoutPassword("postgres://ana@db/tidings?pass%7word=s3cret"); err == nil || strings.Contains(err.Error()+shown, "s3cret") {
		t.Errorf("%q, %v", shown, err)
	}
}

// script makes an executable that stands for a program of PostgreSQL.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestFindClient(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TIDINGS_PG_BIN", dir)
	if _, err := FindClient("pg_dump", 15, AnyMajor); err == nil || !strings.Contains(err.Error(), "there is none") || !strings.Contains(err.Error(), "15 or later") {
		t.Errorf("in an empty directory: %v", err)
	}
	script(t, dir, "pg_dump", `echo "pg_dump (PostgreSQL) 16.9 (Debian 16.9-1)"`)
	for _, c := range []struct {
		least, most int
		found       bool
	}{{14, AnyMajor, true}, {16, 16, true}, {15, 18, true}, {17, AnyMajor, false}, {14, 15, false}} {
		got, err := FindClient("pg_dump", c.least, c.most)
		if c.found && (err != nil || got.Version != "16.9" || got.Major != 16 || got.Path != filepath.Join(dir, "pg_dump")) {
			t.Errorf("%v: %+v, %v", c, got, err)
		}
		if !c.found && (err == nil || !strings.Contains(err.Error(), "is 16.9")) {
			t.Errorf("%v: %+v, %v", c, got, err)
		}
	}
	script(t, dir, "pg_dump", `echo "pg_dump: could not start"; exit 1`)
	if got, err := FindClient("pg_dump", 14, AnyMajor); err == nil {
		t.Errorf("a program that does not run: %+v", got)
	}
}

// What others can read of a run has no password; what a failed one says has no rows.
func TestClientRun(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "pg_restore", `if [ "$1" = --version ]; then echo "pg_restore (PostgreSQL) 15.1"; exit; fi
echo "$@" >"$0.args"; echo "$PGPASSWORD" >"$0.password"
echo "pg_restore: error: COPY failed for table \"event\": ERROR:  duplicate key" >&2
printf 'pg_restore: error: no table \033[2J\n' >&2
echo "DETAIL:  Key (body)=(a secret body) already exists." >&2
echo "pg_restore: detail: Query was: a secret body" >&2
exit 3`)
	t.Setenv("TIDINGS_PG_BIN", dir)
	c, err := FindClient("pg_restore", 15, 15)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(t.Context(), "postgres://ana:s3cret@db/tidings", "file")
	if err == nil || !strings.Contains(err.Error(), "duplicate key") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\033") {
		t.Errorf("the error is %v", err)
	}
	read := func(suffix string) string {
		text, err := os.ReadFile(c.Path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if args := read(".args"); args != "--no-password --dbname=postgres://ana@db/tidings file" {
		t.Errorf("the command line is %s", args)
	}
	if p := read(".password"); p != "s3cret" {
		t.Errorf("the password is %q", p)
	}
}
