// The gateway's metrics.

package gateway

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings/internal/wire"
)

// metrics are what a gateway counts about itself.
type metrics struct {
	connections prometheus.GaugeFunc
	queue       prometheus.GaugeFunc
	queued      atomic.Int64 // bytes that wait for receivers
	frames      *prometheus.CounterVec
	in, out     prometheus.Counter
	dropped     prometheus.Counter
	closes      *prometheus.CounterVec
	ahead       prometheus.Counter
	batches     prometheus.Histogram
	commits     prometheus.Histogram
}

func newMetrics(r *roster) *metrics {
	m := &metrics{
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_gateway_frames_total",
			Help: "Frames from and to clients."}, []string{"direction"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidings_gateway_pushes_dropped_total",
			Help: "Events that were queued for a connection when it was closed; its device gets them by sync."}),
		ahead: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidings_history_lost_suspected_total",
			Help: "Devices that know the current epoch of a conversation and more events than it has. Alert above 0: the database may have lost some."}),
		closes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidings_gateway_closes_total",
			Help: "Connections that were closed, by the code of the close frame."}, []string{"code"}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tidings_gateway_commit_messages",
			Help: "Messages of one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 9)}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tidings_gateway_commit_seconds",
			Help: "Duration of transactions that store messages.", Buckets: prometheus.ExponentialBuckets(.0005, 2, 14)}),
	}
	m.in, m.out = m.frames.WithLabelValues("in"), m.frames.WithLabelValues("out")
	m.connections = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidings_gateway_connections", Help: "Open connections."},
		func() float64 { return float64(r.size()) })
	m.queue = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidings_gateway_queue_bytes",
		Help: "Bytes that wait for receivers; an event that waits for several counts for each."}, func() float64 { return float64(m.queued.Load()) })
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{m.connections, m.queue, m.frames, m.dropped, m.closes, m.ahead, m.batches, m.commits} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// closed counts the end of a connection. A peer can send any code: those that we never use are counted together.
func (m *metrics) closed(code int) {
	label := "peer"
	switch code {
	case wire.CloseProtocol, wire.CloseUTF8, wire.CloseTooLarge, wire.CloseDraining, wire.CloseSlow, wire.CloseHeartbeat, wire.CloseLostLease,
		wire.CloseTooMany, wire.CloseToken, wire.CloseRevoked, wire.CloseReplaced, wire.CloseNoHello, wire.CloseNotHello, wire.CloseInstalled:
		label = strconv.Itoa(code)
	}
	m.closes.WithLabelValues(label).Inc()
}

func (m *metrics) committed(messages int, took time.Duration) {
	m.batches.Observe(float64(messages))
	m.commits.Observe(took.Seconds())
}
