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
}

// eraseBatch is how many messages or notifications one transaction of an erasure changes.
const eraseBatch = 200

// eraseStartSQL reads the clock and the history.
const eraseStartSQL = `SELECT statement_timestamp(), coalesce((SELECT l.generation FROM tidings.lineage l WHERE l.node = @node), 0)`

// eraseNotedSQL tells the journal of an erasure.
const eraseNotedSQL = `INSERT INTO tidings.taken_back (conv_id, what, user_id, cutoff_at, epoch) VALUES ('', 'erase', @user, @cutoff::timestamptz, @epoch)`

// EraseUser erases what user has written so far and where user is reached, on the order of actor: each message is recalled, whatever the
// conversation's window; the preferences with their addresses are deleted; the user's notifications lose their content and the addresses
// of their tasks, and are cancelled. So what was not sent will not be, and what may have been sent waits for a person, with its journal.
//
// It goes in steps, each a transaction of its own; after an error, run it again for the rest. What stays are ids, times, memberships and
// hashes, and whatever was copied out of the database before.
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
	if err := s.erase(ctx, erasure{user: user, actor: actor, until: &report.CutoffAt, journal: true}, &report); err != nil {
		return report, err
	}
	_, err = s.changed(ctx, doing, eraseNotedSQL, pgx.NamedArgs{"user": user, "cutoff": report.CutoffAt, "epoch": epoch})
	return report, err
}

// erase goes through the preferences first, so that no claim freezes another address.
func (s *Store) erase(ctx context.Context, e erasure, report *EraseReport) (err error) {
	report.Preferences, err = s.delete(ctx, "delete the preferences of a user", erasePrefsSQL,
		pgx.NamedArgs{"user": e.user, "bucket": tidings.Bucket(e.user), "until": e.until})
	if err != nil {
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

// sentInSQL finds conversations that have messages of a user, through member_user and event_cmid.
const sentInSQL = `SELECT DISTINCT m.conv_id FROM tidings.member m
	 WHERE m.user_id = @user AND m.conv_id > @after::text AND EXISTS (SELECT FROM tidings.event e WHERE e.conv_id = m.conv_id AND ` + erasable + `)
	 ORDER BY m.conv_id LIMIT @limit::bigint`

// erasable: event e is a message that an erasure recalls.
const erasable = `e.sender_user = @user AND e.cmid IS NOT NULL AND e.kind = 'msg' AND e.recalled_by IS NULL
		AND (@until::timestamptz IS NULL OR e.created_at <= @until::timestamptz)`

// eraseMessagesSQL recalls the next messages of a user in a conversation, through event_cmid.
const eraseMessagesSQL = recallHead + `, mine AS MATERIALIZED (
		SELECT e.conv_id, e.seq, e.mid, e.sender_user, e.cmid FROM tidings.event e
		 WHERE e.conv_id = @conv AND ` + erasable + ` AND e.cmid > @after::text ORDER BY e.cmid LIMIT @limit::bigint
	)` + recallMine + ` SELECT count(*), coalesce(max(m.cmid), '') FROM mine m`

func (s *Store) eraseMessages(ctx context.Context, e erasure, report *EraseReport) error {
	const doing = "recall the messages of a user"
	args := pgx.NamedArgs{"user": e.user, "actor": orNull(&e.actor), "until": e.until, "journal": e.journal, "limit": eraseBatch}
	for conv := ""; ; {
		args["after"] = conv
		convs, err := rowsByKey(ctx, s, sentInSQL, args, pgx.RowTo[string])
		if err != nil {
			return unchanged("look for the messages of a user", err)
		}
		for _, conv = range convs {
			args["conv"], args["after"] = conv, ""
			for n := eraseBatch; n == eraseBatch; {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				var last string
				err := s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
					if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
						return err
					}
					return s.oneByKey(ctx, tx, eraseMessagesSQL, args, &n, &last)
				})
				if err != nil {
					return err
				}
				args["after"] = last
				report.Messages += n
			}
			report.Conversations++
		}
		if len(convs) < eraseBatch {
			return nil
		}
	}
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
