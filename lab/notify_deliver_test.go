// The checks 33-N2, 33-C1, 33-F1, 33-B1.

package lab_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID:     "33-N2",
		Expect: "on push and on sms: attempts [ACCEPTED], SENT, the provider's id stored, 1 external send",
		Run:    deliveredOnBoth,
	})
	lab.Register(lab.Check{
		ID:     "33-C1",
		Expect: "of 8 workers at one task 1 takes it; 4 workers at 20 tasks make 20 attempts and 20 external sends, attempt_count 1 everywhere",
		Run:    claimedOnce,
	})
	lab.Register(lab.Check{
		ID:     "33-F1",
		Expect: "[HTTP_5XX ACCEPTED] and SENT; [REJECTED] and FAILED; with a budget of 2 [HTTP_5XX HTTP_5XX] and FAILED; nothing in doubt",
		Run:    refusedBeforeAcceptance,
	})
	lab.Register(lab.Check{
		ID:     "33-B1",
		Expect: "disabled first: [PREF_DISABLED], SUPPRESSED, no call; expired first: [TTL_EXPIRED], FAILED, no call; disabled after the claim: [ACCEPTED]",
		Run:    disabledOrExpired,
	})
}

func deliveredOnBoth(t *lab.T) {
	s := newScene(t)
	s.subscribe("ana", push, sms)
	n := s.notify("ana", "ord-1001-shipped")
	s.Equal("tasks that the worker takes", 2, s.once(s.worker("w", patient(push, sms)...)))
	for _, channel := range []string{push, sms} {
		task := s.task(n, channel)
		s.state(channel, tidings.Sent, task)
		s.Equal(channel+": attempts", []tidings.Outcome{tidings.Accepted}, s.journal(task))
		log := s.log(task)
		if s.Equal(channel+": requests", 1, len(log)) {
			s.Equal(channel+": provider's id", log[0].ID, s.where(task).ProviderID)
			s.True(channel+": the provider gave an id", log[0].ID != "")
		}
		s.Equal(channel+": external sends", 1, s.sends(task))
	}
}

