package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// However large the tables are, and although nobody has looked at them since they were empty, each step of an erasure, of the journal and of
// a replay reads what it changes, by keys. Only a replayed recall walks through its log.
func TestTakingBackReadsByKeys(t *testing.T) {
	pool := pgtest.New(t)
	ctx := t.Context()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	tables := []string{"conversation", "event", "member", "taken_back", "notification", "task"}
	for _, table := range tables {
		exec(`ALTER TABLE tidings.` + table + ` SET (autovacuum_enabled = off)`)
		exec(`ANALYZE tidings.` + table)
	}
	const n = 40_000
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT 'c' || c, 77, $1::bigint + 1 FROM generate_series(1, 200) c`, n)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) SELECT c, n, 'msg', gen_random_uuid(), CASE n % 100 WHEN 0 THEN 'ana' ELSE 'ben' END, 'm' || n, 'body'
		FROM unnest(ARRAY['c7', 'c8']) c, generate_series(1, $1::bigint) n`, n)
	exec(`INSERT INTO tidings.member SELECT 'c' || c, u, 1, NULL FROM generate_series(1, 200) c, unnest(ARRAY['ana', 'ben']) u`)
	exec(`INSERT INTO tidings.taken_back (conv_id, what, user_id, epoch, copied, at) SELECT 'c7', 'leave', 'ana', 77, i > 20, now() - i * interval '1 minute' FROM generate_series(1, 5000) i`)
	exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) SELECT tidings.bucket_of(u), u, 'push', 'x' FROM unnest(ARRAY['ana', 'ben']) u`)
	for _, user := range []string{"ana", "ben"} {
		exec(`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', $1::text, 'event_key', 'e' || g, 'body', 'x', 'ttl_s', 3600)) FROM generate_series(1, 3000) g))`, user)
	}
	bucket := tidings.Bucket("ana")
	var ids, tasks []tidings.UUID
	var mids []string
	for into, sql := range map[any]string{&ids: `SELECT array_agg(id) FROM (SELECT id FROM tidings.notification WHERE user_id = 'ana' ORDER BY event_key LIMIT 50) n`,
		&tasks: `SELECT array_agg(id) FROM (SELECT t.id FROM tidings.task t JOIN tidings.notification n ON n.id = t.notification_id WHERE n.user_id = 'ana' ORDER BY event_key LIMIT 50) t`,
		&mids:  `SELECT array_agg(mid::text) FROM tidings.event WHERE conv_id = 'c7' AND seq % 4000 = 0`} {
		if err := conn.QueryRow(ctx, sql).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	var takings []tidings.UUID
	if err := conn.QueryRow(ctx, `SELECT array_agg(id) FROM tidings.taken_back WHERE NOT copied`).Scan(&takings); err != nil {
		t.Fatal(err)
	}
	of := pgx.NamedArgs{"conv": "c7", "user": "ana", "bucket": bucket, "actor": nil, "until": nil, "journal": true, "after": "", "limit": 50, "ids": ids, "tasks": tasks, "mids": mids,
		"cutoff": time.Now().Add(time.Hour), "at": time.Now().Add(time.Hour), "generation": 78, "older_ms": 1000}
	for _, statistics := range []string{"young", "fresh"} {
		if statistics == "fresh" {
			exec(`ANALYZE tidings.` + strings.Join(tables, ", tidings."))
		}
		for _, c := range []struct {
			name, sql string
			most      map[string]int // rows of each table
		}{
			{"where a user has written", sentInSQL, map[string]int{"member": 200, "event": 2}},
			{"recalling for an erasure", eraseMessagesSQL, map[string]int{"event": 101, "conversation": 2}},
			{"finding notifications", notesOfSQL, map[string]int{"notification": 50}},
			{"emptying notifications", eraseNotesSQL, map[string]int{"notification": 100, "task": 50}},
			{"replaying recalls", replayRecallsSQL, map[string]int{"event": n + 10, "conversation": 2}},
			{"replaying a purge", replayPurgeSQL, map[string]int{"event": 100, "conversation": 1}},
			{"replaying a leave", replayLeaveSQL, map[string]int{"event": 1, "member": 2, "conversation": 2}},
			{"new epochs", newEpochsSQL, map[string]int{"conversation": 100}},
			{"what was not copied", takingsSQL, map[string]int{"taken_back": 20}},
			{"the lag", journalLagSQL, map[string]int{"taken_back": 20}},
			{"forgetting takings", deleteTakingsSQL, map[string]int{"taken_back": 100}},
		} {
			plan := explained(ctx, t, conn.Conn(), c.sql, of)
			for table, most := range c.most {
				rows, by := plan.touched(table)
				if rows > most || len(by) == 0 || slices.ContainsFunc(by, func(i string) bool { return !strings.HasPrefix(i, "Index ") }) {
					t.Errorf("%s statistics, %s: %d rows of %s are read by %v", statistics, c.name, rows, table, by)
				}
			}
		}
		of["convs"] = slices.Repeat([]string{"c7"}, len(takings))
		of["ids"] = takings
		if rows, by := ptr(explained(ctx, t, conn.Conn(), takenSQL, of)).touched("taken_back"); rows > len(takings) {
			t.Errorf("%s statistics, marking takings: %d rows are read by %v", statistics, rows, by)
		}
		of["ids"] = ids
	}
}

func ptr[T any](v T) *T { return &v }
