// Ships with a message, twice, and not at all when the message is refused.

package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

func TestShip(t *testing.T) {
	pool := pgtest.New(t)
	for _, sql := range []string{
		tableSQL,
		`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) VALUES ('c-1', 99, 2)`,
		`INSERT INTO tidings.event (conv_id, seq, kind, sender_user) VALUES ('c-1', 1, 'join', 'u-shop')`,
		`INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ('c-1', 'u-shop', 1)`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, dup := range []bool{false, true} {
		if said, err := ship(t.Context(), pool, "1001", "c-1", "u-shop"); err != nil || said.Seq != 2 || said.Dup != dup {
			t.Errorf("ship = %+v, %v; want seq 2, dup %v", said, err, dup)
		}
	}
	if _, err := ship(t.Context(), pool, "1002", "c-1", "u-stranger"); err == nil || !strings.Contains(err.Error(), "NOT_MEMBER") {
		t.Errorf("a stranger ships: %v", err)
	}
	if n := count(t, pool, "shipments"); n != 1 {
		t.Errorf("%d shipments", n)
	}
	if n := count(t, pool, "tidings.event WHERE kind = 'msg'"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, from string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
