// One process: start, run, an orderly end.

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tidings-project/tidings/console"
	"github.com/tidings-project/tidings/dispatch"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/gateway"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/schema"
)

// startPatience bounds what a start waits for the database.
const startPatience = 15 * time.Second

// Server is one process of the product.
type Server struct {
	cfg     Config
	log     *slog.Logger
	store   *store.Store
	sockets *store.Store // of the gateway: its connections are not taken by calls of the API that wait for a lock
	lineage *store.LineageMemory
	ready   *readiness
	wakes   *wakes
	tokens  *token.Verifier  // nil: none are accepted
	gateway *gateway.Gateway // nil without the role
	telling *bus.Bus         // of the API, to tell gateways, its own process's too; nil without the role

	worker        *dispatch.Worker // nil without the role
	unread        *unread          // nil without that role
	closeChannels func()

	main, metrics net.Listener // metrics is nil when it has no address of its own
	servers       []*http.Server
}

// New makes a Server that is ready to Run: its addresses are bound, its database has the right schema. Close it if it is
// not run.
func New(ctx context.Context, cfg Config, log *slog.Logger) (_ *Server, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.OutsideDir != "" {
		made, err := outside.Ready(cfg.OutsideDir)
		if err != nil {
			return nil, fmt.Errorf("%w: outside-dir cannot be used: %w", ErrConfig, err)
		}
		if made {
			log.Info("outside-dir was not there and was made: it has no witness and no journal yet", "directory", cfg.OutsideDir)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	s := &Server{cfg: cfg, log: log, closeChannels: func() {}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	conns := cfg.DatabaseConns
	if cfg.divided() {
		conns /= 2
	}
	if s.lineage, err = store.NewLineageMemory(cfg.OutsideDir, log); err != nil {
		return nil, err
	}
	if s.store, err = OpenServedStore(cfg.DatabaseURL, conns, s.lineage); err != nil {
		return nil, err
	}
	s.sockets = s.store
	if cfg.divided() {
		if s.sockets, err = OpenServedStore(cfg.DatabaseURL, conns, s.lineage); err != nil {
			return nil, err
		}
	}
	if err := schema.Check(ctx, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	if err := s.store.EnsureLineage(ctx); err != nil {
		return nil, err
	}
	s.ready = &readiness{url: cfg.DatabaseURL}
	s.wakes = newWakes(s.store, log)

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(newGauges(s.store, cfg.Channels, log))
	transports, closeChannels, err := open(cfg.Channels)
	if err != nil {
		return nil, err
	}
	s.closeChannels = closeChannels
	if cfg.is(RoleWorker) {
		s.worker, err = dispatch.New(dispatch.Config{Pool: s.store.Pool(), Channels: lanes(cfg.Channels, transports), PollInterval: cfg.Poll,
			BackoffBase: cfg.Backoff, BackoffCap: cfg.MaxDelay, PreviewLength: cfg.ChatPreviewLength, Drain: cfg.Drain, Logger: log, Registerer: registry})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err) // it only judges its Config
		}
		s.unread = newUnread(s.store, store.UnreadNotice{Title: cfg.ChatNotifyTitle, TTL: cfg.ChatNotifyTTL}, s.wakes.wake, log)
		registry.MustRegister(s.unread)
	}
	if err := s.warn(ctx); err != nil {
		return nil, err
	}
	keys := api.NewKeys(s.store)
	if s.tokens, err = cfg.verifier(log); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	keys.Tokens = s.tokens
	mux := http.NewServeMux()
	if cfg.is(RoleAPI) {
		s.telling = bus.New(bus.Config{Conn: s.store.Pool().Config().ConnConfig, Sender: processID("api"), Log: log})
		served, err := api.New(api.Config{Store: s.store, Channels: transports, Keys: keys, Wake: s.wakes.wake, ReadMoved: s.readMoved,
			Retention: cfg.Retention, NotifyAfter: cfg.ChatNotifyAfter, Version: Version(), ReportFile: cfg.ReportFile, Logger: log, Registerer: registry})
		if err != nil {
			return nil, err
		}
		mux.Handle("/v1/", served)
		operators := console.New(served, log)
		mux.Handle("/console", operators)
		mux.Handle("/console/", operators)
	}
	if cfg.is(RoleGateway) {
		if s.gateway, err = s.newGateway(registry); err != nil {
			return nil, err
		}
		mux.Handle("GET /v1/ws", s.gateway)
	}
	s.operations(mux, keys, registry)
	if s.main, err = s.listen(cfg.Listen, mux); err != nil {
		return nil, err
	}
	if cfg.MetricsListen != "" {
		if s.metrics, err = s.listen(cfg.MetricsListen, metricsHandler(registry)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// warn logs what is allowed and perhaps not meant: only all processes together show whether it is.
func (s *Server) warn(ctx context.Context) error {
	if !s.cfg.is(RoleAPI) && !s.cfg.is(RoleWorker) {
		return nil // channels are no matter of a gateway
	}
	if len(s.cfg.Channels) == 0 {
		s.log.Warn("no channels are configured: for conversations alone that is right; for notifications this process takes no receipts and knows no contracts, so give an API the channels of its workers, too")
	}
	scheduled, err := s.store.ScheduledChannels(ctx)
	if err != nil {
		return err
	}
	elsewhere := slices.DeleteFunc(scheduled, func(name string) bool { _, here := s.cfg.Channels[name]; return here })
	if len(elsewhere) > 0 {
		s.log.Warn("tasks are scheduled on channels that this process does not serve: unless another worker does, they wait for ever", "channels", elsewhere)
	}
	return nil
}

func (s *Server) listen(addr string, h http.Handler) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	s.servers = append(s.servers, &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		WriteTimeout: 2 * api.RequestTimeout, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)})
	return l, nil
}

// URL is where HTTP is served.
func (s *Server) URL() string { return "http://" + s.main.Addr().String() }

// Store is the store that the server works on.
func (s *Server) Store() *store.Store { return s.store }

// Run serves until ctx ends, or something that it cannot do without fails. Then it stops in order: /readyz says no, no task is
// claimed and no socket taken any more, requests and calls in flight end and are written down, for at most Config.Drain. Until a
// gateway has closed its sockets, whoever comes is answered, and told by 503 and Retry-After to come later.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx)) // until the last request was answered
	defer stopAnswering()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx)) // to the end of all work: the witness knows of all of it then
	defer stopWatching()
	var watch sync.WaitGroup
	watch.Go(func() { s.lineage.Watch(watching, s.sockets.Pool(), s.store.Pool()) })
	defer watch.Wait()
	failed := make(chan error, len(s.servers)+1) // one from each that can fail
	var helpers, serving, calling sync.WaitGroup
	helpers.Go(func() { s.wakes.run(answering) })
	helpers.Go(func() { s.markGone(answering) })
	helpers.Go(func() { every(working, s.cfg.HousekeepingEach, s.purgeConversations) })
	helpers.Go(func() { s.copyTakings(answering) })
	if s.telling != nil {
		helpers.Go(func() { s.telling.RunTelling(answering) })
	}
	if s.tokens != nil {
		helpers.Go(func() { s.tokens.Run(working) })
	}
	for i, listener := range []net.Listener{s.main, s.metrics}[:len(s.servers)] {
		serving.Go(func() {
			if err := s.servers[i].Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve HTTP: %w", err)
			}
		})
	}
	var undone error // what the worker left open
	drained := make(chan struct{})
	if s.gateway != nil {
		calling.Go(func() {
			defer close(drained)
			s.gateway.Run(working)
		})
	} else {
		close(drained)
	}
	if s.worker != nil {
		helpers.Go(func() { s.housekeep(working) })
		helpers.Go(func() { s.unread.run(working) })
		calling.Go(func() {
			s.markFirst(working)
			undone = s.worker.Run(working)
			if working.Err() == nil {
				failed <- errors.New("the worker ended by itself")
			}
		})
	}
	s.log.Info("serving", "url", s.URL(), "roles", s.cfg.Roles)

	var errs []error
	select {
	case <-ctx.Done():
	case err := <-failed:
		errs = append(errs, err)
	}
	s.log.Info("stopping")
	s.ready.stop()
	stopWorking()
	if s.cfg.LameDuck > 0 {
		select {
		case <-time.After(s.cfg.LameDuck):
		case err := <-failed:
			errs = append(errs, err)
		}
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	select {
	case <-drained:
	case <-drain.Done():
	}
	for _, h := range s.servers {
		if err := h.Shutdown(drain); err != nil {
			errs = append(errs, fmt.Errorf("requests were still open after %v: %w", s.cfg.Drain, err), h.Close())
		}
	}
	serving.Wait()
	stopAnswering()
	calling.Wait() // the worker has the same deadline
	helpers.Wait()
	errs = append(errs, undone)
	stopWatching()
	watch.Wait()
	s.log.Info("stopped")
	return errors.Join(errs...)
}

// Close gives up what New took. Run does it by itself.
func (s *Server) Close() {
	for _, l := range []net.Listener{s.main, s.metrics} {
		if l != nil {
			_ = l.Close() // a second close of what Run served
		}
	}
	s.closeChannels()
	for _, st := range []*store.Store{s.sockets, s.store} {
		if st != nil {
			st.Pool().Close() // a second close of the same does nothing
		}
	}
}
