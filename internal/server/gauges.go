// Metrics that are read from the database.

package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings/internal/store"
)

const gaugesTimeout = 5 * time.Second

// gauges are the figures that are read from the tables when they are asked for. They are the same whichever process is asked.
type gauges struct {
	store    *store.Store
	channels []string
	log      *slog.Logger

	oldestDue, inFlight, review, unmatched, horizonAge, horizonXacts, known, journalLag *prometheus.Desc
}

func newGauges(s *store.Store, channels map[string]Channel, log *slog.Logger) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tidings_"+name, help, labels, nil)
	}
	return &gauges{store: s, channels: slices.Sorted(maps.Keys(channels)), log: log,
		oldestDue: desc("oldest_due_seconds", "How long the oldest due task has been due, also on channels that no process serves. Alert when a channel's urgent ones wait.", "channel", "priority"),
		inFlight:  desc("in_flight_tasks", "Tasks that a worker holds.", "channel"),
		review:    desc("review_tasks", "Tasks that wait for a person. Alert when there are any for long.", "channel"),
		unmatched: desc("unmatched_receipts", "Receipts that found no task so far."),
		horizonAge: desc("vacuum_horizon_seconds",
			"Age of the oldest transaction that keeps vacuum from cleaning the queues. Alert above some minutes."),
		horizonXacts: desc("vacuum_horizon_transactions", "By how many transactions the vacuum horizon lies back; counts replication slots and standbys, too."),
		known:        desc("vacuum_horizon_known", "1 when this database role may see all sessions (pg_read_all_stats), otherwise 0 and the horizon is that of its own sessions."),
		journalLag:   desc("journal_lag_seconds", "Age of the oldest thing taken back (recall, purge, leave, erasure) that was not copied outside the database: a restore would bring it back. Alert above some seconds."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.oldestDue, g.inFlight, g.review, g.unmatched, g.horizonAge, g.horizonXacts, g.known, g.journalLag} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Without a database there are no figures, and the scrape says so.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
	defer cancel()
	now, err := g.store.Gauges(ctx, g.channels)
	if err != nil {
		g.log.Warn("the gauges could not be read", "error", err)
		out <- prometheus.NewInvalidMetric(g.oldestDue, err)
		return
	}
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, o := range now.OldestDue {
		set(g.oldestDue, o.Seconds, o.Channel, strconv.Itoa(int(o.Priority)))
	}
	for channel, n := range now.InFlight {
		set(g.inFlight, float64(n), channel)
	}
	for channel, n := range now.Review {
		set(g.review, float64(n), channel)
	}
	set(g.unmatched, float64(now.UnmatchedReceipts))
	set(g.journalLag, now.JournalLag)
	set(g.horizonAge, now.Horizon.Seconds)
	set(g.horizonXacts, float64(now.Horizon.Transactions))
	known := 0.0
	if now.Horizon.Known {
		known = 1
	}
	set(g.known, known)
}
