// Who has not read what in a conversation.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// unreadReach is how many events behind what a member has read are looked through for an unread message.
const unreadReach = 1000

// unreadMember is a member of a conversation and the first message that the member has not read.
type unreadMember struct {
	user    string
	seq     int64 // of the message; 0: there is none, or the member wants no notifications
	mid     tidings.UUID
	from    int64 // what is about an earlier message is about one that is read or gone
	old     bool  // it has waited for as long as the conversation says
	preview bool  // the conversation shows texts
}

// unreadMembersSQL reads a page of the members of a conversation that notifies, in the order of member_open, with the first message that each
// has not read since they joined: of another, not recalled, not purged. It reads by primary keys and ranges of the log's. Everybody's search
// begins at the first message behind what anybody on the page has read, so that thousands of joins are passed by once and not once for
// each member. A search that finds nothing among so many events goes on with the messages that are due, and their last.
const unreadMembersSQL = `WITH conv AS MATERIALIZED (
		SELECT c.conv_id, c.min_seq, c.preview, statement_timestamp() - c.notify_after_ms * interval '1 millisecond' AS old_at
		  FROM tidings.conversation c WHERE c.conv_id = @conv::text AND c.notify_after_ms IS NOT NULL
	), page AS MATERIALIZED (
		SELECT m.user_id, greatest(m.join_seq, r.seq, c.min_seq - 1) AS after_seq
		  FROM conv c
		  JOIN tidings.member m ON m.conv_id = @conv::text AND m.leave_seq IS NULL AND m.user_id > @after::text
		  LEFT JOIN tidings.read r ON r.conv_id = @conv::text AND r.user_id = m.user_id
		 ORDER BY m.user_id LIMIT @limit::bigint
	), start AS MATERIALIZED (
		SELECT e.seq - 1 AS seq FROM tidings.event e
		 WHERE e.conv_id = @conv::text AND e.seq > (SELECT min(p.after_seq) FROM page p) AND e.kind = 'msg' AND e.recalled_by IS NULL ORDER BY e.seq LIMIT 1
	)
	SELECT p.user_id, coalesce(f.seq, g.seq, 0), coalesce(f.mid, g.mid, '00000000-0000-0000-0000-000000000000'), coalesce(f.seq, p.after_seq + 1),
		coalesce(f.created_at, g.created_at) <= c.old_at IS TRUE, c.preview
	  FROM page p CROSS JOIN conv c
	  LEFT JOIN tidings.mute u ON u.conv_id = @conv::text AND u.user_id = p.user_id AND (u.until IS NULL OR u.until > statement_timestamp())
	  LEFT JOIN start a ON true
	  LEFT JOIN LATERAL (
		SELECT n.seq, n.mid, n.created_at FROM (
			SELECT e.seq, e.mid, e.created_at, e.kind, e.sender_user, e.recalled_by FROM tidings.event e
			 WHERE e.conv_id = @conv::text AND e.seq > greatest(p.after_seq, a.seq) AND u.user_id IS NULL AND a.seq IS NOT NULL ORDER BY e.seq LIMIT @reach::bigint) n
		 WHERE n.kind = 'msg' AND n.sender_user <> p.user_id AND n.recalled_by IS NULL ORDER BY n.seq LIMIT 1) f ON true
	  LEFT JOIN LATERAL (
		SELECT e.seq, e.mid, e.created_at FROM tidings.event e
		 WHERE e.conv_id = @conv::text AND e.seq = ANY (@news::bigint[]) AND e.seq > greatest(p.after_seq, a.seq) + @reach::bigint AND u.user_id IS NULL AND f.seq IS NULL
		   AND e.kind = 'msg' AND e.sender_user <> p.user_id AND e.recalled_by IS NULL ORDER BY e.seq LIMIT 1) g ON true
	 ORDER BY p.user_id`

// unreadMembers reads the members of a conversation behind one. There are none when the conversation notifies nobody.
func (s *Store) unreadMembers(ctx context.Context, d *due, after string) ([]unreadMember, error) {
	args := pgx.NamedArgs{"conv": d.conv, "after": after, "limit": unreadPage, "reach": unreadReach, "news": append(d.news, d.upto)}
	page, err := rowsByKey(ctx, s, unreadMembersSQL, args, func(row pgx.CollectableRow) (m unreadMember, err error) {
		err = row.Scan(&m.user, &m.seq, (*[16]byte)(&m.mid), &m.from, &m.old, &m.preview)
		return m, err
	})
	return page, unchanged("look for members who have not read", err)
}

// tellAgainSQL tells notifications once more how far their users have read, by read's primary key: what was read while they were created was told
// before they were there. A recall or a leave is told a second time anyway.
const tellAgainSQL = `INSERT INTO tidings.gone (conv_id, why, user_id, seq)
	SELECT r.conv_id, 'read', r.user_id, r.seq FROM unnest(@users::text[], @seqs::bigint[]) t (usr, seq)
	  JOIN tidings.read r ON r.conv_id = @conv::text AND r.user_id = t.usr AND r.seq >= t.seq
	 ORDER BY r.user_id
	ON CONFLICT (conv_id, why, user_id, seq) DO NOTHING`

func (s *Store) tellAgain(ctx context.Context, conv string, told []unreadMember) error {
	if len(told) == 0 {
		return nil
	}
	users, seqs := make([]string, len(told)), make([]int64, len(told))
	for i, m := range told {
		users[i], seqs[i] = m.user, m.seq
	}
	again := &pgx.Batch{}
	again.Queue(tellAgainSQL, pgx.NamedArgs{"conv": conv, "users": users, "seqs": seqs})
	return s.write(ctx, "tell new notifications what is read", func(ctx context.Context) error {
		return s.byKey(ctx, again, func(pgx.Rows) error { return nil })
	})
}
