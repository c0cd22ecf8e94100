// Tests of quiet hours.

package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestQuiet(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	_, err := b.GetQuiet(ctx, "u-ana")
	b.want(tidings.NotFound, err)
	for _, q := range []store.Quiet{{"Europe/Berlin", "22:00", "07:00"}, {"UTC", "00:00", "23:59"}, {"Asia/Kathmandu", "12:30", "12:31"}, {"GMT", "00:01", "00:00"}} {
		b.must(b.PutQuiet(ctx, "u-ana", q))
		if got, err := b.GetQuiet(ctx, "u-ana"); got != q || err != nil {
			t.Errorf("%+v is stored as %+v, %v", q, got, err)
		}
	}
	for _, q := range []store.Quiet{{"Europe/Atlantis", "22:00", "07:00"}, {"europe/berlin", "22:00", "07:00"}, {"", "22:00", "07:00"}, {"CET", "22:00", "07:00"}, {"EET", "22:00", "07:00"}, {"MET", "22:00", "07:00"}, {"WET", "22:00", "07:00"}, {"+02", "22:00", "07:00"},
		{"UTC", "22:00", "22:00"}, {"UTC", "24:00", "07:00"}, {"UTC", "22:60", "07:00"}, {"UTC", "7:00", "22:00"}, {"UTC", "22:00", ""}, {"UTC", "-1:00", "07:00"},
		{"UTC", "22:00 ", "07:00"}, {"UTC", "22:000", "07:00"}} {
		b.want(tidings.InvalidArgument, b.PutQuiet(ctx, "u-ana", q))
	}
	b.want(tidings.InvalidArgument, b.PutQuiet(ctx, "a b", store.Quiet{Zone: "UTC", From: "22:00", To: "07:00"}))
	for _, want := range []bool{true, false} {
		if there, err := b.DeleteQuiet(ctx, "u-ana"); there != want || err != nil {
			t.Errorf("%t, %v", there, err)
		}
	}
}

