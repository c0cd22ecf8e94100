// The install of a device that acts without a socket.

package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// installNoSQL reads the number of an install, if it is the device's current one, by primary key.
const installNoSQL = `SELECT d.install_no FROM tidings.device d
	 WHERE d.user_id = @user::text AND d.device_id = @device::text AND d.bucket = @bucket::smallint AND d.install_id = @install::text`

// Install is the number of an install among those of its device, for one who acts without a connection. As in a hello, a new install
// becomes the device's current one, and a former one is refused with INSTALL_REPLACED. INVALID_ARGUMENT: not an id.
func (s *Store) Install(ctx context.Context, user, device, install string) (no int64, err error) {
	if err := errors.Join(tidings.CheckID("user", user), tidings.CheckID("device", device), tidings.CheckID("install", install)); err != nil {
		return 0, err
	}
	args := pgx.NamedArgs{"user": user, "device": device, "bucket": tidings.Bucket(user), "install": install}
	err = s.pool.QueryRow(ctx, installNoSQL, args).Scan(&no)
	if !errors.Is(err, pgx.ErrNoRows) {
		return no, unchanged("look up an install", err)
	}
	err = s.write(ctx, "register an install", func(ctx context.Context) error {
		batch := &pgx.Batch{}
		batch.Queue(helloSQL, args)
		batch.Queue(installNoSQL, args)
		return s.byKey(ctx, batch, func(pgx.Rows) error { return nil }, func(rows pgx.Rows) error {
			if !rows.Next() {
				return tidings.Errorf(tidings.InstallReplaced, "a newer install of %s is current", device)
			}
			return rows.Scan(&no)
		})
	})
	return no, err
}
