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
				if err := s.ask(ctx, q.sql, low, low+width-1, &f); err != nil {
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
