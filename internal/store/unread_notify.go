// Notifies members who are not connected of what they have not read.

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

const (
	// UnreadPrefix begins the event keys of notifications of unread messages; the mid of the message that one is about follows.
	UnreadPrefix = "unread-"
	// UnreadCategory is the category of these notifications, which a user can opt out of.
	UnreadCategory = "chat"
)

// What is known of some users, each by the first columns of a primary key or an index.
const (
	// connectedSQL finds those who have a device with a current route.
	connectedSQL = `SELECT DISTINCT r.user_id FROM tidings.route r JOIN tidings.gateway g ON g.gateway_id = r.gateway_id
		 WHERE r.user_id = ANY (@users::text[]) AND r.bucket = ANY (@buckets::smallint[]) AND g.lease_until > statement_timestamp()`

	// reachableSQL finds those who can be reached on some channel.
	reachableSQL = `SELECT DISTINCT p.user_id FROM tidings.channel_pref p
		 WHERE p.user_id = ANY (@users::text[]) AND p.bucket = ANY (@buckets::smallint[]) AND p.enabled`

	// standingSQL finds the newest message of a conversation that a notification of each is about, through notification_about_user.
	standingSQL = `SELECT n.user_id, max(n.about_seq) FROM tidings.notification n
		 WHERE n.user_id = ANY (@users::text[]) AND n.bucket = ANY (@buckets::smallint[]) AND n.about_conv = @conv::text AND n.about_gone_at IS NULL
		   AND n.cancelled_at IS NULL GROUP BY n.user_id`

	// undisturbedSQL finds those who have quiet hours now, and when those end.
	undisturbedSQL = `SELECT q.user_id, q.ends FROM (SELECT q.user_id, tidings.quiet_until(statement_timestamp(), q.zone, q.from_minute, q.to_minute) AS ends
			FROM tidings.quiet q WHERE q.user_id = ANY (@users::text[]) AND q.bucket = ANY (@buckets::smallint[])) q
		 WHERE q.ends IS NOT NULL`
)

// notifyBatchSQL is what notify_v1 calls: the one implementation of the rule. It relies on UNIQUE (user_id, event_key, bucket).
const notifyBatchSQL = `SELECT a.position, a.created FROM tidings.notify_batch(@items::json, @many::int) a`

// unreadNotification is a notification as notify_batch reads it. Its body is left out: there is none, or the message's own.
type unreadNotification struct {
	User      string          `json:"user"`
	EventKey  string          `json:"event_key"`
	Title     string          `json:"title"`
	Data      tidings.About   `json:"data"`
	Category  string          `json:"category"`
	TTL       tidings.Seconds `json:"ttl_s"`
	NotBefore *time.Time      `json:"not_before,omitempty"`
	About     tidings.About   `json:"about"`
	Preview   bool            `json:"preview"`
}

// notifyMembers notifies those of some members who are not connected, can be reached and have no notification yet, in one transaction. It returns
// for whom one was created, and whether somebody was connected.
func (s *Store) notifyMembers(ctx context.Context, notice UnreadNotice, conv string, members []unreadMember) (told []unreadMember, connected bool, err error) {
	users, buckets := make([]string, len(members)), make([]int16, len(members))
	for i, m := range members {
		users[i], buckets[i] = m.user, tidings.Bucket(m.user)
	}
	args := pgx.NamedArgs{"users": users, "buckets": buckets, "conv": conv}
	err = s.transact(ctx, "notify members of unread messages", func(ctx context.Context, tx pgx.Tx) error {
		told, connected = nil, false
		var (
			here, reachable = map[string]bool{}, map[string]bool{}
			standing        = map[string]int64{}
			quiet           = map[string]time.Time{}
		)
		look := &pgx.Batch{}
		look.Queue(byKeySQL)
		look.Queue(connectedSQL, args).Query(collect(func(user string, _ *struct{}) { here[user] = true }))
		look.Queue(reachableSQL, args).Query(collect(func(user string, _ *struct{}) { reachable[user] = true }))
		look.Queue(standingSQL, args).Query(collect(func(user string, seq *int64) { standing[user] = *seq }))
		look.Queue(undisturbedSQL, args).Query(collect(func(user string, ends *time.Time) { quiet[user] = *ends }))
		if err := tx.SendBatch(ctx, look).Close(); err != nil {
			return err
		}
		var tell []unreadMember
		var notes []unreadNotification
		for _, m := range members {
			if standing[m.user] >= m.from || !reachable[m.user] {
				continue
			}
			if here[m.user] {
				connected = true
				continue
			}
			about := tidings.About{Conv: conv, Seq: m.seq}
			n := unreadNotification{User: m.user, EventKey: UnreadPrefix + m.mid.String(), Title: notice.Title, Data: about, Category: UnreadCategory,
				TTL: tidings.Seconds(notice.TTL), About: about, Preview: m.preview}
			if ends, ok := quiet[m.user]; ok {
				n.NotBefore = &ends
			}
			tell, notes = append(tell, m), append(notes, n)
		}
		if len(notes) == 0 {
			return nil
		}
		items, err := json.Marshal(notes)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, notifyBatchSQL, pgx.NamedArgs{"items": string(items), "many": len(notes)})
		if err != nil {
			return err
		}
		var position int
		var created bool
		_, err = pgx.ForEachRow(rows, []any{&position, &created}, func() error {
			if created {
				told = append(told, tell[position-1])
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return told, connected, nil
}

// collect reads rows that begin with a user and have one more column, or none where T is the empty struct.
func collect[T any](each func(user string, value *T)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var user string
		var value T
		into := []any{&user}
		if _, none := any(value).(struct{}); !none {
			into = append(into, &value)
		}
		_, err := pgx.ForEachRow(rows, into, func() error {
			each(user, &value)
			return nil
		})
		return err
	}
}
