// Matches receipts that came too early, and forgets old ones.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// dueReceiptsSQL takes receipts without a task whose turn it is, through receipt_unmatched. Sweeps at the same time take others.
const dueReceiptsSQL = `SELECT r.channel, r.provider_msg_id, r.status FROM tidings.receipt r
	WHERE r.matched_task IS NULL AND r.sweep_at <= statement_timestamp()
	ORDER BY r.sweep_at LIMIT @limit FOR UPDATE SKIP LOCKED`

// postponeReceiptsSQL gives receipts that still have no task their next turn, by primary key: after a quarter of their age, at
// least a second and at most an hour. What is not ours costs less and less, what was only early is found soon.
const postponeReceiptsSQL = `WITH later AS MATERIALIZED (
		SELECT r.channel, r.provider_msg_id, r.status, statement_timestamp()
			+ least(greatest((statement_timestamp() - r.received_at) / 4, interval '1 second'), interval '1 hour') AS sweep_at
		  FROM unnest(@channels::text[], @ids::text[], @statuses::text[]) AS u (channel, id, status)
		  JOIN tidings.receipt r ON r.channel = u.channel AND r.provider_msg_id = u.id AND r.status = u.status
	)
	UPDATE tidings.receipt r SET sweep_at = l.sweep_at
	  FROM later l WHERE r.channel = l.channel AND r.provider_msg_id = l.provider_msg_id AND r.status = l.status`

// SweepReceipts tries up to limit receipts without a task again and returns how many found theirs: a receipt can come before our
// own finish has written the provider's id, and two transactions at the same time cannot see each other. A receipt is
// tried again within a second at first, and at the latest when it is a quarter or an hour older.
func (s *Store) SweepReceipts(ctx context.Context, limit int) (matched int, err error) {
	err = s.transact(ctx, "sweep receipts", func(ctx context.Context, tx pgx.Tx) error {
		matched = 0
		rows, err := tx.Query(ctx, dueReceiptsSQL, pgx.NamedArgs{"limit": limit})
		if err != nil {
			return err
		}
		due, err := pgx.CollectRows(rows, pgx.RowToStructByPos[receiptKey])
		if err != nil || len(due) == 0 {
			return err
		}
		result, left, err := s.settleByReceipts(ctx, tx, due)
		if err != nil {
			return err
		}
		matched = result.Matched
		if len(left) > 0 {
			_, err = tx.Exec(ctx, postponeReceiptsSQL, s.receiptArgs(left))
		}
		return err
	})
	return matched, err
}

// purgeReceiptsSQL deletes old receipts through receipt_received, in steps.
const purgeReceiptsSQL = `WITH old AS MATERIALIZED (
		SELECT r.channel, r.provider_msg_id, r.status FROM tidings.receipt r
		 WHERE r.received_at < statement_timestamp() - @older_ms::float8 * interval '1 millisecond'
		 ORDER BY r.received_at LIMIT @limit FOR UPDATE SKIP LOCKED
	)
	DELETE FROM tidings.receipt r USING old o
	 WHERE r.channel = o.channel AND r.provider_msg_id = o.provider_msg_id AND r.status = o.status`

// PurgeReceipts deletes the receipts that came longer ago than olderThan and returns how many there were. A receipt that found no
// task until then never will; one that comes again afterwards stands in its task's journal twice.
func (s *Store) PurgeReceipts(ctx context.Context, olderThan time.Duration) (deleted int, err error) {
	const step = 1000
	for n := int64(step); n == step && ctx.Err() == nil; deleted += int(n) {
		err = s.write(ctx, "purge receipts", func(ctx context.Context) error {
			tag, err := s.pool.Exec(ctx, purgeReceiptsSQL, pgx.NamedArgs{"older_ms": float64(olderThan) / float64(time.Millisecond), "limit": step})
			n = tag.RowsAffected()
			return err
		})
		if err != nil {
			return deleted, err
		}
	}
	return deleted, context.Cause(ctx)
}
