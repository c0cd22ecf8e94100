// Devices, installs and hello.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// HelloState is what a hello has found and made.
type HelloState struct {
	InstallNo     int64        // the number of this install among those of the device
	Version       int64        // of the route that was registered
	OldGateway    string       // where the device's route was before; empty when it had none
	OldConnection tidings.UUID // and which connection that was
	Now           time.Time    // by the database's clock
}

// helloSQL counts a connect of a device and makes a new install the current one, by primary key. Of a former install nothing is written.
// The newest 16 former ones are remembered.
const helloSQL = `INSERT INTO tidings.device AS d (bucket, user_id, device_id, install_id, connects, seen_at)
	VALUES (@bucket::smallint, @user::text, @device::text, @install::text, 1, statement_timestamp())
	ON CONFLICT (user_id, device_id, bucket) DO UPDATE SET connects = d.connects + 1, seen_at = excluded.seen_at, install_id = excluded.install_id,
		install_no = d.install_no + (d.install_id <> excluded.install_id)::int,
		former = CASE WHEN d.install_id = excluded.install_id THEN d.former
			ELSE (d.former || d.install_id)[greatest(cardinality(d.former) - 14, 1):] END
	 WHERE d.install_id = excluded.install_id OR excluded.install_id <> ALL (d.former)`

// helloRouteSQL registers the route of the connect that helloSQL counted, if it did, and returns what was there before. The device's row
// is locked by helloSQL, so each version is registered once and the routes of a device are replaced one after the other.
const helloRouteSQL = `WITH mine AS MATERIALIZED (
		SELECT d.bucket, d.user_id, d.device_id, d.install_no, d.connects FROM tidings.device d
		 WHERE d.user_id = @user::text AND d.device_id = @device::text AND d.bucket = @bucket::smallint AND d.install_id = @install::text
	), registered AS (
		INSERT INTO tidings.route AS r (bucket, user_id, device_id, gateway_id, connection_id, version)
		SELECT m.bucket, m.user_id, m.device_id, @gateway::text, @connection::uuid, m.connects FROM mine m
		ON CONFLICT (user_id, device_id, bucket) DO UPDATE SET gateway_id = excluded.gateway_id, connection_id = excluded.connection_id,
			version = excluded.version
		 WHERE r.version < excluded.version
	)
	SELECT m.install_no, m.connects, coalesce(r.gateway_id, ''), coalesce(r.connection_id, '00000000-0000-0000-0000-000000000000'), statement_timestamp()
	  FROM mine m LEFT JOIN tidings.route r ON r.user_id = @user::text AND r.device_id = @device::text AND r.bucket = @bucket::smallint`

// Hello notes that an install of a device has connected to gateway, and registers its route in the same transaction. A new install
// becomes the device's current one; a former one is refused with INSTALL_REPLACED. INVALID_ARGUMENT: not an id.
func (s *Store) Hello(ctx context.Context, user, device, install, gateway string, connection tidings.UUID) (h HelloState, err error) {
	if err := errors.Join(tidings.CheckID("user", user), tidings.CheckID("device", device), tidings.CheckID("install", install)); err != nil {
		return h, err
	}
	args := pgx.NamedArgs{"user": user, "device": device, "bucket": tidings.Bucket(user), "install": install, "gateway": gateway, "connection": connection}
	found := false
	err = s.write(ctx, "register a device", func(ctx context.Context) error {
		batch := &pgx.Batch{}
		batch.Queue(helloSQL, args)
		batch.Queue(helloRouteSQL, args)
		return s.byKey(ctx, batch, func(pgx.Rows) error { return nil }, func(rows pgx.Rows) error {
			if found = rows.Next(); !found {
				return nil
			}
			return rows.Scan(&h.InstallNo, &h.Version, &h.OldGateway, (*[16]byte)(&h.OldConnection), &h.Now)
		})
	})
	if err == nil && !found {
		err = tidings.Errorf(tidings.InstallReplaced, "a newer install of %s is current", device)
	}
	return h, err
}
