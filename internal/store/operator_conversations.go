// Shows conversations to an operator: heads, members, cursors; no content.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Bounds of what an operator is shown of conversations.
const (
	defaultConversations = 50
	maxConversations     = 200
	shownMembers         = 200 // memberships of one conversation
	shownDevices         = 20  // devices of one of them
)

// ConversationFilter says which conversations an operator looks for.
type ConversationFilter struct {
	User  string // those that the user is or was in; empty: all
	Conv  string // those whose ids begin so; empty: all
	Limit int    // at most 200; 0: 50
	After string // the last conversation of the page before; empty: from the beginning
}

// ConversationItem is a conversation in such a list.
type ConversationItem struct {
	Conv        string    `json:"conv"`
	Epoch       int64     `json:"epoch"`
	Head        int64     `json:"head" doc:"The last seq; 0: nothing was ever said."`
	MinSeq      int64     `json:"min_seq" doc:"The first seq that is still kept; head + 1 when nothing is."`
	Members     int       `json:"members" doc:"Users that are in it. The count stops at 10001, which means more than 10000."`
	CreatedAt   time.Time `json:"created_at"`
	RetentionMS *int64    `json:"retention_ms,omitempty" doc:"How long events are kept, in milliseconds; absent: for ever."`
}

// conversationItem are the columns of a ConversationItem of c, which is one of convs; members are counted through member_open.
const conversationItem = `c.conv_id, c.epoch, c.next_seq - 1, c.min_seq,
		(SELECT count(*) FROM (SELECT FROM tidings.member m WHERE m.conv_id = c.conv_id AND m.conv_id = ANY (@convs::text[]) AND m.leave_seq IS NULL LIMIT @most::bigint) counted),
		c.created_at, c.retention_ms`

// convsSQL steps through the primary key of conversation.
const convsSQL = `SELECT c.conv_id FROM tidings.conversation c
	 WHERE c.conv_id BETWEEN @first::text AND @last::text AND c.conv_id > @after::text ORDER BY c.conv_id LIMIT @limit::bigint`

// convsOfUserSQL steps through member_user.
const convsOfUserSQL = `SELECT DISTINCT m.conv_id FROM tidings.member m
	 WHERE m.user_id = @user::text AND m.conv_id BETWEEN @first::text AND @last::text AND m.conv_id > @after::text ORDER BY m.conv_id LIMIT @limit::bigint`

// conversationItemsSQL reads conversations by primary key.
const conversationItemsSQL = `SELECT ` + conversationItem + ` FROM tidings.conversation c WHERE c.conv_id = ANY (@convs::text[]) ORDER BY c.conv_id`

// FindConversations returns a page of the conversations that an operator looks for, in the order of their ids, and whether there are more.
// INVALID_ARGUMENT: the filter names what is no id.
func (s *Store) FindConversations(ctx context.Context, f ConversationFilter) (items []ConversationItem, more bool, err error) {
	for name, id := range map[string]string{"user": f.User, "conv": f.Conv, "after": f.After} {
		if id == "" {
			continue
		}
		if err := tidings.CheckID(name, id); err != nil {
			return nil, false, err
		}
	}
	if f.Limit <= 0 {
		f.Limit = defaultConversations
	}
	f.Limit = min(f.Limit, maxConversations)
	sql := convsSQL
	if f.User != "" {
		sql = convsOfUserSQL
	}
	args := pgx.NamedArgs{"user": f.User, "first": f.Conv, "last": lastID(f.Conv), "after": f.After, "limit": f.Limit + 1}
	convs, err := rowsByKey(ctx, s, sql, args, pgx.RowTo[string])
	if err != nil || len(convs) == 0 {
		return []ConversationItem{}, false, unchanged("find conversations", err)
	}
	if more = len(convs) > f.Limit; more {
		convs = convs[:f.Limit]
	}
	items, err = rowsByKey(ctx, s, conversationItemsSQL, pgx.NamedArgs{"convs": convs, "most": countLimit}, pgx.RowToStructByPos[ConversationItem])
	return items, more, unchanged("find conversations", err)
}

