package lab_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "06-db-immediate-stop",
		Expect: "6 devices send without pause while PostgreSQL is stopped immediately and started again: every message that was sent is at its seq, every cmid has one row, " +
			"the log is contiguous; meanwhile the answers asked for a resend",
		Run: databaseStopped,
	})
}

// ownDatabase starts a PostgreSQL that a check may stop, with the product's schema.
func ownDatabase(t *lab.T) (*localpg.Server, *chat) {
	t.Helper()
	server, err := localpg.Start(t.Context(), localpg.Options{})
	t.Must("start a PostgreSQL", err)
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Errorf("stop the PostgreSQL: %v", err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	t.Must("open a pool", err)
	t.Cleanup(pool.Close)
	(&scene{T: t, ctx: t.Context(), pool: pool}).tidings("migrate")
	return server, chatOn(t, pool)
}

// reconnect connects a device as soon as the gateway lets it in.
func (n *node) reconnect(user, device string) *peer {
	n.c.Helper()
	for n.c.ctx.Err() == nil {
		if p, _, err := n.open(); err == nil {
			p.user, p.dev = user, device
			if p.hello(token(user), device, device+"-install").t() == "welcome" {
				return p
			}
			p.drop()
		}
		pauseABit()
	}
	n.c.Fatalf("reconnect %s: the gateway did not let it in", device)
	return nil
}

func databaseStopped(t *lab.T) {
	const devices, enough = 6, 200
	server, c := ownDatabase(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	n.conversation("c-2", "ana", "ben")

	var mu sync.Mutex
	sent := map[string]int64{} // what was confirmed: cmid → seq
	var confirmed, refused, reconnects atomic.Int64
	var over atomic.Bool
	send := func(i int) {
		conv, user, device := fmt.Sprintf("c-%d", 1+i%2), []string{"ana", "ben"}[i/2%2], fmt.Sprint("device-", i)
		p := n.device(user, device)
		for k := 0; !over.Load(); k++ {
			cmid := fmt.Sprintf("%s-%d", device, k)
			f := p.insist(conv, cmid, "under load", &refused)
			for f.t() == "closed" {
				reconnects.Add(1)
				p = n.reconnect(user, device)
				f = p.insist(conv, cmid, "under load", &refused)
			}
			if f.t() != "sent" {
				c.Errorf("send %s: %v", cmid, f)
				return
			}
			mu.Lock()
			sent[cmid] = f.num("seq")
			mu.Unlock()
			confirmed.Add(1)
		}
	}
	stopped := make(chan error, 1)
	reach := func(n int64) bool { // whether as many are confirmed before the check's time is over
		for confirmed.Load() < n && c.ctx.Err() == nil && !c.Failed() {
			pauseABit()
		}
		return c.ctx.Err() == nil
	}
	go func() { // received below
		defer over.Store(true)
		stopped <- func() error {
			reach(enough)
			before, pid := refused.Load(), server.PID()
			if err := server.StopImmediate(c.ctx); err != nil {
				return fmt.Errorf("stop PostgreSQL immediately: %w", err)
			}
			at := confirmed.Load()
			proof := ""
			if pid != 0 && server.PID() == 0 {
				proof = fmt.Sprintf("its processes have ended, after %d confirmed messages", at)
			}
			c.Fault(fault.New("immediate stop", "PostgreSQL", proof))
			for refused.Load() < before+devices && c.ctx.Err() == nil && !c.Failed() {
				pauseABit()
			}
			if err := server.Restart(c.ctx); err != nil {
				return fmt.Errorf("start PostgreSQL again: %w", err)
			}
			c.pool.Reset() // the check's own connections have ended, too
			reach(at + enough)
			return nil
		}()
	}()
	c.Together("devices that send", devices, send)
	c.Must("stop and start PostgreSQL", <-stopped)
	c.Note("%d answers asked for a resend, %d connections were made anew", refused.Load(), reconnects.Load())
	c.True("some answers asked for a resend", refused.Load() > 0)

	rows, twice, elsewhere := map[string]int64{}, 0, 0
	for _, conv := range []string{"c-1", "c-2"} {
		for _, e := range c.log(conv) {
			if e.kind != "msg" {
				continue
			}
			if _, known := rows[e.cmid]; known {
				twice++
			}
			rows[e.cmid] = e.seq
		}
	}
	for cmid, seq := range sent {
		if rows[cmid] != seq {
			elsewhere++
		}
	}
	c.Equal("sent messages that are not at their seq", 0, elsewhere)
	c.Equal("messages that are there twice", 0, twice)
	c.Equal("messages that nobody was told of", 0, len(rows)-len(sent))
	c.Examined("sent messages", len(sent))
	c.whole()
}
