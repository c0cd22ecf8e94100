// What became of a message.

package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Outcome is what became of a message.
type Outcome struct {
	Epoch  int64
	Stored string // "yes" or "purged", at Seq; "no": not now, but a transmission that is on its way may still be stored
	Seq    int64
}

// lockOutcomeSQL waits for the writers that hold the conversation, and keeps new ones from it.
const lockOutcomeSQL = `SELECT c.conv_id FROM tidings.conversation c WHERE c.conv_id = @conv AND tidings.on_log(@log::oid) FOR SHARE`

// outcomeSQL reads by primary keys and event_cmid.
const outcomeSQL = `SELECT c.epoch,
		(SELECT e.seq FROM tidings.event e WHERE e.conv_id = @conv AND e.sender_user = @user AND e.cmid = @cmid),
		(SELECT b.seq FROM tidings.tombstone b WHERE b.conv_id = @conv AND b.sender_user = @user AND b.cmid = @cmid),
		EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = @conv AND m.user_id = @user)
	FROM tidings.conversation c WHERE c.conv_id = @conv AND tidings.on_log(@log::oid)`

// Outcome tells what became of the message that user sent under cmid. It waits for a commit that is under way, at most lockWait
// long, and its answer is as durable as a commit. NOT_MEMBER is the answer to one who has nothing there and never was a
// member, also when there is no such conversation.
func (s *Store) Outcome(ctx context.Context, conv, user, cmid string) (o Outcome, err error) {
	const doing = "look for the outcome of a message"
	err = s.transact(ctx, doing, func(ctx context.Context, tx pgx.Tx) error {
		// Strangers do not get as far as the lock, which keeps writers away: whoever has a message under way is a member by now.
		if o, err = outcome(ctx, tx, doing, conv, user, cmid); err != nil {
			return err
		}
		if err := lockConversation(ctx, tx, lockOutcomeSQL, conv); err != nil {
			return err
		}
		o, err = outcome(ctx, tx, doing, conv, user, cmid) // a new statement: it sees what the lock waited for
		return err
	})
	if err != nil {
		return Outcome{}, err
	}
	return o, nil
}

func outcome(ctx context.Context, tx pgx.Tx, doing, conv, user, cmid string) (o Outcome, err error) {
	var stored, purged *int64
	var member bool
	err = tx.QueryRow(ctx, outcomeSQL, pgx.NamedArgs{"conv": conv, "user": user, "cmid": cmid, "log": logOf(tx.Conn())}).Scan(&o.Epoch, &stored, &purged, &member)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && stored == nil && purged == nil && !member:
		return Outcome{}, tidings.Errorf(tidings.NotMember, "%s: the user is no member of the conversation", doing)
	case err != nil:
		return Outcome{}, err
	case stored != nil:
		o.Stored, o.Seq = "yes", *stored
	case purged != nil:
		o.Stored, o.Seq = "purged", *purged
	default:
		o.Stored = "no"
	}
	return o, nil
}
