// The checks 33-P1, 33-P2.

package lab_test

import (
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-P1",
		Expect: "killed in the call: SENDING until the lease ends, a probe before that finds only the markers; then on push [LEASE_EXPIRED ACCEPTED_REPLAY] " +
			"by SEND, on sms [LEASE_EXPIRED QUERY_FOUND] by QUERY, SENT, 1 external send each",
		Run: killedInTheCall,
	})
	lab.Register(lab.Check{
		ID:     "33-P2",
		Expect: "stopped past its lease and superseded: after SIGCONT its TIMEOUT stands in late_outcome, and nothing of the task, which is SENT, has changed",
		Run:    stoppedInTheCall,
	})
}

func killedInTheCall(t *lab.T) {
	s := newScene(t)
	s.subscribe("ana", push, sms)
	s.subscribe("ben", push, sms)
	s.script(push, hang)
	s.script(sms, hang)
	a := s.process(worker.Config{Name: "a", Channels: []worker.Channel{
		{Name: push, Timeout: 2 * time.Second, Lease: 3500 * time.Millisecond}, {Name: sms, Timeout: 2 * time.Second, Lease: 3500 * time.Millisecond}}})
	n := s.notify("ana", "ord-1001-shipped")
	tasks := []tidings.UUID{s.task(n, push), s.task(n, sms)}
	for _, task := range tasks {
		s.accepted(task)
		s.Equal("journal while the call is open", []tidings.Outcome{open}, s.journal(task))
	}
	s.Fault(a.Kill())
	s.Equal("how the worker ended", "signal: killed", a.Exit(soon).String())
	s.gone("a")

	marker := s.notify("ben", "ord-2002-shipped")
	s.Equal("tasks that a probe finds before the lease ends", 2, s.once(s.worker("probe", patient(push, sms)...)))
	for _, channel := range []string{push, sms} {
		s.state("marker on "+channel, tidings.Sent, s.task(marker, channel))
	}
	if one[int](s, `SELECT count(*) FROM tidings.task WHERE id = ANY ($1) AND lease_until > clock_timestamp()`, tasks) != len(tasks) {
		s.Unknown("the leases had ended before the probe was done")
	}
	s.Examined("leased tasks that the probe passed over", len(tasks))
	for _, task := range tasks {
		s.state("after the kill", tidings.Sending, task)
		s.Equal("journal after the kill", []tidings.Outcome{open}, s.journal(task))
	}

	s.process(worker.Config{Name: "b", Channels: []worker.Channel{{Name: push, Timeout: time.Second}, {Name: sms, Timeout: time.Second}}})
	for i, want := range []struct {
		journal []tidings.Outcome
		actions []tidings.Action
	}{
		{[]tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, []tidings.Action{tidings.ActionSend, tidings.ActionSend}},
		{[]tidings.Outcome{tidings.LeaseExpired, tidings.QueryFound}, []tidings.Action{tidings.ActionSend, tidings.ActionQuery}},
	} {
		what := []string{push, sms}[i]
		s.becomes(tasks[i], tidings.Sent)
		s.Equal(what+": attempts", want.journal, s.journal(tasks[i]))
		s.Equal(what+": actions", want.actions, s.actions(tasks[i]))
		journal := s.entries(tasks[i])
		s.Equal(what+": workers", []string{"a", "b"}, []string{journal[0].Worker, journal[1].Worker})
		s.Equal(what+": external sends", 1, s.sends(tasks[i]))
	}
}

func stoppedInTheCall(t *lab.T) {
	s := newScene(t)
	s.script(push, hang)
	a := s.process(worker.Config{Name: "a", Channels: []worker.Channel{{Name: push, Timeout: time.Second, Lease: 2500 * time.Millisecond}}})
	task := s.tell("ana", push)
	s.accepted(task)
	s.Fault(a.Stop())
	s.Equal("journal when the worker stands still", []tidings.Outcome{open}, s.journal(task))

	s.rounds(s.worker("b", patient(push)...), 1)
	s.state("superseded", tidings.Sent, task)
	s.Equal("attempts", []tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, s.journal(task))
	all := func() string { return one[string](s, `SELECT t::text FROM tidings.task t WHERE id = $1`, task) }
	before := all()

	s.Fault(a.Continue())
	s.Until("the first worker reports", soon, func() bool { return s.entries(task)[0].Late != nil })
	journal := s.entries(task)
	s.Equal("what it reports too late", tidings.Timeout, *journal[0].Late)
	s.True("the attempts had different tokens", *journal[0].Token != *journal[1].Token)
	s.True("nothing of the task has changed", all() == before)
	s.state("in the end", tidings.Sent, task)
	s.Equal("attempts in the end", []tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, s.journal(task))
	s.Equal("external sends, requests", []int64{1, 2}, []int64{s.sends(task), s.counts(task).Requests})
}
