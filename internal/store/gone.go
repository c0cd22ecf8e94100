// Tells notifications that the message they speak of is gone: recalled, read, or of a conversation that their user has left.

package store

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

const (
	// markAgain is when notifications are marked a second time: for those that were not committed yet the first time.
	markAgain = time.Minute
	// markPage is how many notifications one transaction marks at most.
	markPage = 1000
	// markTogether is how many gone rows share such a page at most.
	markTogether = 50
	// markFor is how long a pass begins pages; what is left is found by the next one.
	markFor = 2 * time.Second
)

// goneKey is the key of the advisory lock under which gone rows are taken: "gone" in ASCII.
const goneKey = 0x676f6e65

// goneSQL reads what is to be marked: for the first time through gone_unmarked, and again through gone_marked.
const goneSQL = `(SELECT g.conv_id, g.why, g.user_id, g.seq, g.at, false FROM tidings.gone g WHERE NOT g.marked ORDER BY g.conv_id LIMIT @limit::bigint)
	UNION ALL
	(SELECT g.conv_id, g.why, g.user_id, g.seq, g.at, true FROM tidings.gone g
	  WHERE g.marked AND g.at < statement_timestamp() - @again_ms::float8 * interval '1 millisecond' ORDER BY g.at LIMIT @limit::bigint)`

// gone is a row of that name.
type gone struct {
	Conv, Why, User string
	Seq             int64
	At              time.Time
	Again           bool
}

// Which notifications a gone row is about. What was purged has forgotten what it was about. One that was made after a leave, for a user who
// has come back, is not of it.
const (
	aboutRecalled = `n.about_conv = @conv::text AND n.about_seq = @seq::bigint AND n.about_gone_at IS NULL AND n.bucket = ANY (@buckets::smallint[])`
	aboutRead     = `n.user_id = @user::text AND n.about_conv = @conv::text AND n.about_seq <= @seq::bigint AND n.about_gone_at IS NULL AND n.bucket = @bucket::smallint`
	aboutLeft     = aboutRead + ` AND n.created_at <= @at::timestamptz`
)

