// The paths for operators and load balancers.

package server

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/schema"
)

const (
	readyFor     = 2 * time.Second // how long one look at the database answers every /readyz
	readyTimeout = 3 * time.Second
	comeBack     = 5 * time.Second // what a process that stops tells its clients to wait
)

// operations adds the paths that operators and load balancers use.
func (s *Server) operations(mux *http.ServeMux, keys *api.Keys, registry *prometheus.Registry) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // the peer is gone: there is nobody to tell
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" && (slices.Contains(s.cfg.Origins, origin) || slices.Contains(s.cfg.Origins, "*")) {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
			w.Header().Set("Vary", "Origin")
		}
		if err := s.lineage.Lost(); err != nil { // before all else: a database that is being restored has no schema, either
			api.WriteProblem(w, err)
			return
		}
		if err := s.ready.check(r.Context()); err != nil {
			api.WriteProblem(w, err)
			return
		}
		if s.gateway != nil {
			if err := s.gateway.Ready(); err != nil {
				api.WriteProblem(w, &tidings.Error{Code: tidings.Unavailable, Message: err.Error(), RetryAfter: comeBack})
				return
			}
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	metrics := metricsHandler(registry)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if _, err := keys.Authorize(r, "metrics"); err != nil {
			api.WriteProblem(w, err)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		api.WriteProblem(w, tidings.Errorf(tidings.NotFound, "there is no such path"))
	})
}

func metricsHandler(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, Timeout: 2 * gaugesTimeout,
		ErrorHandling: promhttp.ContinueOnError})
}

// readiness tells whether requests should come here: the database is reachable, has this release's schema, and the process is
// not stopping.
type readiness struct {
	url string

	mu       sync.Mutex
	stopping bool
	looked   time.Time
	err      error
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// check looks at the database; concurrent callers share one look.
func (r *readiness) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return &tidings.Error{Code: tidings.Unavailable, Message: "this process is stopping", RetryAfter: comeBack}
	}
	if time.Since(r.looked) < readyFor {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	r.err = nil
	if err := schema.Check(ctx, r.url); err != nil {
		r.err = &tidings.Error{Code: tidings.Unavailable, Message: "the database is not reachable or its schema is not this release's", Err: err}
	}
	r.looked = time.Now()
	return r.err
}
