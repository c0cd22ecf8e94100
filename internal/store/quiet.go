// Quiet hours of users.

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Quiet are the hours of every day in which a user is not to be notified of unread messages, by the clock of Zone. From and To are HH:MM,
// 00:00 to 23:59; when From is the later one they go over midnight. To is no part of them.
type Quiet struct {
	Zone string `json:"zone"`
	From string `json:"from"`
	To   string `json:"to"`
}

// quietSQL reads a user's quiet hours by primary key.
const quietSQL = `SELECT q.zone, q.from_minute, q.to_minute FROM tidings.quiet q WHERE q.user_id = @user AND q.bucket = @bucket`

// GetQuiet reads the quiet hours of a user. NOT_FOUND tells that there are none.
func (s *Store) GetQuiet(ctx context.Context, user string) (q Quiet, err error) {
	var from, to int
	err = s.pool.QueryRow(ctx, quietSQL, quietKey(user)).Scan(&q.Zone, &from, &to)
	if errors.Is(err, pgx.ErrNoRows) {
		return Quiet{}, tidings.Errorf(tidings.NotFound, "the user has no quiet hours")
	}
	if err != nil {
		return Quiet{}, unchanged("read quiet hours", err)
	}
	q.From, q.To = clockTime(from), clockTime(to)
	return q, nil
}

// putQuietSQL stores quiet hours under their primary key, if the server knows the zone. Names that are abbreviations, too, stand for a fixed
// offset wherever a zone is named in SQL: CET has no summer time then.
const putQuietSQL = `INSERT INTO tidings.quiet AS q (bucket, user_id, zone, from_minute, to_minute)
	SELECT @bucket, @user, z.name, @from::smallint, @to::smallint FROM pg_catalog.pg_timezone_names z WHERE z.name = @zone
	   AND (z.name IN ('UTC', 'GMT') OR NOT EXISTS (SELECT FROM pg_catalog.pg_timezone_abbrevs a WHERE a.abbrev = upper(z.name)))
	ON CONFLICT (user_id, bucket) DO UPDATE SET zone = excluded.zone, from_minute = excluded.from_minute, to_minute = excluded.to_minute,
		at = excluded.at`

// PutQuiet stores the quiet hours of a user. They hold for what is created from now on. INVALID_ARGUMENT tells that From or To is no time
// of day, that both are the same, or that the database does not know the zone.
func (s *Store) PutQuiet(ctx context.Context, user string, q Quiet) error {
	if err := tidings.CheckID("user", user); err != nil {
		return err
	}
	from, err := minuteOf("from", q.From)
	if err != nil {
		return err
	}
	to, err := minuteOf("to", q.To)
	if err != nil {
		return err
	}
	if from == to {
		return tidings.Errorf(tidings.InvalidArgument, "from and to are the same: quiet hours are shorter than a day")
	}
	args := quietKey(user)
	args["zone"], args["from"], args["to"] = q.Zone, from, to
	stored, err := s.changed(ctx, "store quiet hours", putQuietSQL, args)
	if err == nil && !stored {
		return tidings.Errorf(tidings.InvalidArgument, "zone is none that the database knows, or an abbreviation: it is a name like Europe/Berlin")
	}
	return err
}

// deleteQuietSQL deletes quiet hours by primary key.
const deleteQuietSQL = `DELETE FROM tidings.quiet q WHERE q.user_id = @user AND q.bucket = @bucket`

// DeleteQuiet deletes the quiet hours of a user and tells whether there were any.
func (s *Store) DeleteQuiet(ctx context.Context, user string) (bool, error) {
	return s.changed(ctx, "delete quiet hours", deleteQuietSQL, quietKey(user))
}

func quietKey(user string) pgx.NamedArgs {
	return pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user)}
}

// minuteOf reads a time of day, HH:MM, as a minute of the day.
func minuteOf(name, text string) (int, error) {
	var hour, minute int
	if n, err := fmt.Sscanf(text, "%2d:%2d", &hour, &minute); n != 2 || err != nil || clockTime(60*hour+minute) != text || hour > 23 || minute > 59 {
		return 0, tidings.Errorf(tidings.InvalidArgument, "%s is no time of day: it is 00:00 to 23:59", name)
	}
	return 60*hour + minute, nil
}

func clockTime(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }
