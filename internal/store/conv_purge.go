// Purges the events whose retention is over, and forgets the keys that are kept of them.

package store

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
)

const (
	// purgeStep is how many events a step of PurgeLogs purges at most.
	purgeStep = 200
	// purgePause is for how much longer PurgeLogs leaves a log to others between two steps than a step has locked it.
	purgePause = 3
	// leastStep is a step that is not halved any more.
	leastStep = 16
	// purgeTimeout ends a step's statement, and a step whose process does not go on.
	purgeTimeout = time.Second
	// expiredPage is how many conversations with a retention PurgeLogs looks at at once.
	expiredPage = 200
)

// Purged is what a step of PurgeLog did.
type Purged struct {
	Events     int           // were deleted
	Tombstones int           // were written: one for each message and recall among them
	MinSeq     int64         // the first seq that is kept now; 0: another process is purging this log, and nothing was done
	More       bool          // the next step will probably find more
	Held       time.Duration // how long the log was locked, as seen from here
}

// They bound how long a step keeps others from a log, by a process that does not go on and by its statement.
const (
	purgeIdleSQL  = `SELECT set_config('idle_in_transaction_session_timeout', @limit_ms::text, true)`
	purgeLimitSQL = `SELECT set_config('statement_timeout', @limit_ms::text, true)`
)

// purgeLogSQL purges from the front of a log, by event's primary key: up to the last one that is too old among the first @limit, however
// young a clock that was set back made those before it look. Nothing is purged of a log that is kept for ever. The tombstones
// are of the same statement: no send finds neither the event nor its tombstone.
const purgeLogSQL = `WITH head AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.min_seq, c.retention_ms, statement_timestamp() - c.retention_ms * interval '1 millisecond' AS over_at
		  FROM tidings.conversation c WHERE c.conv_id = @conv::text
	), front AS MATERIALIZED (
		SELECT e.conv_id, e.seq, e.sender_user, e.cmid, e.created_at, e.created_at < h.over_at AS over
		  FROM head h JOIN tidings.event e ON e.conv_id = h.conv_id AND e.seq >= h.min_seq
		 WHERE e.conv_id = @conv::text AND h.retention_ms IS NOT NULL ORDER BY e.seq LIMIT @limit::bigint
	), cut AS MATERIALIZED (
		SELECT max(f.seq) FILTER (WHERE f.over) AS seq, count(*) = @limit::bigint AND bool_or(f.over) AND max(f.seq) = max(f.seq) FILTER (WHERE f.over) AS more FROM front f
	), kept AS (
		INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq)
		SELECT f.conv_id, f.sender_user, f.cmid, f.seq FROM front f JOIN cut k ON f.seq <= k.seq WHERE f.cmid IS NOT NULL
		ON CONFLICT (conv_id, sender_user, cmid) DO NOTHING RETURNING conv_id
	), deleted AS (
		DELETE FROM tidings.event e USING head h, cut k WHERE e.conv_id = @conv::text AND e.seq >= h.min_seq AND e.seq <= k.seq RETURNING e.conv_id
	), advanced AS (
		UPDATE tidings.conversation c SET min_seq = greatest(c.min_seq, k.seq + 1) FROM cut k WHERE c.conv_id = @conv::text AND k.seq IS NOT NULL
	), noted AS (
		INSERT INTO tidings.taken_back (conv_id, what, cutoff_at, epoch)
		SELECT h.conv_id, 'purge', f.created_at, h.epoch FROM head h CROSS JOIN cut k JOIN front f ON f.seq = k.seq
	)
	SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM kept), coalesce(k.seq + 1, h.min_seq), coalesce(k.more, false) FROM head h CROSS JOIN cut k`

// PurgeLog purges from the front of a conversation's log what is older than its retention, at most limit events, in one transaction:
// the events go, the keys of messages and recalls stay as tombstones, min_seq grows, and the journal of what was taken
// back says so. Whoever reads or sends meanwhile sees all of it or nothing. NOT_FOUND tells that there is no such conversation.
//
// It keeps others from the log from the lock to the commit. For 200 events with bodies of 200 bytes that was 30 ms (median) and 280 ms
// (longest of 200 steps) on two cores that twenty other processes kept busy. A statement that takes a second is rolled back and tried again
// with half as many events; with one more second each before and after it, after which the server ends a process that does not go on, no
// step locks a log for longer than 3 s and its commit.
//
// One process at a time purges a log, so that the waits for several do not add up.
func (s *Store) PurgeLog(ctx context.Context, conv string, limit int) (Purged, error) {
	if limit < 1 {
		return Purged{}, tidings.Errorf(tidings.InvalidArgument, "purge a conversation: limit is %d", limit)
	}
	for {
		p, err := s.purgeLog(ctx, conv, limit)
		if !timedOut(err) || limit <= leastStep {
			return p, err
		}
		limit /= 2
	}
}

// timedOut tells whether a statement was ended because it took too long.
func timedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "57014"
}

