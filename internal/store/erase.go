// Erases what a person has written and where they are reached.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// EraseReport says what an erasure did.
type EraseReport struct {
	User          string    `json:"user"`
	Known         bool      `json:"known"`         // false: there was nothing of the user, perhaps it is misspelt
	Conversations int       `json:"conversations"` // in which messages were recalled
	Messages      int       `json:"messages"`      // that were recalled; those that were before are not counted
	Preferences   int       `json:"preferences"`   // that were deleted, with their addresses
	Notifications int       `json:"notifications"` // that were emptied
	Tasks         int       `json:"tasks"`         // whose address was emptied
	CutoffAt      time.Time `json:"cutoff_at"`     // what came later stays
}

// erasure is what an erasure is restricted to.
type erasure struct {
	user    string
	actor   string     // who ordered it; empty: nobody did, a journal is replayed
	until   *time.Time // what was written and set later stays; nil: all goes
	journal bool       // it is a new one: the journal is told
	convs   map[string]bool
}

const (
	// eraseBatch is how many notifications one transaction of an erasure changes, and how many conversations it looks for at once.
	eraseBatch = 200
	// erasePatience bounds the wait for the transactions that were open when an erasure had gone through everything.
	erasePatience = time.Minute
)

// eraseStartSQL reads the clock and the history.
const eraseStartSQL = `SELECT statement_timestamp(), coalesce((SELECT l.generation FROM tidings.lineage l WHERE l.node = @node), 0)`

// knownUserSQL tells whether there is anything of a user, through member_user and primary keys. Who has sent was a member.
const knownUserSQL = `SELECT EXISTS (SELECT m.conv_id FROM tidings.member m WHERE m.user_id = @user)
	OR EXISTS (SELECT FROM tidings.channel_pref p WHERE p.user_id = @user AND p.bucket = @bucket)
	OR EXISTS (SELECT FROM tidings.notification n WHERE n.user_id = @user AND n.bucket = @bucket)
	OR EXISTS (SELECT FROM tidings.device d WHERE d.user_id = @user AND d.bucket = @bucket)
	OR EXISTS (SELECT FROM tidings.optout o WHERE o.user_id = @user AND o.bucket = @bucket)
	OR EXISTS (SELECT FROM tidings.quiet q WHERE q.user_id = @user AND q.bucket = @bucket)`

// eraseNotedSQL tells the journal of an erasure.
const eraseNotedSQL = `INSERT INTO tidings.taken_back (conv_id, what, user_id, cutoff_at, epoch) VALUES ('', 'erase', @user, @cutoff::timestamptz, @epoch)`

// EraseUser erases what user has written so far and where user is reached, on the order of actor: each message is recalled, whatever the
// conversation's window; the preferences with their addresses, the quiet hours and the mutes are deleted; the user's notifications lose
// their content and the addresses of their tasks, and are cancelled. So what was not sent will not be, and what may have been sent waits
// for a person, with its journal.
//
// It goes in steps, each a transaction of its own; after an error, run it again for the rest. A transaction that was open meanwhile may
// commit what no step has seen: when all is gone through, the erasure waits for those, at most a minute, and goes through all once more.
// UNAVAILABLE says that some are still open. A user of whom there is nothing is gone through all the same, and the journal told: an
// interrupted erasure may have left nothing but that. What stays are ids, times, memberships and hashes, and whatever was copied out of the database
// before.
func (s *Store) EraseUser(ctx context.Context, user, actor string) (report EraseReport, err error) {
	const doing = "erase a user"
	if err := tidings.CheckID("user", user); err != nil {
		return report, err
	}
	if err := tidings.CheckID("operator", actor); err != nil {
		return report, err
	}
	report.User = user
	var epoch int64
	if err := s.pool.QueryRow(ctx, eraseStartSQL, pgx.NamedArgs{"node": node}).Scan(&report.CutoffAt, &epoch); err != nil {
		return report, unchanged(doing, err)
	}
	if epoch == 0 {
		return report, tidings.Errorf(tidings.Unavailable, "%s: the database's lineage is not recorded yet: it was never started", doing)
	}
	err = s.pool.QueryRow(ctx, knownUserSQL, pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user)}).Scan(&report.Known)
	if err != nil {
		return report, unchanged(doing, err)
	}
	e := erasure{user: user, actor: actor, until: &report.CutoffAt, journal: true, convs: map[string]bool{}}
	if err := s.erase(ctx, e, &report); err != nil {
		return report, err
	}
	if err := s.outlive(ctx, erasePatience); err != nil {
		return report, err
	}
	if err := s.erase(ctx, e, &report); err != nil {
		return report, err
	}
	_, err = s.changed(ctx, doing, eraseNotedSQL, pgx.NamedArgs{"user": user, "cutoff": report.CutoffAt, "epoch": epoch})
	return report, err
}

