// Package dispatch is the worker: it claims due tasks, calls their channels and writes down what came of it.
//
// A claim commits before any call begins, and a task that was claimed is called at once or not at all. Whatever becomes of
// the process in between, the journal row is there and says so.
package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/outbox"
)

// Margin is the time that is kept free between the latest end of a call and the end of its lease, for the answer to be written
// down.
const Margin = 500 * time.Millisecond

// The defaults of a Config.
const (
	DefaultConcurrency  = 64
	DefaultTimeout      = 15 * time.Second
	DefaultLease        = 60 * time.Second
	DefaultPollInterval = 250 * time.Millisecond
	DefaultBackoffBase  = time.Second
	DefaultBackoffCap   = 5 * time.Minute
	DefaultDrain        = 30 * time.Second // or the longest call, if that takes longer
)

// Config says what a worker does.
type Config struct {
	Pool     *pgxpool.Pool // the application's, READ COMMITTED by default; a worker uses up to 3 connections per channel, one for each claim whose previews are being read, and 2 more, and one of its own to listen
	Worker   string        // names this worker in leases and journal; "": host name, process id and a random part
	Channels []Channel     // at least one; tasks of other channels are left to other workers

	PollInterval  time.Duration // how long an idle worker waits before it looks again without a wake-up
	PreviewLength int           // characters of a message that a notification with a preview shows; 0: DefaultPreview

	BackoffBase time.Duration // the n-th retry waits a random time up to Base × 2^(n−1) …
	BackoffCap  time.Duration // … but at most up to Cap; a provider's Retry-After is never undercut
	Drain       time.Duration // how long Run waits for calls in flight after its context ended

	Logger     *slog.Logger          // nil: none. Neither bodies nor addresses are logged
	Registerer prometheus.Registerer // nil: metrics are counted but not offered
}

// Channel is a channel that a worker serves.
type Channel struct {
	Name        string // as in channel_pref.channel
	Channel     channel.Channel
	Concurrency int           // calls at the same time
	Timeout     time.Duration // of one call
	Lease       time.Duration // how long a claim holds; more than Timeout + Margin
}

// Worker carries out tasks. Run it once, or use RunOnce.
type Worker struct {
	cfg     Config
	store   *store.Store
	log     *slog.Logger
	lanes   []*lane
	ends    *ends
	gone    *gone
	metrics *metrics
	lineage *store.LineageMemory // of a pool whose connections are not judged: it notices what can be noticed from time to time
}

// New checks cfg, fills in the defaults and makes a Worker. A lease that a call could outlive is refused.
func New(cfg Config) (*Worker, error) {
	if cfg.Pool == nil {
		return nil, errors.New("dispatch: Config.Pool is nil")
	}
	if len(cfg.Channels) == 0 {
		return nil, errors.New("dispatch: Config.Channels is empty")
	}
	fill(&cfg.PollInterval, DefaultPollInterval)
	fill(&cfg.BackoffBase, DefaultBackoffBase)
	fill(&cfg.BackoffCap, DefaultBackoffCap)
	if cfg.PreviewLength <= 0 {
		cfg.PreviewLength = DefaultPreview
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Worker == "" {
		host, _ := os.Hostname() // an unnamed host is as good a name as any
		cfg.Worker = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:6])
	}
	w := &Worker{cfg: cfg, store: store.New(cfg.Pool), log: cfg.Logger, metrics: newMetrics()}
	if cfg.Registerer != nil {
		if err := w.metrics.register(cfg.Registerer); err != nil {
			return nil, fmt.Errorf("dispatch: register metrics: %w", err)
		}
	}
	var err error
	if w.lineage, err = store.NewLineageMemory("", w.log); err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	w.ends, w.gone = newEnds(w.store, w.lineage, w.log), newGone(w.store, w.log)
	names := map[string]bool{}
	var longest time.Duration
	for _, c := range cfg.Channels {
		if err := tidings.CheckID("channel", c.Name); err != nil {
			return nil, fmt.Errorf("dispatch: %w", err)
		}
		if c.Channel == nil || names[c.Name] {
			return nil, fmt.Errorf("dispatch: channel %s is nil or named twice", c.Name)
		}
		names[c.Name] = true
		fill(&c.Timeout, DefaultTimeout)
		fill(&c.Lease, max(DefaultLease, 2*c.Timeout))
		if c.Concurrency <= 0 {
			c.Concurrency = DefaultConcurrency
		}
		if c.Lease <= c.Timeout+Margin {
			return nil, fmt.Errorf("dispatch: channel %s: a lease of %v is over before a call of %v and a margin of %v are: another worker would call beside this one",
				c.Name, c.Lease, c.Timeout, Margin)
		}
		if _, asks := c.Channel.(channel.Querier); c.Channel.Contract().Query != nil && !asks {
			return nil, fmt.Errorf("dispatch: channel %s: its contract has a query, but it cannot be asked", c.Name)
		}
		w.lanes = append(w.lanes, newLane(w, c))
		longest = max(longest, c.Timeout+Margin)
	}
	fill(&w.cfg.Drain, max(DefaultDrain, longest))
	if w.cfg.Drain < longest {
		w.log.Warn("a stop can leave calls in doubt: they may take longer than the worker waits for them", "drain", w.cfg.Drain, "longest_call", longest)
	}
	return w, nil
}

