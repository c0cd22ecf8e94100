// The check 32-lineage.

package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "32-lineage",
		Expect: "users send through 2 gateways, which are never restarted, while their database is restarted, dropped and restored from a dump, restored in place (--clean), restored to a point " +
			"in time, replaced by a file copy of itself, and a standby is promoted, once with all and once without the last messages: after the restart and the lossless promotion the epoch is " +
			"the same; after the others both gateways close every socket with 4005, are not ready, append nothing to the older log and answer UNAVAILABLE until recover has run, then serve a " +
			"new epoch; no place (epoch, seq) is ever given to two messages",
		Run: lineage,
	})
}

// histories is a chat with two gateways under which its database is restored and replaced.
type histories struct {
	*chat
	way   *tcpproxy.Proxy // the database's address
	nodes [2]*node
	users [2]string

	senders sync.WaitGroup
	over    atomic.Bool
	still   sync.RWMutex // held while nobody may send
	said    [2]atomic.Int64
	refused [2]atomic.Int64

	mu     sync.Mutex
	places map[string]string // epoch and seq → mid
	twice  []string          // places that were given to two messages
	finals []string          // answers by which a client would give a message up
}

// newHistories starts the gateways on a database of the server, and users who send through them, one message after the other, until
// quiet.
func newHistories(t *lab.T, server *localpg.Server) *histories {
	t.Helper()
	way := tcpproxy.Start(t, server.Addr())
	u, err := url.Parse(server.URL("chat"))
	t.Must("read the URL of the database", err)
	u.Host = way.Addr()
	t.Must("create the database", onServer(t.Context(), server, `CREATE DATABASE chat`))
	pool, err := pgxpool.New(t.Context(), u.String())
	t.Must("open a pool", err)
	t.Cleanup(pool.Close)
	(&scene{T: t, ctx: t.Context(), pool: pool}).tidings("migrate")
	h := &histories{chat: chatOn(t, pool), way: way, users: [2]string{"ana", "ben"}, places: map[string]string{}}
	for i := range h.nodes {
		h.nodes[i] = h.node([]string{"a", "b"}[i])
	}
	h.nodes[0].conversation("c", h.users[:]...)
	for i := range h.nodes {
		h.senders.Go(func() { h.send(i) })
	}
	t.Cleanup(h.quiet)
	return h
}

// quiet ends the sending.
func (h *histories) quiet() {
	h.over.Store(true)
	h.senders.Wait()
}

// onServer runs a statement on a server's own database.
func onServer(ctx context.Context, server *localpg.Server, sql string) error {
	pool, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, sql)
	return err
}

// send sends one message after the other through a node and keeps what is answered.
func (h *histories) send(i int) {
	for k := 0; !h.over.Load() && h.ctx.Err() == nil; k++ {
		h.still.RLock()
		a := h.nodes[i].as(h.users[i], http.MethodPut, fmt.Sprintf("/v1/conversations/c/messages/%s-%d", h.users[i], k), map[string]any{"body": "hello"})
		h.still.RUnlock()
		switch {
		case a.status/100 == 2:
			h.took(fmt.Sprintf("epoch %d, seq %d", a.body.num("epoch"), a.body.num("seq")), a.body.str("mid"))
			h.said[i].Add(1)
		case a.status == http.StatusServiceUnavailable:
			h.refused[i].Add(1)
			pauseABit()
		default:
			h.mu.Lock()
			h.finals = append(h.finals, fmt.Sprint(a.status, " ", a.body.code()))
			h.mu.Unlock()
		}
	}
}

func (h *histories) took(place, mid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, ok := h.places[place]; ok && before != mid {
		h.twice = append(h.twice, place)
	}
	h.places[place] = mid
}

// more waits until each node has answered n more messages in the way that is counted.
func (h *histories) more(what string, counts *[2]atomic.Int64, n int64) {
	h.Helper()
	for i := range counts {
		want := counts[i].Load() + n
		h.Until(fmt.Sprintf("%s through node %d", what, i), 3*soon, func() bool { return counts[i].Load() >= want })
	}
}

