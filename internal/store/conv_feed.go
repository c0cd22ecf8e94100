// What feeds read: logs, heads, memberships.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// logSQL reads the head of a conversation and the events after @after, by event's primary key, if the epoch is @epoch: one row of state,
// then the events.
const logSQL = `SELECT c.epoch, c.next_seq - 1, ` + noEvent + ` FROM tidings.conversation c WHERE c.conv_id = @conv::text
	UNION ALL (
		SELECT 0, 0, ` + eventColumns + ` FROM tidings.event e
		 WHERE e.conv_id = @conv::text AND e.seq > @after::bigint
		   AND @epoch::bigint IN (0, (SELECT c.epoch FROM tidings.conversation c WHERE c.conv_id = @conv::text))
		 ORDER BY e.seq LIMIT @limit::bigint)`

// Log reads up to limit events of conv after a seq, whoever may see them: it is for feeds, which judge that by the joins and leaves that
// they read. When the log's epoch is another than the given one (0: any) there are no events. NOT_FOUND: no such conversation.
func (s *Store) Log(ctx context.Context, conv string, epoch, after int64, limit int) (epochNow, head int64, events []tidings.Event, err error) {
	args := pgx.NamedArgs{"conv": conv, "epoch": epoch, "after": after, "limit": limit}
	err = s.eachByKey(ctx, logSQL, args, func(row pgx.Rows) error {
		var found, last int64
		var e eventRow
		if err := row.Scan(append([]any{&found, &last}, e.targets()...)...); err != nil {
			return err
		}
		if e.Seq > 0 {
			events = append(events, e.event(conv))
		} else {
			epochNow, head = found, last
		}
		return nil
	})
	if err == nil && epochNow == 0 {
		err = noConversation(conv)
	}
	return epochNow, head, events, unchanged("read the log", err)
}

func noConversation(conv string) error {
	return tidings.Errorf(tidings.NotFound, "there is no conversation %s", conv)
}

// Interval is a position in a log and, where a user is named, that user's membership in it.
type Interval struct {
	Conv, User           string
	Epoch, Head, JoinSeq int64
	LeaveSeq             *int64 // nil: the interval is open
}

// scanInterval reads conv, user, epoch, head, join and leave.
func scanInterval(row pgx.CollectableRow) (i Interval, err error) {
	err = row.Scan(&i.Conv, &i.User, &i.Epoch, &i.Head, &i.JoinSeq, &i.LeaveSeq)
	return i, err
}

// membershipsSQL reads where users are members, through member_user. The open intervals are asked for by an expression, because the
// partial index member_open, which is small on a young table, would be read whole.
const membershipsSQL = `SELECT m.conv_id, m.user_id, c.epoch, c.next_seq - 1, m.join_seq, m.leave_seq
	  FROM tidings.member m JOIN tidings.conversation c ON c.conv_id = m.conv_id
	 WHERE m.user_id = ANY (@users::text[]) AND coalesce(m.leave_seq, 0) = 0 ORDER BY m.user_id, m.conv_id`

// MembershipsOf reads the open intervals of users, by user and conversation, each with the position of the log in the same snapshot.
func (s *Store) MembershipsOf(ctx context.Context, users ...string) ([]Interval, error) {
	all, err := rowsByKey(ctx, s, membershipsSQL, pgx.NamedArgs{"users": users}, scanInterval)
	return all, unchanged("read the memberships of users", err)
}

// membersSQL reads the position of a log and which of some users are members, through member_open. There is a row without a user
// when none is.
const membersSQL = `SELECT c.conv_id, coalesce(m.user_id, ''), c.epoch, c.next_seq - 1, coalesce(m.join_seq, 0), m.leave_seq
	  FROM tidings.conversation c
	  LEFT JOIN tidings.member m ON m.conv_id = c.conv_id AND m.user_id = ANY (@users::text[]) AND m.leave_seq IS NULL
	 WHERE c.conv_id = @conv::text`

// MembersAmong reads the position of conv and, in the same snapshot, the open intervals of those of the users who are members.
// NOT_FOUND: no such conversation.
func (s *Store) MembersAmong(ctx context.Context, conv string, users []string) (head, epoch int64, in []Interval, err error) {
	all, err := rowsByKey(ctx, s, membersSQL, pgx.NamedArgs{"conv": conv, "users": users}, scanInterval)
	if err == nil && len(all) == 0 {
		err = noConversation(conv)
	}
	if err != nil {
		return 0, 0, nil, unchanged("read the members of a conversation", err)
	}
	if head, epoch = all[0].Head, all[0].Epoch; all[0].User == "" {
		all = nil
	}
	return head, epoch, all, nil
}

// headsSQL reads positions by conversation's primary key.
const headsSQL = `SELECT c.conv_id, '', c.epoch, c.next_seq - 1, 0::bigint, NULL::bigint FROM tidings.conversation c WHERE c.conv_id = ANY (@convs::text[])`

// Heads reads the positions of conversations. Those that do not exist are left out.
func (s *Store) Heads(ctx context.Context, convs []string) ([]Interval, error) {
	all, err := rowsByKey(ctx, s, headsSQL, pgx.NamedArgs{"convs": convs}, scanInterval)
	return all, unchanged("read the heads of conversations", err)
}
