// Tests of what it reads to notify the members of a large conversation.

package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// A large conversation whose members joined one after the other, and a member with very many messages of their own, miss nothing. A queue that
// is long and not due costs nothing.
func TestNotifyUnreadOfMany(t *testing.T) {
	const many = 10_000
	b := newWatched(t, 1)
	ctx := t.Context()
	conn, err := b.pool.Acquire(ctx)
	b.must(err)
	defer conn.Release()
	for _, table := range []string{"conversation", "event", "member", "read", "mute", "unread_due", "notification", "route", "channel_pref", "quiet"} {
		b.exec(`ALTER TABLE tidings.` + table + ` SET (autovacuum_enabled = off)`)
		b.exec(`ANALYZE tidings.` + table)
	}
	var members []string
	for i := range many {
		members = append(members, fmt.Sprintf("u-%05d", i))
	}
	after := time.Minute
	_, err = b.CreateConversation(ctx, store.Conversation{Conv: "c-many", NotifyAfter: &after, Preview: true, Members: members})
	b.must(err)
	b.exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) SELECT tidings.bucket_of(u), u, 'push', 'at-' || u FROM unnest($1::text[]) u`, members)
	// u-00007 has written very much, and read nothing of it.
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body, created_at)
		SELECT 'c-many', n, 'msg', gen_random_uuid(), 'u-00007', 'm' || n, 'x', now() - interval '1 hour' FROM generate_series($1::bigint + 1, $1::bigint + 5000) n`, many)
	b.exec(`UPDATE tidings.conversation SET next_seq = $1::bigint + 5001 WHERE conv_id = 'c-many'`, many)
	b.say(tidings.Message{Conv: "c-many", Sender: "u-00001", Cmid: "m", Body: "hello"})
	b.exec(`INSERT INTO tidings.unread_due (conv_id, seq, due_at) SELECT 'c-1', n, now() + interval '1 day' FROM generate_series(1, 100000) n`)
	b.later(61 * time.Second)
	unread := map[string]pgx.NamedArgs{
		"dueSQL":           {"limit": 10_000},
		"unreadMembersSQL": {"conv": "c-many", "after": "", "limit": 500, "reach": 1000, "news": []int64{many + 5001}},
		"connectedSQL":     {"users": members[:500], "buckets": buckets()},
		"reachableSQL":     {"users": members[:500], "buckets": buckets()},
		"standingSQL":      {"users": members[:500], "buckets": buckets(), "conv": "c-many"},
		"undisturbedSQL":   {"users": members[:500], "buckets": buckets()},
		"lookAgainSQL":     {"convs": []string{"c-many"}, "seqs": []int64{many + 1}},
		"tellAgainSQL":     {"conv": "c-many", "users": members[:500], "seqs": make([]int64, 500)},
		"standingAboutSQL": {"conv": "c-many", "buckets": buckets()},
		"deleteDueSQL":     {"conv": "c-1", "seqs": []int64{0, 4, 7}, "since": nil},
		"previewSQL":       {"convs": []string{"c-many"}, "seqs": []int64{many + 1}, "users": []string{"u-00002"}},
	}
	for _, s := range allStatements(t) {
		args, ok := unread[s.name]
		if !ok {
			continue
		}
		delete(unread, s.name)
		for _, line := range strings.Split(b.plan(conn.Conn(), s.sql, args), "\n") {
			if strings.Contains(line, "Seq Scan") && !strings.Contains(line, "gateway") {
				t.Errorf("%s: %s", s.name, line)
			}
		}
	}
	if len(unread) > 0 {
		t.Errorf("no statement has the names of %v", unread)
	}
	began := time.Now()
	done, err := b.NotifyUnread(ctx, notice)
	b.must(err)
	t.Logf("%d members in %v", many, time.Since(began))
	if done.Rows != 1 || done.Notifications != many {
		t.Errorf("%+v", done)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', about_seq, preview, n), ', ' ORDER BY about_seq) FROM (SELECT about_seq, preview, count(*) AS n FROM tidings.notification GROUP BY 1, 2) x`); got != fmt.Sprintf("%d t %d, %d t 1", many+1, many-1, many+5001) {
		t.Errorf("notified of %s", got)
	}
	b.look(0, 0)
	// All of them have a notification: the next message makes none.
	b.say(tidings.Message{Conv: "c-many", Sender: "u-00001", Cmid: "m2", Body: "hello"})
	b.later(61 * time.Second)
	b.look(1, 0)
}
