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

const (
	exchangePatience = time.Minute
	sendAwayEvery    = 20 * time.Millisecond // those who are connected
)

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
	// From here on it is carried out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangePatience)
	defer cancel()
	doorman, err := pgx.Connect(ctx, s.Postgres.URL("template1"))
	if err != nil {
		return err
	}
	defer doorman.Close(context.WithoutCancel(ctx))
	for {
		err := rename(ctx, admin, doorman, "postgres", lost, copied, "postgres")
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != inUse {
			return err
		}
	}
}

// rename gives databases other names, from and to in turn, all of them or none: whenever it is cut short, each has a name. The first statement locks its database, so that
// whoever comes then waits, and waits for those to go who are there (for 5 s: then the error is inUse); doorman sends them away.
func rename(ctx context.Context, admin, doorman *pgx.Conn, names ...string) error {
	done := make(chan error, 1)
	go func() { // waited for below
		done <- pgx.BeginFunc(ctx, admin, func(tx pgx.Tx) error {
			for i := 0; i < len(names); i += 2 {
				if _, err := tx.Exec(ctx, "ALTER DATABASE "+names[i]+" RENAME TO "+names[i+1]); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	ticker := time.NewTicker(sendAwayEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
		}
		if _, err := doorman.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY ($1)`, names); err != nil {
			return errors.Join(err, <-done)
		}
	}
}
