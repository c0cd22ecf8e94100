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

// sortingSQL lets a statement of byKey sort what it has found, where it would otherwise read a whole index in its order.
const sortingSQL = `SELECT set_config('enable_sort', 'on', true)`

// markRecalledSQL marks the notifications about recalled messages, through notification_about. What was purged has forgotten what it was
// about. The rows are locked in the order of their ids, as Purge does.
const markRecalledSQL = `WITH hit AS MATERIALIZED (
		SELECT n.id, n.bucket, statement_timestamp() AS now_at
		  FROM unnest(@convs::text[], @seqs::bigint[]) g (conv, seq) JOIN tidings.notification n ON n.about_conv = g.conv AND n.about_seq = g.seq
		 WHERE n.about_gone_at IS NULL AND n.bucket = ANY (@buckets::smallint[]) ORDER BY n.id FOR NO KEY UPDATE OF n
	)
	UPDATE tidings.notification n SET about_gone_at = h.now_at FROM hit h
	 WHERE n.id = h.id AND n.bucket = h.bucket AND n.bucket = ANY (@buckets::smallint[])`

// markUsersSQL marks the notifications of users about what they have read or left, through notification_about_user.
const markUsersSQL = `WITH hit AS MATERIALIZED (
		SELECT n.id, n.bucket, statement_timestamp() AS now_at
		  FROM unnest(@convs::text[], @seqs::bigint[], @users::text[], @of::smallint[]) g (conv, seq, usr, bucket)
		  JOIN tidings.notification n ON n.user_id = g.usr AND n.about_conv = g.conv AND n.about_seq <= g.seq AND n.bucket = g.bucket
		 WHERE n.about_gone_at IS NULL AND n.bucket = ANY (@of::smallint[]) ORDER BY n.id FOR NO KEY UPDATE OF n
	)
	UPDATE tidings.notification n SET about_gone_at = h.now_at FROM hit h
	 WHERE n.id = h.id AND n.bucket = h.bucket AND n.bucket = ANY (@of::smallint[])`

// They end what was marked, row by row through gone's primary key; a recall and a leave stay for the second time. The join alone names the
// conversations: an array of as many beside it would be gone through for each row.
const (
	deleteGoneSQL = `DELETE FROM tidings.gone g USING unnest(@convs::text[], @whys::text[], @users::text[], @seqs::bigint[]) t (conv, why, usr, seq)
		WHERE g.conv_id = t.conv AND g.why = t.why AND g.user_id = t.usr AND g.seq = t.seq`
	keepGoneSQL = `UPDATE tidings.gone g SET marked = true FROM unnest(@convs::text[], @whys::text[], @users::text[], @seqs::bigint[]) t (conv, why, usr, seq)
		WHERE g.conv_id = t.conv AND g.why = t.why AND g.user_id = t.usr AND g.seq = t.seq`
)

// MarkGone tells the notifications of up to limit recalls, leaves and reads that what they speak of is gone, so that the next claim does
// not send them, and returns how many it has handled and whether there may be more now: also when another process is at it,
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

// markGone marks the notifications that rows speak of, once each.
func (s *Store) markGone(ctx context.Context, rows []gone) error {
	type about struct{ conv, user string }
	upTo := map[about]int64{} // of reads and leaves only the last counts
	var recalled struct {
		convs []string
		seqs  []int64
	}
	for _, g := range rows {
		if g.User == "" {
			recalled.convs, recalled.seqs = append(recalled.convs, g.Conv), append(recalled.seqs, g.Seq)
		} else {
			key := about{g.Conv, g.User}
			upTo[key] = max(upTo[key], g.Seq)
		}
	}
	marks := &pgx.Batch{}
	marks.Queue(sortingSQL)
	if len(recalled.convs) > 0 {
		marks.Queue(markRecalledSQL, pgx.NamedArgs{"convs": recalled.convs, "seqs": recalled.seqs, "buckets": s.buckets})
	}
	if len(upTo) > 0 {
		var convs, users []string
		var seqs []int64
		var of []int16
		for key, seq := range upTo {
			convs, users, seqs, of = append(convs, key.conv), append(users, key.user), append(seqs, seq), append(of, tidings.Bucket(key.user))
		}
		marks.Queue(markUsersSQL, pgx.NamedArgs{"convs": convs, "users": users, "seqs": seqs, "of": of})
	}
	return s.write(ctx, "mark notifications of what is gone", func(ctx context.Context) error { return s.byKey(ctx, marks) })
}

// settleGone ends rows whose notifications are marked.
func settleGone(ctx context.Context, tx pgx.Tx, rows []gone) error {
	type keys struct {
		convs, whys, users []string
		seqs               []int64
	}
	var done, kept keys
	for _, g := range rows {
		to := &done
		if !g.Again && g.Why != "read" {
			to = &kept
		}
		to.convs, to.whys, to.users, to.seqs = append(to.convs, g.Conv), append(to.whys, g.Why), append(to.users, g.User), append(to.seqs, g.Seq)
	}
	settle := &pgx.Batch{}
	for sql, k := range map[string]keys{deleteGoneSQL: done, keepGoneSQL: kept} {
		if len(k.convs) > 0 {
			settle.Queue(sql, pgx.NamedArgs{"convs": k.convs, "whys": k.whys, "users": k.users, "seqs": k.seqs})
		}
	}
	return tx.SendBatch(ctx, settle).Close()
}