func (s *Store) purgeLog(ctx context.Context, conv string, limit int) (p Purged, err error) {
	var locked time.Time
	err = s.transact(ctx, "purge a conversation", func(ctx context.Context, tx pgx.Tx) error {
		p, locked = Purged{}, time.Time{}
		var alone bool
		first := &pgx.Batch{}
		first.Queue(byKeySQL)
		first.Queue(purgeIdleSQL, pgx.NamedArgs{"limit_ms": milliseconds(purgeTimeout)})
		first.Queue(takingSQL, pgx.NamedArgs{"key": purgeKey(conv)}).QueryRow(func(row pgx.Row) error { return row.Scan(&alone) })
		if err := tx.SendBatch(ctx, first).Close(); err != nil || !alone {
			return err
		}
		if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
			return err
		}
		locked = time.Now()
		step := &pgx.Batch{}
		step.Queue(purgeLimitSQL, pgx.NamedArgs{"limit_ms": milliseconds(purgeTimeout)})
		step.Queue(purgeLogSQL, pgx.NamedArgs{"conv": conv, "limit": limit}).QueryRow(func(row pgx.Row) error {
			return row.Scan(&p.Events, &p.Tombstones, &p.MinSeq, &p.More)
		})
		return tx.SendBatch(ctx, step).Close()
	})
	if err != nil {
		return Purged{}, err
	}
	if !locked.IsZero() {
		p.Held = time.Since(locked)
	}
	return p, nil
}

// purgeKey is the key of the advisory lock under which a conversation is purged. Two with the same key only wait for each other.
func purgeKey(conv string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("purge/" + conv)) // never fails
	return int64(h.Sum64())
}

// expiredSQL looks at the oldest event of each conversation with a retention, through conversation_retained and event's primary key.
const expiredSQL = `SELECT c.conv_id, coalesce(e.created_at < statement_timestamp() - c.retention_ms * interval '1 millisecond', false)
	  FROM tidings.conversation c LEFT JOIN tidings.event e ON e.conv_id = c.conv_id AND e.seq = c.min_seq
	 WHERE c.retention_ms IS NOT NULL AND c.conv_id > @after::text ORDER BY c.conv_id LIMIT @limit::bigint`

// Expired looks at up to limit conversations that have a retention, those with an id above after, in the order of their ids, and returns
// those whose oldest event is older than it. next is where the next page begins; more: there is one. Conversations that are
// kept for ever cost nothing.
func (s *Store) Expired(ctx context.Context, after string, limit int) (convs []string, next string, more bool, err error) {
	next = after
	looked := 0
	err = s.eachByKey(ctx, expiredSQL, pgx.NamedArgs{"after": after, "limit": limit}, func(row pgx.Rows) error {
		var over bool
		if err := row.Scan(&next, &over); err != nil {
			return err
		}
		if looked++; over {
			convs = append(convs, next)
		}
		return nil
	})
	if err != nil {
		return nil, after, false, unchanged("look for conversations to purge", err)
	}
	return convs, next, looked == limit, nil
}

// PurgedLogs is what a pass of PurgeLogs did.
type PurgedLogs struct {
	Conversations int // of which something was purged
	Events        int
	Tombstones    int
	Longest       time.Duration // for which one log was locked
}

// PurgeLogs purges every conversation that has a retention, in steps, until nothing is left to do or ctx ends. Between two steps it
// leaves a log to others for three times as long as it had it. A conversation that cannot be purged, because somebody holds it, is left to
// the next pass; the error is the first one of those.
func (s *Store) PurgeLogs(ctx context.Context) (all PurgedLogs, err error) {
	for after, more := "", true; more; {
		var convs []string
		var failed error
		if convs, after, more, failed = s.Expired(ctx, after, expiredPage); failed != nil {
			return all, failed
		}
		// Several processes do not go through them in step.
		rand.Shuffle(len(convs), func(i, j int) { convs[i], convs[j] = convs[j], convs[i] })
		for _, conv := range convs {
			if failed := s.purgeWhole(ctx, conv, &all); failed != nil && err == nil {
				err = fmt.Errorf("%s: %w", conv, failed)
			}
			if ctx.Err() != nil {
				return all, context.Cause(ctx)
			}
		}
	}
	return all, err
}

// purgeWhole purges one conversation in steps.
func (s *Store) purgeWhole(ctx context.Context, conv string, all *PurgedLogs) error {
	some := false
	for limit := purgeStep; ; {
		p, err := s.PurgeLog(ctx, conv, limit)
		all.Events, all.Tombstones, all.Longest = all.Events+p.Events, all.Tombstones+p.Tombstones, max(all.Longest, p.Held)
		if p.Events > 0 && !some {
			some = true
			all.Conversations++
		}
		if err != nil || !p.More {
			return err
		}
		limit = p.Events // it was halved, if it took too long
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(purgePause * p.Held):
		}
	}
}

// forgetMessagesSQL deletes the oldest tombstones of messages, through tombstone_age.
const forgetMessagesSQL = `WITH old AS MATERIALIZED (
		SELECT b.conv_id, b.sender_user, b.cmid FROM tidings.tombstone b
		 WHERE b.purged_at < statement_timestamp() - @older_ms::float8 * interval '1 millisecond' ORDER BY b.purged_at LIMIT @limit::bigint FOR UPDATE SKIP LOCKED
	), deleted AS (
		DELETE FROM tidings.tombstone b USING old o WHERE b.conv_id = o.conv_id AND b.sender_user = o.sender_user AND b.cmid = o.cmid
	)
	SELECT count(*) FROM old`

// ForgetMessages deletes up to limit tombstones of messages that were purged longer ago than olderThan, and returns how many there were
// and whether there may be more. What is lost is the memory of the key: a message that is sent again later still is a new one. So
// olderThan has to be longer than any client keeps an unanswered message before it asks a person.
func (s *Store) ForgetMessages(ctx context.Context, olderThan time.Duration, limit int) (n int, more bool, err error) {
	args := pgx.NamedArgs{"older_ms": float64(olderThan) / float64(time.Millisecond), "limit": limit}
	err = s.write(ctx, "forget purged messages", func(ctx context.Context) error {
		return s.eachByKey(ctx, forgetMessagesSQL, args, func(row pgx.Rows) error { return row.Scan(&n) })
	})
	return n, err != nil || n >= limit, err
}
