// Tests of a worker whose database turns out to be another history.

package dispatch_test

import (
	"context"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// A worker on an application's pool notices from the lineage's row that the database is another, and takes nothing until a recovery.
func TestWorkerOnAnotherHistory(t *testing.T) {
	pool := pgtest.New(t)
	st := store.New(pool)
	if err := st.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &scripted{send: func(context.Context, channel.Message) channel.Outcome { return channel.Outcome{Code: tidings.Accepted} }}
	notify(t, pool, 3)
	if _, err := pool.Exec(t.Context(), `UPDATE tidings.lineage SET log_oid = 1`); err != nil {
		t.Fatal(err)
	}
	once := worker(t, pool, c, nil)
	if n, err := once.RunOnce(t.Context()); n != 0 || tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("%d tasks were taken, %v", n, err)
	}
	stop := running(t, worker(t, pool, c, nil))
	if _, err := st.Recover(t.Context(), store.RecoverOptions{Lossless: true}); err != nil {
		t.Fatal(err)
	}
	if c.calls.Load() != 0 {
		t.Error("it has called")
	}
	until(t, "all are sent", func() bool { return c.calls.Load() == 3 })
	// It goes on, and does not when the database is replaced under it.
	if _, err := pool.Exec(t.Context(), `UPDATE tidings.lineage SET database_oid = 1`); err != nil {
		t.Fatal(err)
	}
	until(t, "it has noticed", func() bool {
		_, err := once.RunOnce(t.Context())
		return tidings.ErrorCode(err) == tidings.Unavailable
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}
