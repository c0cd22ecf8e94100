// Tests of how verify goes through large tables.

package store

import (
	"testing"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// The slices, however narrow, are all rows and each once.
func TestVerifySlices(t *testing.T) {
	pool := pgtest.New(t)
	s := New(pool)
	ctx := t.Context()
	for _, sql := range []string{
		`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
			SELECT tidings.bucket_of('u' || g), 'u' || g, 'push', 'a' FROM generate_series(1, 1000) g`,
		`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', 'u' || g, 'event_key', 'e', 'body', 'x', 'ttl_s', 60)) FROM generate_series(1, 1000) g))`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	for width := 256; width >= 1; width /= 16 {
		for _, q := range questions {
			f := Finding{Name: q.name}
			for low := 0; low < 256; low += width {
				if err := s.ask(ctx, q.sql, slice{low, low + width - 1}, nil, &f); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]int{"one-notification-per-key": 1000, "notification-in-its-bucket": 1000, "one-task-per-address": 1000, "task-is-its-key": 1000,
				"journal-complete": 1000, "nothing-stuck": 1000, "task-has-notification": 1000}[q.name]
			if f.Examined != want || f.Violations != 0 {
				t.Errorf("in slices of %d buckets %s examined %d rows, want %d, and found %d violations", width, f.Name, f.Examined, want, f.Violations)
			}
		}
	}
}

// So are the slices of conversations, whatever their sizes; and rows of a conversation that does not exist lie in one, too.
func TestVerifyPages(t *testing.T) {
	pool := pgtest.NewPlain(t)
	s := New(pool)
	ctx := t.Context()
	const convs = 120
	for _, sql := range []string{
		`INSERT INTO tidings.conversation (conv_id, next_seq, min_seq, epoch) SELECT 'c' || g, g % 7 + 3, 2, 77 FROM generate_series(1, 120) g`,
		`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
			SELECT c.conv_id, g, 'msg', gen_random_uuid(), 'ana', 'm' || g, 'x' FROM tidings.conversation c CROSS JOIN LATERAL generate_series(2, c.next_seq - 1) g`,
		`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) SELECT 'c' || g, 'ana', 'm1', 1 FROM generate_series(1, 120) g`,
		`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('!', 'ana', 'm', 1), ('c500', 'ana', 'm', 1), ('~~', 'ana', 'm', 1)`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	var events int
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM tidings.event`).Scan(&events); err != nil {
		t.Fatal(err)
	}
	widest := 0
	for _, size := range []struct{ convs, seqs int }{{1, 1}, {7, 1000}, {1000, 1}, {1000, 50}, {1000, 100000}} {
		pages, err := s.conversationPages(ctx, size.convs, size.seqs)
		if err != nil {
			t.Fatal(err)
		}
		widest = max(widest, len(pages))
		for _, q := range logQuestions {
			f := Finding{Name: q.name}
			for _, page := range pages {
				if err := s.ask(ctx, q.sql, page, nil, &f); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string][2]int{"one-event-per-request-key": {events, 0}, "purged-key-has-no-event": {convs + 3, 0}, "tombstone-below-its-log": {convs + 3, 3},
				"log-without-holes": {convs, 0}, "epoch-is-the-generation": {convs, convs}}[q.name]
			if got := [2]int{f.Examined, f.Violations}; got != want {
				t.Errorf("in %d pages of %v %s examined and found %v, want %v", len(pages), size, f.Name, got, want)
			}
		}
	}
	if widest != convs+1 {
		t.Errorf("the smallest pages were %d, want one for each conversation and one after the last", widest)
	}
}
