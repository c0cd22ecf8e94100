// The checks 33-watermark, 33-control-watermark.

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/worker"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-watermark",
		Expect: "while the queue is full, claims pass over a task that was committed late, one whose claimer was killed and one moved back by a clock " +
			"step; each is claimed within max(1 s, 20 × the slowest claim) and one round of claims",
		Run: watermark,
	})
	lab.Register(lab.Check{
		ID:     "33-control-watermark",
		Expect: "claims that start behind the last ones for ever take every later task and never the one that was committed late",
		Run:    controlWatermark,
	})
}

// brisk is a channel without a provider: every call takes so long and is accepted.
type brisk time.Duration

func (b brisk) Contract() channel.Contract { return channel.Contract{Source: "the lab's"} }
func (b brisk) Renderer() string           { return "brisk/1" }
func (b brisk) Send(ctx context.Context, _ channel.Message) channel.Outcome {
	timer := time.NewTimer(time.Duration(b))
	defer timer.Stop()
	select {
	case <-timer.C:
		return channel.Outcome{Code: tidings.Accepted}
	case <-ctx.Done():
		return channel.Outcome{Code: tidings.Timeout}
	}
}

const queue = "queue" // the channel of these checks

// crowd submits n notifications of a user in one call.
func (s *scene) crowd(user string, n int, options ...func(*tidings.Notification)) {
	s.Helper()
	batch := make([]tidings.Notification, n)
	for i := range batch {
		batch[i] = notification(user, fmt.Sprintf("%d-%d", time.Now().UnixNano(), i), options...)
	}
	_, err := outbox.Notify(s.ctx, s.pool, batch...)
	s.Must("submit many notifications", err)
}

// backlog counts what is due.
func (s *scene) backlog() int {
	s.Helper()
	return one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'PENDING' AND next_attempt_at <= statement_timestamp()`, queue)
}

// feed keeps at least so many tasks due until stop is called. It stops by itself when the check ends.
func (s *scene) feed(user string, least int) (stop func()) {
	s.Helper()
	s.crowd(user, 2*least)
	ctx, cancel := context.WithCancel(s.ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			batch := make([]tidings.Notification, least)
			for i := range batch {
				batch[i] = notification(user, fmt.Sprintf("%d-%d", time.Now().UnixNano(), i))
			}
			var due int
			err := s.pool.QueryRow(ctx, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'PENDING'`, queue).Scan(&due)
			if err == nil && due < 2*least {
				_, err = outbox.Notify(ctx, s.pool, batch...)
			}
			if err != nil && ctx.Err() == nil {
				s.Errorf("feed the queue: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	stop = func() { cancel(); work.Wait() }
	s.Cleanup(stop)
	return stop
}

// uncommitted submits a notification in a transaction that stays open, and returns its task.
func (s *scene) uncommitted(user string) (pgx.Tx, tidings.UUID) {
	s.Helper()
	tx, err := s.pool.Begin(s.ctx)
	s.Must("begin a transaction", err)
	s.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(s.ctx)) }) // nothing to undo once it is committed
	answers, err := outbox.Notify(s.ctx, tx, notification(user, "late"))
	s.Must("submit in a transaction", err)
	var task tidings.UUID
	s.Must("find its task", tx.QueryRow(s.ctx, `SELECT id FROM tidings.task WHERE notification_id = $1`, answers[0].ID).Scan(&task))
	return tx, task
}

func (s *scene) claimed(task tidings.UUID) bool { return s.where(task).Attempts > 0 }

func watermark(t *lab.T) {
	s := newScene(t)
	for _, user := range []string{"first", "late", "killed", "moved", "crowd"} {
		s.subscribe(user, queue)
	}
	// Three tasks that are due before all others and cannot be claimed yet, and one for far later.
	firstTx, first := s.uncommitted("first")
	lateTx, late := s.uncommitted("late")
	killed := s.task(s.notify("killed", "event"), queue)
	kill := s.claimsForever(killed)
	tomorrow := time.Now().Add(24 * time.Hour)
	moved := s.task(s.notify("moved", "event", func(n *tidings.Notification) { n.NotBefore = &tomorrow }), queue)

	const least = 1000
	stopFeeding := s.feed("crowd", least)
	stop := s.run(s.worker("w", worker.Channel{Name: queue, Concurrency: 8, Channel: brisk(4 * time.Millisecond)}))
	s.Until("claims are under way", soon, func() bool {
		return one[int](s, `SELECT count(DISTINCT started_at) FROM tidings.attempt`) > 20
	})

	// The first late commit only shows when a scan without a floor has just been: the others then meet a floor that is new, as
	// soon as claims have gone on from there.
	t.Must("commit late", firstTx.Commit(s.ctx))
	s.Until("the first late commit is claimed, and claims have gone on", soon, func() bool {
		return s.claimed(first) && one[int](s, `SELECT count(DISTINCT started_at) FROM tidings.attempt WHERE started_at > $1`, s.entries(first)[0].Started) > 3
	})
	visible := map[string]time.Time{}
	shows := func(what string) { visible[what] = one[time.Time](s, `SELECT clock_timestamp()`) }
	const lateCommit, clockStep, claimerKilled = "late commit", "clock step", "claimer killed"
	t.Must("commit late", lateTx.Commit(s.ctx))
	shows(lateCommit)
	t.Equal("tasks moved below everything that is due", 1, s.exec(`UPDATE tidings.task SET next_attempt_at = (SELECT created_at - interval '1 hour'
		FROM tidings.notification WHERE user_id = 'first') WHERE id = $1`, moved))
	shows(clockStep)
	kill()
	shows(claimerKilled)
	tasks := map[string]tidings.UUID{lateCommit: late, clockStep: moved, claimerKilled: killed}
	s.Until("all three are claimed", soon, func() bool { return s.claimed(late) && s.claimed(killed) && s.claimed(moved) })
	t.True("the queue was full until then", s.backlog() >= least/2)
	stop()
	stopFeeding()

	// The gap between two claims is never shorter than a claim takes.
	gap := one[time.Duration](s, `SELECT max(gap) FROM (SELECT started_at - lag(started_at) OVER (ORDER BY started_at) AS gap FROM tidings.attempt
		WHERE worker = 'w') g`)
	bound := max(time.Second, 20*gap) + gap
	t.Figure("the longest gap between two claims", float64(gap.Microseconds())/1000, "ms")
	for what, task := range tasks {
		at := s.entries(task)[0].Started
		t.Within(what+": from being visible to being claimed", bound, max(0, at.Sub(visible[what])))
		passed := one[int](s, `SELECT count(DISTINCT started_at) FROM tidings.attempt WHERE worker = 'w' AND started_at > $1 AND started_at < $2`, visible[what], at)
		t.True(what+": claims passed it over", passed > 0)
		if what != claimerKilled {
			t.Fault(fault.New(what, "a task below everything that was due", fmt.Sprintf("%d claims passed it over", passed)))
		}
		t.Figure(what+": claims that passed it over", float64(passed), "")
		t.Figure(what+": waited", float64(at.Sub(visible[what]).Milliseconds()), "ms")
	}
}

