// What gauges read.

package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Gauges are the figures that an operator is alerted by. Each costs an index probe or a count that stops.
type Gauges struct {
	OldestDue []OldestDue    // for each channel and priority
	InFlight  map[string]int // tasks that a worker holds, by channel
	Review    map[string]int // tasks that wait for a person, by channel, at most reviewLimit in all

	UnmatchedReceipts int // receipts that found no task so far, at most countLimit
	Horizon           Horizon
	JournalLag        float64 // age in seconds of the oldest row of the journal of what was taken back that was not copied; 0: there is none
}

// OldestDue is how long the oldest due task of a channel and priority has been due.
type OldestDue struct {
	Channel  string
	Priority tidings.Priority
	Seconds  float64 // 0 when nothing is due
}

// Horizon is what holds vacuum back. While something does, dead entries pile up in front of every queue.
type Horizon struct {
	Known        bool    // whether this role may see the other sessions; if not, the figures are of this session's role only
	Seconds      float64 // age of the oldest transaction with a snapshot, open or prepared
	Transactions int64   // by how many transactions the horizon lies back; also counts replication slots and standbys
}

const reviewLimit = 100_000

// oldestDueSQL probes the front of task_due. It looks at every due task, never past a watermark.
const oldestDueSQL = `SELECT coalesce((SELECT date_part('epoch', statement_timestamp() - t.next_attempt_at) FROM tidings.task t
	WHERE t.channel = @channel::text AND t.priority = @priority::smallint AND t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review
	  AND t.next_attempt_at <= statement_timestamp() AND t.bucket = ANY (@buckets::smallint[])
	ORDER BY t.next_attempt_at LIMIT 1), 0)`

// channelLimit is how many channels ScheduledChannels finds at most: preferences may name any.
const channelLimit = 200

// scheduledSQL steps through task_due from each channel to the next, so that it costs an index probe for each channel and not
// one for each task.
const scheduledSQL = `WITH RECURSIVE step (channel) AS (
		(SELECT t.channel FROM tidings.task t WHERE t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review AND t.bucket = ANY (@buckets::smallint[])
		  ORDER BY t.channel LIMIT 1)
		 UNION ALL
		SELECT (SELECT t.channel FROM tidings.task t WHERE t.channel > s.channel AND t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review
			AND t.bucket = ANY (@buckets::smallint[]) ORDER BY t.channel LIMIT 1)
		  FROM step s WHERE s.channel IS NOT NULL
	)
	SELECT s.channel FROM step s WHERE s.channel IS NOT NULL LIMIT @limit`

