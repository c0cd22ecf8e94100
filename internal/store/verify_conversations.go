// The questions of verify about conversations.

package store

// logQuestions are asked of ranges of conversations, through the primary keys, which begin with the conversation.
var logQuestions = []question{
	{"one-event-per-request-key", "R1", "no two events have one (conversation, sender, cmid)", verifyRequestKeysSQL},
	{"purged-key-has-no-event", "R1", "no event has the request key of a purged one", verifyPurgedKeysSQL},
	{"tombstone-below-its-log", "R1", "every tombstone's seq lies below what its conversation still has", verifyTombstonesSQL},
	{"log-without-holes", "R2", "every log has one event at each seq from min_seq to the head, and no other", verifyLogsSQL},
	{"interval-in-its-log", "R3", "every interval of membership begins and ends within its log", verifyIntervalsSQL},
	{"intervals-apart", "R3", "no two intervals of a member overlap, and only the last is open", verifyApartSQL},
	{"interval-has-its-events", "R3", "every interval has the member's join and leave at its ends, unless they were purged", verifyIntervalEventsSQL},
	{"join-and-leave-have-intervals", "R3", "every join begins an interval of the one who joined, every leave ends one", verifyMembershipEventsSQL},
	{"delivered-within-the-log", "R4", "every delivered cursor belongs to somebody who is or was a member, and lies within what they can know of", verifyDeliveredSQL},
	{"read-within-the-log", "R4", "every read cursor belongs to somebody who is or was a member, and lies within what they can know of", verifyReadSQL},
	{"epoch-is-the-generation", "R5", "every conversation's epoch is the generation of the database's history", verifyEpochsSQL},
	{"recalled-has-no-content", "R6", "no recalled message has a body, data or a hash of them", verifyContentSQL},
	{"recalled-names-its-recall", "R6", "every recalled message names the recall, which comes later and names the message", verifyRecalledSQL},
	{"recall-took-effect", "R6", "every recall's message is marked by it, or was purged", verifyRecallsSQL},
	{"recalled-once", "R6", "no message was recalled twice", verifyRecallsOnceSQL},
	{"recall-by-its-sender", "R6", "every recall without an actor is the sender's of the message, unless that was purged", verifyRecallersSQL},
	{"recall-in-its-window", "", "every recall that the sender asked for came within its conversation's present window", verifyWindowsSQL},
}

const (
	// pageOf… bound the primary key of a table to the slice.
	pageConvs      = `c.conv_id > @low::text AND c.conv_id <= @high::text`
	pageEvents     = `e.conv_id > @low::text AND e.conv_id <= @high::text`
	pageTombstones = `b.conv_id > @low::text AND b.conv_id <= @high::text`
	pageMembers    = `m.conv_id > @low::text AND m.conv_id <= @high::text`

	judged     = `SELECT count(*), count(*) FILTER (WHERE v.bad), min(v.id) FILTER (WHERE v.bad) FROM (`
	eventID    = `e.conv_id || '/' || e.seq AS id`
	intervalID = `m.conv_id || '/' || m.user_id || '/' || m.join_seq AS id`
)

// verifyRequestKeysSQL counts by the rows, whatever the unique index says of them.
const verifyRequestKeysSQL = `SELECT coalesce(sum(g.n), 0), count(*) FILTER (WHERE g.n > 1), min(g.id) FILTER (WHERE g.n > 1)
	FROM (SELECT count(*) AS n, min(e.conv_id || '/' || e.seq) AS id FROM tidings.event e
		WHERE e.cmid IS NOT NULL AND ` + pageEvents + ` GROUP BY e.conv_id, e.sender_user, e.cmid) g`

const verifyPurgedKeysSQL = judged + `
	SELECT b.conv_id || '/' || b.seq AS id, EXISTS (SELECT FROM tidings.event e
			WHERE e.conv_id = b.conv_id AND e.sender_user = b.sender_user AND e.cmid = b.cmid) AS bad
	  FROM tidings.tombstone b WHERE ` + pageTombstones + `) v`

