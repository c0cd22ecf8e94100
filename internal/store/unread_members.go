// Who has not read what in a conversation.

package store

import (
	"context"
	"slices"

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

// tellAgainSQL leaves word once more for notifications whose message is read or recalled, or whose user has left since: what came while
// they were created was told, and may have been marked, before they were there. It reads by the primary keys of read and event and by
// member_open. A word that is there is renewed, because whoever is about to delete it has looked already. The leave is dated now: the one
// that was is older than the notification, and would be of an earlier membership.
const tellAgainSQL = `WITH told AS MATERIALIZED (SELECT t.usr, t.seq FROM unnest(@users::text[], @seqs::bigint[]) t (usr, seq)),
	word AS MATERIALIZED (
		SELECT 'read' AS why, t.usr, t.seq FROM told t JOIN tidings.read r ON r.conv_id = @conv::text AND r.user_id = t.usr AND r.seq >= t.seq
		UNION
		SELECT 'recall', '', t.seq FROM told t JOIN tidings.event e ON e.conv_id = @conv::text AND e.seq = t.seq AND e.recalled_by IS NOT NULL
		UNION
		SELECT 'leave', t.usr, t.seq FROM told t LEFT JOIN tidings.member m ON m.conv_id = @conv::text AND m.user_id = t.usr AND m.leave_seq IS NULL
		 WHERE m.join_seq IS NULL OR m.join_seq > t.seq
	)
	INSERT INTO tidings.gone AS g (conv_id, why, user_id, seq)
	SELECT @conv::text, w.why, w.usr, w.seq FROM word w ORDER BY w.why COLLATE "C", w.usr COLLATE "C", w.seq
	ON CONFLICT (conv_id, why, user_id, seq) DO UPDATE SET at = excluded.at, marked = false`

func (s *Store) tellAgain(ctx context.Context, conv string, told []unreadMember) error {
	for told := range slices.Chunk(told, unreadPage) {
		users, seqs := make([]string, len(told)), make([]int64, len(told))
		for i, m := range told {
			users[i], seqs[i] = m.user, m.seq
		}
		again := &pgx.Batch{}
		again.Queue(tellAgainSQL, pgx.NamedArgs{"conv": conv, "users": users, "seqs": seqs})
		err := s.write(ctx, "tell new notifications what is gone", func(ctx context.Context) error {
			return s.byKey(ctx, again, func(pgx.Rows) error { return nil })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// standingAboutSQL finds the notifications of unread messages of a conversation that stand, through notification_about.
const standingAboutSQL = `SELECT n.user_id, n.about_seq FROM tidings.notification n
	 WHERE n.about_conv = @conv::text AND n.about_gone_at IS NULL AND n.bucket = ANY (@buckets::smallint[])
	   AND n.event_key LIKE '` + UnreadPrefix + `%' AND n.cancelled_at IS NULL`

// tellAllAgain is tellAgain for all that a pass which did not end may have created.
func (s *Store) tellAllAgain(ctx context.Context, conv string) error {
	all, err := rowsByKey(ctx, s, standingAboutSQL, pgx.NamedArgs{"conv": conv, "buckets": s.buckets}, func(row pgx.CollectableRow) (m unreadMember, err error) {
		err = row.Scan(&m.user, &m.seq)
		return m, err
	})
	if err != nil {
		return unchanged("look for notifications of unread messages", err)
	}
	return s.tellAgain(ctx, conv, all)
}