// ConversationDetail is a conversation with its settings and members.
type ConversationDetail struct {
	ConversationItem
	RecallWindowMS int64
	NotifyAfterMS  *int64             // after how long an unread message makes a notification; nil: never
	Preview        bool               // that shows the text
	Memberships    []MembershipDetail // those who are in first; at most 200
	MoreMembers    bool               // there are more memberships
}

// MembershipDetail is one stay of a user in a conversation; one who came and went has several.
type MembershipDetail struct {
	User     string
	JoinSeq  int64
	LeaveSeq *int64   // nil: the user is in
	Read     int64    // how far the user has read, on whichever device
	Devices  []string // that have ever said what was delivered to them, at most 20
	Cursors  []int64  // of Devices: how far the conversation is stored there
}

// conversationDetailSQL reads a conversation by primary key.
const conversationDetailSQL = `SELECT ` + conversationItem + `, c.recall_window_ms, c.notify_after_ms, c.preview FROM tidings.conversation c WHERE c.conv_id = ANY (@convs::text[])`

// shownMembersSQL reads who is in through member_open and, if those are few, who was through the primary key: on its way it passes only
// those few. Cursors are read by ranges of their primary keys.
const shownMembersSQL = `WITH present AS MATERIALIZED (
		SELECT m.conv_id, m.user_id, m.join_seq, m.leave_seq FROM tidings.member m
		 WHERE m.conv_id = @conv::text AND m.leave_seq IS NULL ORDER BY m.user_id LIMIT @limit::bigint
	), former AS MATERIALIZED (
		SELECT m.conv_id, m.user_id, m.join_seq, m.leave_seq FROM tidings.member m
		 WHERE m.conv_id = @conv::text AND m.leave_seq IS NOT NULL AND (SELECT count(*) FROM present) < @limit::bigint
		 ORDER BY m.user_id, m.join_seq LIMIT @limit::bigint
	), shown AS MATERIALIZED (
		SELECT a.* FROM (SELECT p.*, 1 AS place FROM present p UNION ALL SELECT f.*, 2 FROM former f) a
		 ORDER BY a.place, a.user_id, a.join_seq LIMIT @limit::bigint
	)
	SELECT h.user_id, h.join_seq, h.leave_seq, coalesce(r.seq, 0), coalesce(d.devices, '{}'), coalesce(d.seqs, '{}')
	  FROM shown h
	  LEFT JOIN tidings.read r ON r.conv_id = @conv::text AND r.user_id = h.user_id
	  LEFT JOIN LATERAL (SELECT array_agg(x.device_id ORDER BY x.device_id) AS devices, array_agg(x.seq ORDER BY x.device_id) AS seqs FROM (
			SELECT v.device_id, v.seq FROM tidings.delivered v WHERE v.conv_id = @conv::text AND v.user_id = h.user_id
			 ORDER BY v.device_id LIMIT @devices::bigint) x) d ON true
	 ORDER BY h.place, h.user_id, h.join_seq`

// ShowConversation reads a conversation for an operator. The error is NOT_FOUND when there is none.
func (s *Store) ShowConversation(ctx context.Context, conv string) (d ConversationDetail, err error) {
	if err := tidings.CheckID("conv", conv); err != nil {
		return d, err
	}
	args := pgx.NamedArgs{"conv": conv, "convs": []string{conv}, "most": countLimit, "limit": shownMembers + 1, "devices": shownDevices}
	batch := &pgx.Batch{}
	batch.Queue(conversationDetailSQL, args)
	batch.Queue(shownMembersSQL, args)
	err = s.byKey(ctx, batch, func(rows pgx.Rows) error {
		i := &d.ConversationItem
		_, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
			return struct{}{}, row.Scan(&i.Conv, &i.Epoch, &i.Head, &i.MinSeq, &i.Members, &i.CreatedAt, &i.RetentionMS, &d.RecallWindowMS, &d.NotifyAfterMS, &d.Preview)
		})
		return err
	}, func(rows pgx.Rows) (err error) {
		d.Memberships, err = pgx.CollectRows(rows, pgx.RowToStructByPos[MembershipDetail])
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return d, tidings.Errorf(tidings.NotFound, "there is no such conversation")
	}
	if d.MoreMembers = len(d.Memberships) > shownMembers; d.MoreMembers {
		d.Memberships = d.Memberships[:shownMembers]
	}
	return d, unchanged("read a conversation", err)
}