// A page of them that nobody else has locked is marked. The answer is how many that were, and how many there were, up to the limit: as many
// and fewer than the limit tells that none is left. The order is that of the indexes below, and of no other.
const (
	somePage = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at), page AS MATERIALIZED (
		SELECT n.id FROM tidings.notification n WHERE `
	lockPage = ` ORDER BY n.about_seq LIMIT @limit::bigint FOR NO KEY UPDATE SKIP LOCKED
	), marked AS (
		UPDATE tidings.notification n SET about_gone_at = k.now_at FROM clock k WHERE n.id = ANY (ARRAY(SELECT p.id FROM page p))
	)
	SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM (SELECT n.id FROM tidings.notification n WHERE `
	endPage = ` ORDER BY n.about_seq LIMIT @limit::bigint) s)`

	// markRecalledSQL is for everybody's about a recalled message, through notification_about.
	markRecalledSQL = somePage + aboutRecalled + lockPage + aboutRecalled + endPage
	// markReadSQL is for a user's about what that user has read, through notification_about_user.
	markReadSQL = somePage + aboutRead + lockPage + aboutRead + endPage
	// markLeftSQL is for a user's about what that user has left, through notification_about_user.
	markLeftSQL = somePage + aboutLeft + lockPage + aboutLeft + endPage
)

// They end what was marked, by gone's primary key; a recall and a leave stay for the second time. A word that was renewed meanwhile stays.
const (
	deleteGoneSQL = `DELETE FROM tidings.gone g WHERE g.conv_id = @conv AND g.why = @why AND g.user_id = @user AND g.seq = @seq AND g.at = @at`
	keepGoneSQL   = `UPDATE tidings.gone g SET marked = true WHERE g.conv_id = @conv AND g.why = @why AND g.user_id = @user AND g.seq = @seq AND g.at = @at`
)

// MarkedGone is what a pass of MarkGone did.
type MarkedGone struct {
	Rows          int  // recalls, leaves and reads that are done with, for the first or the second time
	Notifications int  // were marked
	More          bool // something is left to do now
	Busy          bool // another process is at it, and nothing was done here
}

// MarkGone tells the notifications of up to limit recalls, leaves and reads, and of as many for the second time, that what they speak of is
// gone, so that the next claim does not send them. Notifications are marked in pages, and the rows take turns: one that many
// notifications are about does not hold up the others, nor does a notification that somebody has locked; what it is about is done with when all
// of its notifications are marked. Whatever fails in between, or takes longer than a pass, is gone on with by the next. It needs two connections.
//
// Recalls and leaves are handled a second time a minute after they were committed, for a Notify that had begun before and was
// committed after the first time. One whose transaction takes longer than that escapes.
func (s *Store) MarkGone(ctx context.Context, limit int) (all MarkedGone, err error) {
	const doing = "mark notifications of what is gone"
	var failed error // of a page, after others that are done
	err = s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
		var taking bool
		var rows []gone
		all, failed = MarkedGone{}, nil
		first := &pgx.Batch{}
		first.Queue(byKeySQL)
		first.Queue(takingSQL, pgx.NamedArgs{"key": int64(goneKey)}).QueryRow(func(row pgx.Row) error { return row.Scan(&taking) })
		first.Queue(goneSQL, pgx.NamedArgs{"limit": limit, "again_ms": float64(markAgain.Milliseconds())}).Query(func(found pgx.Rows) (err error) {
			rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[gone])
			return err
		})
		if err := tx.SendBatch(ctx, first).Close(); err != nil {
			return err
		}
		if all.Busy = !taking; all.Busy || len(rows) == 0 {
			return nil
		}
		again := 0
		for _, g := range rows {
			if g.Again {
				again++
			}
		}
		// Notifications are of another family than conversations: no transaction writes both.
		var done []gone
		done, all.Notifications, failed = s.markGone(ctx, rows)
		all.Rows, all.More = len(done), len(done) < len(rows) || again == limit || len(rows)-again == limit
		return settleGone(ctx, tx, done)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		all.More = true
	}
	return all, err
}

// marking is what is to be marked for gone rows: for one, or for all reads of a conversation by a user, of which only the last counts.
type marking struct {
	sql          string
	args         pgx.NamedArgs
	rows         []gone
	marked, seen int // of its last page
}

func (s *Store) markings(rows []gone) (all []*marking) {
	type reader struct{ user, conv string }
	reads := map[reader]*marking{}
	for _, g := range rows {
		m := &marking{sql: markRecalledSQL, args: pgx.NamedArgs{"conv": g.Conv, "seq": g.Seq, "buckets": s.buckets}, rows: []gone{g}}
		if g.User != "" {
			m.sql, m.args = markReadSQL, pgx.NamedArgs{"user": g.User, "conv": g.Conv, "seq": g.Seq, "bucket": tidings.Bucket(g.User)}
		}
		switch of := (reader{g.User, g.Conv}); g.Why {
		case "leave":
			m.sql, m.args["at"] = markLeftSQL, g.At
		case "read":
			if same := reads[of]; same != nil {
				same.rows = append(same.rows, g)
				same.args["seq"] = max(same.args["seq"].(int64), g.Seq)
				continue
			}
			reads[of] = m
		}
		all = append(all, m)
	}
	return all
}

// markGone marks the notifications that rows speak of, in pages, and returns the rows that are done and how many it has marked. There is a
// statement for each row, and some travel together: a join of many would be planned by what the statistics say of tables that are mostly empty.
func (s *Store) markGone(ctx context.Context, rows []gone) (done []gone, marked int, err error) {
	pending := s.markings(rows)
	// A pass that ends before everything had a turn does not leave out the same ones each time.
	rand.Shuffle(len(pending), func(i, j int) { pending[i], pending[j] = pending[j], pending[i] })
	for began := time.Now(); len(pending) > 0; {
		var more []*marking
		for together := range slices.Chunk(pending, markTogether) {
			if time.Since(began) > markFor {
				return done, marked, nil
			}
			limit := markPage / len(together)
			if err := s.markPages(ctx, together, limit); err != nil {
				return done, marked, err
			}
			for _, m := range together {
				marked += m.marked
				switch {
				case m.marked == m.seen && m.seen < limit:
					done = append(done, m.rows...)
				case m.marked > 0: // else somebody has locked what is left of them
					more = append(more, m)
				}
			}
		}
		pending = more
	}
	return done, marked, nil
}

// markPages marks a page of limit notifications for each of some, in one transaction.
func (s *Store) markPages(ctx context.Context, some []*marking, limit int) error {
	pages := &pgx.Batch{}
	var read []func(pgx.Rows) error
	for _, m := range some {
		m.args["limit"] = limit
		pages.Queue(m.sql, m.args)
		read = append(read, func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&m.marked, &m.seen); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return s.write(ctx, "mark notifications of what is gone", func(ctx context.Context) error { return s.byKey(ctx, pages, read...) })
}

// settleGone ends rows whose notifications are marked, in the order of gone's primary key.
func settleGone(ctx context.Context, tx pgx.Tx, rows []gone) error {
	slices.SortFunc(rows, func(a, b gone) int {
		return cmp.Or(cmp.Compare(a.Conv, b.Conv), cmp.Compare(a.Why, b.Why), cmp.Compare(a.User, b.User), cmp.Compare(a.Seq, b.Seq))
	})
	settle := &pgx.Batch{}
	for _, g := range rows {
		sql := deleteGoneSQL
		if !g.Again && g.Why != "read" {
			sql = keepGoneSQL
		}
		settle.Queue(sql, pgx.NamedArgs{"conv": g.Conv, "why": g.Why, "user": g.User, "seq": g.Seq, "at": g.At})
	}
	return tx.SendBatch(ctx, settle).Close()
}
