// An order that is placed makes a mail, one that is refused makes nothing.

package main

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

func TestPlace(t *testing.T) {
	pool := pgtest.New(t)
	for _, sql := range []string{
		tableSQL,
		`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (tidings.bucket_of('u-ana'), 'u-ana', 'email', 'ana@example.test')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := place(t.Context(), pool, "1001", "u-ana", false); err != nil {
		t.Fatal(err)
	}
	if err := place(t.Context(), pool, "1002", "u-ana", true); err == nil {
		t.Error("an order is placed although it is refused")
	}
	if err := place(t.Context(), pool, "1001", "u-ana", false); err == nil {
		t.Error("an order is placed twice")
	}
	if orders, tasks := count(t, pool, "orders"), count(t, pool, "tidings.task WHERE channel = 'email'"); orders != 1 || tasks != 1 {
		t.Errorf("%d orders, %d mails to send; want one each", orders, tasks)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, from string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
