package store

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// A connection that is lost before the COMMIT leaves nothing unknown; one that is lost with it does.
func TestTransactTellsWhatIsKnown(t *testing.T) {
	pool := pgtest.New(t)
	s := New(pool)
	const insert = `INSERT INTO tidings.channel_state VALUES ('x', now(), '', '', now())`
	cut := func(tx pgx.Tx) { _ = tx.Conn().PgConn().Conn().Close() }
	for name, test := range map[string]struct {
		fn   func(ctx context.Context, tx pgx.Tx) error
		want tidings.Code
	}{
		"terminated": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}, tidings.Unavailable},
		"cut": {func(ctx context.Context, tx pgx.Tx) error {
			cut(tx)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}, tidings.Unavailable},
		"cut with the commit": {func(_ context.Context, tx pgx.Tx) error {
			cut(tx)
			return nil
		}, tidings.OutcomeUnknown},
		"refused": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (0, '', '', '')`)
			return err
		}, tidings.InvalidArgument},
		"refused by us": {func(context.Context, pgx.Tx) error { return tidings.Errorf(tidings.Conflict, "no") }, tidings.Conflict},
	} {
		err := s.transact(t.Context(), "try", func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert); err != nil {
				return err
			}
			return test.fn(ctx, tx)
		})
		if got := tidings.ErrorCode(err); got != test.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, test.want)
		}
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM tidings.channel_state`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// A deadlock or a serialization failure is a certain rollback, so the transaction is run again.
func TestTransactRepeats(t *testing.T) {
	s := New(pgtest.New(t))
	for _, code := range []string{"40P01", "40001"} {
		tries := 0
		err := s.transact(t.Context(), "try", func(context.Context, pgx.Tx) error {
			if tries++; tries < 3 {
				return &pgconn.PgError{Code: code}
			}
			return nil
		})
		if err != nil || tries != 3 {
			t.Errorf("%s: %d tries, %v", code, tries, err)
		}
	}
}
