// Tests of commands on a database that is not served.

package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// What serves and what purges refuse a database that was restored; the tools that look at it and mend it do not.
func TestCommandsOnAnotherHistory(t *testing.T) {
	url := pgtest.NewPlainURL(t)
	db := []string{"--database-url", url}
	want(t, exitDone, with(db, "recover", "--lossless")...)
	want(t, exitDone, with(db, "purge")...)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE tidings.lineage SET log_oid = 1`); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"purge"}, {"serve", "--roles", "api", "--listen", "127.0.0.1:0"}} {
		if out := want(t, exitError, with(db, command...)...); !strings.Contains(out, "restored or replaced") {
			t.Errorf("%v says %s", command, out)
		}
	}
	for _, command := range [][]string{{"verify"}, {"key", "list"}, {"recover", "--without-journal"}, {"purge"}} {
		want(t, exitDone, with(db, command...)...)
	}
}
