// Members who want no notifications of a conversation.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// muteSQL mutes a conversation for a member, through member_open and mute's primary key, under the conversation's lock: a leave that comes
// later ends it.
const muteSQL = `INSERT INTO tidings.mute AS u (conv_id, user_id, until)
	SELECT m.conv_id, m.user_id, @until::timestamptz FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL
	ON CONFLICT (conv_id, user_id) DO UPDATE SET until = excluded.until, at = excluded.at`

// Mute keeps user from being notified of unread messages of conv until then, nil: for ever; or until user leaves. Notifications that were
// created before stay. NOT_MEMBER tells that user is none, or that there is no such conversation.
func (s *Store) Mute(ctx context.Context, conv, user string, until *time.Time) error {
	return s.changeMute(ctx, "mute a conversation", muteSQL, conv, user, pgx.NamedArgs{"conv": conv, "user": user, "until": until})
}

// unmuteSQL deletes a mute by primary key.
const unmuteSQL = `DELETE FROM tidings.mute u WHERE u.conv_id = @conv AND u.user_id = @user`

// isMemberSQL reads by member_open.
const isMemberSQL = `SELECT count(*) FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user AND m.leave_seq IS NULL`

// Unmute lets user be notified again, of messages that become due from now on; it does not matter whether there was a mute. Errors are
// those of Mute.
func (s *Store) Unmute(ctx context.Context, conv, user string) error {
	return s.changeMute(ctx, "end the mute of a conversation", unmuteSQL, conv, user, pgx.NamedArgs{"conv": conv, "user": user})
}

func (s *Store) changeMute(ctx context.Context, doing, sql, conv, user string, args pgx.NamedArgs) error {
	for name, id := range map[string]string{"conv": conv, "user": user} {
		if err := tidings.CheckID(name, id); err != nil {
			return err
		}
	}
	var there int
	err := s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
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
		_, err := tx.Exec(ctx, sql, args)
		return err
	})
	if err == nil && there == 0 {
		return notMember(conv)
	}
	return err
}
