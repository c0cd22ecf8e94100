// The journal of what was taken back, in the database: rows that are copied out of it.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

// takingsKey is the key of the advisory lock under which takings are copied: "takings" in ASCII.
const takingsKey = 0x74616b696e6773

// takingsSQL reads what was not copied, oldest first, through taken_back_uncopied. It names no conversation: the rows are few, and of any.
const takingsSQL = `SELECT t.id, t.at, t.what, t.conv_id, coalesce(t.mid::text, ''), coalesce(t.user_id, ''), coalesce(t.cmid, ''), t.cutoff_at, t.epoch,
		(SELECT i.id FROM tidings.installation i WHERE i.one)
	FROM tidings.taken_back t WHERE NOT t.copied ORDER BY t.at LIMIT @limit`

// takenSQL marks one taking as copied, by its primary key. It is a statement of its own for each, as emptySQL is: joined with a list of them, the
// takings of a conversation that the statistics believe to have few are read once for every one.
const takenSQL = `UPDATE tidings.taken_back t SET copied = true WHERE t.conv_id = @conv AND t.id = @id`

// TakeTakings hands up to limit takings that were not copied yet to put, oldest first, marks them as copied when put returns without an
// error, and returns how many there were. One process does it at a time; another gets 0. A taking may be handed out again after an
// error, never lost: rows are marked, however late they are committed.
//
// put has to return within the few seconds that a transaction may take.
func (s *Store) TakeTakings(ctx context.Context, limit int, put func([]outside.Taking) error) (n int, err error) {
	const doing = "copy what was taken back"
	err = s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		var taking bool
		var takings []outside.Taking
		first := &pgx.Batch{}
		first.Queue(byKeySQL)
		first.Queue(takingSQL, pgx.NamedArgs{"key": int64(takingsKey)}).QueryRow(func(row pgx.Row) error { return row.Scan(&taking) })
		// A statement of its own: what another process has marked before it gave the lock back is seen.
		first.Queue(takingsSQL, pgx.NamedArgs{"limit": limit}).Query(func(rows pgx.Rows) (err error) {
			takings, err = pgx.CollectRows(rows, pgx.RowToStructByPos[outside.Taking])
			return err
		})
		if err := tx.SendBatch(ctx, first).Close(); err != nil || !taking || len(takings) == 0 {
			return err
		}
		if err := put(takings); err != nil {
			return tidings.Errorf(tidings.Unavailable, "%s: the journal cannot be written: %w", doing, err)
		}
		taken := &pgx.Batch{}
		for _, t := range takings {
			taken.Queue(takenSQL, pgx.NamedArgs{"conv": t.Conv, "id": t.ID})
		}
		n = len(takings)
		return tx.SendBatch(ctx, taken).Close()
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

const (
	oldTakings = `t.at < statement_timestamp() - @older_ms::float8 * interval '1 millisecond' ORDER BY t.at LIMIT @limit::bigint FOR UPDATE SKIP LOCKED
	)
	DELETE FROM tidings.taken_back t USING old o WHERE t.conv_id = o.conv_id AND t.id = o.id`

	// deleteTakingsSQL deletes the oldest takings that were copied, through taken_back_copied.
	deleteTakingsSQL = `WITH old AS MATERIALIZED (
		SELECT t.conv_id, t.id FROM tidings.taken_back t WHERE t.copied AND ` + oldTakings

	// deleteUncopiedSQL deletes the oldest takings that were not, through taken_back_uncopied.
	deleteUncopiedSQL = `WITH old AS MATERIALIZED (
		SELECT t.conv_id, t.id FROM tidings.taken_back t WHERE NOT t.copied AND ` + oldTakings
)

// ForgetTakings deletes up to limit takings that were made longer ago than olderThan and were copied and, with uncopied, as many that
// were not: where nobody copies them. It returns how many there were and whether there may be more.
func (s *Store) ForgetTakings(ctx context.Context, olderThan time.Duration, uncopied bool, limit int) (n int, more bool, err error) {
	statements := []string{deleteTakingsSQL}
	if uncopied {
		statements = append(statements, deleteUncopiedSQL)
	}
	for _, sql := range statements {
		deleted, err := s.delete(ctx, "forget what was taken back", sql, pgx.NamedArgs{"older_ms": float64(olderThan) / float64(time.Millisecond), "limit": limit})
		n, more = n+deleted, more || deleted >= limit
		if err != nil {
			return n, true, err
		}
	}
	return n, more, nil
}

// journalLagSQL finds the oldest taking that was not copied, through taken_back_uncopied.
const journalLagSQL = `SELECT coalesce(greatest(date_part('epoch', statement_timestamp() - min(t.at)), 0), 0) FROM tidings.taken_back t WHERE NOT t.copied`
