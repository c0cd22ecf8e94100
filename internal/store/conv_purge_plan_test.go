// Tests of what a purge reads, with young, misleading and fresh statistics.

package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// However many conversations are kept for ever and however long a log is, the purge looks at those with a retention and at what a step
// deletes, by keys.
func TestPurgingCostsWhatItDeletes(t *testing.T) {
	pool := pgtest.New(t)
	ctx := t.Context()
	conn, exec := young(t, pool, "conversation", "event", "tombstone", "taken_back")
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq, retention_ms) SELECT 'c-' || n, 77, 3, CASE WHEN n % 100 = 0 THEN 1000 END FROM generate_series(1, 20000) n`)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user, created_at) SELECT 'c-' || n, s, 'join', 'ben', now() - interval '1 hour' FROM generate_series(1, 20000) n, generate_series(1, 2) s`)
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq, retention_ms) VALUES ('big', 77, 100001, 1000)`)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body, created_at)
		SELECT 'big', n, 'msg', gen_random_uuid(), 'ben', 'm' || n, 'body', now() - interval '1 hour' FROM generate_series(1, 100000) n`)
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq, retention_ms) VALUES ('younger', 77, 10001, 1000)`)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user, created_at) SELECT 'younger', n, 'join', 'ben', now() + interval '1 hour' FROM generate_series(1, 10000) n`)
	exec(`INSERT INTO tidings.tombstone SELECT 'c-' || n, 'ben', 'old' || n, 1, now() - n * interval '1 minute' FROM generate_series(1, 20000) n`)
	type most map[string]int
	const analyze = `ANALYZE tidings.conversation, tidings.event, tidings.tombstone, tidings.taken_back`
	for _, statistics := range []string{"young", "misleading", "fresh"} {
		switch statistics {
		case "misleading": // each conversation had one event
			exec(`CREATE TABLE many AS SELECT * FROM tidings.event`)
			exec(`DELETE FROM tidings.event WHERE seq > 1`)
			exec(analyze)
			exec(`INSERT INTO tidings.event SELECT * FROM many ON CONFLICT DO NOTHING`)
		case "fresh":
			exec(analyze)
		}
		for _, c := range []struct {
			name, sql string
			args      pgx.NamedArgs
			rows      most
			by        []string
		}{
			{"what is expired", expiredSQL, pgx.NamedArgs{"after": "c-1", "limit": 20, "step": 200}, most{"conversation": 20, "event": 20}, []string{"Index Scan conversation_retained", "Index Scan event_pkey"}},
			{"what is expired behind a young front", expiredSQL, pgx.NamedArgs{"after": "young", "limit": 20, "step": 200}, most{"conversation": 1, "event": 200}, []string{"Index Scan conversation_retained", "Index Scan event_pkey"}},
			{"the front", purgeFrontSQL, pgx.NamedArgs{"conv": "big", "limit": 100}, most{"conversation": 1, "event": 100}, []string{"Index Scan conversation_pkey", "Index Scan event_pkey"}},
			{"a step", purgeLogSQL, pgx.NamedArgs{"conv": "big", "min": 1, "cut": 100, "epoch": 77}, most{"conversation": 1, "event": 201}, []string{"Index Scan conversation_pkey", "Index Scan event_pkey"}},
			{"tombstones", forgetMessagesSQL, pgx.NamedArgs{"older_ms": 60000.0, "limit": 50}, most{"tombstone": 100}, []string{"Index Scan tombstone_age", "Index Scan tombstone_pkey"}},
		} {
			plan := explained(ctx, t, conn, c.sql, c.args)
			for table, most := range c.rows {
				rows, by := plan.touched(table)
				if rows > most || rows == 0 || slices.ContainsFunc(by, func(how string) bool { return !slices.Contains(c.by, how) }) {
					t.Errorf("%s statistics, %s: %d rows of %s are read by %s", statistics, c.name, rows, table, strings.Join(by, ", "))
				}
			}
		}
	}
}
