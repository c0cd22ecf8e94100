// Tests of what a recall reads.

package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// However large a log is, and although nobody has looked at the tables since they were empty, a recall reads a handful of rows by keys.
func TestRecallReadsByKeys(t *testing.T) {
	pool := pgtest.New(t)
	ctx := t.Context()
	conn, exec := young(t, pool, "conversation", "event", "member", "tombstone")
	const n = 50_000
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT 'c' || c, 77, $1::bigint + 1 FROM generate_series(1, 200) c`, n)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
		SELECT 'c7', n, 'msg', gen_random_uuid(), 'ana', 'm' || n, 'body' FROM generate_series(1, $1::bigint) n`, n)
	exec(`INSERT INTO tidings.member SELECT 'c7', u, 1, NULL FROM unnest(ARRAY['ana', 'ben']) u`)
	exec(`INSERT INTO tidings.member SELECT 'c7', 'u' || i, 1, NULL FROM generate_series(1, 5000) i`)
	exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) SELECT 'c7', 'ana', 't' || i, i FROM generate_series(1, 5000) i`)
	for _, statistics := range []string{"young", "fresh"} {
		if statistics == "fresh" {
			exec(`ANALYZE tidings.conversation, tidings.event, tidings.member, tidings.tombstone`)
		}
		for _, c := range []struct{ user, cmid string }{{"ana", "r-1"}, {"ana", "m7"}, {"ben", "t7"}} {
			plan := explained(ctx, t, conn, recallSQL, pgx.NamedArgs{"conv": "c7", "user": c.user, "device": nil, "cmid": c.cmid, "epoch": 77, "target": n - 5, "post": true})
			for table, most := range map[string]int{"conversation": 2, "event": 3, "member": 3, "tombstone": 1} {
				rows, by := plan.touched(table)
				if rows > most || len(by) == 0 || slices.ContainsFunc(by, func(i string) bool { return !strings.HasPrefix(i, "Index ") }) {
					t.Errorf("%s statistics, %s under %s: %d rows of %s are read by %v", statistics, c.user, c.cmid, rows, table, by)
				}
			}
		}
	}
}
