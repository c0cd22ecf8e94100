// Recovery after a restore: tasks that may have been sent in the lost time.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// recoverBatch is how many tasks and conversations one transaction of a recovery changes.
const recoverBatch = 1000

const (
	recoverColumns = `t.id, t.bucket, t.channel, t.priority, t.state, t.next_attempt_at, t.attempt_token, t.attempt_count + 1 AS n, statement_timestamp() AS now_at,
			coalesce(t.first_call_at, greatest(nf.created_at, @lost_since::timestamptz), statement_timestamp()) AS first_call_at
		  FROM tidings.task t LEFT JOIN tidings.notification nf ON nf.id = t.notification_id AND nf.bucket = t.bucket`

	// recovered puts tasks in doubt. They are due at once, a microsecond apart as claims like them; an ordered resend is
	// taken back, because it may have been made in the lost time and was ordered once.
	recovered = `, doubted AS MATERIALIZED (
		SELECT m.*, m.now_at + row_number() OVER () * interval '1 microsecond' AS next_at FROM mine m
	), changed AS (
		UPDATE tidings.task t SET state = 'UNKNOWN', attempt_token = NULL, lease_owner = NULL, lease_until = NULL, attempt_count = d.n,
			outcome_uncertain = true, force_send = false, next_attempt_at = d.next_at, doubt_at = d.now_at, first_call_at = d.first_call_at
		  FROM doubted d WHERE t.id = d.id AND t.bucket = d.bucket AND t.bucket = ANY (@buckets::smallint[])
	), journal AS (
		INSERT INTO tidings.attempt (bucket, task_id, n, action, worker, started_at, finished_at, outcome, detail)
		SELECT d.bucket, d.id, d.n, 'NONE', 'recover', d.now_at, d.now_at, 'RECOVERED_UNCERTAIN', @run::text FROM doubted d
	)`

	recoveredRows = `
	SELECT d.channel, d.priority, d.state, coalesce(d.next_attempt_at, d.now_at), d.id
	  FROM doubted d ORDER BY d.channel, d.priority, d.next_attempt_at, d.id`
)

// recoverHeldSQL puts held tasks in doubt, through task_lease. Their attempts end as LEASE_EXPIRED: nobody will report.
// edge: recover-sending
const recoverHeldSQL = `WITH mine AS MATERIALIZED (
		SELECT ` + recoverColumns + `
		 WHERE t.state = 'SENDING' AND t.bucket = ANY (@buckets::smallint[])
		 ORDER BY t.channel, t.lease_until, t.id LIMIT @limit FOR UPDATE OF t
	)` + recovered + `, lost AS (
		UPDATE tidings.attempt a SET outcome = 'LEASE_EXPIRED', finished_at = d.now_at
		  FROM doubted d WHERE a.task_id = d.id AND a.bucket = d.bucket AND a.bucket = ANY (@buckets::smallint[])
		   AND a.token = d.attempt_token AND a.outcome IS NULL
	)` + recoveredRows

// recoverDueSQL puts scheduled tasks in doubt that were due before the last worker stopped, in the order of task_due and from a
// place in it on. A task that this run has changed lies further on in it and is left out by its journal.
// edge: recover-pending
const recoverDueSQL = `WITH mine AS MATERIALIZED (
		SELECT ` + recoverColumns + `
		 WHERE t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review AND t.next_attempt_at < @stopped_at::timestamptz
		   AND t.bucket = ANY (@buckets::smallint[])
		   AND (t.channel, t.priority, t.next_attempt_at, t.id) > (@channel::text, @priority::smallint, @at::timestamptz, @id::uuid)
		   AND NOT EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket AND a.n = t.attempt_count
				AND a.outcome = 'RECOVERED_UNCERTAIN' AND a.detail = @run::text)
		 ORDER BY t.channel, t.priority, t.next_attempt_at, t.id LIMIT @limit FOR UPDATE OF t
	)` + recovered + recoveredRows

// nowSQL reads the database's clock and makes the name of a run.
const nowSQL = `SELECT statement_timestamp(), 'recovery ' || gen_random_uuid()`

// doubtAll puts every task in doubt that may have been sent in the lost time.
func (s *Store) doubtAll(ctx context.Context, o RecoverOptions, report *RecoverReport) error {
	var now time.Time
	var run string
	if err := s.pool.QueryRow(ctx, nowSQL).Scan(&now, &run); err != nil {
		return unchanged("begin a recovery", err)
	}
	if o.StoppedAt == nil {
		o.StoppedAt = &now
	}
	args := pgx.NamedArgs{"stopped_at": o.StoppedAt, "lost_since": o.LostSince, "run": run, "buckets": s.buckets, "limit": recoverBatch,
		"channel": "", "priority": int16(0), "at": time.Time{}, "id": tidings.UUID{}}
	for _, sql := range []string{recoverHeldSQL, recoverDueSQL} {
		// A batch can be short because somebody settled one of its tasks meanwhile: only an empty one is the end.
		for n := 1; n > 0; {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			var last recoveredTask
			batch, err := s.recoverBatch(ctx, sql, args)
			if err != nil {
				return err
			}
			n = len(batch)
			for _, last = range batch {
				switch last.State {
				case tidings.Sending:
					report.Sending++
				case tidings.Pending:
					report.Pending++
				default:
					report.Unknown++
				}
			}
			if sql == recoverDueSQL && n > 0 {
				args["channel"], args["priority"], args["at"], args["id"] = last.Channel, last.Priority, last.At, last.ID
			}
		}
	}
	return nil
}

type recoveredTask struct {
	Channel  string
	Priority int16
	State    tidings.State // before
	At       time.Time     // when it was due
	ID       tidings.UUID
}

func (s *Store) recoverBatch(ctx context.Context, sql string, args pgx.NamedArgs) (batch []recoveredTask, err error) {
	err = s.write(ctx, "put tasks in doubt", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, sql, args)
		if err != nil {
			return err
		}
		batch, err = pgx.CollectRows(rows, pgx.RowToStructByPos[recoveredTask])
		return err
	})
	return batch, err
}
