// Puts a restored database in the place of the present one.

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// inUse is the SQLSTATE of a database that somebody is connected to.
const inUse = "55006" // object_in_use

const exchangePatience = time.Minute

// Exchange has fill put a backup into a new database, at url, and then gives that the place of the present one, under the eyes of whoever is connected. What was there
// before is dropped by the next exchange. If fill fails, nothing is exchanged.
func (s *Sandbox) Exchange(ctx context.Context, fill func(url string) error) (err error) {
	const copied, lost = "copied", "lost"
	defer func() {
		if err != nil {
			err = fmt.Errorf("exchange the database: %w", err)
		}
	}()
	admin, err := pgx.Connect(ctx, s.Postgres.URL("template1"))
	if err != nil {
		return err
	}
	defer admin.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + copied + " WITH (FORCE)", // of an exchange that was cut short
		"DROP DATABASE IF EXISTS " + lost + " WITH (FORCE)",
		"CREATE DATABASE " + copied + " TEMPLATE template0",
	} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := fill(s.Postgres.URL(copied)); err != nil {
		return err
	}
	// From here on it is not left half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangePatience)
	defer cancel()
	for _, sql := range []string{
		"ALTER DATABASE postgres WITH ALLOW_CONNECTIONS false",
		"ALTER DATABASE postgres RENAME TO " + lost,
		"ALTER DATABASE " + copied + " RENAME TO postgres",
	} {
		for {
			// Before a database is renamed: PostgreSQL waits 5 s by itself for those who are connected.
			if _, err := admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ('postgres', $1)`, copied); err != nil {
				return err
			}
			_, err := admin.Exec(ctx, sql)
			var refused *pgconn.PgError
			if err == nil {
				break
			}
			if !errors.As(err, &refused) || refused.Code != inUse {
				return err
			}
		}
	}
	return nil
}