const verifyTombstonesSQL = judged + `
	SELECT b.conv_id || '/' || b.seq AS id, (b.seq < c.min_seq) IS NOT TRUE AS bad
	  FROM tidings.tombstone b LEFT JOIN tidings.conversation c ON c.conv_id = b.conv_id WHERE ` + pageTombstones + `) v`

const verifyLogsSQL = judged + `
	SELECT coalesce(c.conv_id, l.conv_id) AS id, (coalesce(l.n, 0) = c.next_seq - c.min_seq
			AND (l.n IS NULL OR l.low = c.min_seq AND l.high = c.next_seq - 1)) IS NOT TRUE AS bad
	  FROM (SELECT c.conv_id, c.min_seq, c.next_seq FROM tidings.conversation c WHERE ` + pageConvs + `) c
	  FULL JOIN (SELECT e.conv_id, count(*) AS n, min(e.seq) AS low, max(e.seq) AS high FROM tidings.event e
			WHERE ` + pageEvents + ` GROUP BY e.conv_id) l ON l.conv_id = c.conv_id) v`

const verifyIntervalsSQL = judged + `
	SELECT ` + intervalID + `, (1 <= m.join_seq AND m.join_seq <= coalesce(m.leave_seq, m.join_seq) AND coalesce(m.leave_seq, m.join_seq) < c.next_seq) IS NOT TRUE AS bad
	  FROM tidings.member m LEFT JOIN tidings.conversation c ON c.conv_id = m.conv_id WHERE ` + pageMembers + `) v`

const verifyApartSQL = judged + `
	SELECT ` + intervalID + `, lead(m.join_seq) OVER w IS NOT NULL AND (m.leave_seq < lead(m.join_seq) OVER w) IS NOT TRUE AS bad
	  FROM tidings.member m WHERE ` + pageMembers + ` WINDOW w AS (PARTITION BY m.conv_id, m.user_id ORDER BY m.join_seq)) v`

const verifyIntervalEventsSQL = judged + `
	SELECT ` + intervalID + `, m.join_seq >= c.min_seq AND NOT EXISTS (SELECT FROM tidings.event e
			WHERE e.conv_id = m.conv_id AND e.seq = m.join_seq AND e.kind = 'join' AND e.sender_user = m.user_id)
		OR m.leave_seq >= c.min_seq AND NOT EXISTS (SELECT FROM tidings.event e
			WHERE e.conv_id = m.conv_id AND e.seq = m.leave_seq AND e.kind = 'leave' AND e.sender_user = m.user_id) AS bad
	  FROM tidings.member m JOIN tidings.conversation c ON c.conv_id = m.conv_id WHERE ` + pageMembers + `) v`

const verifyMembershipEventsSQL = judged + `
	SELECT ` + eventID + `, NOT EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = e.conv_id AND m.user_id = e.sender_user
			AND CASE e.kind WHEN 'join' THEN m.join_seq ELSE m.leave_seq END = e.seq) AS bad
	  FROM tidings.event e WHERE e.kind IN ('join', 'leave') AND ` + pageEvents + `) v`

// knownHeads is, for each member, the last seq of the slice's conversations that they can know of.
const knownHeads = `(SELECT m.conv_id, m.user_id, ` + visibleHead + ` AS head FROM tidings.member m JOIN tidings.conversation c ON c.conv_id = m.conv_id
		WHERE ` + pageMembers + ` GROUP BY m.conv_id, m.user_id, c.next_seq) k`

const verifyDeliveredSQL = judged + `
	SELECT d.conv_id || '/' || d.user_id || '/' || d.device_id AS id, (d.seq <= k.head) IS NOT TRUE AS bad
	  FROM tidings.delivered d LEFT JOIN ` + knownHeads + ` ON k.conv_id = d.conv_id AND k.user_id = d.user_id
	 WHERE d.conv_id > @low::text AND d.conv_id <= @high::text) v`

