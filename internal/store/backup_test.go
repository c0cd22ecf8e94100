// Tests of the export of a snapshot.

package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// What is counted is what another session finds in the exported snapshot, whatever is committed meanwhile; and the snapshot outlives the
// time that a session may be idle in a transaction.
func TestExport(t *testing.T) {
	ctx := t.Context()
	config, err := pgxpool.ParseConfig(pgtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	const idle = 100 * time.Millisecond
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET idle_in_transaction_session_timeout = '100ms'`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := benchOn(t, pool)
	h := b.fill("c", "join ana", "msg ana")
	later := one[time.Time](b, `SELECT clock_timestamp()`)
	wanted := errors.New("the caller's own")
	err = b.Export(ctx, func(snapshot string, c store.Contents) error {
		b.extend(h, "msg ana", "msg ana")
		if c.Rows["event"] != 2 || c.Rows["conversation"] != 1 || c.Rows["task"] != 0 || c.Schema < 3 || c.Major < 14 || c.Server == "" || c.At.Before(later) {
			t.Errorf("the contents are %+v", c)
		}
		time.Sleep(3 * idle)
		tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		b.must(err)
		defer tx.Rollback(ctx)
		_, err = tx.Exec(ctx, `SET TRANSACTION SNAPSHOT '`+snapshot+`'`)
		b.must(err)
		var n int64
		b.must(tx.QueryRow(ctx, `SELECT count(*) FROM tidings.event`).Scan(&n))
		if n != c.Rows["event"] {
			t.Errorf("the snapshot has %d events, the contents %d", n, c.Rows["event"])
		}
		return wanted
	})
	if !errors.Is(err, wanted) {
		t.Errorf("the error is %v", err)
	}
	c, err := b.Contents(ctx)
	b.must(err)
	if c.Rows["event"] != 4 {
		t.Errorf("afterwards there are %d events", c.Rows["event"])
	}
	if vacant, major, err := b.Vacant(ctx); err != nil || vacant || major != c.Major {
		t.Errorf("vacant: %v, version %d, %v", vacant, major, err)
	}
	b.must(b.Analyze(ctx))
	if one[float32](b, `SELECT reltuples FROM pg_class WHERE oid = 'tidings.event'::regclass`) != 4 {
		t.Error("the statistics do not know of the events")
	}
}
