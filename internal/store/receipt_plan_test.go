// Tests of what the matching of receipts reads.

package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// Receipts find their tasks by keys, also by the provider's id, whatever the statistics say.
func TestReceiptsMatchByKeys(t *testing.T) {
	pool := pgtest.NewPlain(t)
	ctx := t.Context()
	conn, exec := young(t, pool, "task", "receipt")
	exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) SELECT tidings.bucket_of('ana'), 'ana', 'push', 'x'`)
	exec(`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', 'ana', 'event_key', 'e' || g, 'body', 'x', 'ttl_s', 3600)) FROM generate_series(1, 9000) g))`)
	exec(`UPDATE tidings.task t SET provider_msg_id = 'p' || x.n, awaits_receipt = true FROM (SELECT id, row_number() OVER () AS n FROM tidings.task) x WHERE x.id = t.id AND x.n > 1000`)
	exec(`INSERT INTO tidings.receipt (channel, provider_msg_id, status, received_at, sweep_at) SELECT 'push', 'p' || g, 'delivered', now(), now() FROM generate_series(1, 9000) g`)
	args := New(pool).receiptArgs([]receiptKey{{"push", "p1500", "delivered"}, {"push", "p7", "delivered"}, {"push", "p8000", "delivered"}})
	for _, statistics := range []string{"young", "fresh"} {
		if statistics == "fresh" {
			exec(`ANALYZE tidings.task, tidings.receipt`)
		}
		// The settings of a session do as the planner likes; only compiling is no matter here.
		for name, by := range map[string]string{"the store's": "", "by keys": byKeySQL} {
			tx, err := conn.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if by != "" {
				if _, err := tx.Exec(ctx, by); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := tx.Query(ctx, `EXPLAIN (ANALYZE, COSTS off, TIMING off) `+matchReceiptsSQL, args)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			if !strings.Contains(plan, "task_provider_msg") || slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "Seq Scan on task") }) {
				t.Errorf("%s statistics, %s settings:\n%s", statistics, name, plan)
			}
		}
	}
}
