// The check 06-db-immediate-stop.

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

// load is what devices send while something happens to the database.
type load struct {
	n                             *node
	over                          atomic.Bool
	confirmed, refused, reconnect atomic.Int64

	mu   sync.Mutex
	sent map[string]int64 // what was confirmed: cmid → seq
}

// run has device i send one message after the other, each until it is stored, until the load is over.
func (l *load) run(i int) {
	conv, user, device := fmt.Sprintf("c-%d", 1+i%2), []string{"ana", "ben"}[i/2%2], fmt.Sprint("device-", i)
	p := l.n.device(user, device)
	for k := 0; !l.over.Load(); k++ {
		cmid := fmt.Sprintf("%s-%d", device, k)
		f := p.insist(conv, cmid, "under load", &l.refused)
		for f.t() == "closed" {
			l.reconnect.Add(1)
			p = l.n.reconnect(user, device)
			f = p.insist(conv, cmid, "under load", &l.refused)
		}
		if f.t() != "sent" {
			l.n.c.Errorf("send %s: %v", cmid, f)
			return
		}
		l.mu.Lock()
		l.sent[cmid] = f.num("seq")
		l.mu.Unlock()
		l.confirmed.Add(1)
	}
}

// reach waits until a count has grown to n; it gives up with the check.
func (l *load) reach(count *atomic.Int64, n int64) {
	for count.Load() < n && l.n.c.ctx.Err() == nil && !l.n.c.Failed() {
		pauseABit()
	}
}

// stop stops the database immediately and starts it again, each when the load has gone on for a while.
func (l *load) stop(server *localpg.Server, enough, refusals int64) error {
	c := l.n.c
	l.reach(&l.confirmed, enough)
	before, pid := l.refused.Load(), server.PID()
	if err := server.StopImmediate(c.ctx); err != nil {
		return fmt.Errorf("stop PostgreSQL immediately: %w", err)
	}
	at := l.confirmed.Load()
	proof := ""
	if pid != 0 && server.PID() == 0 {
		proof = fmt.Sprintf("its processes have ended, after %d confirmed messages", at)
	}
	c.Fault(fault.New("immediate stop", "PostgreSQL", proof))
	l.reach(&l.refused, before+refusals)
	if err := server.Restart(c.ctx); err != nil {
		return fmt.Errorf("start PostgreSQL again: %w", err)
	}
	c.pool.Reset() // the check's own connections have ended, too
	l.reach(&l.confirmed, at+enough)
	return nil
}

func databaseStopped(t *lab.T) {
	const devices, enough = 6, 200
	server, c := ownDatabase(t)
	n := c.node("a")
	n.conversation("c-1", "ana", "ben")
	n.conversation("c-2", "ana", "ben")
	l := &load{n: n, sent: map[string]int64{}}
	stopped := make(chan error, 1)
	go func() { // received below
		defer l.over.Store(true)
		stopped <- l.stop(server, enough, devices)
	}()
	c.Together("devices that send", devices, l.run)
	c.Must("stop and start PostgreSQL", <-stopped)
	c.Note("%d answers asked for a resend, %d connections were made anew", l.refused.Load(), l.reconnect.Load())
	c.True("some answers asked for a resend", l.refused.Load() > 0)

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
	for cmid, seq := range l.sent {
		if rows[cmid] != seq {
			elsewhere++
		}
	}
	c.Equal("sent messages that are not at their seq", 0, elsewhere)
	c.Equal("messages that are there twice", 0, twice)
	c.Equal("messages that nobody was told of", 0, len(rows)-len(l.sent))
	c.Examined("sent messages", len(l.sent))
	c.whole()
}
