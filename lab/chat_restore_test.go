// The check 32-epoch-after-restore.

package lab_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "32-epoch-after-restore",
		Expect: "4 clients send through 2 gateways while the database is dumped, lost and replaced by the copy on another PostgreSQL: the gateways, which are never restarted, serve nobody " +
			"until recover has run; then every client has the new history and nothing of the old one in it, no (conv, epoch, seq) has two contents, every message that was sent is " +
			"in the log once or reported as lost by its device, also by one that was closed meanwhile, and a message recalled after the dump has no body",
		Run: epochAfterRestore,
	})
}

// flow is what clients send, each one message after the other, until it ends.
type flow struct {
	over      atomic.Bool
	running   sync.WaitGroup
	confirmed []atomic.Int64 // by client
}

// flow has each client send to the conversations, whatever happens to the gateways.
func (c *chat) flow(name string, apps []*app, convs ...string) *flow {
	f := &flow{confirmed: make([]atomic.Int64, len(apps))}
	for i, a := range apps {
		f.running.Go(func() {
			for k := 0; !f.over.Load(); k++ {
				p, err := a.Send(client.Message{Conv: convs[k%len(convs)], Cmid: fmt.Sprintf("%s-%s-%d", name, a.User(), k), Body: fmt.Sprint(name, " ", k)})
				if err == nil {
					_, err = p.Wait(c.ctx)
				}
				if err != nil {
					c.Errorf("send message %d of %s: %v", k, a.User(), err)
					return
				}
				f.confirmed[i].Add(1)
			}
		})
	}
	c.Cleanup(f.quiet)
	return f
}

// more waits until every client has been answered n more messages.
func (f *flow) more(c *chat, n int64) {
	c.Helper()
	for i := range f.confirmed {
		want := f.confirmed[i].Load() + n
		c.Until(fmt.Sprintf("%d more answers to client %d", n, i), 3*soon, func() bool { return f.confirmed[i].Load() >= want || c.Failed() })
	}
}

// quiet ends the flow when the last message of each client is answered.
func (f *flow) quiet() {
	f.over.Store(true)
	f.running.Wait()
}

// standIn is a PostgreSQL in which the chat's database can be restored, and which lets in whoever the chat's own lets in.
func (c *chat) standIn() *localpg.Server {
	c.Helper()
	server, err := localpg.Start(c.ctx, localpg.Options{})
	c.Must("start another PostgreSQL", err)
	c.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			c.Errorf("stop the other PostgreSQL: %v", err)
		}
	})
	pool, err := pgxpool.New(c.ctx, server.URL("postgres"))
	c.Must("open a pool", err)
	defer pool.Close()
	_, err = pool.Exec(c.ctx, "ALTER ROLE postgres PASSWORD '"+c.pool.Config().ConnConfig.Password+"'")
	c.Must("set the password", err)
	return server
}

// by leads the URL of a database through another address.
func (c *chat) by(database, addr string) string {
	c.Helper()
	u, err := url.Parse(database)
	c.Must("read the URL of a database", err)
	u.Host = addr
	return u.String()
}

// unready is what /readyz says when it does not say that the node is ready.
func (n *node) unready() string {
	r, err := http.Get(n.url + "/readyz")
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err == nil && r.StatusCode != http.StatusOK {
		return string(text)
	}
	return ""
}

// converged waits until each client was told what stands in the log, from its own join on, and records that it was told nothing else.
func (c *chat) converged(apps []*app, convs ...string) {
	c.Helper()
	for _, conv := range convs {
		epoch, log := c.epoch(conv), c.log(conv)
		apart := 0
		for _, a := range apps {
			visible := log[slices.IndexFunc(log, func(e logged) bool { return e.kind == "join" && e.sender == a.User() }):]
			c.Until("all of "+conv+" has arrived at "+a.User(), 2*soon, func() bool { return len(a.copied(conv, epoch)) >= len(visible) })
			apart += differences(visible, a.copied(conv, epoch))
		}
		c.Equal("events of "+conv+" that clients were not told, or not once and in order", 0, apart)
	}
}