// Around real changes of clocks. Each line: the zone, the hours, an instant, and when the hours end in which it lies ("": it lies in none).
func TestQuietUntil(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		zone, from, to, at, want string
	}{
		// A plain day, and over midnight.
		{"Europe/Berlin", "13:00", "15:00", "2026-07-01T10:59:59Z", ""},
		{"Europe/Berlin", "13:00", "15:00", "2026-07-01T11:00:00Z", "2026-07-01T13:00:00Z"},
		{"Europe/Berlin", "13:00", "15:00", "2026-07-01T12:59:59.999Z", "2026-07-01T13:00:00Z"},
		{"Europe/Berlin", "13:00", "15:00", "2026-07-01T13:00:00Z", ""},
		{"Europe/Berlin", "22:00", "07:00", "2026-01-01T21:00:00Z", "2026-01-02T06:00:00Z"},
		{"Europe/Berlin", "22:00", "07:00", "2026-01-02T05:59:00Z", "2026-01-02T06:00:00Z"},
		{"Europe/Berlin", "22:00", "07:00", "2026-01-02T06:00:00Z", ""},
		{"Europe/Berlin", "22:00", "00:00", "2026-01-01T22:59:59Z", "2026-01-01T23:00:00Z"},
		{"Europe/Berlin", "00:00", "22:00", "2025-12-31T23:00:00Z", "2026-01-01T21:00:00Z"},
		// 29 March 2026: 02:00 is 03:00. A night of 8 instead of 9 hours.
		{"Europe/Berlin", "22:00", "07:00", "2026-03-28T21:00:00Z", "2026-03-29T05:00:00Z"},
		// Its end is skipped: the first instant after the gap.
		{"Europe/Berlin", "22:00", "02:30", "2026-03-28T23:00:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "22:00", "02:30", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "22:00", "02:30", "2026-03-29T01:00:00Z", ""},
		{"Europe/Berlin", "22:00", "02:00", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "22:00", "03:00", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"},
		// Its beginning is, and all of it is.
		{"Europe/Berlin", "02:30", "06:00", "2026-03-29T00:59:59Z", ""},
		{"Europe/Berlin", "02:30", "06:00", "2026-03-29T01:00:00Z", "2026-03-29T04:00:00Z"},
		{"Europe/Berlin", "02:15", "02:45", "2026-03-29T01:00:00Z", ""},
		// 25 October 2026: 03:00 is 02:00 again. A night of 10 hours, and an end that comes twice: the first that is not before now.
		{"Europe/Berlin", "22:00", "07:00", "2026-10-24T20:00:00Z", "2026-10-25T06:00:00Z"},
		{"Europe/Berlin", "22:00", "02:30", "2026-10-24T22:00:00Z", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "22:00", "02:30", "2026-10-25T00:29:00Z", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "22:00", "02:30", "2026-10-25T00:30:00Z", ""},
		{"Europe/Berlin", "22:00", "02:30", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"},
		{"Europe/Berlin", "22:00", "02:30", "2026-10-25T01:30:00Z", ""},
		{"Europe/Berlin", "22:00", "03:00", "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"},
		{"Europe/Berlin", "22:00", "02:00", "2026-10-24T23:30:00Z", "2026-10-25T00:00:00Z"},
		// New York, 8 March and 1 November 2026, west of Greenwich.
		{"America/New_York", "23:00", "02:30", "2026-03-08T06:59:00Z", "2026-03-08T07:00:00Z"},
		{"America/New_York", "23:00", "01:30", "2026-11-01T04:00:00Z", "2026-11-01T05:30:00Z"},
		{"America/New_York", "23:00", "01:30", "2026-11-01T06:10:00Z", "2026-11-01T06:30:00Z"},
		// Lord Howe changes by half an hour: 4 October 2026, 02:00 is 02:30.
		{"Australia/Lord_Howe", "22:00", "02:15", "2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z"},
		// Cairo loses midnight: 24 April 2026, 00:00 is 01:00.
		{"Africa/Cairo", "20:00", "00:00", "2026-04-23T21:00:00Z", "2026-04-23T22:00:00Z"},
		{"Africa/Cairo", "20:00", "00:30", "2026-04-23T21:00:00Z", "2026-04-23T22:00:00Z"},
		// Samoa had no 30 December 2011.
		{"Pacific/Apia", "22:00", "07:00", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"},
		{"Asia/Kathmandu", "22:00", "07:00", "2026-01-01T18:00:00Z", "2026-01-02T01:15:00Z"},
		{"UTC", "00:00", "23:59", "2026-01-01T23:58:59Z", "2026-01-01T23:59:00Z"},
		{"UTC", "00:00", "23:59", "2026-01-01T23:59:30Z", ""},
		{"Europe/Atlantis", "00:00", "23:59", "2026-01-01T12:00:00Z", ""}, // it was known once
	} {
		got := one[*time.Time](b, `SELECT tidings.quiet_until($1, $2, $3, $4)`, instant(t, c.at), c.zone, minute(t, c.from), minute(t, c.to))
		text := ""
		if got != nil {
			text = got.UTC().Format(time.RFC3339)
		}
		if text != c.want {
			t.Errorf("%s %s–%s at %s ends %q, want %q", c.zone, c.from, c.to, c.at, text, c.want)
		}
	}
}

// In many zones and at many instants, by the rule itself: the end is the first instant at which the clock is not in the hours any more, but
// for a clock that is set back into them.
func TestQuietUntilIsTheFirstInstantAfter(t *testing.T) {
	b := newBench(t)
	rows, err := b.pool.Query(t.Context(), `WITH c AS MATERIALIZED (
			SELECT z, f, e, at, tidings.quiet_until(at, z, f, e) AS ends FROM unnest(ARRAY['Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Africa/Cairo', 'America/Santiago', 'UTC']) z
			 CROSS JOIN unnest(ARRAY[0, 90, 135, 150, 180, 420, 1320], ARRAY[45, 150, 165, 30, 1439, 1320, 125]) h (f, e)
			 CROSS JOIN generate_series('2026-01-01'::timestamptz, '2026-12-31', '7 hours 13 minutes') at
		), m AS (SELECT c.*, extract(hour FROM at AT TIME ZONE z) * 60 + extract(minute FROM at AT TIME ZONE z) AS minute FROM c)
		SELECT concat_ws(' ', z, f, e, at, ends) FROM m
		 WHERE (ends IS NOT NULL) <> CASE WHEN f < e THEN minute >= f AND minute < e ELSE minute >= f OR minute < e END
		    OR ends <= at OR ends > at + interval '26 hours'
		    OR ends IS NOT NULL AND (ends AT TIME ZONE z)::time <> make_time(e / 60, e % 60, 0)
		       AND NOT ((ends - interval '1 second') AT TIME ZONE z < date_trunc('day', ends AT TIME ZONE z) + e * interval '1 minute' AND ends AT TIME ZONE z > date_trunc('day', ends AT TIME ZONE z) + e * interval '1 minute')
		 LIMIT 5`)
	b.must(err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.must(err)
	if len(wrong) > 0 {
		t.Errorf("wrong are %q", wrong)
	}
}

// A notification that is created in quiet hours is sent when they end, and lives as long as another from then on.
func TestNotifyUnreadInQuietHours(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	_, err := b.Join(ctx, "c-1", "u-cyd", "")
	b.must(err)
	now := one[time.Time](b, `SELECT statement_timestamp()`).UTC()
	b.must(b.PutQuiet(ctx, "u-ben", store.Quiet{Zone: "UTC", From: now.Add(-time.Hour).Format("15:04"), To: now.Add(time.Hour).Format("15:04")}))
	b.must(b.PutQuiet(ctx, "u-cyd", store.Quiet{Zone: "UTC", From: now.Add(2 * time.Hour).Format("15:04"), To: now.Add(3 * time.Hour).Format("15:04")}))
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	b.look(1, 2)
	want := now.Add(time.Hour).Truncate(time.Minute)
	if got := one[time.Time](b, `SELECT not_before FROM tidings.notification WHERE user_id = 'u-ben'`); !got.Equal(want) {
		t.Errorf("it is sent at %v, want %v", got, want)
	}
	if got := one[time.Time](b, `SELECT expires_at FROM tidings.notification WHERE user_id = 'u-ben'`); !got.Equal(want.Add(time.Hour)) {
		t.Errorf("it is worthless at %v, want %v", got, want.Add(time.Hour))
	}
	if claimed := b.claim(push, 5); len(claimed) != 1 || claimed[0].User != "u-cyd" {
		t.Errorf("due are %+v", claimed)
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func minute(t *testing.T, text string) int {
	t.Helper()
	var h, m int
	if _, err := fmt.Sscanf(text, "%d:%d", &h, &m); err != nil {
		t.Fatal(err)
	}
	return 60*h + m
}