// claimsForever lets another worker claim a task and hang in the middle of its claim, with the row locked. The function
// that it returns kills that claim and returns when the row is free.
func (s *scene) claimsForever(task tidings.UUID) (kill func()) {
	s.Helper()
	blocker, err := s.pool.Begin(s.ctx) // holds the journal's next place of the task
	s.Must("begin a transaction", err)
	s.Cleanup(func() { _ = blocker.Rollback(context.WithoutCancel(s.ctx)) })
	_, err = blocker.Exec(s.ctx, `INSERT INTO tidings.attempt (token, bucket, task_id, n, action, worker, started_at)
		SELECT tidings.new_id(bucket), bucket, id, 1, 'SEND', 'nobody', now() FROM tidings.task WHERE id = $1`, task)
	s.Must("hold a place in the journal", err)
	doomed := s.worker("doomed", worker.Channel{Name: queue, Concurrency: 1, Channel: brisk(0)})
	ended := make(chan error, 1)
	go func() { _, err := doomed.RunOnce(s.ctx); ended <- err }()
	const waiting = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid' AND query LIKE '%urgent AS MATERIALIZED%'`
	var pid int
	s.Until("the claim hangs", soon, func() bool {
		err := s.pool.QueryRow(s.ctx, waiting).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			s.Fatalf("look for the hanging claim: %v", err)
		}
		return err == nil
	})
	return func() {
		s.Helper()
		terminated := one[bool](s, `SELECT pg_terminate_backend($1)`, pid)
		err := <-ended
		s.Equal("the killed claim ends with an error", true, err != nil)
		s.Must("let the place in the journal go", blocker.Rollback(s.ctx))
		s.Until("the row is free", soon, func() bool {
			return one[int](s, `SELECT count(*) FROM (SELECT FROM tidings.task WHERE id = $1 FOR UPDATE SKIP LOCKED) t`, task) == 1
		})
		proof := ""
		if terminated {
			proof = "the claim held the row's lock, waited, and ended with an error"
		}
		s.Fault(fault.New("pg_terminate_backend", "the session of a claim", proof))
	}
}

// forgetful claims as a worker does, but its floor is never given up.
type forgetful struct {
	s     *scene
	floor time.Time
}

// claim takes up to n due tasks and sends them at once. It returns how many it took.
func (f *forgetful) claim(n int) int {
	f.s.Helper()
	rows, err := f.s.pool.Query(f.s.ctx, `WITH due AS MATERIALIZED (
			SELECT id, bucket, next_attempt_at FROM tidings.task
			 WHERE channel = $1 AND priority = 1 AND state IN ('PENDING', 'UNKNOWN') AND NOT needs_review
			   AND next_attempt_at BETWEEN $2 AND statement_timestamp()
			 ORDER BY next_attempt_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
		), taken AS (
			UPDATE tidings.task t SET state = 'SENT', next_attempt_at = NULL, attempt_count = 1 FROM due d WHERE t.id = d.id AND t.bucket = d.bucket
		) SELECT next_attempt_at FROM due ORDER BY 1`, queue, f.floor, n)
	f.s.Must("claim with a floor", err)
	due, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	f.s.Must("claim with a floor", err)
	if len(due) > 0 {
		f.floor = due[0]
	}
	return len(due)
}

func controlWatermark(t *lab.T) {
	s := newNaiveScene(t)
	for _, user := range []string{"late", "crowd"} {
		s.subscribe(user, queue)
	}
	lateTx, late := s.uncommitted("late")
	const all, each = 2000, 20
	s.crowd("crowd", all)
	claims := &forgetful{s: s}
	claims.claim(each)
	t.Must("commit late", lateTx.Commit(s.ctx))
	took := each
	for n := each; n > 0; took += n {
		n = claims.claim(each)
	}
	t.Examined("later tasks that were claimed", took)
	t.Equal("later tasks that were claimed", all, took)
	t.Fault(fault.New("late commit", "a task below everything that was due", fmt.Sprintf("committed after the first claim, before %d others", all/each-1)))
	t.Equal("tasks that are due when the last claim finds nothing", 1, s.backlog())
	t.Exposed("the late commit is claimed", true, s.claimed(late))
}