// mark returns the log when do, to which nobody sends meanwhile, is done.
func (h *histories) mark(do func()) (log []logged) {
	h.Helper()
	h.still.Lock()
	defer h.still.Unlock()
	do()
	return h.logWhenItIsThere() // it may have been restarted
}

// logWhenItIsThere reads the log as soon as the database answers.
func (h *histories) logWhenItIsThere() (log []logged) {
	h.Helper()
	h.pool.Reset()
	h.Until("the database answers", 2*soon, func() bool { return h.pool.Ping(h.ctx) == nil })
	return h.log("c")
}

// kept plays a scene after which the history is the same.
func (h *histories) kept(name string, happens func()) {
	h.Helper()
	epoch := h.epoch("c")
	h.more("sent before", &h.said, 3)
	happens()
	h.more("sent after", &h.said, 3)
	h.logWhenItIsThere()
	h.Equal(name+": the epoch", epoch, h.epoch("c"))
	h.settled(name)
}

// lost plays a scene that loses messages. happens returns the log as it is afterwards.
func (h *histories) lost(name string, happens func() []logged) {
	h.Helper()
	epoch := h.epoch("c")
	var peers []*peer
	for i, n := range h.nodes {
		peers = append(peers, n.reconnect(h.users[i], h.users[i]+"-1"))
	}
	h.more("sent before", &h.said, 3)
	rest := happens()
	for i, p := range peers {
		h.Equal(fmt.Sprintf("%s: the socket at node %d", name, i), frame{"t": "closed", "close": 4005.0}, p.closed(2*soon))
	}
	for i, n := range h.nodes {
		h.Until(fmt.Sprintf("node %d is not ready and says why", i), 2*soon, func() bool { return strings.Contains(n.unready(), "restored or replaced") })
		_, response, err := n.open()
		h.True(fmt.Sprintf("%s: a new socket at node %d is refused", name, i), err != nil && response != nil && response.StatusCode == http.StatusServiceUnavailable)
	}
	h.more("refused", &h.refused, 3)
	log := h.logWhenItIsThere()
	h.Equal(name+": events of the older log, and now", []int{len(rest), len(rest)}, []int{len(log), common(rest, log)})
	h.Examined("events of restored logs", len(log))
	h.tidings("recover", "--without-journal")
	for i, n := range h.nodes {
		h.Until(fmt.Sprintf("node %d is ready again", i), 2*soon, func() bool { return n.unready() == "" })
	}
	h.more("sent after", &h.said, 3)
	h.True(name+": the epoch is a later one", h.epoch("c") > epoch)
	p := h.nodes[1].reconnect("ben", "ben-1")
	told := p.ask(frame{"t": "conversations"})
	for told.str("retry") == "same" { // the feeds begin anew, too
		pauseABit()
		told = p.ask(frame{"t": "conversations"})
	}
	if len(told.list("list")) != 1 {
		h.Fatalf("%s: a device asks for its conversations and is answered %v", name, told)
	}
	h.Equal(name+": the epoch that a device is told", h.epoch("c"), told.list("list")[0].num("epoch"))
	p.drop()
	h.settled(name)
}

// common is how many events two logs have in common from their beginning.
func common(a, b []logged) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// settled looks at what was answered so far.
func (h *histories) settled(name string) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Equal(name+": places that were given to two messages", []string{}, h.twice)
	h.Equal(name+": answers by which a client gives a message up", []string{}, h.finals)
	h.Examined("answers to messages", len(h.places))
	h.twice, h.finals = nil, nil
}

// fault keeps a receipt: the log was longer than it is.
func (h *histories) fault(kind string, before, after []logged) {
	h.Helper()
	proof := ""
	if n := len(before) - len(after); n > 0 {
		proof = fmt.Sprintf("%d of %d events are gone", n, len(before))
	}
	h.Fault(fault.New(kind, "PostgreSQL", proof))
}

// run runs a client program of PostgreSQL.
func (h *histories) run(server *localpg.Server, name string, args ...string) error {
	if out, err := exec.CommandContext(h.ctx, filepath.Join(server.Binaries().Dir, name), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, out)
	}
	return nil
}