// markSQL takes a transaction id. Whoever has one that is lower may have written already; whoever has none has not.
const markSQL = `SELECT pg_current_xact_id()::text`

// outlivedSQL tells whether every transaction with an id below a mark has ended. The xmax of a snapshot would be no mark: it is one
// above the last transaction that has ended, and the ids of open ones can be higher.
const outlivedSQL = `SELECT pg_snapshot_xmin(pg_current_snapshot()) >= @mark::text::xid8`

// outlive waits until every transaction that may have written by now has ended, at most for limit.
func (s *Store) outlive(ctx context.Context, limit time.Duration) error {
	const doing = "wait for open transactions"
	var mark string
	if err := s.pool.QueryRow(ctx, markSQL).Scan(&mark); err != nil {
		return unchanged(doing, err)
	}
	for began := time.Now(); ; {
		var over bool
		if err := s.pool.QueryRow(ctx, outlivedSQL, pgx.NamedArgs{"mark": mark}).Scan(&over); err != nil {
			return unchanged(doing, err)
		}
		switch {
		case over:
			return nil
		case time.Since(began) >= limit:
			return tidings.Errorf(tidings.Unavailable, "transactions older than the erasure are still open, and what they commit is not erased: run it again when they have ended (pg_stat_activity, pg_prepared_xacts)")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// erase goes through the preferences first, so that no claim freezes another address.
func (s *Store) erase(ctx context.Context, e erasure, report *EraseReport) error {
	prefs, err := s.delete(ctx, "delete the preferences of a user", erasePrefsSQL,
		pgx.NamedArgs{"user": e.user, "bucket": tidings.Bucket(e.user), "until": e.until})
	if err != nil {
		return err
	}
	report.Preferences += prefs
	if err := s.eraseWishes(ctx, e); err != nil {
		return err
	}
	if err := s.eraseNotifications(ctx, e, report); err != nil {
		return err
	}
	if err := s.eraseMessages(ctx, e, report); err != nil {
		return err
	}
	// Once more: a claim that had begun before the preferences were deleted may have frozen an address since.
	return s.eraseNotifications(ctx, e, report)
}

// erasePrefsSQL deletes the preferences of a user by the primary key's first columns.
const erasePrefsSQL = `DELETE FROM tidings.channel_pref p
	WHERE p.user_id = @user AND p.bucket = @bucket AND (@until::timestamptz IS NULL OR p.updated_at <= @until::timestamptz)`

// eraseQuietSQL deletes the quiet hours of a user by primary key.
const eraseQuietSQL = `DELETE FROM tidings.quiet q
	WHERE q.user_id = @user AND q.bucket = @bucket AND (@until::timestamptz IS NULL OR q.at <= @until::timestamptz)`

// eraseMutesSQL deletes the mutes of a user in some conversations by primary key.
const eraseMutesSQL = `DELETE FROM tidings.mute u
	WHERE u.conv_id = ANY (@convs::text[]) AND u.user_id = @user AND (@until::timestamptz IS NULL OR u.at <= @until::timestamptz)`

// eraseWishes deletes when and of what a user did not want to be notified.
func (s *Store) eraseWishes(ctx context.Context, e erasure) error {
	if _, err := s.delete(ctx, "delete the quiet hours of a user", eraseQuietSQL, pgx.NamedArgs{"user": e.user, "bucket": tidings.Bucket(e.user), "until": e.until}); err != nil {
		return err
	}
	for after := ""; ; {
		convs, err := rowsByKey(ctx, s, listSQL, pgx.NamedArgs{"user": e.user, "after": after, "limit": eraseBatch}, pgx.RowTo[string])
		if err != nil {
			return unchanged("look for the conversations of a user", err)
		}
		if _, err := s.delete(ctx, "delete the mutes of a user", eraseMutesSQL, pgx.NamedArgs{"convs": convs, "user": e.user, "until": e.until}); err != nil {
			return err
		}
		if len(convs) < eraseBatch {
			return nil
		}
		after = convs[len(convs)-1]
	}
}

// sentInSQL finds conversations that have messages of a user, through member_user and event_cmid.
const sentInSQL = `SELECT DISTINCT m.conv_id FROM tidings.member m
	 WHERE m.user_id = @user AND m.conv_id > @after::text AND EXISTS (SELECT FROM tidings.event e WHERE e.conv_id = m.conv_id AND ` + erasable + `)
	 ORDER BY m.conv_id LIMIT @limit::bigint`

// erasable: event e is a message that an erasure recalls.
const erasable = `e.sender_user = @user AND e.cmid IS NOT NULL AND e.kind = 'msg' AND e.recalled_by IS NULL
		AND (@until::timestamptz IS NULL OR e.created_at <= @until::timestamptz)`

// messagesOfSQL finds the keys of the next messages of a user in a conversation, through event_cmid. It may pass by many that were recalled.
const messagesOfSQL = `SELECT e.cmid FROM tidings.event e
	 WHERE e.conv_id = @conv AND ` + erasable + ` AND e.cmid > @after::text ORDER BY e.cmid LIMIT @limit::bigint`

// unrecalledSQL reads those of the messages that are not recalled yet, each through event_cmid.
const unrecalledSQL = `SELECT e.seq, e.mid, e.sender_user, e.cmid FROM unnest(@cmids::text[]) k (cmid) CROSS JOIN LATERAL (
		SELECT e.* FROM tidings.event e WHERE e.conv_id = @conv AND e.sender_user = @user AND e.cmid = k.cmid AND e.kind = 'msg' AND e.recalled_by IS NULL OFFSET 0
	) e ORDER BY e.seq`

func (s *Store) eraseMessages(ctx context.Context, e erasure, report *EraseReport) error {
	for conv := ""; ; {
		convs, err := rowsByKey(ctx, s, sentInSQL, pgx.NamedArgs{"user": e.user, "until": e.until, "after": conv, "limit": eraseBatch}, pgx.RowTo[string])
		if err != nil {
			return unchanged("look for the messages of a user", err)
		}
		for _, conv = range convs {
			if err := s.eraseLog(ctx, e, conv, report); err != nil {
				return err
			}
			if !e.convs[conv] {
				e.convs[conv] = true
				report.Conversations++
			}
		}
		if len(convs) < eraseBatch {
			return nil
		}
	}
}

// eraseLog recalls the messages of a user in one conversation, in steps that are bounded as those of PurgeLog. Between two it leaves the log
// to others for as long as it had it.
func (s *Store) eraseLog(ctx context.Context, e erasure, conv string, report *EraseReport) error {
	for after, limit := "", recallStep; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cmids, err := rowsByKey(ctx, s, messagesOfSQL, pgx.NamedArgs{"conv": conv, "user": e.user, "until": e.until, "after": after, "limit": limit}, pgx.RowTo[string])
		if err != nil {
			return unchanged("look for the messages of a user", err)
		}
		n, held, err := s.eraseStep(ctx, e, conv, cmids)
		if timedOut(err) && limit > leastStep {
			limit /= 2
			continue
		}
		if err != nil {
			return err
		}
		report.Messages += n
		if len(cmids) < limit {
			return nil
		}
		after = cmids[len(cmids)-1]
		select {
		case <-ctx.Done():
		case <-time.After(held):
		}
	}
}

// eraseStep recalls those of a user's messages in one conversation that are not recalled yet, and tells how many there were and for how long
// the log was locked.
func (s *Store) eraseStep(ctx context.Context, e erasure, conv string, cmids []string) (n int, held time.Duration, err error) {
	if len(cmids) == 0 {
		return 0, 0, nil
	}
	var locked time.Time
	err = s.transact(ctx, "recall the messages of a user", func(ctx context.Context, tx pgx.Tx) error {
		first := &pgx.Batch{}
		first.Queue(byKeySQL)
		first.Queue(purgeIdleSQL, pgx.NamedArgs{"limit_ms": milliseconds(purgeTimeout)})
		if err := tx.SendBatch(ctx, first).Close(); err != nil {
			return err
		}
		if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
			return err
		}
		locked = time.Now()
		var left []message
		look := &pgx.Batch{}
		look.Queue(purgeLimitSQL, pgx.NamedArgs{"limit_ms": milliseconds(purgeTimeout)})
		look.Queue(unrecalledSQL, pgx.NamedArgs{"conv": conv, "user": e.user, "cmids": cmids}).Query(func(rows pgx.Rows) (err error) {
			left, err = pgx.CollectRows(rows, pgx.RowToStructByPos[message])
			return err
		})
		if err := tx.SendBatch(ctx, look).Close(); err != nil {
			return err
		}
		n = len(left)
		return recallMany(ctx, tx, conv, left, orNull(&e.actor), e.journal)
	})
	if err != nil {
		return 0, 0, err
	}
	return n, time.Since(locked), nil
}

// notesOfSQL reads a user's notifications through the unique index on (user_id, event_key, bucket).
const notesOfSQL = `SELECT n.event_key, n.id FROM tidings.notification n
	 WHERE n.user_id = @user AND n.bucket = @bucket AND n.event_key > @after::text AND n.purged_at IS NULL
	   AND (@until::timestamptz IS NULL OR n.created_at <= @until::timestamptz)
	 ORDER BY n.event_key LIMIT @limit::bigint`

// eraseNotesSQL empties notifications and the addresses of their locked tasks, by primary keys. The notifications are locked in the order
// of their ids. The payload's hash stays: the ids of tasks are found by it, and a repeated submission is compared with it.
const eraseNotesSQL = `WITH mine AS MATERIALIZED (
		SELECT n.id, n.bucket, statement_timestamp() AS now_at FROM tidings.notification n
		 WHERE n.id = ANY (@ids::uuid[]) AND n.bucket = @bucket AND n.purged_at IS NULL AND n.erased_at IS NULL ORDER BY n.id FOR UPDATE
	), emptied AS (
		UPDATE tidings.notification n SET title = NULL, body = NULL, data = NULL, erased_at = m.now_at, cancelled_at = coalesce(n.cancelled_at, m.now_at)
		  FROM mine m WHERE n.id = m.id AND n.bucket = m.bucket AND n.bucket = @bucket
	), addresses AS (
		UPDATE tidings.task t SET address = NULL WHERE t.id = ANY (@tasks::uuid[]) AND t.bucket = @bucket AND t.address IS NOT NULL RETURNING t.id
	)
	SELECT (SELECT count(*) FROM mine), (SELECT count(*) FROM addresses)`

func (s *Store) eraseNotifications(ctx context.Context, e erasure, report *EraseReport) error {
	bucket := tidings.Bucket(e.user)
	args := pgx.NamedArgs{"user": e.user, "bucket": bucket, "until": e.until, "after": "", "limit": eraseBatch}
	for more := true; more; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var ids []tidings.UUID
		var last string
		err := s.eachByKey(ctx, notesOfSQL, args, func(row pgx.Rows) error {
			var id tidings.UUID
			err := row.Scan(&last, &id)
			ids = append(ids, id)
			return err
		})
		if err != nil {
			return unchanged("look for the notifications of a user", err)
		}
		if len(ids) == 0 {
			return nil
		}
		args["after"], more = last, len(ids) == eraseBatch
		var notes, tasks int
		err = s.transact(ctx, "empty the notifications of a user", func(ctx context.Context, tx pgx.Tx) error {
			// The tasks first, as the purge does; what a claim has just written to them is seen by the statement after that.
			locked, err := s.ids(ctx, tx, lockTasksSQL, pgx.NamedArgs{"ids": ids, "bucket": bucket})
			if err != nil {
				return err
			}
			return s.oneByKey(ctx, tx, eraseNotesSQL, pgx.NamedArgs{"ids": ids, "tasks": locked, "bucket": bucket}, &notes, &tasks)
		})
		if err != nil {
			return err
		}
		report.Notifications += notes
		report.Tasks += tasks
	}
	return nil
}
