// Tests of what reading a conversation reads.

package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// However large a log is and whatever the statistics say of it, reading costs what it returns: each statement finds its rows by keys.
func TestReadingCostsWhatItReturns(t *testing.T) {
	pool := pgtest.New(t)
	ctx := t.Context()
	const n = 200_000
	conn, exec := young(t, pool, "conversation", "event", "member", "delivered", "read")
	// big: ana is in from the beginning to 10, and again for the last 50; ben all the time. 300 small ones beside it.
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) VALUES ('big', 77, $1::bigint + 1)`, n)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
		SELECT 'big', n, 'msg', gen_random_uuid(), 'eve', 'c' || n, 'body' FROM generate_series(1, $1::bigint) n`, n)
	exec(`INSERT INTO tidings.member VALUES ('big', 'ana', 1, 10), ('big', 'ana', $1::bigint - 49, NULL), ('big', 'ben', 1, NULL)`, n)
	exec(`INSERT INTO tidings.member SELECT 'big', 'dee', 100 * i + 1, 100 * i + 50 FROM generate_series(0, 999) i`)
	exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT 'small' || c, 77, 101 FROM generate_series(1, 300) c`)
	exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
		SELECT 'small' || c, n, 'msg', gen_random_uuid(), 'eve', 'c' || n, 'body' FROM generate_series(1, 300) c, generate_series(1, 100) n`)
	exec(`INSERT INTO tidings.member SELECT 'small' || c, u, 1, NULL FROM generate_series(1, 300) c, unnest(ARRAY['ben', 'eve']) u`)
	exec(`INSERT INTO tidings.read SELECT 'small' || c, 'ben', 90 FROM generate_series(1, 300) c`)
	exec(`INSERT INTO tidings.delivered SELECT 'small' || c, 'ben', 'd' || d, 1, 90 FROM generate_series(1, 300) c, generate_series(1, 10) d`)

	args := func(more pgx.NamedArgs) pgx.NamedArgs {
		a := pgx.NamedArgs{"conv": "big", "epoch": 77, "device": "d1", "install": 1}
		for k, v := range more {
			a[k] = v
		}
		return a
	}
	for _, statistics := range []string{"young", "fresh"} {
		if statistics == "fresh" {
			exec(`ANALYZE tidings.conversation, tidings.event, tidings.member, tidings.delivered, tidings.read`)
		}
		for _, c := range []struct {
			name, sql string
			args      pgx.NamedArgs
			events    int // at most so many rows of event are read
			members   int
		}{
			{"a page in the middle", syncSQL, args(pgx.NamedArgs{"user": "ben", "after": n / 2, "limit": 501}), 501, 4},
			{"a page beyond a gap", syncSQL, args(pgx.NamedArgs{"user": "ana", "after": 5, "limit": 501}), 56, 6}, // an average of two loops, rounded up
			{"a page of one who came and went a thousand times", syncSQL, args(pgx.NamedArgs{"user": "dee", "after": 0, "limit": 11}), 100, 1100},
			{"a long page of the same one, over eleven intervals", syncSQL, args(pgx.NamedArgs{"user": "dee", "after": 0, "limit": 501}), 600, 1100},
			{"conversations", listSQL, args(pgx.NamedArgs{"user": "ben", "after": "small2", "limit": 11}), 0, 12},
			{"one event", syncSQL, args(pgx.NamedArgs{"user": "ben", "after": n / 2, "limit": 1}), 1, 4},
			{"a feed", logSQL, args(pgx.NamedArgs{"after": n - 20, "limit": 500}), 20, 0},
			{"reading with a million unread", readSQL, args(pgx.NamedArgs{"user": "ben", "seq": 5}), 1001, 4},
			{"reading at the end", readSQL, args(pgx.NamedArgs{"user": "ben", "seq": n - 3}), 3, 4},
			{"reading beyond a gap", readSQL, args(pgx.NamedArgs{"user": "ana", "seq": 7}), 53, 6},
			{"a list", summarySQL, args(pgx.NamedArgs{"user": "ben", "convs": []string{"big", "small1", "small2", "small3"}}), 1001 + 1 + 3*11 + 2, 16},
			{"acks", ackSQL, args(pgx.NamedArgs{"convs": []string{"big", "small1", "small2"}, "users": []string{"ben", "ben", "ben"}, "devices": []string{"d1", "d1", "d2"},
				"installs": []int64{1, 1, 1}, "epochs": []int64{0, 0, 77}, "seqs": []int64{5, 95, 95}}), 0, 3},
		} {
			plan := explained(ctx, t, conn, c.sql, c.args)
			rows, by := plan.touched("event")
			if rows > c.events || c.events > 0 && (rows == 0 || slices.ContainsFunc(by, func(i string) bool {
				return i != "Index Scan event_pkey" && i != "Index Scan Backward event_pkey" && i != "Index Only Scan event_pkey"
			})) {
				t.Errorf("%s statistics, %s: %d events are read by %v", statistics, c.name, rows, by)
			}
			for table, most := range map[string]int{"member": c.members, "conversation": 8, "read": 8, "delivered": 8} {
				if rows, by := plan.touched(table); rows > most || strings.Contains(fmt.Sprint(by), "Seq Scan") {
					t.Errorf("%s statistics, %s: %d rows of %s are read by %v", statistics, c.name, rows, table, by)
				}
			}
		}
	}
}
