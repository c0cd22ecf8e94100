// Tests of transactions: what is known when one fails.

package store

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// A connection that is lost before the COMMIT leaves nothing unknown; one that is lost with it does.
func TestTransactTellsWhatIsKnown(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &fragile{Conn: conn}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := New(pool)
	const insert = `INSERT INTO tidings.channel_state VALUES ($1, now(), '', '', now())`
	line := func(tx pgx.Tx) *fragile { return tx.Conn().PgConn().Conn().(*fragile) }
	for name, test := range map[string]struct {
		fn   func(ctx context.Context, tx pgx.Tx) error
		want tidings.Code
	}{
		"terminated": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		}, tidings.Unavailable},
		"cut": {func(ctx context.Context, tx pgx.Tx) error {
			line(tx).cutsAnswers.Store(true)
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}, tidings.Unavailable},
		"cut before the commit": {func(_ context.Context, tx pgx.Tx) error {
			return line(tx).Close()
		}, tidings.Unavailable},
		"cut after the commit": {func(_ context.Context, tx pgx.Tx) error {
			line(tx).cutsAnswers.Store(true)
			return nil
		}, tidings.OutcomeUnknown},
		"refused": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (0, '', '', '')`)
			return err
		}, tidings.InvalidArgument},
		"refused by us": {func(context.Context, pgx.Tx) error { return tidings.Errorf(tidings.Conflict, "no") }, tidings.Conflict},
	} {
		err := s.transact(t.Context(), "try", func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert, name); err != nil {
				return err
			}
			return test.fn(ctx, tx)
		})
		if got := tidings.ErrorCode(err); got != test.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, test.want)
		}
	}
	// The one whose answer was lost is stored, sooner or later; nothing else is.
	var stored string
	for deadline := time.Now().Add(10 * time.Second); stored == "" && time.Now().Before(deadline); {
		if err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(channel, ', '), '') FROM tidings.channel_state`).Scan(&stored); err != nil {
			t.Fatal(err)
		}
	}
	if stored != "cut after the commit" {
		t.Errorf("stored is %q", stored)
	}
}

// fragile is a connection that breaks, when told to, after the next request was sent.
type fragile struct {
	net.Conn
	cutsAnswers atomic.Bool
}

func (f *fragile) Write(b []byte) (int, error) {
	n, err := f.Conn.Write(b)
	if f.cutsAnswers.Load() {
		_ = f.Conn.(*net.TCPConn).CloseWrite() // what was sent arrives
		_ = f.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return n, err
}

func (f *fragile) SetDeadline(t time.Time) error {
	if f.cutsAnswers.Load() {
		return nil
	}
	return f.Conn.SetDeadline(t)
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
