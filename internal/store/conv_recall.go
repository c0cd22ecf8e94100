// Recalls.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Recall asks to take a message back.
type Recall struct {
	Conv, User, Device, Cmid string // Device may be empty; Cmid is the request's own, not the message's
	Epoch, Target            int64  // Epoch 0: the current one; Target is the seq of the message
}

// Recalled is the answer to a Recall. Code is empty when the message is recalled: by this call or, with Dup, by an earlier one under the
// same cmid. Otherwise nothing was changed, and Code says why; the other fields are zero then, but for the Epoch of EPOCH_CHANGED.
type Recalled struct {
	Code           tidings.Code
	Epoch, Seq, At int64 // of the recall event; At in milliseconds since 1970
	Dup            bool
}

// Refusal is the answer as an error, nil when the message is recalled.
func (a *Recalled) Refusal() error {
	if a.Code == "" {
		return nil
	}
	message := tidings.Codes[a.Code].When
	if a.Code == tidings.InvalidArgument {
		message = "the target is no message"
	}
	refusal := &tidings.Error{Code: a.Code, Message: message, Epoch: a.Epoch}
	if a.Code == tidings.InvalidArgument || a.Code == tidings.NotFound {
		refusal.Stored = "no" // unlike others with these codes it was judged by the log, under its lock
	}
	return refusal
}

// wasMemberSQL reads by member's primary key.
const wasMemberSQL = `SELECT EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user)`

// recallSQL judges a recall under the conversation's lock and carries it out: the recall is a new event (R2), and the message has no
// content any more (R6). The journal, the intent to mark notifications, that somebody has to look who has not read, and the news for
// gateways are written with it. Everything is found by primary keys, event_cmid and member_open. That the user was ever a member is known
// (wasMemberSQL). The key comes before all else, so that an answer that was lost can be had again however late; the epoch before any
// number.
//
// A purged key may have been that of this very recall if its target could have been purged by then, too.
const recallSQL = `WITH looked AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.next_seq, c.min_seq, c.recall_window_ms, c.notify_after_ms, clock_timestamp() AS now_at,
			o.seq AS known, o.kind AS known_kind, o.target_seq AS known_target, o.created_at AS known_at, b.seq AS purged,
			e.kind, e.mid, e.sender_user, e.cmid, e.recalled_by, e.created_at,
			EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL) AS is_member
		  FROM tidings.conversation c
		  LEFT JOIN tidings.event o ON o.conv_id = @conv AND o.sender_user = @user AND o.cmid = @cmid
		  LEFT JOIN tidings.tombstone b ON b.conv_id = @conv AND b.sender_user = @user AND b.cmid = @cmid
		  LEFT JOIN tidings.event e ON e.conv_id = @conv AND e.seq = @target::bigint
			AND EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND ` + inside + `)
		 WHERE c.conv_id = @conv
	), judged AS MATERIALIZED (
		SELECT l.*, CASE
			WHEN l.known_kind = 'recall' AND l.known_target = @target THEN ''
			WHEN l.known IS NOT NULL THEN 'IDEMPOTENCY_MISMATCH'
			WHEN l.purged IS NOT NULL THEN CASE WHEN @target >= l.min_seq THEN 'IDEMPOTENCY_MISMATCH' ELSE 'NOT_FOUND' END
			WHEN @epoch::bigint NOT IN (0, l.epoch) THEN 'EPOCH_CHANGED'
			WHEN NOT l.is_member THEN 'NOT_MEMBER'
			WHEN l.kind IS NULL THEN 'NOT_FOUND'
			WHEN l.kind <> 'msg' THEN 'INVALID_ARGUMENT'
			WHEN l.sender_user <> @user THEN 'NOT_SENDER'
			WHEN l.recalled_by IS NOT NULL THEN 'ALREADY_RECALLED'
			WHEN l.recall_window_ms = 0 OR l.now_at > l.created_at + l.recall_window_ms * interval '1 millisecond' THEN 'RECALL_WINDOW_EXPIRED'
			ELSE '' END AS code
		  FROM looked l
	), recalled AS MATERIALIZED (SELECT j.* FROM judged j WHERE j.code = '' AND j.known IS NULL
	), appended AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, sender_device, cmid, target_seq, created_at)
		SELECT r.conv_id, r.next_seq, 'recall', @user, @device, @cmid, @target, r.now_at FROM recalled r
	), emptied AS (
		UPDATE tidings.event e SET recalled_by = r.next_seq, body = NULL, data = NULL, request_hash = NULL
		  FROM recalled r WHERE e.conv_id = @conv AND e.conv_id = r.conv_id AND e.seq = @target
	), advanced AS (
		UPDATE tidings.conversation c SET next_seq = r.next_seq + 1 FROM recalled r WHERE c.conv_id = @conv AND c.conv_id = r.conv_id
	), gone AS (
		INSERT INTO tidings.gone (conv_id, why, user_id, seq, at) SELECT r.conv_id, 'recall', '', @target, r.now_at FROM recalled r
	), due AS (
		INSERT INTO tidings.unread_due (conv_id, seq, due_at) SELECT r.conv_id, r.next_seq, r.now_at FROM recalled r WHERE r.notify_after_ms IS NOT NULL
	), taken_back AS (
		INSERT INTO tidings.taken_back (conv_id, what, mid, user_id, cmid, epoch, at)
		SELECT r.conv_id, 'recall', r.mid, r.sender_user, r.cmid, r.epoch, r.now_at FROM recalled r
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq) SELECT r.conv_id, r.next_seq FROM recalled r WHERE @post::boolean
	)
	SELECT j.code, CASE WHEN j.code IN ('', 'EPOCH_CHANGED') THEN j.epoch ELSE 0 END, CASE j.code WHEN '' THEN coalesce(j.known, j.next_seq) ELSE 0 END,
		coalesce(j.known_at, j.now_at), j.code = '' AND j.known IS NOT NULL FROM judged j`

