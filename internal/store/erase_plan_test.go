// Tests of what erasures, the journal and the replay read.

package store

import (
	"context"
	"fmt"
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
	tables := []string{"conversation", "event", "member", "taken_back", "notification", "task"}
	conn, exec := young(t, pool, tables...)
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
	var taking tidings.UUID
	if err := conn.QueryRow(ctx, `SELECT id FROM tidings.taken_back WHERE NOT copied LIMIT 1`).Scan(&taking); err != nil {
		t.Fatal(err)
	}
	of := pgx.NamedArgs{"conv": "c7", "user": "ana", "bucket": bucket, "actor": nil, "until": nil, "journal": true, "after": "", "limit": 50, "ids": ids, "tasks": tasks, "mids": mids,
		"cutoff": time.Now().Add(time.Hour), "at": time.Now().Add(time.Hour), "generation": 78, "older_ms": 1000,
		"senders": slices.Repeat([]string{"ana"}, len(mids)), "seq": 100, "recall": n + 1, "id": taking}
	var seqs []int64
	var cmids []string
	for i := range mids {
		seqs, cmids = append(seqs, int64(i+1)*4000), append(cmids, fmt.Sprint("m", (i+1)*4000))
	}
	of["seqs"], of["cmids"] = seqs, cmids
	for _, statistics := range []string{"young", "fresh"} {
		if statistics == "fresh" {
			exec(`ANALYZE tidings.` + strings.Join(tables, ", tidings."))
		}
		for _, c := range []struct {
			name, sql string
			most      map[string]int // rows of each table
		}{
			{"where a user has written", sentInSQL, map[string]int{"member": 200, "event": 2}},
			{"the messages of an erasure", messagesOfSQL, map[string]int{"event": 50}},
			{"those that are left", unrecalledSQL, map[string]int{"event": len(mids)}},
			{"recalling them", recallManySQL, map[string]int{"conversation": 2}},
			{"emptying one", emptySQL, map[string]int{"event": 2}},
			{"finding notifications", notesOfSQL, map[string]int{"notification": 50}},
			{"emptying notifications", eraseNotesSQL, map[string]int{"notification": 100, "task": 50}},
			{"replaying recalls", replayRecallsSQL, map[string]int{"event": len(mids)}},
			{"replaying recalls without keys", replayMidsSQL, map[string]int{"event": n}},
			{"replaying a purge", replayPurgeSQL, map[string]int{"event": 100, "conversation": 1}},
			{"replaying a leave", replayLeaveSQL, map[string]int{"event": 1, "member": 2, "conversation": 2}},
			{"new epochs", newEpochsSQL, map[string]int{"conversation": 100}},
			{"what was not copied", takingsSQL, map[string]int{"taken_back": 20}},
			{"marking one as copied", takenSQL, map[string]int{"taken_back": 1}},
			{"the lag", journalLagSQL, map[string]int{"taken_back": 20}},
			{"forgetting takings", deleteTakingsSQL, map[string]int{"taken_back": 100}},
		} {
			plan := explained(ctx, t, conn, c.sql, of)
			for table, most := range c.most {
				rows, by := plan.touched(table)
				if rows > most || len(by) == 0 || slices.ContainsFunc(by, func(i string) bool { return !strings.HasPrefix(i, "Index ") }) {
					t.Errorf("%s statistics, %s: %d rows of %s are read by %v", statistics, c.name, rows, table, by)
				}
			}
		}
	}
}

// A log that has grown to 20 000 messages since the statistics were made, when every log had one, is read by keys, too: they say that whoever
// reads a conversation finds one row.
func TestTakingBackReadsByKeysWhileALogGrows(t *testing.T) {
	pool := pgtest.New(t)
	ctx := t.Context()
	const n = 20_000
	tables := []string{"conversation", "event", "member", "taken_back"}
	conn, exec := young(t, pool, tables...)
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT 'c' || c, 77, 2 FROM generate_series(1, 2000) c`)
	const grow = `INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) SELECT c, n, 'msg', gen_random_uuid(), 'ana', 'm' || n, 'body'`
	exec(grow + ` FROM (SELECT 'c' || i AS c, 1 AS n FROM generate_series(1, 2000) i) x`)
	exec(`INSERT INTO tidings.member SELECT 'c' || c, 'ana', 1, NULL FROM generate_series(1, 2000) c`)
	exec(`INSERT INTO tidings.taken_back (conv_id, what, user_id, epoch, copied) SELECT 'c' || c, 'leave', 'ana', 77, true FROM generate_series(1, 2000) c`)
	exec(`ANALYZE tidings.` + strings.Join(tables, ", tidings."))
	exec(`INSERT INTO tidings.taken_back (conv_id, what, user_id, epoch) SELECT 'c7', 'leave', 'ana', 77 FROM generate_series(1, $1::bigint)`, n)
	exec(grow+` FROM (SELECT 'c7' AS c, i AS n FROM generate_series(2, $1::bigint) i) x`, n)
	exec(`UPDATE tidings.conversation SET next_seq = $1::bigint + 1 WHERE conv_id = 'c7'`, n)
	var seqs []int64
	var senders, cmids, mids []string
	if err := conn.QueryRow(ctx, `SELECT array_agg(seq), array_agg(sender_user), array_agg(cmid), array_agg(mid::text)
		FROM (SELECT * FROM tidings.event WHERE conv_id = 'c7' AND seq % 200 = 0 ORDER BY seq) e`).Scan(&seqs, &senders, &cmids, &mids); err != nil {
		t.Fatal(err)
	}
	args := pgx.NamedArgs{"conv": "c7", "user": "ana", "actor": "op-1", "until": time.Now().Add(time.Hour), "journal": true, "after": "m1", "limit": len(seqs),
		"seqs": seqs, "senders": senders, "cmids": cmids, "mids": mids, "seq": n / 2, "recall": n + 1}
	var taking tidings.UUID
	if err := conn.QueryRow(ctx, `SELECT id FROM tidings.taken_back WHERE NOT copied LIMIT 1`).Scan(&taking); err != nil {
		t.Fatal(err)
	}
	args["id"] = taking
	for _, c := range []struct {
		name, sql string
		most      map[string]int
	}{
		{"the messages of an erasure", messagesOfSQL, map[string]int{"event": len(seqs)}},
		{"those that are left", unrecalledSQL, map[string]int{"event": len(seqs)}},
		{"recalling them", recallManySQL, map[string]int{"conversation": 2}},
		{"emptying one", emptySQL, map[string]int{"event": 1}},
		{"replaying recalls", replayRecallsSQL, map[string]int{"event": len(seqs)}},
		{"what was not copied", takingsSQL, map[string]int{"taken_back": len(seqs)}},
		{"marking one as copied", takenSQL, map[string]int{"taken_back": 1}},
	} {
		plan := explained(ctx, t, conn, c.sql, args)
		for table, most := range c.most {
			rows, by := plan.touched(table)
			if rows > most || rows == 0 || slices.ContainsFunc(by, func(i string) bool { return !strings.HasPrefix(i, "Index ") }) {
				t.Errorf("%s: %d rows of %s are read by %v", c.name, rows, table, by)
			}
		}
	}
}

// Outlive is outlive, for tests from outside.
func (s *Store) Outlive(ctx context.Context, limit time.Duration) error { return s.outlive(ctx, limit) }
