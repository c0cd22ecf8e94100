// Revocations of users' tokens.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Floor says that a user's tokens that were issued before a time are revoked.
type Floor struct {
	User      string
	NotBefore time.Time
}

// revokeSQL raises a user's floor by primary key.
const revokeSQL = `INSERT INTO tidings.token_floor AS f (bucket, user_id, not_before, set_at)
	SELECT @bucket::smallint, @user::text, coalesce(@not_before::timestamptz, statement_timestamp()), statement_timestamp()
	ON CONFLICT (user_id, bucket) DO UPDATE SET not_before = greatest(f.not_before, excluded.not_before), set_at = excluded.set_at`

// RevokeTokens revokes a user's tokens that were issued before a time; the zero time is now, by the database's clock. A floor is never
// lowered. INVALID_ARGUMENT: not an id.
func (s *Store) RevokeTokens(ctx context.Context, user string, notBefore time.Time) error {
	if err := tidings.CheckID("user", user); err != nil {
		return err
	}
	args := pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user), "not_before": nil}
	if !notBefore.IsZero() {
		args["not_before"] = notBefore
	}
	_, err := s.changed(ctx, "revoke tokens", revokeSQL, args)
	return err
}

// floorSQL reads a user's floor by primary key.
const floorSQL = `SELECT f.not_before FROM tidings.token_floor f WHERE f.user_id = @user::text AND f.bucket = @bucket::smallint`

// TokenFloor reads before when a user's tokens are revoked; the zero time when none are.
func (s *Store) TokenFloor(ctx context.Context, user string) (floor time.Time, err error) {
	err = s.pool.QueryRow(ctx, floorSQL, pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user)}).Scan(&floor)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return floor, unchanged("read a token floor", err)
}

// floorsSinceSQL reads the floors that were set since a time, through token_floor_set. A floor carries the time at which its transaction
// began and is seen when that has committed, so those of a while before are read again.
const floorsSinceSQL = `SELECT f.user_id, f.not_before FROM tidings.token_floor f
	 WHERE f.set_at > @since::timestamptz - interval '30 seconds' AND f.bucket = ANY (@buckets::smallint[])`

// clockSQL reads the database's clock.
const clockSQL = `SELECT statement_timestamp()`

// TokenFloorsSince reads the floors that were set since a time that an earlier call returned; the zero time reads all. Some come again:
// a transaction of up to 30 s, three times what RevokeTokens takes at most, is not missed.
func (s *Store) TokenFloorsSince(ctx context.Context, since time.Time) (floors []Floor, now time.Time, err error) {
	batch := &pgx.Batch{}
	batch.Queue(clockSQL)
	batch.Queue(floorsSinceSQL, pgx.NamedArgs{"since": since, "buckets": s.buckets})
	err = s.byKey(ctx, batch, func(rows pgx.Rows) (err error) {
		now, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
		return err
	}, func(rows pgx.Rows) (err error) {
		floors, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Floor, err error) {
			err = row.Scan(&f.User, &f.NotBefore)
			return f, err
		})
		return err
	})
	return floors, now, unchanged("read token floors", err)
}