// Recall takes a message back: it appends a recall event and empties the message. Only its sender can, as a member, and within the
// conversation's window, which is judged by the database's clock after the wait for the lock. post tells the gateways of it; a gateway
// does so itself.
//
// The codes of the answer are judged in this order: NOT_MEMBER (never a member, or no such conversation), what is known under the cmid
// (Dup, IDEMPOTENCY_MISMATCH or, when that was purged with the message, NOT_FOUND), EPOCH_CHANGED, NOT_MEMBER (no longer), NOT_FOUND
// (purged, beyond the head, or the user was no member then), INVALID_ARGUMENT (no message), NOT_SENDER, ALREADY_RECALLED,
// RECALL_WINDOW_EXPIRED.
//
// Errors: INVALID_ARGUMENT (no ids, or a target below 1); UNAVAILABLE, also when the lock is not to be had; OUTCOME_UNKNOWN when the
// answer to the commit was lost, and that to a second one under the same cmid, too.
func (s *Store) Recall(ctx context.Context, r Recall, post bool) (Recalled, error) {
	if err := checkRecall(&r); err != nil {
		return Recalled{}, err
	}
	answer, err := s.recall(ctx, &r, post)
	if err == nil || Refused(err) {
		return answer, err
	}
	s.pool.Reset() // what ended one connection has often ended all
	if answer, err = s.recall(ctx, &r, post); Refused(err) {
		// Not of the first: that may be stored.
		err = &tidings.Error{Code: tidings.OutcomeUnknown, Message: "recall a message: the answer to an earlier commit was lost", RetryAfter: time.Second, Err: err}
	}
	return answer, err
}

func (s *Store) recall(ctx context.Context, r *Recall, post bool) (answer Recalled, err error) {
	args := pgx.NamedArgs{"conv": r.Conv, "user": r.User, "device": orNull(&r.Device), "cmid": r.Cmid, "epoch": r.Epoch, "target": r.Target, "post": post}
	err = s.transact(ctx, "recall a message", func(ctx context.Context, tx pgx.Tx) error {
		answer = Recalled{Code: tidings.NotMember}
		// Strangers do not get as far as the lock: how long they wait must not tell them that there is a conversation.
		var known bool
		first := &pgx.Batch{}
		first.Queue(byKeySQL)
		first.Queue(wasMemberSQL, args).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
		if err := tx.SendBatch(ctx, first).Close(); err != nil || !known {
			return err
		}
		if err := lockConversation(ctx, tx, lockConversationSQL, r.Conv); err != nil {
			return err
		}
		var at time.Time
		if err := tx.QueryRow(ctx, recallSQL, args).Scan((*string)(&answer.Code), &answer.Epoch, &answer.Seq, &at, &answer.Dup); err != nil {
			return err
		}
		if answer.Code == "" {
			answer.At = at.UnixMilli()
			note(tx, r.Conv, answer.Epoch, answer.Seq, at)
		}
		return nil
	})
	if err != nil {
		return Recalled{}, err
	}
	return answer, nil
}

func checkRecall(r *Recall) error {
	for name, id := range map[string]string{"conv": r.Conv, "user": r.User, "cmid": r.Cmid} {
		if err := tidings.CheckID(name, id); err != nil {
			return err
		}
	}
	if r.Device != "" {
		if err := tidings.CheckID("device", r.Device); err != nil {
			return err
		}
	}
	if r.Target < 1 {
		return tidings.Errorf(tidings.InvalidArgument, "target is %d", r.Target)
	}
	return nil
}
