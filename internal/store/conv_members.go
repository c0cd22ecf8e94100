// Creates conversations; joins and leaves.

package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// lockWait is how long a change of members or a question for an outcome waits for whoever holds the conversation.
const lockWait = 5 * time.Second

// Conversation is what a conversation is created with.
type Conversation struct {
	Conv         string
	RecallWindow time.Duration  // how long a message can be recalled, in whole milliseconds; 0: never
	Retention    *time.Duration // how long events are kept, in whole milliseconds; nil: for ever
	NotifyAfter  *time.Duration // after how long a member is notified of an unread message, in whole milliseconds; nil: never
	Preview      bool           // the notification shows the message's text
	Members      []string       // the first members, each once: their joins are the events 1, 2, 3 … in this order

	// Whether a setting is a default that nobody has asked for: then one with another setting was created alike.
	AnyWindow, AnyRetention, AnyNotifyAfter, AnyPreview bool
}

// Membership is where a user joined or left.
type Membership struct {
	Epoch   int64
	Seq     int64 // of the join or leave event; 0 for one who leaves and never was a member
	Changed bool  // false: the user was there, or gone, already, and nothing was appended
}

// createConversationSQL makes a conversation with its first members, unless there is one, by primary keys. All its rows have one
// time, by which conversationSQL knows the first members again.
const createConversationSQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at
	), made AS (
		INSERT INTO tidings.conversation (conv_id, next_seq, epoch, recall_window_ms, retention_ms, notify_after_ms, preview, created_at)
		SELECT @conv::text, cardinality(@members::text[]) + 1, l.generation, @recall_window_ms::bigint, @retention_ms::bigint, @notify_after_ms::bigint,
			@preview::boolean, k.now_at
		  FROM tidings.lineage l CROSS JOIN clock k WHERE l.node = @node AND tidings.on_log(@log::oid)
		ON CONFLICT (conv_id) DO NOTHING RETURNING conv_id, created_at
	), joined AS MATERIALIZED (
		SELECT m.conv_id, u.user_id, u.seq, m.created_at FROM made m CROSS JOIN unnest(@members::text[]) WITH ORDINALITY u (user_id, seq)
	), event AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, created_at) SELECT j.conv_id, j.seq, 'join', j.user_id, j.created_at FROM joined j
	), member AS (
		INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT j.conv_id, j.user_id, j.seq FROM joined j
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq, user_id) SELECT j.conv_id, j.seq, j.user_id FROM joined j
	)
	SELECT (SELECT count(*) FROM made) > 0, coalesce((SELECT l.generation FROM tidings.lineage l WHERE l.node = @node), 0), k.now_at FROM clock k`

// conversationSQL reads what a conversation was created with, by primary keys. A purge leaves of the first members what a join at
// that place tells. The lock waits for nobody, but makes the commit of this answer wait for a synchronous standby.
const conversationSQL = `SELECT c.recall_window_ms, c.retention_ms, c.notify_after_ms, c.preview,
		ARRAY(SELECT m.user_id FROM tidings.member m WHERE m.conv_id = c.conv_id AND m.conv_id = @conv
			AND m.join_seq <= CASE WHEN c.min_seq > 1 THEN @members::bigint
				ELSE (SELECT count(*) FROM tidings.event e WHERE e.conv_id = @conv AND e.seq <= @members + 1 AND e.kind = 'join' AND e.created_at = c.created_at) END
			ORDER BY m.user_id)
	FROM tidings.conversation c WHERE c.conv_id = @conv FOR KEY SHARE OF c`

// CreateConversation makes a conversation with its first members. Its epoch is the lineage's generation. One that was created alike,
// with the same first members in any order and, by now, the settings that are asked for, is answered with false; another is a CONFLICT.
func (s *Store) CreateConversation(ctx context.Context, c Conversation) (created bool, err error) {
	if err := checkConversation(&c); err != nil {
		return false, err
	}
	retention, after := inMilliseconds(c.Retention), inMilliseconds(c.NotifyAfter)
	args := pgx.NamedArgs{"conv": c.Conv, "members": c.Members, "recall_window_ms": c.RecallWindow.Milliseconds(), "retention_ms": retention,
		"notify_after_ms": after, "preview": c.Preview, "node": node}
	err = s.transact(ctx, "create a conversation", func(ctx context.Context, tx pgx.Tx) error {
		var epoch int64
		var at time.Time
		args["log"] = logOf(tx.Conn())
		if err := tx.QueryRow(ctx, createConversationSQL, args).Scan(&created, &epoch, &at); err != nil {
			return err
		}
		if created && len(c.Members) > 0 {
			note(tx, c.Conv, epoch, int64(len(c.Members)), at)
		}
		if created {
			return nil
		}
		if epoch == 0 {
			return tidings.Errorf(tidings.Unavailable, "create a conversation: the database's lineage is not recorded yet, so that there is no epoch")
		}
		var (
			window       int64
			keep, notify *int64
			preview      bool
			members      []string
		)
		if err := tx.QueryRow(ctx, conversationSQL, pgx.NamedArgs{"conv": c.Conv, "members": len(c.Members)}).Scan(&window, &keep, &notify, &preview, &members); err != nil {
			return err
		}
		asked := slices.Sorted(slices.Values(c.Members))
		if !c.AnyWindow && window != c.RecallWindow.Milliseconds() || !c.AnyRetention && !equal(keep, retention) ||
			!c.AnyNotifyAfter && !equal(notify, after) || !c.AnyPreview && preview != c.Preview || !slices.Equal(members, asked) {
			return tidings.Errorf(tidings.Conflict, "create a conversation: there is one with other settings or other first members")
		}
		return nil
	})
	return created && err == nil, err
}

func equal(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

func checkConversation(c *Conversation) error {
	if err := tidings.CheckID("conv", c.Conv); err != nil {
		return err
	}
	if c.Members == nil {
		c.Members = []string{}
	}
	seen := make(map[string]bool, len(c.Members))
	for _, m := range c.Members {
		if err := tidings.CheckID("member", m); err != nil {
			return err
		}
		if seen[m] {
			return tidings.Errorf(tidings.InvalidArgument, "create a conversation: the member %s is named twice", m)
		}
		seen[m] = true
	}
	if err := checkSettings(&c.RecallWindow, c.Retention, c.NotifyAfter); err != nil {
		return err
	}
	return nil
}

// lockConversationSQL takes the lock of a conversation's log. What the transaction reads after it, in a new statement, stays true
// until it ends. Before it looks for the row it fails if the log is another than the connection was judged on.
const lockConversationSQL = `SELECT c.conv_id FROM tidings.conversation c WHERE c.conv_id = @conv AND tidings.on_log(@log::oid) FOR NO KEY UPDATE`

// joinSQL appends a join and opens an interval, unless one is open: by primary keys and member_open. The journal is told when a user
// comes back, so that a recovery does not repeat the leave before.
const joinSQL = `WITH head AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.next_seq, clock_timestamp() AS now_at,
			(SELECT m.join_seq FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL) AS known,
			EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user) AS before
		  FROM tidings.conversation c WHERE c.conv_id = @conv
	), event AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, actor_user, created_at)
		SELECT h.conv_id, h.next_seq, 'join', @user, @actor, h.now_at FROM head h WHERE h.known IS NULL
	), member AS (
		INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT h.conv_id, @user, h.next_seq FROM head h WHERE h.known IS NULL
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq, user_id) SELECT h.conv_id, h.next_seq, @user FROM head h WHERE h.known IS NULL
	), taken_back AS (
		INSERT INTO tidings.taken_back (conv_id, what, user_id, epoch, at) SELECT h.conv_id, 'join', @user, h.epoch, h.now_at FROM head h WHERE h.known IS NULL AND h.before
	), advanced AS (
		UPDATE tidings.conversation c SET next_seq = h.next_seq + 1 FROM head h WHERE c.conv_id = @conv AND c.conv_id = h.conv_id AND h.known IS NULL
	)
	SELECT h.epoch, coalesce(h.known, h.next_seq), h.known IS NULL, h.now_at FROM head h`

// Join makes user a member, from the join event on, which it appends. actor is who did it in the user's stead, or empty. A member
// stays one, since the same seq. NOT_FOUND tells that there is no such conversation.
func (s *Store) Join(ctx context.Context, conv, user, actor string) (Membership, error) {
	return s.changeMember(ctx, "join a conversation", joinSQL, conv, user, actor)
}

// leaveSQL appends a leave and closes the open interval with it, if there is one: by primary keys and member_open. It leaves word for the
// user's notifications and in the journal, and ends the user's mute.
const leaveSQL = `WITH head AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.next_seq, clock_timestamp() AS now_at,
			(SELECT m.join_seq FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL) AS joined,
			(SELECT max(m.leave_seq) FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user) AS known
		  FROM tidings.conversation c WHERE c.conv_id = @conv
	), event AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, actor_user, created_at)
		SELECT h.conv_id, h.next_seq, 'leave', @user, @actor, h.now_at FROM head h WHERE h.joined IS NOT NULL
	), member AS (
		UPDATE tidings.member m SET leave_seq = h.next_seq FROM head h
		 WHERE m.conv_id = @conv AND m.user_id = @user AND m.join_seq = h.joined
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq) SELECT h.conv_id, h.next_seq FROM head h WHERE h.joined IS NOT NULL
	), gone AS (
		INSERT INTO tidings.gone (conv_id, why, user_id, seq, at) SELECT h.conv_id, 'leave', @user, h.next_seq, h.now_at FROM head h WHERE h.joined IS NOT NULL
	), mute AS (
		DELETE FROM tidings.mute u USING head h WHERE u.conv_id = @conv AND u.conv_id = h.conv_id AND u.user_id = @user
	), taken_back AS (
		INSERT INTO tidings.taken_back (conv_id, what, user_id, epoch, at) SELECT h.conv_id, 'leave', @user, h.epoch, h.now_at FROM head h WHERE h.joined IS NOT NULL
	), advanced AS (
		UPDATE tidings.conversation c SET next_seq = h.next_seq + 1 FROM head h WHERE c.conv_id = @conv AND c.conv_id = h.conv_id AND h.joined IS NOT NULL
	)
	SELECT h.epoch, CASE WHEN h.joined IS NOT NULL THEN h.next_seq ELSE coalesce(h.known, 0) END, h.joined IS NOT NULL, h.now_at FROM head h`

// Leave ends user's membership with the leave event, which it appends and which is the last that user sees. actor is who did it in
// the user's stead, or empty. One who has left stays gone, since the same seq; one who never was a member left at 0. NOT_FOUND
// tells that there is no such conversation.
func (s *Store) Leave(ctx context.Context, conv, user, actor string) (Membership, error) {
	return s.changeMember(ctx, "leave a conversation", leaveSQL, conv, user, actor)
}

func (s *Store) changeMember(ctx context.Context, doing, sql, conv, user, actor string) (m Membership, err error) {
	for name, id := range map[string]string{"conv": conv, "user": user} {
		if err := tidings.CheckID(name, id); err != nil {
			return m, err
		}
	}
	if actor != "" {
		if err := tidings.CheckID("actor", actor); err != nil {
			return m, err
		}
	}
	err = s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
		if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
			return err
		}
		var at time.Time
		err := tx.QueryRow(ctx, sql, pgx.NamedArgs{"conv": conv, "user": user, "actor": orNull(&actor)}).Scan(&m.Epoch, &m.Seq, &m.Changed, &at)
		if err == nil && m.Changed {
			note(tx, conv, m.Epoch, m.Seq, at)
		}
		return err
	})
	if err != nil {
		return Membership{}, err
	}
	return m, nil
}

// lockConversation takes a lock on a conversation's row for as long as the transaction lives, or ends with pgx.ErrNoRows when there
// is no such row. What it has to wait for is seen by the statements after it, and only by those.
func lockConversation(ctx context.Context, tx pgx.Tx, sql, conv string) error {
	both := &pgx.Batch{}
	both.Queue(lockTimeoutSQL, pgx.NamedArgs{"wait_ms": milliseconds(lockWait)})
	both.Queue(sql, pgx.NamedArgs{"conv": conv, "log": logOf(tx.Conn())}).QueryRow(func(row pgx.Row) error { return row.Scan(&conv) })
	return tx.SendBatch(ctx, both).Close()
}
