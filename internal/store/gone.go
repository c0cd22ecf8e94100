// Tells notifications that the message they speak of is gone: recalled, read, or of a conversation that their user has left.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// markAgain is when notifications are marked a second time: for those that were not committed yet the first time.
const markAgain = time.Minute

// goneKey is the key of the advisory lock under which gone rows are taken: "gone" in ASCII.
const goneKey = 0x676f6e65

// goneSQL reads what is to be marked: for the first time through gone_unmarked, and again through gone_marked.
const goneSQL = `(SELECT g.conv_id, g.why, g.user_id, g.seq, false FROM tidings.gone g WHERE NOT g.marked ORDER BY g.conv_id LIMIT @limit::bigint)
	UNION ALL
	(SELECT g.conv_id, g.why, g.user_id, g.seq, true FROM tidings.gone g
	  WHERE g.marked AND g.at < statement_timestamp() - @again_ms::float8 * interval '1 millisecond' ORDER BY g.at LIMIT @limit::bigint)`

// gone is a row of that name.
type gone struct {
	Conv, Why, User string
	Seq             int64
	Again           bool
}

// markRecalledSQL marks the notifications about a recalled message, whoever they are for, through notification_about. What was purged has
// forgotten what it was about.
const markRecalledSQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at)
	UPDATE tidings.notification n SET about_gone_at = k.now_at FROM clock k
	 WHERE n.about_conv = @conv::text AND n.about_seq = @seq::bigint AND n.about_gone_at IS NULL AND n.bucket = ANY (@buckets::smallint[])`

// markUserSQL marks the notifications of a user about what that user has read or left, through notification_about_user.
const markUserSQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at)
	UPDATE tidings.notification n SET about_gone_at = k.now_at FROM clock k
	 WHERE n.user_id = @user::text AND n.about_conv = @conv::text AND n.about_seq <= @seq::bigint AND n.about_gone_at IS NULL AND n.bucket = @bucket::smallint`

// They end what was marked, by gone's primary key; a recall and a leave stay for the second time.
const (
	deleteGoneSQL = `DELETE FROM tidings.gone g WHERE g.conv_id = @conv AND g.why = @why AND g.user_id = @user AND g.seq = @seq`
	keepGoneSQL   = `UPDATE tidings.gone g SET marked = true WHERE g.conv_id = @conv AND g.why = @why AND g.user_id = @user AND g.seq = @seq`
)

// MarkGone tells the notifications of up to limit recalls, leaves and reads, and of as many for the second time, that what they speak of is
// gone, so that the next claim does not send them, and returns how many it has handled and whether there may be more now: also when another process is at it,
// which then is the only one. Those that were handled stand as such only when their notifications are marked, so whatever fails
// in between is done again. It needs two connections.
//
// Recalls and leaves are handled a second time a minute after they were committed, for a Notify that had begun before and was
// committed after the first time. One whose transaction takes longer than that escapes.
func (s *Store) MarkGone(ctx context.Context, limit int) (n int, more bool, err error) {
	err = s.transact(ctx, "mark notifications of what is gone", func(ctx context.Context, tx pgx.Tx) error {
		var taking bool
		var rows []gone
		n, more = 0, true
		first := &pgx.Batch{}
		first.Queue(byKeySQL)
		first.Queue(takingSQL, pgx.NamedArgs{"key": int64(goneKey)}).QueryRow(func(row pgx.Row) error { return row.Scan(&taking) })
		first.Queue(goneSQL, pgx.NamedArgs{"limit": limit, "again_ms": float64(markAgain.Milliseconds())}).Query(func(found pgx.Rows) (err error) {
			rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[gone])
			return err
		})
		if err := tx.SendBatch(ctx, first).Close(); err != nil || !taking {
			return err
		}
		if n, more = len(rows), false; n == 0 {
			return nil
		}
		again := 0
		for _, g := range rows {
			if g.Again {
				again++
			}
		}
		more = again == limit || n-again == limit
		// Notifications are of another family than conversations: no transaction writes both.
		if err := s.markGone(ctx, rows); err != nil {
			return err
		}
		return settleGone(ctx, tx, rows)
	})
	if err != nil {
		return 0, true, err
	}
	return n, more, nil
}

// markGone marks the notifications that rows speak of, once each. There is a statement for each, and all travel together: a join of many
// would be planned by what the statistics say of tables that are mostly empty.
func (s *Store) markGone(ctx context.Context, rows []gone) error {
	type about struct{ user, conv string }
	upTo := map[about]int64{} // of reads and leaves only the last counts
	marks := &pgx.Batch{}
	for _, g := range rows {
		if g.User == "" {
			marks.Queue(markRecalledSQL, pgx.NamedArgs{"conv": g.Conv, "seq": g.Seq, "buckets": s.buckets})
		} else {
			key := about{g.User, g.Conv}
			upTo[key] = max(upTo[key], g.Seq)
		}
	}
	for key, seq := range upTo {
		marks.Queue(markUserSQL, pgx.NamedArgs{"user": key.user, "conv": key.conv, "seq": seq, "bucket": tidings.Bucket(key.user)})
	}
	return s.write(ctx, "mark notifications of what is gone", func(ctx context.Context) error { return s.byKey(ctx, marks) })
}

// settleGone ends rows whose notifications are marked.
func settleGone(ctx context.Context, tx pgx.Tx, rows []gone) error {
	settle := &pgx.Batch{}
	for _, g := range rows {
		sql := deleteGoneSQL
		if !g.Again && g.Why != "read" {
			sql = keepGoneSQL
		}
		settle.Queue(sql, pgx.NamedArgs{"conv": g.Conv, "why": g.Why, "user": g.User, "seq": g.Seq})
	}
	return tx.SendBatch(ctx, settle).Close()
}