func claimedOnce(t *lab.T) {
	s := newScene(t)
	task := s.tell("ana", push)
	workers := make([]*worker.Worker, 8)
	for i := range workers {
		workers[i] = s.worker(fmt.Sprintf("w-%d", i), patient(push)...)
	}
	took := s.together("workers at one task", workers, func(w *worker.Worker) (int, error) { return w.RunOnce(s.ctx) })
	s.Equal("tasks taken", 1, took)
	s.Equal("one task: attempts", []tidings.Outcome{tidings.Accepted}, s.journal(task))
	s.Equal("one task: external sends", 1, s.sends(task))

	const tasks = 20
	for i := range tasks {
		s.tell(fmt.Sprintf("ben-%d", i), sms)
	}
	for i := range 4 { // one call at a time each, so that no one takes them all
		workers[i] = s.worker(fmt.Sprintf("x-%d", i), worker.Channel{Name: sms, Timeout: 10 * time.Second, Lease: time.Minute, Concurrency: 1})
	}
	var all atomic.Int64
	took = s.together("workers at 20 tasks", workers[:4], func(w *worker.Worker) (n int, err error) {
		for all.Load() < tasks && s.ctx.Err() == nil {
			once, err := w.RunOnce(s.ctx)
			if err != nil {
				return n, err
			}
			n += once
			all.Add(int64(once))
		}
		return n, s.ctx.Err()
	})
	s.Equal("tasks taken", tasks, took)
	s.Equal("attempts", tasks, one[int](s, `SELECT count(*) FROM tidings.attempt a JOIN tidings.task t ON t.id = a.task_id WHERE t.channel = $1`, sms))
	s.Equal("tasks SENT", tasks, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'SENT'`, sms))
	s.Equal("tasks whose attempt_count is not 1", 0, one[int](s, `SELECT count(*) FROM tidings.task WHERE attempt_count <> 1`))
	c, err := s.doubles.Counts(sms, "")
	s.Must("ask the doubles", err)
	s.Equal("external sends", tasks, c.Sends)
	s.Note("attempts of each worker: %v", one[[]int](s, `SELECT array_agg(n ORDER BY n) FROM (SELECT count(*) AS n FROM tidings.attempt WHERE worker LIKE 'x-%' GROUP BY worker) x`))
}

// together lets workers work at once and returns how many tasks they took in all.
func (s *scene) together(what string, workers []*worker.Worker, work func(*worker.Worker) (int, error)) int {
	s.Helper()
	var took atomic.Int64
	s.Together(what, len(workers), func(i int) {
		n, err := work(workers[i])
		if err != nil {
			s.Errorf("%s: %v", what, err)
		}
		took.Add(int64(n))
	})
	return int(took.Load())
}

func refusedBeforeAcceptance(t *lab.T) {
	s := newScene(t)
	for _, c := range []struct {
		user     string
		channel  string
		statuses []int // refused with these, then accepted
		budget   int
		state    tidings.State
		journal  []tidings.Outcome
		sends    int64
	}{
		{"ana", push, []int{503}, 3, tidings.Sent, []tidings.Outcome{tidings.HTTP5xx, tidings.Accepted}, 1},
		{"ben", sms, []int{503}, 3, tidings.Sent, []tidings.Outcome{tidings.HTTP5xx, tidings.Accepted}, 1},
		{"cleo", push, []int{400}, 3, tidings.Failed, []tidings.Outcome{tidings.Rejected}, 0},
		{"dan", sms, []int{503, 503}, 2, tidings.Failed, []tidings.Outcome{tidings.HTTP5xx, tidings.HTTP5xx}, 0},
	} {
		what := fmt.Sprintf("%s %v", c.channel, c.statuses)
		for _, status := range c.statuses {
			s.script(c.channel, refused(status))
		}
		task := s.tell(c.user, c.channel, attempts(c.budget))
		s.rounds(s.worker("w", patient(c.channel)...), len(c.journal))
		s.Fault(s.refusals(fmt.Sprintf("HTTP %v", c.statuses), task))
		s.state(what, c.state, task)
		s.Equal(what+": in doubt", false, s.where(task).InDoubt)
		s.Equal(what+": attempts", c.journal, s.journal(task))
		s.Equal(what+": external sends", c.sends, s.sends(task))
	}
	// Final is final: a worker that takes something due takes nothing else.
	marker := s.tell("eve", push)
	s.Equal("tasks that a worker finds afterwards", 1, s.once(s.worker("w", patient(push, sms)...)))
	s.state("marker", tidings.Sent, marker)
}

func disabledOrExpired(t *lab.T) {
	s := newScene(t)
	for _, channel := range []string{push, sms} {
		disabled := s.tell("disabled-"+channel, channel)
		s.disable("disabled-"+channel, channel)
		expired := s.tell("expired-"+channel, channel, ttl(time.Second))
		s.expired(expired)
		marker := s.tell("marker-"+channel, channel) // younger than both: a worker that has called it has passed them

		s.Equal(channel+": tasks taken or settled", 3, s.once(s.worker("w", patient(channel)...)))
		s.state(channel+" disabled", tidings.Suppressed, disabled)
		s.Equal(channel+" disabled: attempts", []tidings.Outcome{tidings.PrefDisabled}, s.journal(disabled))
		s.Equal(channel+" disabled: actions", []tidings.Action{tidings.ActionNone}, s.actions(disabled))
		s.state(channel+" expired", tidings.Failed, expired)
		s.Equal(channel+" expired: attempts", []tidings.Outcome{tidings.TTLExpired}, s.journal(expired))
		s.Equal(channel+" expired: actions", []tidings.Action{tidings.ActionNone}, s.actions(expired))
		s.state(channel+" marker", tidings.Sent, marker)

		log, err := s.doubles.Log(channel, "", 0)
		s.Must("ask the doubles", err)
		s.Examined("requests of the doubles' log", len(log))
		s.Equal(channel+": requests, all of the marker", 1, len(log))
		s.Equal(channel+": requests of the marker", 1, s.counts(marker).Requests)
	}

	// The stated limit: what is switched off between claim and call is still sent.
	task := s.tell("ana", push)
	w := s.worker("w", s.tap(func(channel.Message) {
		if _, err := s.pool.Exec(s.ctx, `UPDATE tidings.channel_pref SET enabled = false, version = version + 1 WHERE user_id = 'ana'`); err != nil {
			s.Errorf("switch the preference off: %v", err)
		}
	}, nil))
	s.Equal("tasks taken", 1, s.once(w))
	s.Equal("disabled after the claim: enabled", false, one[bool](s, `SELECT enabled FROM tidings.channel_pref WHERE user_id = 'ana'`))
	s.state("disabled after the claim", tidings.Sent, task)
	s.Equal("disabled after the claim: attempts", []tidings.Outcome{tidings.Accepted}, s.journal(task))
	s.Equal("disabled after the claim: external sends", 1, s.sends(task))
}

// expired waits until a task's notification has expired by the database's clock.
func (s *scene) expired(task tidings.UUID) {
	s.Helper()
	s.Until("the notification expires", soon, func() bool {
		return one[bool](s, `SELECT n.expires_at <= clock_timestamp() FROM tidings.notification n JOIN tidings.task t ON t.notification_id = n.id WHERE t.id = $1`, task)
	})
}
