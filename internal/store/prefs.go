// Preferences.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Pref says where a user can be reached on a channel.
type Pref struct {
	Channel   string    `json:"channel"`
	Slot      string    `json:"slot,omitempty"` // tells several addresses on one channel apart
	Address   string    `json:"address"`
	Enabled   bool      `json:"enabled"`
	Version   int64     `json:"version"` // grows with every change; compare it for equality only
	UpdatedAt time.Time `json:"updated_at"`
}

const prefColumns = `p.channel, p.slot, p.address, p.enabled, p.version, p.updated_at`

// prefsSQL reads a user's preferences by the primary key's first columns.
const prefsSQL = `SELECT ` + prefColumns + ` FROM tidings.channel_pref p
	WHERE p.user_id = @user AND p.bucket = @bucket ORDER BY p.channel, p.slot`

// GetPrefs reads the preferences of a user, by channel and slot.
func (s *Store) GetPrefs(ctx context.Context, user string) ([]Pref, error) {
	rows, err := s.pool.Query(ctx, prefsSQL, pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user)})
	if err != nil {
		return nil, unchanged("read preferences", err)
	}
	prefs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Pref])
	return prefs, unchanged("read preferences", err)
}

// lockPrefSQL reads and locks one preference by primary key.
const lockPrefSQL = `SELECT ` + prefColumns + ` FROM tidings.channel_pref p
	WHERE p.user_id = @user AND p.channel = @channel AND p.slot = @slot AND p.bucket = @bucket FOR UPDATE`

// insertPrefSQL inserts a preference that was not there. Its first version is the time: one that is deleted and made again
// never repeats a version, so an address that a provider declared gone cannot switch off its successor.
const insertPrefSQL = `INSERT INTO tidings.channel_pref AS p (bucket, user_id, channel, slot, address, enabled, version, updated_at)
	SELECT @bucket, @user, @channel, @slot, @address, @enabled, (date_part('epoch', statement_timestamp()) * 1000)::bigint, statement_timestamp()
	ON CONFLICT (user_id, channel, slot, bucket) DO NOTHING RETURNING ` + prefColumns

// changePrefSQL changes a locked preference by primary key.
const changePrefSQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at)
	UPDATE tidings.channel_pref p SET address = @address, enabled = @enabled, version = p.version + 1, updated_at = c.now_at
	  FROM clock c WHERE p.user_id = @user AND p.channel = @channel AND p.slot = @slot AND p.bucket = @bucket RETURNING ` + prefColumns

// PutPref stores one preference (of p: Channel, Slot, Address, Enabled) and returns it as stored. The version grows when
// something changed. With ifVersion it does so only if that is still the version, 0 standing for "there is none";
// otherwise the error is CONFLICT. Tasks that were claimed before keep the address they had.
func (s *Store) PutPref(ctx context.Context, user string, p Pref, ifVersion *int64) (Pref, error) {
	if err := errors.Join(tidings.CheckID("user", user), checkSlot(p.Channel, p.Slot)); err != nil {
		return Pref{}, err
	}
	args := prefKey(user, p.Channel, p.Slot)
	args["address"], args["enabled"] = p.Address, p.Enabled
	scan := func(row pgx.Row) (stored Pref, err error) {
		err = row.Scan(&stored.Channel, &stored.Slot, &stored.Address, &stored.Enabled, &stored.Version, &stored.UpdatedAt)
		return stored, err
	}
	var stored Pref
	err := s.transact(ctx, "store a preference", func(ctx context.Context, tx pgx.Tx) (err error) {
		for {
			stored, err = scan(tx.QueryRow(ctx, lockPrefSQL, args))
			absent := errors.Is(err, pgx.ErrNoRows)
			switch {
			case err != nil && !absent:
				return err
			case ifVersion != nil && *ifVersion != stored.Version:
				return tidings.Errorf(tidings.Conflict, "the preference is not at version %d", *ifVersion)
			case absent:
				stored, err = scan(tx.QueryRow(ctx, insertPrefSQL, args))
				if errors.Is(err, pgx.ErrNoRows) {
					continue // made by another meanwhile
				}
				return err
			case stored.Address == p.Address && stored.Enabled == p.Enabled:
				return nil
			}
			stored, err = scan(tx.QueryRow(ctx, changePrefSQL, args))
			return err
		}
	})
	return stored, err
}

// deletePrefSQL deletes one preference by primary key.
const deletePrefSQL = `DELETE FROM tidings.channel_pref p
	WHERE p.user_id = @user AND p.channel = @channel AND p.slot = @slot AND p.bucket = @bucket`

// DeletePref deletes one preference and tells whether it was there. Tasks that were not claimed before are not sent to it.
func (s *Store) DeletePref(ctx context.Context, user, channel, slot string) (bool, error) {
	return s.changed(ctx, "delete a preference", deletePrefSQL, prefKey(user, channel, slot))
}

// disableAddressSQL switches off one preference by primary key, if it is still the version that was seen.
const disableAddressSQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at)
	UPDATE tidings.channel_pref p SET enabled = false, version = p.version + 1, updated_at = c.now_at
	  FROM clock c WHERE p.user_id = @user AND p.channel = @channel AND p.slot = @slot AND p.bucket = @bucket
	   AND p.version = @version AND p.enabled`

// DisableAddress switches an address off that its provider declared gone, and tells whether it did: a preference that has
// changed since version keeps what it says.
func (s *Store) DisableAddress(ctx context.Context, user, channel, slot string, version int64) (bool, error) {
	args := prefKey(user, channel, slot)
	args["version"] = version
	return s.changed(ctx, "switch off an address", disableAddressSQL, args)
}

func prefKey(user, channel, slot string) pgx.NamedArgs {
	return pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user), "channel": channel, "slot": slot}
}

func checkSlot(channel, slot string) error {
	if err := tidings.CheckID("channel", channel); err != nil || slot == "" {
		return err
	}
	return tidings.CheckID("slot", slot)
}

// changed runs a statement and tells whether it changed a row.
func (s *Store) changed(ctx context.Context, doing, sql string, args pgx.NamedArgs) (yes bool, err error) {
	err = s.write(ctx, doing, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, sql, args)
		yes = err == nil && tag.RowsAffected() > 0
		return err
	})
	return yes, err
}
