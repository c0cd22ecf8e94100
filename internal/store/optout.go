// Opt-outs.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Optout says that a user wants nothing of a category on a channel.
type Optout struct {
	Category string    `json:"category"`
	Channel  string    `json:"channel,omitempty"` // empty: on none
	At       time.Time `json:"at"`
}

// optoutsSQL reads a user's opt-outs by the primary key's first columns.
const optoutsSQL = `SELECT o.category, o.channel, o.at FROM tidings.optout o
	WHERE o.user_id = @user AND o.bucket = @bucket ORDER BY o.category, o.channel`

// ListOptouts reads the opt-outs of a user, by category and channel.
func (s *Store) ListOptouts(ctx context.Context, user string) ([]Optout, error) {
	rows, err := s.pool.Query(ctx, optoutsSQL, pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user)})
	if err != nil {
		return nil, unchanged("read opt-outs", err)
	}
	optouts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Optout])
	return optouts, unchanged("read opt-outs", err)
}

// putOptoutSQL stores one opt-out under its primary key.
const putOptoutSQL = `INSERT INTO tidings.optout (bucket, user_id, category, channel)
	VALUES (@bucket, @user, @category, @channel) ON CONFLICT (user_id, category, channel, bucket) DO NOTHING`

// PutOptout stores that the user wants nothing of the category on the channel, or on none when channel is empty. Claims from
// then on obey it; it tells whether it is new.
func (s *Store) PutOptout(ctx context.Context, user, category, channel string) (bool, error) {
	err := errors.Join(tidings.CheckID("user", user), tidings.CheckID("category", category))
	if channel != "" {
		err = errors.Join(err, tidings.CheckID("channel", channel))
	}
	if err != nil {
		return false, err
	}
	return s.changed(ctx, "store an opt-out", putOptoutSQL, optoutKey(user, category, channel))
}

// deleteOptoutSQL deletes one opt-out by primary key.
const deleteOptoutSQL = `DELETE FROM tidings.optout o
	WHERE o.user_id = @user AND o.category = @category AND o.channel = @channel AND o.bucket = @bucket`

// DeleteOptout takes an opt-out back and tells whether it was there.
func (s *Store) DeleteOptout(ctx context.Context, user, category, channel string) (bool, error) {
	return s.changed(ctx, "delete an opt-out", deleteOptoutSQL, optoutKey(user, category, channel))
}

func optoutKey(user, category, channel string) pgx.NamedArgs {
	return pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user), "category": category, "channel": channel}
}
