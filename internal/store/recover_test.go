// Tests of the recovery of a restored database, and of its lineage.

package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestRecover(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.must(b.EnsureLineage(ctx))
	before := one[int64](b, `SELECT generation FROM tidings.lineage`)

	sending := b.task(push, "u-ana", "sending")
	held := b.claimOne(push)
	sent := b.task(push, "u-ana", "sent")
	b.finish(b.claimOne(push), tidings.Accepted, "p")
	unknown := b.task(push, "u-ana", "unknown")
	b.finish(b.claimOne(push), tidings.Timeout, "")
	parked := b.parked("u-ana", "parked")
	forced := b.parked("u-ana", "forced")
	b.must(b.Resolve(ctx, b.resolution(forced, store.VerbResend)))
	later := time.Now().Add(time.Hour)
	scheduled := b.task(push, "u-ana", "scheduled", func(n *tidings.Notification) { n.NotBefore = &later })
	pending := b.task(push, "u-ana", "pending")
	firstCall := b.detail(unknown).FirstCallAt

	report, err := b.Recover(ctx, store.RecoverOptions{})
	b.must(err)
	if report.Sending != 1 || report.Pending != 1 || report.Unknown != 2 {
		t.Errorf("report %+v", report)
	}
	if g := one[int64](b, `SELECT generation FROM tidings.lineage`); g != report.Generation || g <= before || g >= 1<<53 {
		t.Errorf("generation %d before, %d reported, %d stored", before, report.Generation, g)
	}
	for id, want := range map[tidings.UUID][]tidings.Outcome{
		sending:   {tidings.LeaseExpired, tidings.RecoveredInDoubt},
		unknown:   {tidings.Timeout, tidings.RecoveredInDoubt},
		pending:   {tidings.RecoveredInDoubt},
		forced.ID: {tidings.Timeout, tidings.ManualResend, tidings.RecoveredInDoubt},
	} {
		d := b.detail(id)
		if d.State != tidings.Unknown || d.Review || !d.InDoubt || d.NextAttemptAt == nil || d.LeaseUntil != nil || d.LeaseOwner != "" || d.Forced ||
			d.FirstCallAt == nil || d.DoubtAt == nil || time.Since(*d.DoubtAt) > time.Minute || time.Since(*d.NextAttemptAt) > time.Minute {
			t.Errorf("%s: %+v", d.EventKey, d.Task)
		}
		if got := b.outcomes(id); !slices.Equal(got, want) || d.AttemptCount != len(want) {
			t.Errorf("%s: journal %v, want %v", d.EventKey, got, want)
		}
	}
	if d := b.detail(pending); !d.FirstCallAt.Equal(d.CreatedAt) {
		t.Errorf("the first call of a task without one counts from %v, its notification was made at %v", d.FirstCallAt, d.CreatedAt)
	}
	if got := b.detail(unknown).FirstCallAt; !got.Equal(*firstCall) {
		t.Errorf("the first call moved from %v to %v", firstCall, got)
	}
	for id, want := range map[tidings.UUID]tidings.State{sent: tidings.Sent, parked.ID: tidings.Unknown, scheduled: tidings.Pending} {
		if d := b.detail(id); d.State != want || slices.Contains(b.outcomes(id), tidings.RecoveredInDoubt) {
			t.Errorf("%s: %+v", d.EventKey, d.Task)
		}
	}
	// A holder that reports after all changes nothing.
	stale, err := b.Finish(ctx, []store.Finish{ended(held, tidings.Accepted, "p")})
	b.must(err)
	if d := b.detail(sending); len(stale) != 1 || d.State != tidings.Unknown || d.Attempts[0].LateOutcome != tidings.Accepted {
		t.Errorf("after the late end %+v", d)
	}
	b.kept()
}

func TestRecoverTimes(t *testing.T) {
	b := newBench(t)
	now := one[time.Time](b, `SELECT statement_timestamp()`)
	old := b.task(push, "u-ana", "old")
	b.exec(`UPDATE tidings.task SET next_attempt_at = $1`, now.Add(-2*time.Hour))
	b.exec(`UPDATE tidings.notification SET created_at = $1`, now.Add(-3*time.Hour))
	b.task(push, "u-ana", "new")

	stopped, since := now.Add(-time.Hour), now.Add(-150*time.Minute)
	report, err := b.Recover(t.Context(), store.RecoverOptions{StoppedAt: &stopped, LostSince: &since})
	b.must(err)
	if report.Pending != 1 || report.Unknown != 0 {
		t.Errorf("report %+v", report)
	}
	if d := b.detail(old); !d.FirstCallAt.Equal(since) {
		t.Errorf("the first call counts from %v, want %v", d.FirstCallAt, since)
	}
	// A clock that went back: the last worker stopped later than now.
	stopped = now.Add(24 * time.Hour)
	report, err = b.Recover(t.Context(), store.RecoverOptions{StoppedAt: &stopped})
	b.must(err)
	if report.Pending != 1 || report.Unknown != 1 {
		t.Errorf("report %+v", report)
	}
	b.kept()
}

