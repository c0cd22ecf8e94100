// Notifies members of conversations of what they have not read.

package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings/internal/store"
)

const (
	unreadEach  = 500 * time.Millisecond // a part of the delay of a notification
	unreadQuiet = time.Minute            // between two warnings of the same trouble
)

// unread is what a worker does for members who have not read, and its figures. Every worker does it; the store lets one do it at a time.
type unread struct {
	store  *store.Store
	notice store.UnreadNotice
	wake   func()
	log    *slog.Logger

	created       prometheus.Counter
	rows, overdue *prometheus.Desc
}

func newUnread(s *store.Store, notice store.UnreadNotice, wake func(), log *slog.Logger) *unread {
	return &unread{store: s, notice: notice, wake: wake, log: log,
		created: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidings_unread_notifications_total",
			Help: "Notifications of unread messages that this process has created."}),
		rows: prometheus.NewDesc("tidings_unread_due_rows", "Messages and recalls of conversations that notify, after which nobody has looked yet for who has not read; counted up to a million.", nil, nil),
		overdue: prometheus.NewDesc("tidings_unread_overdue_seconds",
			"For how long the oldest of them has been due. Alert above some seconds: workers do not get on, or there is none.", nil, nil)}
}

// run notifies until ctx ends.
func (u *unread) run(ctx context.Context) {
	var warned time.Time // when it last failed and said so; zero: it works
	notice := u.notice
	notice.Resume = true
	every(ctx, unreadEach, func(ctx context.Context) {
		for more := true; more && ctx.Err() == nil; {
			done, err := u.store.NotifyUnread(ctx, notice)
			// Until all that was due has been gone through by a process of which this one knows that it ended.
			notice.Resume = err != nil || done.Busy || notice.Resume && done.More
			if done.Notifications > 0 {
				u.created.Add(float64(done.Notifications))
				u.wake()
			}
			switch {
			case err != nil && ctx.Err() == nil && time.Since(warned) > unreadQuiet:
				u.log.Warn("members were not notified of unread messages; it is tried again", "error", err)
				warned = time.Now()
			case err == nil && !done.Busy && !warned.IsZero(): // what another process does says nothing of this one
				u.log.Info("members are notified of unread messages again")
				warned = time.Time{}
			}
			more = err == nil && done.More
		}
	})
}

// Describe implements prometheus.Collector.
func (u *unread) Describe(out chan<- *prometheus.Desc) {
	u.created.Describe(out)
	out <- u.rows
	out <- u.overdue
}

// Collect implements prometheus.Collector. Without a database there are no figures of the queue, and the scrape says so.
func (u *unread) Collect(out chan<- prometheus.Metric) {
	u.created.Collect(out)
	ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
	defer cancel()
	rows, overdue, err := u.store.WaitingUnread(ctx)
	if err != nil {
		u.log.Warn("the queue of unread messages could not be counted", "error", err)
		out <- prometheus.NewInvalidMetric(u.rows, err)
		return
	}
	out <- prometheus.MustNewConstMetric(u.rows, prometheus.GaugeValue, float64(rows))
	out <- prometheus.MustNewConstMetric(u.overdue, prometheus.GaugeValue, overdue)
}
