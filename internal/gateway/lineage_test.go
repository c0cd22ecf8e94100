// Tests of a gateway whose database turns out to be another history.

package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// judged is a house whose connections are judged, and a pool that is not.
func judged(t *testing.T) (h *house, plain *pgxpool.Pool) {
	t.Helper()
	plain = pgtest.New(t)
	m, err := store.NewLineageMemory("", slog.New(slog.NewTextHandler(testLog{t}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c := plain.Config()
	m.Configure(c)
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st := store.New(pool)
	if err := st.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Watch(ctx, pool)
	}()
	h = houseOn(t, st, "gw-1", func(c *Config) { c.Lineage = m })
	t.Cleanup(func() { stop(); <-done }) // before the gateway ends, as when the process does
	return h, plain
}

// While the database is not served the gateway has no sockets; after a recovery it serves the new epoch, also to those feeds that were
// there before.
func TestGatewayOnAnotherHistory(t *testing.T) {
	t.Parallel()
	h, plain := judged(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := plain.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	h.conversation("c", "ana", "ben")
	ana, ben := h.login("ana", "a1"), h.login("ben", "b1")
	first := ana.ask("send", `"conv":"c","cmid":"m1","body":"hello"`)
	if first.T != "sent" || ben.want("event").Event.Seq != 3 {
		t.Fatalf("the send is answered with %s", first.raw)
	}
	greeting := h.connect() // it has not said hello yet
	exec(`UPDATE tidings.lineage SET log_oid = 1`)
	for _, p := range []*peer{ana, ben, greeting} {
		p.ends(wire.CloseLostLease)
	}
	if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "restored or replaced") {
		t.Errorf("it is ready: %v", err)
	}
	if _, answer := knock(t, h.addr); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new socket is answered with %d", answer.StatusCode)
	}
	exec(`UPDATE tidings.conversation SET epoch = epoch + 1`)
	exec(`UPDATE tidings.lineage SET generation = generation + 1, log_oid = 'tidings.attempt'::regclass`)
	eventually(t, "it serves again", func() bool { return h.Ready() == nil })
	ana, ben = h.login("ana", "a1"), h.login("ben", "b1")
	second := ana.ask("send", `"conv":"c","cmid":"m2","body":"hello again"`)
	if second.Epoch != first.Epoch+1 || second.Seq != 4 {
		t.Errorf("the send is answered with %s", second.raw)
	}
	push := ben.next()
	for push.T != "event" && push.T != "lag" { // the latter from a feed that has just begun anew
		push = ben.next()
	}
	if push.Epoch != second.Epoch || push.T == "event" && push.Event.Seq != 4 || push.T == "lag" && push.Head > 4 {
		t.Errorf("the push is %s", push.raw)
	}

	// A recovery beside a gateway that serves: it gives up what it has of the older epoch.
	exec(`UPDATE tidings.conversation SET epoch = epoch + 1`)
	exec(`UPDATE tidings.lineage SET generation = generation + 1`)
	ana.ends(wire.CloseLostLease)
	ben.ends(wire.CloseLostLease)
	eventually(t, "it serves again", func() bool { return h.Ready() == nil })
	ana = h.login("ana", "a1")
	if third := ana.ask("send", `"conv":"c","cmid":"m3","body":"and again"`); third.Epoch != second.Epoch+1 {
		t.Errorf("the send is answered with %s", third.raw)
	}
}
