// The checks 33-late-start, 33-claim-answer-lost, 33-poison, 33-drain.

package lab_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/dispatch"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
	"github.com/tidings-project/tidings/lab/worker"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID:     "33-late-start",
		Expect: "woken after its lease the worker makes no request: [NOT_SENT], PENDING, not in doubt; a later task it sends; then [NOT_SENT, ACCEPTED]",
		Run:    lateStart,
	})
	lab.Register(lab.Check{
		ID: "33-claim-answer-lost",
		Expect: "answer cut: [NOT_SENT], PENDING, not in doubt, the budget untouched, no request, then ACCEPTED; request cut: [ACCEPTED]; answer to a " +
			"takeover cut: [LEASE_EXPIRED, NOT_SENT, ACCEPTED_REPLAY], 1 external send each",
		Run: claimAnswerLost,
	})
	lab.Register(lab.Check{
		ID: "33-poison",
		Expect: "an adapter that panics before or after its call: [IO_ERROR, IO_ERROR], UNKNOWN, waits for a person; the same worker sends all " +
			"other tasks, before and afterwards",
		Run: poison,
	})
	lab.Register(lab.Check{
		ID: "33-drain",
		Expect: "SIGTERM with 4 calls open: 4 attempts ACCEPTED, 6 tasks untouched, exit code 0; with a call longer than the deadline: exit code 1 " +
			"before it ends, then [LEASE_EXPIRED, ACCEPTED_REPLAY]",
		Run: drain,
	})
}

// The statements that a proxy waits for, by words that no other statement has.
var (
	claiming  = pgproxy.Runs("urgent AS MATERIALIZED")
	takeovers = pgproxy.Runs("t.lease_until < statement_timestamp()")
)

// leaseOver waits until a task's lease has ended, by the database's clock.
func (s *scene) leaseOver(task tidings.UUID) {
	s.Helper()
	s.Until("the lease is over", soon, func() bool {
		return one[bool](s, `SELECT lease_until < clock_timestamp() FROM tidings.task WHERE id = $1`, task)
	})
}

// hurry makes a scheduled task due at once, as if its waiting time were over, and wakes the workers.
func (s *scene) hurry(task tidings.UUID) {
	s.Helper()
	s.exec(`UPDATE tidings.task SET next_attempt_at = statement_timestamp() WHERE id = $1 AND next_attempt_at IS NOT NULL`, task)
	s.Must("wake the workers", outbox.Wake(s.ctx, s.pool))
}

// lateStart stops a worker that has claimed and has not called yet. That it takes the task over itself, as a lease that is
// over, is kept from it.
func lateStart(t *lab.T) {
	s := newScene(t)
	proxy := pgproxy.Start(t, s.url())
	claim := proxy.Arm(pgproxy.Rule{What: "the claim", Match: claiming, When: pgproxy.After, Do: pgproxy.Hold})
	takeover := proxy.Arm(pgproxy.Rule{What: "its takeover of leases", Match: takeovers, When: pgproxy.Before, Do: pgproxy.Hold})
	defer takeover.Release()

	task := s.tell("user", push)
	sleeper := s.process(worker.Config{Name: "sleeper", Database: proxy.URL(), Channels: serve(push), Poll: time.Minute,
		BackoffBase: 1000 * time.Hour, BackoffCap: 1000 * time.Hour})
	t.Fault(claim.Wait(soon))
	t.Fault(sleeper.Stop())
	claim.Release()
	s.leaseOver(task)
	s.state("while the worker is stopped", tidings.Sending, task)
	t.Fault(sleeper.Continue())

	s.becomes(task, tidings.Pending)
	t.Equal("in doubt", false, s.where(task).InDoubt)
	t.Equal("budget", tidings.DefaultBudget, s.where(task).Budget)
	marker := s.tell("user-marker", push)
	t.Must("wake the worker", outbox.Wake(s.ctx, s.pool))
	s.becomes(marker, tidings.Sent)
	t.Equal("who sent the later task", "sleeper", s.entries(marker)[0].Worker)
	t.Equal("journal", []tidings.Outcome{tidings.NotSent}, s.journal(task))
	t.Equal("requests", 0, s.counts(task).Requests)
	t.Examined("requests of the same worker meanwhile", int(s.counts(marker).Requests))

	s.hurry(task)
	s.becomes(task, tidings.Sent)
	t.Equal("journal at the end", []tidings.Outcome{tidings.NotSent, tidings.Accepted}, s.journal(task))
}

