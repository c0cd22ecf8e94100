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
	// purgeTimeout ends each of a step's two statements, and a step whose process does not go on before, between or after them.
	purgeTimeout = 600 * time.Millisecond
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

// purgeFrontSQL finds what a step purges: up to the last one that is too old among the first @limit, however young a clock that was set back
// makes those before it look. Nothing is purged of a log that is kept for ever.
const purgeFrontSQL = `WITH head AS MATERIALIZED (
		SELECT c.epoch, c.min_seq, c.retention_ms, statement_timestamp() - c.retention_ms * interval '1 millisecond' AS over_at
		  FROM tidings.conversation c WHERE c.conv_id = @conv::text
	), front AS MATERIALIZED (
		SELECT e.seq, e.created_at < (SELECT h.over_at FROM head h) AS over FROM tidings.event e
		 WHERE e.conv_id = @conv::text AND e.seq >= (SELECT h.min_seq FROM head h) AND e.seq < (SELECT h.min_seq FROM head h) + @limit::bigint
		   AND (SELECT h.retention_ms FROM head h) IS NOT NULL
	)
	SELECT h.epoch, h.min_seq, coalesce((SELECT max(f.seq) FROM front f WHERE f.over), 0) FROM head h`

// purgeLogSQL purges a range of a log, by event's primary key. The numbers are parameters: a join with what names the range would be planned
// by what the statistics say of a log, and read all of it, as would a way through event_cmid, which has not this order. No send finds neither the event nor its tombstone.
const purgeLogSQL = `WITH kept AS (
		INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq)
		SELECT e.conv_id, e.sender_user, e.cmid, e.seq FROM tidings.event e
		 WHERE e.conv_id = @conv::text AND e.seq >= @min::bigint AND e.seq <= @cut::bigint AND e.cmid IS NOT NULL ORDER BY e.seq
		ON CONFLICT (conv_id, sender_user, cmid) DO NOTHING RETURNING conv_id
	), deleted AS (
		DELETE FROM tidings.event e WHERE e.conv_id = @conv::text AND e.seq >= @min::bigint AND e.seq <= @cut::bigint RETURNING e.conv_id
	), advanced AS (
		UPDATE tidings.conversation c SET min_seq = greatest(c.min_seq, @cut::bigint + 1) WHERE c.conv_id = @conv::text
	), noted AS (
		INSERT INTO tidings.taken_back (conv_id, what, cutoff_at, epoch)
		SELECT e.conv_id, 'purge', e.created_at, @epoch::bigint FROM tidings.event e WHERE e.conv_id = @conv::text AND e.seq = @cut::bigint
	)
	SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM kept)`

// PurgeLog purges from the front of a conversation's log what is older than its retention, at most limit events, in one transaction:
// the events go, the keys of messages and recalls stay as tombstones, min_seq grows, and the journal of what was taken
// back says so. Whoever reads or sends meanwhile sees all of it or nothing. NOT_FOUND tells that there is no such conversation.
//
// It keeps others from the log from the lock to the commit. For 200 events with bodies of 200 bytes that was 30 ms (median) and 280 ms
// (longest of 200 steps) on two cores that twenty other processes kept busy. A statement that takes 0.6 s is rolled back and tried again
// with half as many events. There are two, and as long before, between and after them the server waits for a process that does not go on; so
// no step locks a log for longer than 3 s and its commit.
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
		var epoch, cut int64
		front := &pgx.Batch{}
		front.Queue(purgeLimitSQL, pgx.NamedArgs{"limit_ms": milliseconds(purgeTimeout)})
		front.Queue(purgeFrontSQL, pgx.NamedArgs{"conv": conv, "limit": limit}).QueryRow(func(row pgx.Row) error {
			return row.Scan(&epoch, &p.MinSeq, &cut)
		})
		if err := tx.SendBatch(ctx, front).Close(); err != nil || cut == 0 {
			return err
		}
		purge := pgx.NamedArgs{"conv": conv, "epoch": epoch, "min": p.MinSeq, "cut": cut}
		p.More, p.MinSeq = cut-p.MinSeq+1 == int64(limit), cut+1
		return tx.QueryRow(ctx, purgeLogSQL, purge).Scan(&p.Events, &p.Tombstones)
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

