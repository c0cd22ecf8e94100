// Holds schema.sql to the migrations.

package schema_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

var update = flag.Bool("update", false, "write schema.sql anew")

// dumpMajor is the version whose pg_dump made schema.sql: another version words it differently.
const dumpMajor = 15

// schema.sql is the schema in one piece, for people; it is never run. `go test ./schema -update` writes it.
func TestDump(t *testing.T) {
	url := pgtest.NewPlainURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var version int
	err = errors.Join(conn.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version), conn.Close(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	binaries, err := localpg.Find()
	pgDump := filepath.Join(binaries.Dir, "pg_dump")
	if err == nil {
		_, err = os.Stat(pgDump)
	}
	if err != nil || version != dumpMajor || binaries.Major != dumpMajor {
		t.Skipf("schema.sql is compared with server and pg_dump %d only: the server is %d, pg_dump %d (%v)", dumpMajor, version, binaries.Major, err)
	}
	cmd := exec.CommandContext(t.Context(), pgDump, "--schema-only", "--no-owner", "--no-privileges", "--schema=tidings", "--dbname="+url)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	got := normal(string(out))
	if *update {
		if err := os.WriteFile("schema.sql", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("schema.sql is not what the migrations make; run `go test ./schema -update`\n%s", diff)
	}
}

var (
	noise = regexp.MustCompile(`(?m)^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n`)
	blank = regexp.MustCompile(`\n{3,}`)
)

// normal leaves out what differs between runs and minor versions.
func normal(dump string) string {
	dump = strings.TrimSpace(blank.ReplaceAllString(noise.ReplaceAllString(dump, ""), "\n\n"))
	return "-- Made from the migrations by `go test ./schema -update`. For people; it is never run.\n\n" + dump + "\n"
}