// behind is the scene as it looks through a proxy to its database.
func (s *scene) behind(proxy *pgproxy.Proxy) *scene {
	s.Helper()
	pool, err := pgxpool.New(s.ctx, proxy.URL())
	s.Must("open the database through the proxy", err)
	s.Cleanup(pool.Close)
	return &scene{T: s.T, ctx: s.ctx, pool: pool, doubles: s.doubles}
}

func claimAnswerLost(t *lab.T) {
	s := newScene(t)
	proxy := pgproxy.Start(t, s.url())
	w := s.behind(proxy).worker("w", patient(push)...)
	cut := func(what string, match func(pgproxy.Message) bool, when pgproxy.Moment) {
		trap := proxy.Arm(pgproxy.Rule{What: what, Match: match, When: when, Do: pgproxy.Cut})
		_, err := w.RunOnce(s.ctx)
		t.Fault(trap.Wait(soon))
		t.Equal("the claim's error", tidings.OutcomeUnknown, tidings.ErrorCode(err))
	}
	ends := func(what string, task tidings.UUID, journal ...tidings.Outcome) {
		t.Equal(what+": journal", journal, s.journal(task))
		s.state(what, tidings.Sent, task)
		t.Equal(what+": external sends", 1, s.sends(task))
	}

	const answer, request, takeover = "answer cut", "request cut", "answer to a takeover cut"
	task := s.tell("user-answer", push)
	cut("the claim", claiming, pgproxy.After)
	r := s.where(task)
	t.Equal(answer+": journal", []tidings.Outcome{tidings.NotSent}, s.journal(task))
	t.Equal(answer+": state", tidings.Pending, r.State)
	t.Equal(answer+": in doubt", false, r.InDoubt)
	t.Equal(answer+": budget", tidings.DefaultBudget, r.Budget)
	t.True(answer+": counts as never called", r.FirstCallAt == nil)
	t.Equal(answer+": requests", 0, s.counts(task).Requests)
	s.rounds(w, 1)
	ends(answer, task, tidings.NotSent, tidings.Accepted)

	task = s.tell("user-request", push)
	cut("the claim", claiming, pgproxy.Before)
	t.Equal(request+": journal", []tidings.Outcome(nil), s.journal(task))
	s.rounds(w, 1)
	ends(request, task, tidings.Accepted)

	task = s.tell("user-takeover", push)
	s.script(push, hang)
	p := s.process(worker.Config{Name: "mortal", Channels: []worker.Channel{{Name: push, Timeout: time.Second}}})
	s.accepted(task)
	t.Fault(p.Kill())
	s.gone("mortal")
	s.leaseOver(task)
	cut("the takeover", takeovers, pgproxy.After) // what was given back, and is due, is claimed in the same run
	ends(takeover, task, tidings.LeaseExpired, tidings.NotSent, tidings.AcceptedReplay)
}

// poisonous is the push channel with an adapter that panics for some users.
type poisonous struct {
	*channeltest.PushChannel
	panics atomic.Int32
}

func (p *poisonous) Send(ctx context.Context, m channel.Message) channel.Outcome {
	switch {
	case strings.HasPrefix(m.User, "before"):
		p.panics.Add(1)
		panic("poison")
	case strings.HasPrefix(m.User, "after"):
		p.PushChannel.Send(ctx, m)
		p.panics.Add(1)
		var none *channel.Message
		m = *none
	}
	return p.PushChannel.Send(ctx, m)
}