// expiredSQL looks for an event that is too old among those of a first step, of each conversation with a retention, through
// conversation_retained and event's primary key: the very first one may look younger than it is.
const expiredSQL = `WITH page AS MATERIALIZED (
		SELECT c.conv_id, c.min_seq, statement_timestamp() - c.retention_ms * interval '1 millisecond' AS over_at
		  FROM tidings.conversation c WHERE c.retention_ms IS NOT NULL AND c.conv_id > @after::text ORDER BY c.conv_id LIMIT @limit::bigint
	)
	SELECT p.conv_id, coalesce((SELECT true FROM tidings.event e
		WHERE e.conv_id = p.conv_id AND e.seq >= p.min_seq AND e.seq < p.min_seq + @step::bigint AND e.created_at < p.over_at ORDER BY e.seq LIMIT 1), false)
	  FROM page p`

// Expired looks at up to limit conversations that have a retention, those with an id above after, in the order of their ids, and returns
// those with an event older than it, among the 200 that a step looks at. next is where the next page begins; more: there is one.
// Conversations that are kept for ever cost nothing.
func (s *Store) Expired(ctx context.Context, after string, limit int) (convs []string, next string, more bool, err error) {
	next = after
	looked := 0
	err = s.eachByKey(ctx, expiredSQL, pgx.NamedArgs{"after": after, "limit": limit, "step": purgeStep}, func(row pgx.Rows) error {
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
	return s.purgeLogs(ctx, func() error { return nil })
}

// turnKey is the key of the advisory lock of a pass: "purge" in ASCII.
const turnKey = 0x7075726765

// turnIdleSQL lets the server wait longer than usual for the next sign of life of a pass.
const turnIdleSQL = `SELECT set_config('idle_in_transaction_session_timeout', '60s', true)`

// PurgeLogsInTurn is PurgeLogs for what comes round in many processes: while one of them looks at the conversations the others do nothing, and
// mine is false. It needs two connections, one of which keeps the turn.
func (s *Store) PurgeLogsInTurn(ctx context.Context) (all PurgedLogs, mine bool, err error) {
	const doing = "take a turn in purging conversations"
	turn, err := s.pool.Begin(ctx)
	if err != nil {
		return all, false, unchanged(doing, err)
	}
	defer turn.Rollback(context.WithoutCancel(ctx)) // it writes nothing
	first := &pgx.Batch{}
	first.Queue(turnIdleSQL)
	first.Queue(takingSQL, pgx.NamedArgs{"key": int64(turnKey)}).QueryRow(func(row pgx.Row) error { return row.Scan(&mine) })
	if err := turn.SendBatch(ctx, first).Close(); err != nil || !mine {
		return all, false, unchanged(doing, err)
	}
	all, err = s.purgeLogs(ctx, func() error {
		_, err := turn.Exec(ctx, turnIdleSQL)
		return unchanged("keep the turn in purging conversations", err)
	})
	return all, true, err
}

// purgeLogs calls keep before each page and each step, and ends when that fails.
func (s *Store) purgeLogs(ctx context.Context, keep func() error) (all PurgedLogs, err error) {
	for after, more := "", true; more; {
		if failed := keep(); failed != nil {
			return all, failed
		}
		var convs []string
		var failed error
		if convs, after, more, failed = s.Expired(ctx, after, expiredPage); failed != nil {
			return all, failed
		}
		// Several processes do not go through them in step.
		rand.Shuffle(len(convs), func(i, j int) { convs[i], convs[j] = convs[j], convs[i] })
		for _, conv := range convs {
			failed, lost := s.purgeWhole(ctx, conv, &all, keep)
			if failed != nil && err == nil {
				err = fmt.Errorf("%s: %w", conv, failed)
			}
			if ctx.Err() != nil {
				return all, context.Cause(ctx)
			}
			if lost != nil {
				return all, lost
			}
		}
	}
	return all, err
}

// purgeWhole purges one conversation in steps. lost is the error of keep.
func (s *Store) purgeWhole(ctx context.Context, conv string, all *PurgedLogs, keep func() error) (failed, lost error) {
	some := false
	for limit := purgeStep; ; {
		if lost := keep(); lost != nil {
			return nil, lost
		}
		p, err := s.PurgeLog(ctx, conv, limit)
		all.Events, all.Tombstones, all.Longest = all.Events+p.Events, all.Tombstones+p.Tombstones, max(all.Longest, p.Held)
		if p.Events > 0 && !some {
			some = true
			all.Conversations++
		}
		if err != nil || !p.More {
			return err, nil
		}
		limit = p.Events // it was halved, if it took too long
		select {
		case <-ctx.Done():
			return nil, nil
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
