// The worker's metrics.

package dispatch

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings"
)

// metrics are what a worker counts about itself. What can be read from the tables is offered by the server instead.
type metrics struct {
	outcomes      *prometheus.CounterVec
	leasesExpired *prometheus.CounterVec
	stale         *prometheus.CounterVec
	stuck         *prometheus.GaugeVec
	circuit       *prometheus.GaugeVec
	claims        *prometheus.HistogramVec
	calls         *prometheus.HistogramVec
}

func newMetrics() *metrics {
	channel := []string{"channel"}
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	return &metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_attempts_total",
			Help: "Attempts and judgements by outcome."}, []string{"channel", "outcome"}),
		leasesExpired: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_leases_expired_total",
			Help: "Tasks taken over because their holder did not report in time."}, channel),
		stale: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_stale_finishes_total",
			Help: "Ends of attempts that had been superseded."}, channel),
		stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidings_stuck_calls",
			Help: "Adapters that have not returned after their deadline; each keeps a slot."}, channel),
		circuit: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidings_circuit_open",
			Help: "1 while this worker does not claim because calls cannot be started."}, channel),
		claims: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tidings_claim_seconds",
			Help: "Duration of claims.", Buckets: buckets}, channel),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tidings_call_seconds",
			Help: "Duration of calls.", Buckets: buckets}, channel),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{m.outcomes, m.leasesExpired, m.stale, m.stuck, m.circuit, m.claims, m.calls} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// laneMetrics are the metrics of one channel, looked up once.
type laneMetrics struct {
	leasesExpired, stale prometheus.Counter
	stuck, circuit       prometheus.Gauge
	claims, calls        prometheus.Observer

	outcomes *prometheus.CounterVec
	known    *sync.Map // tidings.Outcome → prometheus.Counter
}

func (m *metrics) lane(channel string) laneMetrics {
	return laneMetrics{
		leasesExpired: m.leasesExpired.WithLabelValues(channel), stale: m.stale.WithLabelValues(channel),
		stuck: m.stuck.WithLabelValues(channel), circuit: m.circuit.WithLabelValues(channel), claims: m.claims.WithLabelValues(channel), calls: m.calls.WithLabelValues(channel),
		outcomes: m.outcomes.MustCurryWith(prometheus.Labels{"channel": channel}), known: &sync.Map{},
	}
}

func (m laneMetrics) outcome(o tidings.Outcome) {
	counter, ok := m.known.Load(o)
	if !ok {
		counter, _ = m.known.LoadOrStore(o, m.outcomes.WithLabelValues(string(o)))
	}
	counter.(prometheus.Counter).Inc()
}