const verifyReadSQL = judged + `
	SELECT r.conv_id || '/' || r.user_id AS id, (r.seq <= k.head) IS NOT TRUE AS bad
	  FROM tidings.read r LEFT JOIN ` + knownHeads + ` ON k.conv_id = r.conv_id AND k.user_id = r.user_id
	 WHERE r.conv_id > @low::text AND r.conv_id <= @high::text) v`

const verifyEpochsSQL = judged + `
	SELECT c.conv_id AS id, c.epoch IS DISTINCT FROM coalesce(@generation::bigint, (SELECT l.generation FROM tidings.lineage l WHERE l.node = '` + node + `')) AS bad
	  FROM tidings.conversation c WHERE ` + pageConvs + `) v`

const verifyContentSQL = judged + `
	SELECT ` + eventID + `, num_nonnulls(e.body, e.data, e.request_hash) > 0 AS bad
	  FROM tidings.event e WHERE e.recalled_by IS NOT NULL AND ` + pageEvents + `) v`

// verifyRecalledSQL: a recall comes after its message, so that no purge takes it first.
const verifyRecalledSQL = judged + `
	SELECT ` + eventID + `, e.kind <> 'msg' OR e.recalled_by <= e.seq OR NOT EXISTS (SELECT FROM tidings.event r
			WHERE r.conv_id = e.conv_id AND r.seq = e.recalled_by AND r.kind = 'recall' AND r.target_seq = e.seq) AS bad
	  FROM tidings.event e WHERE e.recalled_by IS NOT NULL AND ` + pageEvents + `) v`

const verifyRecallsSQL = judged + `
	SELECT ` + eventID + `, (e.target_seq < c.min_seq OR EXISTS (SELECT FROM tidings.event t
			WHERE t.conv_id = e.conv_id AND t.seq = e.target_seq AND t.recalled_by = e.seq)) IS NOT TRUE AS bad
	  FROM tidings.event e LEFT JOIN tidings.conversation c ON c.conv_id = e.conv_id WHERE e.kind = 'recall' AND ` + pageEvents + `) v`

const verifyRecallsOnceSQL = `SELECT coalesce(sum(g.n), 0), count(*) FILTER (WHERE g.n > 1), min(g.id) FILTER (WHERE g.n > 1)
	FROM (SELECT count(*) AS n, e.conv_id || '/' || e.target_seq AS id FROM tidings.event e
		WHERE e.kind = 'recall' AND ` + pageEvents + ` GROUP BY e.conv_id, e.target_seq) g`

const verifyRecallersSQL = judged + `
	SELECT ` + eventID + `, t.sender_user <> e.sender_user AS bad
	  FROM tidings.event e JOIN tidings.event t ON t.conv_id = e.conv_id AND t.seq = e.target_seq
	 WHERE e.kind = 'recall' AND e.actor_user IS NULL AND ` + pageEvents + `) v`

// verifyWindowsSQL breaks no promise: somebody may have made the window shorter since. A replayed recall has no key.
const verifyWindowsSQL = judged + `
	SELECT ` + eventID + `, e.created_at > t.created_at + c.recall_window_ms * interval '1 millisecond' AS bad
	  FROM tidings.event e JOIN tidings.event t ON t.conv_id = e.conv_id AND t.seq = e.target_seq
	  JOIN tidings.conversation c ON c.conv_id = e.conv_id
	 WHERE e.kind = 'recall' AND e.actor_user IS NULL AND e.cmid IS NOT NULL AND ` + pageEvents + `) v`

// verifyRoutesSQL reads the routes, a row for each connected device, once for each slice of buckets.
const verifyRoutesSQL = judged + `
	SELECT r.user_id || '/' || r.device_id AS id, (r.version <= d.connects) IS NOT TRUE AS bad
	  FROM tidings.route r LEFT JOIN tidings.device d ON d.user_id = r.user_id AND d.device_id = r.device_id AND d.bucket = r.bucket
	 WHERE r.bucket BETWEEN @low::int AND @high::int) v`
