// Empties and forgets notifications.

package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// cutoff is the least id that a notification of the bucket can have which is younger than @older_ms: an id begins with the
// bucket and the milliseconds of its creation.
const cutoff = `(lpad(to_hex(@bucket::int), 2, '0') || lpad(to_hex(greatest((date_part('epoch', statement_timestamp()) * 1000)::bigint
			- @older_ms::bigint, 0)), 12, '0') || repeat('0', 18))::uuid`

// purgeableSQL finds the oldest notifications of a bucket whose time is over and whose tasks are all final, through
// notification_unpurged: nothing is read twice but what cannot be purged yet.
const purgeableSQL = `SELECT n.id FROM tidings.notification n
	 WHERE n.bucket = @bucket AND n.id >= (lpad(to_hex(@bucket::int), 2, '0') || repeat('0', 30))::uuid AND n.id < ` + cutoff + `
	   AND n.purged_at IS NULL
	   AND coalesce((SELECT bool_and(t.state IN ('SENT', 'FAILED', 'SUPPRESSED')) FROM tidings.task t WHERE ` + ofNote + `), true)
	 ORDER BY n.id LIMIT @limit`

// lockTasksSQL locks the tasks of notifications, in the order of their ids so that it cannot deadlock with receipts.
const lockTasksSQL = `SELECT t.id FROM tidings.notification n JOIN tidings.task t ON ` + ofNote + `
	WHERE n.id = ANY (@ids::uuid[]) AND n.bucket = @bucket ORDER BY t.id FOR UPDATE OF t`

// purgeSQL empties notifications and deletes their tasks and journals, by primary keys. It is a
// statement of its own after the locks, so that it sees what receipts have written to the journals before. What is final
// stays final, and tasks are made with their notification only: nothing can have become unfit meanwhile.
// edge: purge-sent, purge-failed, purge-suppressed
const purgeSQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at),
	tasks AS (
		DELETE FROM tidings.task t WHERE t.id = ANY (@tasks::uuid[]) AND t.bucket = @bucket
	), journal AS (
		DELETE FROM tidings.attempt a WHERE a.task_id = ANY (@tasks::uuid[]) AND a.bucket = @bucket
	)
	UPDATE tidings.notification n SET purged_at = c.now_at, title = NULL, body = NULL, data = NULL, category = NULL, channels = NULL,
			payload_hash = NULL, about_conv = NULL, about_seq = NULL
	  FROM clock c WHERE n.id = ANY (@ids::uuid[]) AND n.bucket = @bucket AND n.purged_at IS NULL`

// Purge empties up to limit notifications that were made longer ago than olderThan and whose tasks, if any, are all final, deletes
// those tasks with their journals, and returns how many there were and whether there may be more. What stays is the key
// with the time of the purge, the tombstone: a later submission of the key is answered with ORIGINAL_EXPIRED. A
// notification with a task that is scheduled, held or parked stays as it is.
//
// Each bucket is a transaction of its own; an error leaves what was purged before it.
func (s *Store) Purge(ctx context.Context, olderThan time.Duration, limit int) (purged int, more bool, err error) {
	first := rand.IntN(len(s.buckets)) // so that no bucket waits for the others
	for i := range s.buckets {
		if err := context.Cause(ctx); err != nil {
			return purged, true, err
		}
		bucket := s.buckets[(first+i)%len(s.buckets)]
		n, err := s.purgeBucket(ctx, bucket, olderThan, limit-purged)
		purged += n
		if err != nil || purged >= limit {
			return purged, true, err
		}
	}
	return purged, false, nil
}

func (s *Store) purgeBucket(ctx context.Context, bucket int16, olderThan time.Duration, limit int) (purged int, err error) {
	args := pgx.NamedArgs{"bucket": bucket, "older_ms": olderThan.Milliseconds(), "limit": limit}
	ids, err := s.ids(ctx, s.pool, purgeableSQL, args)
	if err != nil || len(ids) == 0 {
		return 0, unchanged("look for notifications to purge", err)
	}
	err = s.transact(ctx, "purge notifications", func(ctx context.Context, tx pgx.Tx) error {
		tasks, err := s.ids(ctx, tx, lockTasksSQL, pgx.NamedArgs{"ids": ids, "bucket": bucket})
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, purgeSQL, pgx.NamedArgs{"ids": ids, "tasks": tasks, "bucket": bucket})
		purged = int(tag.RowsAffected())
		return err
	})
	return purged, err
}

// querier is what a pool and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Store) ids(ctx context.Context, q querier, sql string, args pgx.NamedArgs) ([]tidings.UUID, error) {
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[tidings.UUID])
}

// deleteTombstonesSQL deletes the oldest tombstones, through notification_tombstone.
const deleteTombstonesSQL = `WITH old AS MATERIALIZED (
		SELECT n.id, n.bucket FROM tidings.notification n
		 WHERE n.purged_at < statement_timestamp() - @older_ms::float8 * interval '1 millisecond' AND n.bucket = ANY (@buckets::smallint[])
		 ORDER BY n.purged_at LIMIT @limit FOR UPDATE SKIP LOCKED
	)
	DELETE FROM tidings.notification n USING old o WHERE n.id = o.id AND n.bucket = o.bucket AND n.bucket = ANY (@buckets::smallint[])`

// DeleteTombstones deletes up to limit rows of notifications that were purged longer ago than olderThan and returns how many there
// were and whether there may be more.
//
// What is lost then is the memory of the key: a submission that is repeated later still makes a new notification, which is
// sent again, and by the same key only as long as its provider remembers. So olderThan has to be longer than the longest
// time after which anybody repeats a submission: the retention of queues, outboxes and backups.
func (s *Store) DeleteTombstones(ctx context.Context, olderThan time.Duration, limit int) (deleted int, more bool, err error) {
	deleted, err = s.delete(ctx, "delete tombstones", deleteTombstonesSQL, pgx.NamedArgs{
		"older_ms": float64(olderThan) / float64(time.Millisecond), "buckets": s.buckets, "limit": limit})
	return deleted, err != nil || deleted >= limit, err
}

func (s *Store) delete(ctx context.Context, doing, sql string, args pgx.NamedArgs) (deleted int, err error) {
	err = s.write(ctx, doing, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, sql, args)
		deleted = int(tag.RowsAffected())
		return err
	})
	return deleted, err
}
