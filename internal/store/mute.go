// Members who want no notifications of a conversation.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// muteSQL mutes a conversation for a member, through member_open and mute's primary key, under the conversation's lock: a leave that comes
// later ends it. It tells whether that keeps the user from anything.
const muteSQL = `INSERT INTO tidings.mute AS u (conv_id, user_id, until)
	SELECT m.conv_id, m.user_id, @until::timestamptz FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL
	ON CONFLICT (conv_id, user_id) DO UPDATE SET until = excluded.until, at = excluded.at
	RETURNING u.until IS NULL OR u.until > statement_timestamp()`

// Mute keeps user from being notified of unread messages of conv until then, nil: for ever; or until user leaves. Notifications that were
// created before stay. An until that is past ends a mute: the answer tells whether there is one now. NOT_MEMBER tells that user is none, or
// that there is no such conversation.
func (s *Store) Mute(ctx context.Context, conv, user string, until *time.Time) (muted bool, err error) {
	return s.changeMute(ctx, "mute a conversation", muteSQL, conv, user, pgx.NamedArgs{"conv": conv, "user": user, "until": until})
}

// unmuteSQL deletes a mute by primary key. Then there is none.
const unmuteSQL = `WITH ended AS (DELETE FROM tidings.mute u WHERE u.conv_id = @conv AND u.user_id = @user) SELECT false`

// Unmute lets user be notified again, of messages that become due from now on; it does not matter whether there was a mute. Errors are
// those of Mute.
func (s *Store) Unmute(ctx context.Context, conv, user string) error {
	_, err := s.changeMute(ctx, "end the mute of a conversation", unmuteSQL, conv, user, pgx.NamedArgs{"conv": conv, "user": user})
	return err
}

// isMemberSQL reads by member_open.
const isMemberSQL = `SELECT count(*) FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL`

// changeMute runs sql under the conversation's lock, if user is a member then, and tells whether the conversation is muted now.
func (s *Store) changeMute(ctx context.Context, doing, sql, conv, user string, args pgx.NamedArgs) (muted bool, err error) {
	for name, id := range map[string]string{"conv": conv, "user": user} {
		if err := tidings.CheckID(name, id); err != nil {
			return false, err
		}
	}
	var there int
	err = s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
		there = 0
		// Strangers do not get as far as the lock, as with a recall.
		if err := tx.QueryRow(ctx, isMemberSQL, args).Scan(&there); err != nil || there == 0 {
			return err
		}
		if err := lockConversation(ctx, tx, lockOutcomeSQL, conv); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, isMemberSQL, args).Scan(&there); err != nil || there == 0 {
			return err
		}
		return tx.QueryRow(ctx, sql, args).Scan(&muted)
	})
	if err == nil && there == 0 {
		return false, notMember(conv)
	}
	return muted, err
}