func epochAfterRestore(t *lab.T) {
	server, c := ownDatabase(t)
	convs, dir := []string{"c-1", "c-2"}, t.TempDir()
	way := tcpproxy.Start(t, server.Addr())
	through := func(o *nodeOptions) { o.database = c.by(c.url(), way.Addr()) }
	options := []func(*nodeOptions){through, with("TIDINGS_GATEWAY_RATE", "100000"), with("TIDINGS_OUTSIDE_DIR", dir)}
	nodes := fleet{c.node("a", options...), c.node("b", options...)}
	for _, conv := range convs {
		nodes[0].conversation(conv, "user-0", "user-1", "user-2", "user-3", "sleeper")
	}
	durable := func(name string) func(*client.Config) {
		file := filepath.Join(dir, name+".outbox")
		return func(config *client.Config) { config.Outbox, config.Install = file, "" }
	}
	var apps []*app
	for i := range 4 {
		apps = append(apps, c.app(nodes[i%2].url, fmt.Sprint("user-", i), fmt.Sprintf("user-%d-d", i), durable(fmt.Sprint(i))))
	}
	sleeper := c.app(nodes[1].url, "sleeper", "sleeper-d", durable("sleeper"))
	for _, a := range append(slices.Clone(apps), sleeper) {
		a.becomes(client.Online)
	}
	first := c.epoch("c-1")

	// The dump is made while they write. What they write afterwards will be lost.
	doomed := apps[0].answered(apps[0].queue("c-1", "doomed", "to be recalled"))
	f := c.flow("kept", append(slices.Clone(apps), sleeper), convs...)
	f.more(c, 5)
	file := c.backUp()
	f.more(c, 12)
	f.quiet()
	c.converged(append(slices.Clone(apps), sleeper), convs...)
	_, err := apps[0].Recall(client.Recall{Conv: "c-1", Target: client.Position{Epoch: doomed.Epoch, Seq: doomed.Seq}, Cmid: "recall"})
	c.Must("recall a message", err)
	c.Until("the journal lies outside", soon, func() bool {
		return one[bool](c.scene, `SELECT count(*) = 1 AND bool_and(copied) FROM tidings.taken_back`)
	})
	lost := map[string][]logged{}
	for _, conv := range convs {
		lost[conv] = c.log(conv)
	}
	sleeper.close()

	second := c.standIn()
	after := c.copyAt(c.by(c.url(), second.Addr()), file)
	for _, conv := range convs {
		kept := after.log(conv)
		c.True("the copy of "+conv+" is the beginning of its log, and at least 10 of its seqs will be given again", len(kept) > 5 && len(kept)+10 <= len(lost[conv]))
	}
	rows := func() int { return one[int](after.scene, `SELECT count(*) FROM tidings.event`) }
	kept := rows()
	f = c.flow("between", apps, convs...)
	f.more(c, 2)
	pid := server.PID()
	c.Must("stop PostgreSQL", server.StopImmediate(c.ctx))
	way.Redirect(second.Addr())
	proof := ""
	if pid != 0 && server.PID() == 0 {
		proof = "its processes have ended"
	}
	c.Fault(fault.New("loss", "the PostgreSQL of the first history, with clients in the midst of sending", proof))

	for _, n := range nodes {
		c.Until("a gateway says that the database has to be recovered", 2*soon, func() bool { return strings.Contains(n.unready(), "tidings recover") })
	}
	c.Until("no client is connected", 2*soon, func() bool {
		return !slices.ContainsFunc(apps, func(a *app) bool { return a.State().State == client.Online })
	})
	c.Equal("events that the copy was given before its recovery", 0, rows()-kept)
	after.tidings("recover", "--outside-dir", dir)
	for _, a := range apps {
		c.Until(a.User()+" is online", 3*soon, func() bool { return a.State().State == client.Online })
	}
	f.more(c, 12)
	f.quiet()
	closed := 0
	for _, n := range nodes {
		n.c = after // where its keys are
		closed += int(n.metric(`tidings_gateway_closes_total{code="4005"}`))
	}
	c.True("every client was told to come back, by 4005", closed >= len(apps))
	later := c.app(nodes[0].url, "sleeper", "sleeper-d", durable("sleeper"))

	after.converged(append(slices.Clone(apps), later), convs...)
	now := after.epoch("c-1")
	c.True("the epoch is another", now != first && now == after.epoch("c-2"))
	again := 0
	for _, conv := range convs {
		log := after.log(conv)
		for i := range min(len(log), len(lost[conv])) {
			if log[i].cmid != lost[conv][i].cmid {
				again++
			}
		}
	}
	c.True("at least 20 seqs were given again, to other events", again >= 20)
	c.Examined("seqs that were given again, to other events", again)
	c.Equal("the message that was recalled after the dump: recalled, with a body, recalls", []int{1, 0, 1}, one[[]int](after.scene, `SELECT array[count(*) FILTER (WHERE recalled_by > 0),
		count(body), (SELECT count(*) FROM tidings.event WHERE kind = 'recall')] FROM tidings.event WHERE cmid = 'doomed'`))

	s := sightings{}
	for _, a := range append(slices.Clone(apps), sleeper, later) {
		s.of(a.told())
	}
	c.Equal("contents that were told twice for one (conv, epoch, seq), or in the wrong epoch", []string(nil), s.faults)
	c.Examined("(conv, epoch, seq) that clients were told", len(s.seen))
	doctored(c, apps[0].told(), first)
	after.accounted(first, []*app{apps[0]}, []*app{apps[1]}, []*app{apps[2]}, []*app{apps[3]}, []*app{sleeper, later})
	after.whole()
	after.tidings("verify")
}