// Every task is put in doubt once, in however many batches, also when each comes to lie further on in the index.
func TestRecoverMany(t *testing.T) {
	b := newBench(t)
	const many = 2500
	for _, channel := range []string{"alpha", "push"} {
		b.prefer("u-"+channel, channel)
		b.exec(`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', $1::text, 'event_key', 'e' || g, 'body', 'x', 'ttl_s', 3600, 'priority', g % 3))
			FROM generate_series(1, $2) g))`, "u-"+channel, many)
	}
	if n := len(b.claim(push, 1500)); n != 1500 {
		t.Fatalf("%d were claimed", n)
	}
	stopped := time.Now().Add(time.Hour)
	report, err := b.Recover(t.Context(), store.RecoverOptions{StoppedAt: &stopped})
	b.must(err)
	if report.Sending != 1500 || report.Pending != 2*many-1500 || report.Unknown != 0 {
		t.Errorf("report %+v", report)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.task WHERE state = 'UNKNOWN' AND attempt_count = 1 + (first_call_at > now() - interval '1 hour' AND channel = 'push'
		AND EXISTS (SELECT FROM tidings.attempt a WHERE a.task_id = task.id AND a.outcome = 'LEASE_EXPIRED'))::int`); n != 2*many {
		t.Errorf("%d tasks were put in doubt once", n)
	}
	b.kept()
}

func TestLineage(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.must(b.EnsureLineage(ctx))
	if rows := one[string](b, `SELECT string_agg(node, ',') FROM tidings.lineage`); rows != "main" {
		t.Errorf("lineage of %q", rows)
	}
	generation := one[int64](b, `SELECT generation FROM tidings.lineage`)
	if ms := generation / 1024; ms < time.Now().Add(-time.Minute).UnixMilli() || ms > time.Now().Add(time.Minute).UnixMilli() {
		t.Errorf("the first generation is %d", generation)
	}
	b.must(b.EnsureLineage(ctx))

	b.task(push, "u-ana", "e1")
	for i, other := range []string{"system_identifier = system_identifier + 1", "database_oid = 1", "log_oid = 1", "timeline = timeline + 1", "lsn = 'FFFFFFFF/0'"} {
		b.exec(`UPDATE tidings.lineage SET ` + other)
		b.want(tidings.Unavailable, b.EnsureLineage(ctx))
		report, err := b.Recover(ctx, store.RecoverOptions{Lossless: true})
		b.must(err)
		if report.Generation != generation || report.Pending != 0 || report.Lineage.Timeline != 1 || report.Lineage.DatabaseOID < 2 {
			t.Errorf("%d: a lossless recovery reports %+v", i, report)
		}
		b.must(b.EnsureLineage(ctx))
	}
	// A promotion alone proves no loss.
	b.exec(`UPDATE tidings.lineage SET timeline = 0`)
	b.must(b.EnsureLineage(ctx))

	// With the clock behind, the generation grows all the same.
	b.exec(`UPDATE tidings.lineage SET generation = $1`, int64(1)<<52)
	report, err := b.Recover(ctx, store.RecoverOptions{})
	b.must(err)
	if report.Generation <= 1<<52 || report.Generation > 1<<52+1<<20 {
		t.Errorf("generation %d", report.Generation)
	}
}

// Processes that start at once on a new database agree on one lineage.
func TestLineageAtOnce(t *testing.T) {
	b := newBench(t)
	atOnce(8, func(int) {
		if err := b.EnsureLineage(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if n := one[int](b, `SELECT count(*) FROM tidings.lineage`); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// The lineage can be read by a role that may do nothing but use the schema.
func TestLineageOfAnOrdinaryRole(t *testing.T) {
	b := newBench(t)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	role := fmt.Sprintf("ordinary_%d", time.Now().UnixNano())
	for _, sql := range []string{"CREATE ROLE " + role, "GRANT USAGE ON SCHEMA tidings TO " + role, "SET LOCAL ROLE " + role} {
		_, err := tx.Exec(t.Context(), sql)
		b.must(err)
	}
	var timeline int64
	b.must(tx.QueryRow(t.Context(), `SELECT system_identifier / system_identifier FROM pg_control_system() WHERE pg_walfile_name(pg_current_wal_lsn()) <> ''`).Scan(&timeline))
}
