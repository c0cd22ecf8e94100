// The questions of verify about notifications and devices.

package store

// A question reads the rows between @low and @high and answers how many it examined, how many of them violate, and the ids of one that
// does.
type question struct{ name, promise, title, sql string }

// questions are asked of ranges of buckets, through the primary keys, whose first byte is the bucket.
var questions = []question{
	{"one-notification-per-key", "P1", "no two notifications have one (user, event_key)", verifyKeysSQL},
	{"notification-in-its-bucket", "P1", "every notification carries the bucket of its user, in the column and in its id", verifyBucketsSQL},
	{"one-task-per-address", "P2", "no two tasks have one (notification, channel, slot)", verifyTasksSQL},
	{"task-is-its-key", "P2", "every task's id is derived from what it is, so that its key at the provider is its own", verifyTaskIDsSQL},
	{"one-open-attempt", "P2", "no task has two attempts without an end", verifyOpenSQL},
	{"holder-in-journal", "P3", "every held task has the journal row of its token, a call without an end", verifyHolderSQL},
	{"journal-complete", "P3", "the rows of every task's journal are numbered from 1 to its attempt count", verifyJournalSQL},
	{"no-lost-end", "P3", "an attempt without an end belongs to a held task, or its task became SENT by a receipt", verifyEndsSQL},
	{"sent-has-evidence", "P3", "every SENT task has an acceptance, a receipt or a person's word in its journal", verifySentSQL},
	{"not-sent-is-certain", "P4", "no FAILED or SUPPRESSED task that no person settled has an unknown outcome that nothing cleared", verifyCertainSQL},
	{"no-call-after-expiry", "P5", "no attempt was claimed after its notification expired", verifyExpirySQL},
	{"no-call-after-stop", "P5", "no attempt was claimed when it had been cancelled or its source was gone for longer than a claim can take", verifyStopSQL},
	{"no-call-after-parking", "P6", "after a task was parked because it must not be sent any more, no call follows without a person's order", verifyParkedSQL},
	{"one-acceptance", "P6", "where duplicates are forbidden, no task was accepted twice under two provider ids without a person's order", verifyOnceSQL},
	{"nothing-stuck", "P7", "every task that is not final is either scheduled, held or parked", verifyStuckSQL},
	{"task-has-notification", "P7", "every task belongs to a notification that was not purged; another would never be claimed", verifyTaskOrphansSQL},
	{"attempt-has-task", "P3", "every attempt belongs to a task", verifyAttemptOrphansSQL},
	{"route-of-a-known-hello", "R7", "every route comes from a hello that its device's row has counted", verifyRoutesSQL},
	{"no-contradiction", "", "no provider reported on a message that it had certainly not accepted by its contract", verifyContradictionSQL},
}

const (
	// sliceOf… bound the primary key of a table to the slice.
	sliceLow     = ` >= (lpad(to_hex(@low::int), 2, '0') || repeat('0', 30))::uuid AND `
	sliceHigh    = ` <= (lpad(to_hex(@high::int), 2, '0') || repeat('f', 30))::uuid`
	sliceNotes   = `n.id` + sliceLow + `n.id` + sliceHigh
	sliceTasks   = `t.id` + sliceLow + `t.id` + sliceHigh
	sliceJournal = `a.task_id` + sliceLow + `a.task_id` + sliceHigh

	// uncertain: attempt a may have been accepted.
	uncertain = `(a.action = 'SEND' AND a.outcome IN ('TIMEOUT', 'IO_ERROR', 'LEASE_EXPIRED') OR a.outcome = 'RECOVERED_UNCERTAIN')`
)

// verifyKeysSQL counts by the rows, whatever the unique index says of them.
const verifyKeysSQL = `SELECT coalesce(sum(g.n), 0), count(*) FILTER (WHERE g.n > 1), min(g.id::text) FILTER (WHERE g.n > 1)
	FROM (SELECT count(*) AS n, min(n.id::text) AS id FROM tidings.notification n WHERE ` + sliceNotes + ` GROUP BY n.user_id, n.event_key) g`

const verifyBucketsSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT n.id, n.bucket <> tidings.bucket_of(n.user_id) OR n.bucket <> get_byte(uuid_send(n.id), 0) AS bad
		FROM tidings.notification n WHERE ` + sliceNotes + `) v`

const verifyTasksSQL = `SELECT coalesce(sum(g.n), 0), count(*) FILTER (WHERE g.n > 1), min(g.id::text) FILTER (WHERE g.n > 1)
	FROM (SELECT count(*) AS n, min(t.id::text) AS id FROM tidings.task t WHERE ` + sliceTasks + ` GROUP BY t.notification_id, t.channel, t.slot) g`

// verifyTaskIDsSQL: what was erased has its hash, but nothing any more to compare it with.
const verifyTaskIDsSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, t.user_id <> n.user_id OR t.bucket <> n.bucket
			OR t.id <> tidings.task_id(n.bucket, i.id, n.payload_hash, t.channel, t.slot)
			OR n.erased_at IS NULL AND n.payload_hash <> tidings.payload_hash(n.user_id, n.event_key, n.title, n.body, n.data, n.category, n.about_conv, n.about_seq) AS bad
		FROM tidings.task t JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket CROSS JOIN tidings.installation i
		WHERE ` + sliceTasks + ` AND n.purged_at IS NULL) v`

const verifyOpenSQL = `SELECT coalesce(sum(g.n), 0), count(*) FILTER (WHERE g.open > 1), min(g.task_id::text) FILTER (WHERE g.open > 1)
	FROM (SELECT a.task_id, count(*) AS n, count(*) FILTER (WHERE a.outcome IS NULL) AS open
		FROM tidings.attempt a WHERE ` + sliceJournal + ` GROUP BY a.task_id) g`

const verifyHolderSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, NOT EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket AND a.token = t.attempt_token
			AND a.action IN ('SEND', 'QUERY') AND a.outcome IS NULL) AS bad
		FROM tidings.task t WHERE t.state = 'SENDING' AND ` + sliceTasks + `) v`

const verifyJournalSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, t.attempt_count <> j.n OR j.low <> 1 OR j.high <> j.n AS bad
		FROM tidings.task t CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(min(a.n), 1) AS low, coalesce(max(a.n), 0) AS high
			FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket) j
		WHERE ` + sliceTasks + `) v`

const verifyEndsSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(task_id::text) FILTER (WHERE bad)
	FROM (SELECT a.task_id, NOT (t.state = 'SENDING' AND t.attempt_token = a.token) AND NOT (t.state = 'SENT' AND EXISTS (
			SELECT FROM tidings.attempt r WHERE r.task_id = a.task_id AND r.bucket = a.bucket AND r.n > a.n AND r.outcome = 'RECEIPT')) AS bad
		FROM tidings.attempt a JOIN tidings.task t ON t.id = a.task_id AND t.bucket = a.bucket
		WHERE a.outcome IS NULL AND ` + sliceJournal + `) v`

const verifySentSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, NOT EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket
			AND a.outcome IN ('ACCEPTED', 'ACCEPTED_REPLAY', 'QUERY_FOUND', 'RECEIPT', 'MANUAL_SENT')) AS bad
		FROM tidings.task t WHERE t.state = 'SENT' AND ` + sliceTasks + `) v`

// verifyCertainSQL: what clears a doubt is a later QUERY_NOT_FOUND, as far as it was conclusive.
const verifyCertainSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, t.outcome_uncertain OR EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket AND ` + uncertain + `
			AND NOT EXISTS (SELECT FROM tidings.attempt q WHERE q.task_id = a.task_id AND q.bucket = a.bucket AND q.n > a.n AND q.outcome = 'QUERY_NOT_FOUND')) AS bad
		FROM tidings.task t WHERE t.state IN ('FAILED', 'SUPPRESSED') AND t.settled_by IS NULL AND ` + sliceTasks + `) v`

const verifyExpirySQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(task_id::text) FILTER (WHERE bad)
	FROM (SELECT a.task_id, a.started_at >= n.expires_at AS bad
		FROM tidings.attempt a JOIN tidings.task t ON t.id = a.task_id AND t.bucket = a.bucket
		JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
		WHERE a.action IN ('SEND', 'QUERY') AND ` + sliceJournal + `) v`