func poison(t *lab.T) {
	s := newScene(t)
	ch := &poisonous{PushChannel: channeltest.Push(s.doubles.URL(), channeltest.ChannelOptions{})}
	t.Cleanup(ch.Close)
	var healthy []tidings.UUID
	for i := range 10 {
		healthy = append(healthy, s.tell(fmt.Sprintf("healthy-%d", i), push))
	}
	before, after := s.tell("before", push, attempts(2)), s.tell("after", push, attempts(2))
	stop := s.run(s.worker("w", worker.Channel{Name: push, Timeout: 5 * time.Second, Channel: ch}))
	for _, task := range []tidings.UUID{before, after} {
		s.Until("the poisoned task is parked", soon, func() bool { return s.where(task).Review })
	}
	healthy = append(healthy, s.tell("healthy-afterwards", push))
	for _, task := range healthy {
		s.becomes(task, tidings.Sent)
		t.Equal("another task: external sends", 1, s.sends(task))
	}
	stop()
	t.Fault(fault.New("panic", "the adapter", fmt.Sprintf("%d panics", ch.panics.Load())))
	for what, task := range map[string]tidings.UUID{"panic before the call": before, "panic after acceptance": after} {
		t.Equal(what+": journal", []tidings.Outcome{tidings.IOError, tidings.IOError}, s.journal(task))
		s.parked(what, task)
	}
	t.Equal("panic after acceptance: external sends", 1, s.sends(after))
}

// run lets a worker run until stop is called, or the check ends. Stop waits for it and expects that it drained.
func (s *scene) run(w *worker.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var done atomic.Bool
	stop = func() {
		cancel()
		if done.CompareAndSwap(false, true) {
			if err := <-ended; err != nil {
				s.Errorf("run a worker: %v", err)
			}
		}
	}
	s.Cleanup(stop)
	return stop
}

func drain(t *lab.T) {
	s := newScene(t)
	const open, all, deadline = 4, 10, 10 * time.Second
	var tasks []tidings.UUID
	for i := range all {
		tasks = append(tasks, s.tell(fmt.Sprintf("user-%d", i), push))
	}
	s.script(push, channeltest.Step{Do: channeltest.DoAccept, DelayMS: 1500, Times: open})
	p := s.process(worker.Config{Name: "leaving", Drain: deadline, Channels: []worker.Channel{{Name: push, Concurrency: open, Timeout: 5 * time.Second}}})
	t.Must("wait for the calls", s.doubles.WaitFor(s.ctx, push, "", func(c channeltest.Counts) bool { return c.Requests >= open }))
	t.Fault(p.Terminate())
	told := time.Now()
	p.Await("DONE", deadline)
	status := p.Exit(soon)
	t.Within("from SIGTERM to the end", deadline, time.Since(told))
	t.Equal("exit code", 0, status.ExitCode())
	outcomes, untouched := map[tidings.Outcome]int{}, 0
	for _, task := range tasks {
		for _, o := range s.journal(task) {
			outcomes[o]++
		}
		if r := s.where(task); r.State == tidings.Pending && r.Attempts == 0 {
			untouched++
		}
	}
	t.Equal("outcomes in the journal", map[tidings.Outcome]int{tidings.Accepted: open}, outcomes)
	t.Equal("tasks that were not touched", all-open, untouched)
	w := s.worker("staying", patient(push)...)
	t.Equal("another worker sends the rest", min(all-open, 8), s.once(w))

	// A call that does not end in time ends by its lease.
	s.script(push, hang)
	task := s.tell("user-patient", push)
	const short = 200 * time.Millisecond
	p = s.process(worker.Config{Name: "leaving", Drain: short, Channels: []worker.Channel{{Name: push, Timeout: 800 * time.Millisecond,
		Lease: 800*time.Millisecond + dispatch.Margin + 700*time.Millisecond}}})
	s.accepted(task)
	t.Fault(p.Terminate())
	status = p.Exit(soon)
	t.Equal("exit code with a call open", 1, status.ExitCode())
	s.state("a call longer than the deadline", tidings.Sending, task)
	s.leaseOver(task)
	s.rounds(w, 1)
	t.Equal("a call longer than the deadline: journal", []tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, s.journal(task))
	t.Equal("a call longer than the deadline: external sends", 1, s.sends(task))
}
