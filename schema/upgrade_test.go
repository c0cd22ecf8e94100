// Tests of migrations of a database that is in use.

package schema_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/schema"
)

// A database with rows of the release before chat notifications takes them on: what is there notifies nobody, and what is switched on does.
func TestUpgradeWithRows(t *testing.T) {
	url, ctx := pgtest.NewEmptyURL(t), t.Context()
	before := t.TempDir()
	names, err := filepath.Glob("migrations/0000[123]_*.sql")
	if err != nil || len(names) != 3 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(before, filepath.Base(name)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(sql string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want, sql string) {
		t.Helper()
		var got string
		if err := db.QueryRowContext(ctx, sql).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", sql, got, err, want)
		}
	}
	exec(`CREATE SCHEMA tidings`)
	store, err := database.NewStore(database.DialectPostgres, "tidings.migration")
	if err != nil {
		t.Fatal(err)
	}
	old, err := goose.NewProvider("", db, os.DirFS(before), goose.WithStore(store))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Up(ctx); err != nil {
		t.Fatal(err)
	}
	post := `SELECT count(*)::text FROM (SELECT tidings.post_v1(json_build_object('conv', 'c-' || n, 'sender', 'u-ana', 'cmid', 'm-1', 'body', 'hello')) FROM generate_series(1, 50) n) p`
	exec(`INSERT INTO tidings.conversation (conv_id, next_seq, min_seq, epoch, recall_window_ms, retention_ms)
		SELECT 'c-' || n, 3, 1, 2, 60000, nullif(n % 2, 0) * 3600000 FROM generate_series(1, 50) n`)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user) SELECT 'c-' || n, s, 'join', u FROM generate_series(1, 50) n, (VALUES (1, 'u-ana'), (2, 'u-ben')) j (s, u)`)
	exec(`INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT 'c-' || n, u, s FROM generate_series(1, 50) n, (VALUES (1, 'u-ana'), (2, 'u-ben')) j (s, u)`)
	exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (tidings.bucket_of('u-ben'), 'u-ben', 'push', 'there')`)
	want("50", post)
	notify := `SELECT (tidings.notify_v1(json_build_object('user', 'u-ben', 'event_key', 'e-1', 'title', 'hello', 'ttl_s', 60, 'about', json_build_object('conv', 'c-1', 'seq', 3))) -> 0 ->> 'created')`
	want("true", notify)
	exec(`UPDATE tidings.task SET provider_msg_id = 'p-1'`)

	if err := schema.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	want("50 0 0", `SELECT concat_ws(' ', count(*), count(notify_after_ms), count(*) FILTER (WHERE preview)) FROM tidings.conversation`)
	want("false 0", `SELECT concat_ws(' ', bool_or(preview)::text, (SELECT count(*) FROM tidings.unread_due)) FROM tidings.notification`)
	// What the release before has written is known, and what its processes call works.
	want("50", post)
	want("false", notify)
	want("50 4", `SELECT concat_ws(' ', count(*), max(next_seq)) FROM tidings.conversation`)
	exec(`UPDATE tidings.conversation SET notify_after_ms = 1000 WHERE conv_id = 'c-1'`)
	exec(`SELECT tidings.post_v1(json_build_object('conv', 'c-' || n, 'sender', 'u-ana', 'cmid', 'm-2', 'body', 'hello')) FROM generate_series(1, 2) n`)
	want("c-1 4", `SELECT string_agg(conv_id || ' ' || seq, ', ') FROM tidings.unread_due`)
}