// verifyStopSQL leaves out what two transactions at the same time cannot know of each other: no statement that writes takes
// longer than its deadline.
const verifyStopSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(task_id::text) FILTER (WHERE bad)
	FROM (SELECT a.task_id, a.started_at > least(n.cancelled_at, n.about_gone_at) + interval '10 seconds' AS bad
		FROM tidings.attempt a JOIN tidings.task t ON t.id = a.task_id AND t.bucket = a.bucket
		JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
		WHERE a.action IN ('SEND', 'QUERY') AND (n.cancelled_at IS NOT NULL OR n.about_gone_at IS NOT NULL) AND ` + sliceJournal + `) v`

const verifyParkedSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(task_id::text) FILTER (WHERE bad)
	FROM (SELECT s.task_id, EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = s.task_id AND a.bucket = s.bucket AND a.n > s.n AND a.action <> 'NONE'
			AND NOT EXISTS (SELECT FROM tidings.attempt m WHERE m.task_id = s.task_id AND m.bucket = s.bucket AND m.n > s.n AND m.n < a.n AND m.outcome = 'MANUAL_RESEND')) AS bad
		FROM (SELECT a.task_id, a.bucket, a.n FROM tidings.attempt a WHERE ` + sliceJournal + ` AND a.outcome IN ('PREF_DISABLED', 'PREF_DISABLED_UNCERTAIN',
			'TTL_EXPIRED', 'TTL_EXPIRED_UNCERTAIN', 'SOURCE_GONE', 'SOURCE_GONE_UNCERTAIN', 'CANCELLED', 'CANCELLED_UNCERTAIN')) s) v`

const verifyOnceSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, (SELECT count(DISTINCT a.provider_msg_id) FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket
			AND 'ACCEPTED' IN (a.outcome, a.late_outcome)) > 1
			AND NOT EXISTS (SELECT FROM tidings.attempt m WHERE m.task_id = t.id AND m.bucket = t.bucket AND m.outcome IN ('MANUAL_RESEND', 'RECOVERED_UNCERTAIN')) AS bad
		FROM tidings.task t JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
		WHERE n.duplicates = 'forbid' AND t.state = 'SENT' AND ` + sliceTasks + `) v`

const verifyStuckSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, (t.state <> 'SENDING' AND t.next_attempt_at IS NOT NULL AND NOT t.needs_review)::int
			+ (t.state = 'SENDING' AND t.lease_until IS NOT NULL AND t.attempt_token IS NOT NULL AND t.next_attempt_at IS NULL)::int
			+ (t.state = 'UNKNOWN' AND t.needs_review AND t.next_attempt_at IS NULL)::int <> 1 AS bad
		FROM tidings.task t WHERE t.state IN ('PENDING', 'SENDING', 'UNKNOWN') AND ` + sliceTasks + `) v`

const verifyTaskOrphansSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, NOT EXISTS (SELECT FROM tidings.notification n WHERE n.id = t.notification_id AND n.bucket = t.bucket AND n.purged_at IS NULL) AS bad
		FROM tidings.task t WHERE ` + sliceTasks + `) v`

const verifyAttemptOrphansSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(task_id::text) FILTER (WHERE bad)
	FROM (SELECT a.task_id, NOT EXISTS (SELECT FROM tidings.task t WHERE t.id = a.task_id AND t.bucket = a.bucket) AS bad
		FROM tidings.attempt a WHERE ` + sliceJournal + `) v`

const verifyContradictionSQL = `SELECT count(*), count(*) FILTER (WHERE bad), min(id::text) FILTER (WHERE bad)
	FROM (SELECT t.id, EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = t.id AND a.bucket = t.bucket
			AND (a.outcome IN ('RECEIPT', 'ACCEPTED', 'ACCEPTED_REPLAY', 'QUERY_FOUND') OR a.late_outcome IN ('ACCEPTED', 'ACCEPTED_REPLAY', 'QUERY_FOUND'))) AS bad
		FROM tidings.task t WHERE t.state IN ('FAILED', 'SUPPRESSED') AND ` + sliceTasks + `) v`