// ScheduledChannels are the channels that have scheduled tasks, whether anybody serves them or not, by name; at most channelLimit.
func (s *Store) ScheduledChannels(ctx context.Context) ([]string, error) {
	var channels []string
	err := s.byIndex(ctx, scheduledSQL, pgx.NamedArgs{"buckets": s.buckets, "limit": channelLimit}, func(rows pgx.Rows) (err error) {
		channels, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, nil)
	return channels, unchanged("find channels with scheduled tasks", err)
}

// inFlightSQL counts the calls in flight through task_lease.
const inFlightSQL = `SELECT t.channel, count(*) FROM tidings.task t
	WHERE t.state = 'SENDING' AND t.bucket = ANY (@buckets::smallint[]) GROUP BY t.channel`

// parkedSQL counts the parked tasks through task_review.
const parkedSQL = `SELECT p.channel, count(*) FROM (
		SELECT t.channel FROM tidings.task t WHERE t.needs_review AND t.bucket = ANY (@buckets::smallint[])
		 ORDER BY t.doubt_at LIMIT @limit -- the order keeps it on its index
	) p GROUP BY p.channel`

// unmatchedSQL counts receipts through receipt_unmatched.
const unmatchedSQL = `SELECT count(*) FROM (SELECT FROM tidings.receipt r WHERE r.matched_task IS NULL LIMIT @limit) u`

// horizonSQL reads what keeps vacuum from removing dead rows of this database: snapshots and transactions of its sessions (a
// vacuum's own does not count), prepared transactions, replication slots and the standbys that send feedback.
const horizonSQL = `WITH held AS MATERIALIZED (
		SELECT a.xact_start AS since, greatest(age(a.backend_xmin), age(a.backend_xid)) AS xacts FROM pg_catalog.pg_stat_activity a
		 WHERE a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker' AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
		   AND (a.datname = current_database() OR a.datname IS NULL)
		 UNION ALL
		SELECT p.prepared, age(p.transaction) FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
		 UNION ALL
		SELECT NULL, greatest(age(r.xmin), age(r.catalog_xmin)) FROM pg_catalog.pg_replication_slots r WHERE r.xmin IS NOT NULL OR r.catalog_xmin IS NOT NULL
	)
	SELECT pg_has_role('pg_read_all_stats', 'USAGE'),
		coalesce(greatest(date_part('epoch', statement_timestamp() - min(h.since)), 0), 0), coalesce(max(h.xacts), 0)
	  FROM held h`

// Others are signs that a worker runs beside this process.
type Others struct {
	Sessions int // other sessions of this database whose application_name begins with tidings, as far as this role may see them
	Leases   int // held tasks whose lease is not over; a worker that was just killed leaves such, too
}

// othersSQL looks at the sessions and, through task_lease, at the held tasks.
const othersSQL = `SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity a
		WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.application_name LIKE 'tidings%'),
	(SELECT count(*) FROM tidings.task t WHERE t.state = 'SENDING' AND t.lease_until > statement_timestamp() AND t.bucket = ANY (@buckets::smallint[]))`

// Others looks for workers. The store's own further connections count as others: ask before there are any.
func (s *Store) Others(ctx context.Context) (o Others, err error) {
	err = s.pool.QueryRow(ctx, othersSQL, pgx.NamedArgs{"buckets": s.buckets}).Scan(&o.Sessions, &o.Leases)
	return o, unchanged("look for workers", err)
}

// Gauges reads the figures for the given channels, and for all others that have scheduled tasks: perhaps nobody serves those.
func (s *Store) Gauges(ctx context.Context, channels []string) (Gauges, error) {
	g := Gauges{InFlight: map[string]int{}, Review: map[string]int{}}
	scheduled, err := s.ScheduledChannels(ctx)
	if err != nil {
		return g, err
	}
	channels = slices.Concat(channels, scheduled)
	slices.Sort(channels)
	channels = slices.Compact(channels)
	for _, channel := range channels {
		g.InFlight[channel], g.Review[channel] = 0, 0
		for _, p := range []tidings.Priority{tidings.Urgent, tidings.Normal, tidings.Bulk} {
			g.OldestDue = append(g.OldestDue, OldestDue{Channel: channel, Priority: p})
		}
	}
	batch := &pgx.Batch{}
	for i := range g.OldestDue {
		o := &g.OldestDue[i]
		batch.Queue(oldestDueSQL, pgx.NamedArgs{"channel": o.Channel, "priority": o.Priority, "buckets": s.buckets}).
			QueryRow(func(row pgx.Row) error { return row.Scan(&o.Seconds) })
	}
	count := func(into map[string]int) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			var channel string
			var n int
			_, err := pgx.ForEachRow(rows, []any{&channel, &n}, func() error { into[channel] = n; return nil })
			return err
		}
	}
	batch.Queue(inFlightSQL, pgx.NamedArgs{"buckets": s.buckets}).Query(count(g.InFlight))
	batch.Queue(parkedSQL, pgx.NamedArgs{"buckets": s.buckets, "limit": reviewLimit}).Query(count(g.Review))
	batch.Queue(unmatchedSQL, pgx.NamedArgs{"limit": countLimit}).
		QueryRow(func(row pgx.Row) error { return row.Scan(&g.UnmatchedReceipts) })
	batch.Queue(journalLagSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&g.JournalLag) })
	batch.Queue(horizonSQL).
		QueryRow(func(row pgx.Row) error {
			return row.Scan(&g.Horizon.Known, &g.Horizon.Seconds, &g.Horizon.Transactions)
		})
	return g, unchanged("read gauges", s.pool.SendBatch(ctx, batch).Close())
}
