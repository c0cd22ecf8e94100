// Package bus carries wake-ups between processes over PostgreSQL's LISTEN and NOTIFY: hints, never data that matters. Whoever
// listens also polls, so a lost wake-up costs time and nothing else.
//
// Listen is the plain form, for workers. A Bus is the form for gateways: what a sender tells is numbered, so that a listener
// knows when it has missed something and from whom.
package bus

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Channel is the NOTIFY channel of the gateways.
const Channel = "tidings_conv"

// The times from which the bound follows: whatever is lost, CatchUp is called within silentAfter + tick (4 s) of it.
const (
	beat        = 2 * time.Second         // a sender that has nothing to say repeats its last number
	silentAfter = 3500 * time.Millisecond // a sender that was not heard for so long is caught up with, every beat
	tick        = 500 * time.Millisecond  // how often silence is looked for
	probeAfter  = 2 * time.Second         // a listening connection that brought nothing for so long is probed
	patience    = time.Second             // for a probe, a NOTIFY and a LISTEN
	dialing     = 2 * time.Second         // for a new connection
	pace        = 2 * time.Millisecond    // between two NOTIFYs of a sender: each takes a lock of the whole cluster
)

// Config is what a Bus needs.
type Config struct {
	Conn   *pgx.ConnConfig // of the database; two connections are made, one to listen and one to notify
	Sender string          // who tells: the gateway's id
	Also   string          // another channel to listen to, whose notifications call Handler.Woken; may be empty
	Log    *slog.Logger
}

// Handler is called with what was heard. Its functions are called one at a time and must not block.
type Handler struct {
	// Heard gives what another sender told, in the order in which it told it.
	Heard func(items []Item)
	// CatchUp says that what sender has told may have been lost, or of everybody if sender is empty. While a sender is silent, or
	// this listener is deaf, it is called every 2 s with again true after the first time.
	CatchUp func(sender string, again bool)
	// Woken says that something came on the channel Also, or may have.
	Woken func()
}

// Bus tells other processes and hears them. Make it with New; it works while Run runs.
type Bus struct {
	cfg  Config
	self origin

	mu      sync.Mutex
	wakes   map[string]*Wake // by conversation
	order   []string         // its keys as they came
	items   []Item           // what is not coalesced
	lost    bool             // something was dropped: a number is skipped, so that listeners notice
	flushes []chan struct{}
	due     chan struct{} // one; a second one says nothing more

	heard senders
}

// New makes a Bus.
func New(cfg Config) *Bus {
	return &Bus{cfg: cfg, self: origin{Sender: cfg.Sender, Run: rand.Text()}, wakes: map[string]*Wake{}, due: make(chan struct{}, 1), heard: senders{known: map[string]*sender{}}}
}

// Run listens and notifies until ctx ends; then it sends what is still due, says goodbye, and returns.
func (b *Bus) Run(ctx context.Context, h Handler) {
	b.self.Listens = true
	var work sync.WaitGroup
	work.Go(func() { b.notify(ctx) })
	work.Go(func() { b.listen(ctx, h) })
	work.Wait()
}

// RunTelling is Run for a process that hears nothing.
func (b *Bus) RunTelling(ctx context.Context) { b.notify(ctx) }

// Expect says which senders are alive, by what the database knows of them. One that is silent is caught up with; one that is
// alive no longer and silent is caught up with for the last time.
func (b *Bus) Expect(alive []string) { b.heard.expect(b.cfg.Sender, alive, time.Now()) }