// replaced is what all losses have in common: at a moment the database is copied, then more is sent, and then the copy takes its place.
func (h *histories) replaced(kind string, copy, replace func() error) func() []logged {
	return func() []logged {
		h.Helper()
		rest := h.mark(func() { h.Must(kind+": copy", copy()) })
		h.more("sent between", &h.said, 3)
		before := h.log("c")
		h.Must(kind, replace())
		h.fault(kind, before, rest)
		return rest
	}
}

func lineage(t *lab.T) {
	server, err := localpg.Start(t.Context(), localpg.Options{Archive: true})
	t.Must("start a PostgreSQL", err)
	stopAtEnd(t, server)
	h := newHistories(t, server)
	chat, file := server.URL("chat"), filepath.Join(t.TempDir(), "dump")
	dump := func() error { return h.run(server, "pg_dump", "--format=custom", "--file="+file, "--dbname="+chat) }

	h.kept("a restart", func() { t.Must("restart PostgreSQL", server.Restart(h.ctx)) })
	h.lost("a dump restored into the same cluster", h.replaced("drop and restore", dump, func() error {
		for _, sql := range []string{`DROP DATABASE chat WITH (FORCE)`, `CREATE DATABASE chat TEMPLATE template0`} {
			if err := onServer(h.ctx, server, sql); err != nil {
				return err
			}
		}
		return h.run(server, "pg_restore", "--exit-on-error", "--dbname="+chat, file)
	}))
	h.lost("a dump restored in place", h.replaced("restore in place", dump, func() (err error) {
		for range 5 { // whoever restores under living sessions can meet a deadlock
			if err = h.run(server, "pg_restore", "--clean", "--if-exists", "--exit-on-error", "--dbname="+chat, file); err == nil {
				return nil
			}
		}
		return err
	}))
	h.lost("a recovery to a point in time", h.replaced("restore to a point in time", func() error {
		if err := server.Backup(h.ctx, "base"); err != nil {
			return err
		}
		return onServer(h.ctx, server, `SELECT pg_create_restore_point('here')`)
	}, func() error {
		return server.RestoreTo(h.ctx, "base", map[string]string{"recovery_target_name": "here"})
	}))
	h.lost("a file copy put back", h.replaced("files put back", func() error { return server.Copy(h.ctx, "files") }, func() error { return server.PutBack(h.ctx, "files") }))

	second, err := localpg.Standby(h.ctx, server, localpg.Options{})
	t.Must("start a standby", err)
	stopAtEnd(t, second)
	h.kept("a lossless promotion", func() {
		h.mark(func() {
			t.Must("wait for the standby", second.CatchUp(h.ctx, server))
			t.Must("stop the primary", server.Stop(h.ctx))
			h.way.Redirect(second.Addr()) // while it is a standby
			t.Must("promote the standby", second.Promote(h.ctx))
			h.logWhenItIsThere()
		})
	})
	third, err := localpg.Standby(h.ctx, second, localpg.Options{})
	t.Must("start another standby", err)
	stopAtEnd(t, third)
	h.lost("a lossy promotion", func() []logged {
		rest := h.mark(func() {
			t.Must("wait for the standby", third.CatchUp(h.ctx, second))
			t.Must("stop the replication", third.StopReceiving(h.ctx))
		})
		h.more("sent at the last moment", &h.said, 1)
		before := h.log("c")
		t.Must("stop the primary at once", second.StopImmediate(h.ctx))
		t.Must("promote the standby", third.Promote(h.ctx))
		h.way.Redirect(third.Addr())
		h.fault("lossy promotion", before, rest)
		return rest
	})
	h.quiet()
	logs, broken := h.contiguous()
	t.Equal("logs with a hole", 0, broken)
	t.Examined("logs", logs)
	t.True("both gateways, which the check has started once, are ready in the end", !slices.ContainsFunc(h.nodes[:], func(n *node) bool { return n.unready() != "" }))
}

func stopAtEnd(t *lab.T, server *localpg.Server) {
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Errorf("stop a PostgreSQL: %v", err)
		}
	})
}
