// The list of a user's conversations.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Summary is a conversation in a user's list.
type Summary struct {
	Conv       string         `json:"conv"`
	Epoch      int64          `json:"epoch"`
	Head       int64          `json:"head"` // for one who has left: the leave
	MinSeq     int64          `json:"min_seq"`
	Delivered  int64          `json:"delivered"` // to this install of this device
	Read       int64          `json:"read"`      // by the user on any device
	Unread     int64          `json:"unread"`
	UnreadMore bool           `json:"unread_more"`    // there are more than Unread
	Last       *tidings.Event `json:"last,omitempty"` // the newest event that the user can see
	At         int64          `json:"at"`             // of Last; 0 without it
	Left       bool           `json:"left,omitempty"` // the user is a member no longer
}

// listSQL reads the conversations that a user is or was in, in their order, through member_user.
const listSQL = `SELECT DISTINCT m.conv_id FROM tidings.member m WHERE m.user_id = @user::text AND m.conv_id > @after::text
	 ORDER BY m.conv_id LIMIT @limit::bigint`

// installSQL reads the current install of a device by primary key.
const installSQL = `SELECT d.install_no FROM tidings.device d WHERE d.user_id = @user::text AND d.device_id = @device::text AND d.bucket = @bucket::smallint`

// summarySQL reads what a list shows of conversations, each by primary keys and ranges of them.
const summarySQL = `SELECT c.conv_id, c.epoch, v.head, c.min_seq, coalesce(d.seq, 0), c.read, ` + unread + `, v.gone, ` + eventColumns + `
	  FROM (SELECT t.*, coalesce(r.seq, 0) AS read FROM tidings.conversation t
		LEFT JOIN tidings.read r ON r.conv_id = t.conv_id AND r.user_id = @user::text WHERE t.conv_id = ANY (@convs::text[])) c
	  CROSS JOIN LATERAL (SELECT ` + visibleHead + ` AS head, NOT bool_or(m.leave_seq IS NULL) AS gone
		FROM tidings.member m WHERE m.conv_id = c.conv_id AND m.user_id = @user::text HAVING count(*) > 0) v
	  LEFT JOIN tidings.delivered d ON d.conv_id = c.conv_id AND d.user_id = @user::text AND d.device_id = @device::text AND d.install_no = @install::bigint
	  LEFT JOIN LATERAL (SELECT e.* FROM tidings.member m CROSS JOIN LATERAL (
			SELECT e.* FROM tidings.event e WHERE ` + inside + ` ORDER BY e.seq DESC LIMIT 1) e
		 WHERE m.conv_id = c.conv_id AND m.user_id = @user::text ORDER BY m.join_seq DESC LIMIT 1) e ON true
	 ORDER BY c.conv_id`

// Conversations lists up to limit conversations that a user is or was in, those with an id above after, in the order of their ids. device
// may be empty: then nothing is delivered.
func (s *Store) Conversations(ctx context.Context, user, device, after string, limit int) (list []Summary, more bool, err error) {
	if limit = min(limit, MaxPage); limit < 1 {
		return nil, false, tidings.Errorf(tidings.InvalidArgument, "limit is %d", limit)
	}
	convs, install, err := s.listed(ctx, user, device, after, limit+1)
	if err != nil || len(convs) == 0 {
		return []Summary{}, false, unchanged("list conversations", err)
	}
	if more = len(convs) > limit; more {
		convs = convs[:limit]
	}
	args := pgx.NamedArgs{"user": user, "device": device, "install": install, "convs": convs}
	list, err = rowsByKey(ctx, s, summarySQL, args, scanSummary)
	return list, more, unchanged("list conversations", err)
}

// listed reads which conversations stand on a page, and the current install of the device.
func (s *Store) listed(ctx context.Context, user, device, after string, limit int) (convs []string, install int64, err error) {
	batch := &pgx.Batch{}
	batch.Queue(listSQL, pgx.NamedArgs{"user": user, "after": after, "limit": limit})
	batch.Queue(installSQL, pgx.NamedArgs{"user": user, "device": device, "bucket": tidings.Bucket(user)})
	err = s.byKey(ctx, batch, func(rows pgx.Rows) (err error) {
		convs, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if len(found) > 0 {
			install = found[0]
		}
		return err
	})
	return convs, install, err
}

func scanSummary(row pgx.CollectableRow) (s Summary, err error) {
	var e eventRow
	if err = row.Scan(append([]any{&s.Conv, &s.Epoch, &s.Head, &s.MinSeq, &s.Delivered, &s.Read, &s.Unread, &s.Left}, e.targets()...)...); err != nil {
		return s, err
	}
	s.MinSeq = min(s.MinSeq, s.Head+1)
	s.Unread, s.UnreadMore = capUnread(s.Unread)
	if e.Seq > 0 {
		last := e.event(s.Conv)
		s.Last, s.At = &last, last.At
	}
	return s, nil
}