func fill(d *time.Duration, standard time.Duration) {
	if *d <= 0 {
		*d = standard
	}
}

// Run claims and calls until ctx ends. Then it claims nothing more, waits for the calls in flight and writes down what came of
// them, for at most Config.Drain. What is still open then ends by its lease; Run says so with an error.
func (w *Worker) Run(ctx context.Context) error {
	var claiming, helping sync.WaitGroup
	w.lineage.Look(ctx, w.cfg.Pool)
	helping.Go(func() { w.lineage.Observe(ctx, w.cfg.Pool) })
	finish := w.writing(ctx)
	helping.Go(func() {
		bus.Listen(ctx, w.cfg.Pool.Config().ConnConfig.Copy(), outbox.WakeChannel, w.log, func() {
			for _, l := range w.lanes {
				l.wake()
			}
		})
	})
	for _, l := range w.lanes {
		for range l.loops {
			claiming.Go(func() { l.claimLoop(ctx) })
		}
		claiming.Go(func() { l.reclaimLoop(ctx) })
	}
	claiming.Wait()

	deadline, cancelDeadline := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Drain)
	defer cancelDeadline()
	open := 0
	for _, l := range w.lanes {
		open += l.drain(deadline)
	}
	finish()
	helping.Wait()
	if open > 0 {
		return fmt.Errorf("dispatch: %d calls were still open after %v: their leases end by themselves", open, w.cfg.Drain)
	}
	return nil
}

// writing starts what writes ends down. The returned function waits until everything is written.
func (w *Worker) writing(ctx context.Context) (finish func()) {
	stop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { w.ends.run(stop) })
	running.Go(func() { w.gone.run(stop) })
	return func() {
		cancel()
		running.Wait()
	}
}

// RunOnce claims what is due now, once for each channel and at most as much as can be called at once, makes the calls and
// writes down what came of them. It returns how many tasks it took or settled. When ctx ends it claims nothing more, and the
// calls that were begun still end. Use it in tests and in jobs that run by a clock.
func (w *Worker) RunOnce(ctx context.Context) (int, error) {
	w.lineage.Look(ctx, w.cfg.Pool)
	defer w.writing(ctx)()
	var took int
	var errs []error
	for _, l := range w.lanes {
		for _, claim := range []claimFunc{w.store.Reclaim, l.claimAll} {
			if ctx.Err() != nil {
				return took, errors.Join(append(errs, context.Cause(ctx))...)
			}
			n, err := l.take(ctx, l.slots.all(), claim)
			took += n
			errs = append(errs, err)
			waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Drain)
			if open := l.drain(waiting); open > 0 {
				errs = append(errs, fmt.Errorf("dispatch: %d calls on %s were still open after %v: their leases end by themselves", open, l.cfg.Name, w.cfg.Drain))
			}
			cancel()
		}
	}
	return took, errors.Join(errs...)
}
