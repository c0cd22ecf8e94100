// Package gateway holds the WebSockets: sessions, the committer that writes sends in groups, the hub that pushes events to
// local sessions, routes and the gateway's lease.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/internal/wire"
)

// PongWait is how long a peer has to answer a ping, unless Config says otherwise.
const PongWait = 10 * time.Second

// Config says what a gateway works with. The fields up to ID are required; a zero field among the others has the default that
// stands beside it.
type Config struct {
	Store    *store.Store
	Verifier *token.Verifier // its Run is the caller's
	Bus      *bus.Bus        // run by Run; its Sender is ID
	ID       string          // an id that no other living gateway has

	Lineage    *store.LineageMemory // by which Store's connections are judged; nil: they are not
	Origins    []string             // browsers' origins that may connect, as they write them; "*" is every one. None: no browser
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics

	MaxConnections int           // 100 000 sockets
	MaxGreeting    int           // 1 000 sockets that have said no valid hello yet
	MaxPerUser     int           // 20 devices of one user
	Rate           float64       // 100 requests per second and connection
	Burst          int           // 200 requests that may come at once
	MaxWaiting     int           // 32 768 requests of all connections that wait for the database, beside sends
	Readers        int           // 8 requests at the database at once, and half as many hellos, beside sends and acks
	QueueBytes     int           // 256 KiB of events, and about as much of answers, that wait for one receiver; for a second 16 times as much of events
	PingEvery      time.Duration // 25 s
	PongWait       time.Duration // 10 s: a peer that does not answer a ping is gone
	HelloWait      time.Duration // 10 s until the hello
	PartialWait    time.Duration // 30 s for one message to arrive
	SendWait       time.Duration // 20 s that something may wait to be written
	CloseWait      time.Duration // 5 s for the peer to see a close frame
	RequestTimeout time.Duration // 10 s for what a request asks of the database
	FloorsEvery    time.Duration // 5 s between two looks at revocations
	DrainFor       time.Duration // 10 s over which the sockets are closed when the gateway stops
	Lease          time.Duration // 15 s: how long a gateway that the database does not hear of keeps its routes
	Batch          int           // 256 messages of one transaction
	Resend         time.Duration // how long a message can be sent again under its cmid; 0: for ever
}

