// Tests of what an operator's questions read.

package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// However large the tables are, and whatever the statistics say of them, an operator's question reads a bounded number of rows, by keys.
func TestOperatorsReadByKeys(t *testing.T) {
	pool := pgtest.NewPlain(t)
	ctx := t.Context()
	tables := []string{"conversation", "event", "member", "delivered", "read", "notification", "task", "receipt", "device", "route", "gateway"}
	conn, exec := young(t, pool, tables...)
	exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) SELECT tidings.bucket_of(u), u, c, 'x' FROM unnest(ARRAY['ana', 'ben']) u, unnest(ARRAY['push', 'sms']) c`)
	for user, n := range map[string]int{"ana": 12_000, "ben": 3000} {
		exec(`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', $1::text, 'event_key', 'e' || g, 'body', 'x', 'ttl_s', 3600)) FROM generate_series(1, $2::int) g))`, user, n)
	}
	exec(`UPDATE tidings.task t SET provider_msg_id = 'p' || x.n FROM (SELECT id, row_number() OVER () AS n FROM tidings.task WHERE channel = 'push') x WHERE x.id = t.id`)
	exec(`UPDATE tidings.task SET state = 'UNKNOWN', outcome_uncertain = true, doubt_at = statement_timestamp(), needs_review = true, next_attempt_at = NULL, attempt_count = 1 WHERE channel = 'sms'`)
	exec(`INSERT INTO tidings.receipt (channel, provider_msg_id, status, received_at, sweep_at, matched_task)
		SELECT 'channel' || g % 5, 'p' || g, 'delivered', now(), now(), (SELECT id FROM tidings.task LIMIT 1) FROM generate_series(1, 20000) g`)

	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq, min_seq) SELECT 'c-' || c, 77, 40001, 101 FROM generate_series(1, 3000) c`)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) SELECT c, n, 'msg', gen_random_uuid(), 'ben', 'm' || n, 'body'
		FROM unnest(ARRAY['c-7', 'c-8']) c, generate_series(101, 40000) n`)
	// c-7 has 20 000 members, c-8 one, and 20 000 who have left, c-9 150 of each.
	exec(`INSERT INTO tidings.member SELECT 'c-7', 'u' || g, 1, NULL FROM generate_series(1, 20000) g`)
	exec(`INSERT INTO tidings.member SELECT 'c-8', 'u' || g, 1, CASE WHEN g > 1 THEN 2 END FROM generate_series(1, 20001) g`)
	exec(`INSERT INTO tidings.member SELECT 'c-9', 'u' || g, 1, CASE WHEN g > 150 THEN 2 END FROM generate_series(1, 300) g`)
	exec(`INSERT INTO tidings.member SELECT 'c-' || c, 'ana', 1, NULL FROM generate_series(100, 3000) c`)
	exec(`INSERT INTO tidings.delivered SELECT 'c-7', 'u' || g, 'd' || d, 1, 5 FROM generate_series(10000, 10300) g, generate_series(1, 25) d`)
	exec(`INSERT INTO tidings.read SELECT c, 'u' || g, 5 FROM unnest(ARRAY['c-7', 'c-8', 'c-9']) c, generate_series(1, 20000) g`)

	if err := New(pool).EnsureLineage(ctx); err != nil {
		t.Fatal(err)
	}
	exec(`INSERT INTO tidings.gateway (gateway_id, lease_until) SELECT 'g' || g, now() + interval '1 minute' FROM generate_series(1, 3) g`)
	exec(`INSERT INTO tidings.device (bucket, user_id, device_id, install_id, connects) SELECT tidings.bucket_of('u' || u), 'u' || u, 'd' || d, 'i', 1
		FROM generate_series(1, 20000) u, generate_series(1, 2) d`)
	exec(`INSERT INTO tidings.device (bucket, user_id, device_id, install_id, connects) SELECT tidings.bucket_of('ana'), 'ana', 'd' || d, 'i', 1 FROM generate_series(1, 5000) d`)
	exec(`INSERT INTO tidings.route SELECT d.bucket, d.user_id, d.device_id, 'g1', gen_random_uuid(), 1 FROM tidings.device d`)

	buckets := New(pool).buckets
	args := func(more pgx.NamedArgs) pgx.NamedArgs {
		all := pgx.NamedArgs{"buckets": buckets, "bucket": tidings.Bucket("ana"), "user": "ana", "event_key": "", "first_key": "", "last_key": lastID(""), "provider_id": "p77",
			"at": nil, "id": lastUUID, "limit": 51, "most": SearchedNotifications, "channels": 200, "conv": "c-7", "first": "", "last": lastID(""), "after": "",
			"convs": []string{"c-7", "c-8", "c-9"}, "devices": shownDevices, "before": 40_001, "bodies": true, "node": node, "gateway": "g1"}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	for _, statistics := range []string{"young", "fresh"} {
		if statistics == "fresh" {
			exec(`ANALYZE tidings.` + strings.Join(tables, ", tidings."))
		}
		for _, c := range []struct {
			name, sql string
			args      pgx.NamedArgs
			most      map[string]int // rows of each table
		}{
			{"the count of a user's notifications", notesCountSQL, nil, map[string]int{"notification": SearchedNotifications + 1}},
			{"a user's tasks", tasksOfUserSQL, nil, map[string]int{"notification": SearchedNotifications, "task": 2 * SearchedNotifications}},
			{"a user's tasks of one event", tasksOfUserSQL, pgx.NamedArgs{"first_key": "e7", "last_key": "e7"}, map[string]int{"notification": 1, "task": 2}},
			{"tasks by provider's id", tasksOfProviderSQL, pgx.NamedArgs{"user": ""}, map[string]int{"task": 8, "notification": 4, "receipt": 20}},
			{"conversations", convsSQL, pgx.NamedArgs{"after": "c-2", "limit": 51}, map[string]int{"conversation": 51}},
			{"conversations by prefix", convsSQL, pgx.NamedArgs{"first": "c-29", "last": lastID("c-29"), "limit": 51}, map[string]int{"conversation": 51}},
			{"conversations of a user", convsOfUserSQL, pgx.NamedArgs{"after": "c-2", "limit": 51}, map[string]int{"member": 52}},
			{"what a list shows of them", conversationItemsSQL, pgx.NamedArgs{"most": 1000}, map[string]int{"conversation": 3, "member": 3000}},
			{"a conversation", conversationDetailSQL, pgx.NamedArgs{"most": 1000, "convs": []string{"c-7"}}, map[string]int{"conversation": 1, "member": 1000}},
			{"its members", shownMembersSQL, pgx.NamedArgs{"limit": 201}, map[string]int{"member": 201, "read": 201, "delivered": 201 * shownDevices}},
			{"members of whom most have left", shownMembersSQL, pgx.NamedArgs{"limit": 201, "conv": "c-8"}, map[string]int{"member": 203, "read": 201, "delivered": 1}},
			{"members of whom half have left", shownMembersSQL, pgx.NamedArgs{"limit": 201, "conv": "c-9"}, map[string]int{"member": 450, "read": 201, "delivered": 1}},
			{"the beginning of a log", logAfterSQL, pgx.NamedArgs{"after": 0, "limit": 201}, map[string]int{"conversation": 1, "event": 201}},
			{"the end of a log", logBeforeSQL, pgx.NamedArgs{"after": 0, "limit": 201}, map[string]int{"conversation": 1, "event": 201}},
			{"the overview", overviewSQL, pgx.NamedArgs{"most": 1000}, map[string]int{"task": 1001}},
			{"a gateway's routes", routesCountSQL, pgx.NamedArgs{"most": 1000}, map[string]int{"route": 1000}},
			{"a user's routes", routesOfUserSQL, pgx.NamedArgs{"limit": 201}, map[string]int{"device": 201, "route": 201}},
		} {
			plan := explained(ctx, t, conn, c.sql, args(c.args))
			for table, most := range c.most {
				rows, by := plan.touched(table)
				if rows > most || rows == 0 && most > 100 || len(by) == 0 || slices.ContainsFunc(by, func(i string) bool { return !strings.HasPrefix(i, "Index ") }) {
					t.Errorf("%s statistics, %s: %d rows of %s are read by %v", statistics, c.name, rows, table, by)
				}
			}
		}
	}
}
