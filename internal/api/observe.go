// Counts and times requests.

package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// count makes the metrics.
func (a *API) count(r prometheus.Registerer) error {
	a.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_http_requests_total",
		Help: "Requests by route and status."}, []string{"route", "status"})
	a.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tidings_http_request_seconds",
		Help: "Duration of requests.", Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"route"})
	a.reports = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_receipts_total",
		Help: "Receipts by what became of them; a contradiction says that a task recorded as not sent was."}, []string{"channel", "result"})
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(a.requests), r.Register(a.seconds), r.Register(a.reports))
}

func (a *API) observe(pattern string, status int, took time.Duration) {
	if pattern == "" {
		pattern = "none"
	}
	a.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
	a.seconds.WithLabelValues(pattern).Observe(took.Seconds())
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController set deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// discard is a response that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