func (c *Config) defaults() {
	setDefault(&c.MaxConnections, 100_000)
	setDefault(&c.MaxGreeting, 1000)
	setDefault(&c.MaxPerUser, 20)
	setDefault(&c.Rate, 100)
	setDefault(&c.Burst, 200)
	setDefault(&c.MaxWaiting, 32<<10)
	setDefault(&c.Readers, 8)
	setDefault(&c.QueueBytes, 256<<10)
	setDefault(&c.PingEvery, 25*time.Second)
	setDefault(&c.PongWait, PongWait)
	setDefault(&c.HelloWait, 10*time.Second)
	setDefault(&c.PartialWait, 30*time.Second)
	setDefault(&c.SendWait, 20*time.Second)
	setDefault(&c.CloseWait, 5*time.Second)
	setDefault(&c.RequestTimeout, 10*time.Second)
	setDefault(&c.FloorsEvery, 5*time.Second)
	setDefault(&c.DrainFor, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Gateway serves the WebSockets of one process. Sockets are taken while Run runs.
type Gateway struct {
	cfg     Config
	log     *slog.Logger
	began   time.Time
	metrics *metrics
	held    func() bool  // whether anything may be written to a socket: mayServe
	given   atomic.Int64 // breaks of the lineage after which everything was given up

	hub       *hub
	committer *committer
	roster    roster
	greeters  crew // hellos and refreshes, which may wait for a key server
	readers   crew // requests of sessions, one turn each
	lockers   crew // those of them that wait for a conversation's lock
	acks      batcher[ackRequest]
	waiting   atomic.Int64 // requests that wait for readers or acks

	ctx      context.Context // of requests; set by Run before the first socket is taken
	sessions sync.WaitGroup  // readers and writers
	working  sync.WaitGroup  // what requests have started
}

// New makes a gateway. The error names what is missing or cannot be.
func New(cfg Config) (*Gateway, error) {
	if cfg.Store == nil || cfg.Verifier == nil || cfg.Bus == nil {
		return nil, errors.New("a gateway needs a store, a verifier of tokens and a bus")
	}
	if err := tidings.CheckID("the id of the gateway", cfg.ID); err != nil {
		return nil, err
	}
	cfg.defaults()
	if cfg.QueueBytes < 2*wire.MaxFrame {
		return nil, fmt.Errorf("a queue of %d bytes is too small: it has to hold two frames of %d", cfg.QueueBytes, wire.MaxFrame)
	}
	g := newGateway(cfg)
	g.hub = newHub(hubConfig{gateway: cfg.ID, store: cfg.Store, bus: cfg.Bus, log: g.log, leaseFor: cfg.Lease})
	g.held = g.mayServe
	g.committer = newCommitter(cfg.Store, g.hub.committed, committerOptions{BatchSize: cfg.Batch, Observe: g.metrics.committed})
	if cfg.Registerer != nil {
		if err := g.metrics.register(cfg.Registerer); err != nil {
			return nil, fmt.Errorf("register the gateway's metrics: %w", err)
		}
	}
	return g, nil
}

// newGateway makes the parts that sessions need.
func newGateway(cfg Config) *Gateway {
	cfg.defaults()
	g := &Gateway{cfg: cfg, log: cfg.Logger, began: time.Now(), held: func() bool { return true }, ctx: context.Background()}
	g.metrics = newMetrics(&g.roster)
	g.roster.init()
	g.greeters = crew{size: max(1, cfg.Readers/2), owner: &g.working}
	g.readers = crew{size: cfg.Readers, owner: &g.working}
	g.lockers = crew{size: max(1, cfg.Readers/2), owner: &g.working}
	g.acks = batcher[ackRequest]{do: g.storeAcks, owner: &g.working}
	return g
}

// clock is the time since the gateway was made, which no change of the wall clock moves. It is never 0.
func (g *Gateway) clock() int64 { return int64(time.Since(g.began)) + 1 }

// Ready tells why no socket is taken, or nil.
func (g *Gateway) Ready() error {
	switch {
	case !g.roster.isOpen():
		return errors.New("the gateway is not serving")
	case g.cfg.Lineage.Lost() != nil:
		return g.cfg.Lineage.Lost()
	case !g.held():
		return errors.New("the gateway does not hold its lease")
	}
	return nil
}

// Run serves until ctx ends, and then drains: no socket is taken any more, the others are told and closed over Config.DrainFor,
// what they have sent is written to the log and answered. Every goroutine of the gateway ends before Run does.
func (g *Gateway) Run(ctx context.Context) {
	// Nothing but the drain ends with ctx: sockets are served until they are closed.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer stopCommitting()
	g.ctx = serving

	var helpers, committer sync.WaitGroup
	helpers.Go(func() { g.hub.run(serving, g.roster.open) })
	helpers.Go(func() { g.heartbeat(serving) })
	helpers.Go(func() { g.watchFloors(serving) })
	helpers.Go(func() { g.watchLineage(serving) })
	committer.Go(func() { g.committer.run(committing) })

	<-ctx.Done()
	g.drain()
	g.sessions.Wait()
	stopCommitting()
	committer.Wait()
	g.working.Wait()
	stop()
	helpers.Wait()
}

// report logs a defect of ours; every other refusal is the client's to know. What a message says stays out of logs.
func (g *Gateway) report(err error, t string) {
	if tidings.ErrorCode(err) == tidings.Internal {
		g.log.Error("a request failed", "type", t, "error", err)
	}
}

// newConnection is a random id of a connection.
func newConnection() (id tidings.UUID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}
