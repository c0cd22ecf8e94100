// Tests of the exchange of a database by a backup.

package sandbox

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/localpg"
)

// Whenever an exchange is cut short, there is a database that can be served: the one of before or the one of the backup. Whoever was connected comes back to it.
func TestExchangeIsWhole(t *testing.T) {
	ctx := t.Context()
	pg, err := localpg.Start(ctx, localpg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	box := &Sandbox{Postgres: pg}
	connect := func(database string) *pgx.Conn {
		t.Helper()
		conn, err := pgx.Connect(ctx, pg.URL(database))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) }) // an exchange has ended some of them
		return conn
	}
	watch := connect("template1")
	stop, stopped := make(chan struct{}), make(chan struct{})
	looks, bad := 0, 0
	go func() { // waited for below
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			var served bool
			if err := watch.QueryRow(ctx, `SELECT count(*) = 1 FROM pg_database WHERE datname = 'postgres' AND datallowconn`).Scan(&served); err != nil {
				t.Error(err)
				return
			}
			if looks++; !served {
				bad++
			}
		}
	}()
	coming, end := context.WithCancel(ctx)
	defer end()
	over := make(chan struct{})
	go func() { // waited for below: a client that comes back as soon as it is sent away
		defer close(over)
		for coming.Err() == nil {
			if conn, err := pgx.Connect(coming, pg.URL("postgres")); err == nil {
				_, _ = conn.Exec(coming, `SELECT pg_sleep(10)`)
				_ = conn.Close(ctx)
			}
		}
	}()
	for round := range 3 {
		connect("postgres") // and one that is idle
		if err := box.Exchange(ctx, func(url string) error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			_, err = conn.Exec(ctx, `CREATE TABLE filled (round int)`)
			if err == nil {
				_, err = conn.Exec(ctx, `INSERT INTO filled VALUES ($1)`, round)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var found int
		if err := connect("postgres").QueryRow(ctx, `SELECT round FROM filled`).Scan(&found); err != nil || found != round {
			t.Errorf("after the exchange there is the database of round %d, not %d: %v", found, round, err)
		}
	}
	end()
	close(stop)
	<-over
	<-stopped
	if looks == 0 || bad > 0 {
		t.Errorf("in %d of %d looks there was no database that could be served", bad, looks)
	}
}
