// The checks 33-key-retention, 33-settle-delay, 33-control-settle, 33-retry-after.

package lab_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/dispatch"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-key-retention",
		Expect: "within the safe window: [TIMEOUT, ACCEPTED_REPLAY]; after it: with a query [TIMEOUT, QUERY_FOUND], without one [TIMEOUT] and a " +
			"person; 1 external send each, although the provider has forgotten the key",
		Run: keyRetention,
	})
	lab.Register(lab.Check{
		ID: "33-settle-delay",
		Expect: "accepted: [TIMEOUT, QUERY_FOUND]; lost: [TIMEOUT, QUERY_NOT_FOUND, ACCEPTED]; no query before the settle time is over, counted " +
			"from the end of the attempt or, of a killed worker, from the end of its lease and call; without proof of absence a person; 1 external send each",
		Run: settleDelay,
	})
	lab.Register(lab.Check{
		ID:     "33-control-settle",
		Expect: "the first question comes too early, its QUERY_NOT_FOUND is believed: [TIMEOUT, QUERY_NOT_FOUND, ACCEPTED], 2 external sends",
		Run:    controlSettle,
	})
	lab.Register(lab.Check{
		ID: "33-retry-after",
		Expect: "429 and 503 with Retry-After: 1: [THROTTLED, ACCEPTED] and [HTTP_5XX, ACCEPTED], the second request at least 1 s after the first; " +
			"Retry-After beyond the time to live: [THROTTLED, TTL_EXPIRED], no second request",
		Run: retryAfter,
	})
}

func keyRetention(t *lab.T) {
	s := newScene(t)
	const (
		timeout = 300 * time.Millisecond
		window  = 3300 * time.Millisecond // how long the double remembers a key
		lease   = timeout + dispatch.Margin + 500*time.Millisecond
		safe    = window - lease // what is claimed later may reach the double too late
	)
	t.Must("direct the doubles", s.doubles.Settings(window, 0))
	lane := func(name, mode string, query *channel.Query) worker.Channel {
		return worker.Channel{Name: name, Mode: mode, Timeout: timeout, Lease: lease, Query: query,
			Key: &channel.Key{Carrier: "header Idempotency-Key", Window: window}}
	}
	inside, outside := lane("inside", push, nil), lane("outside", push, nil)
	asked := lane("asked", sms, &channel.Query{AbsenceProves: true})

	s.script("", hang, hang, hang)
	tasks := map[string]tidings.UUID{}
	for _, name := range []string{"inside", "outside", "asked"} {
		tasks[name] = s.tell("user-"+name, name)
	}
	s.once(s.worker("first", inside, outside, asked))
	s.rounds(s.worker("early", inside), 1)
	for _, name := range []string{"inside", "outside", "asked"} {
		t.Fault(s.unanswered(tasks[name]))
	}
	t.Equal("within the window: journal", []tidings.Outcome{tidings.Timeout, tidings.AcceptedReplay}, s.journal(tasks["inside"]))
	s.state("within the window", tidings.Sent, tasks["inside"])

	s.Until("the safe window is over", soon, func() bool {
		return one[bool](s, `SELECT min(statement_timestamp() - first_call_at) > $1 FROM tidings.task WHERE state <> 'SENT'`, safe)
	})
	s.once(s.worker("late", outside, asked))
	t.Equal("after the window, no query: journal", []tidings.Outcome{tidings.Timeout}, s.journal(tasks["outside"]))
	s.parked("after the window, no query", tasks["outside"])
	t.Equal("after the window, a query: actions", []tidings.Action{tidings.ActionSend, tidings.ActionQuery}, s.actions(tasks["asked"]))
	t.Equal("after the window, a query: journal", []tidings.Outcome{tidings.Timeout, tidings.QueryFound}, s.journal(tasks["asked"]))
	s.state("after the window, a query", tidings.Sent, tasks["asked"])
	for _, name := range []string{"inside", "outside", "asked"} {
		t.Equal(name+": external sends", 1, s.sends(tasks[name]))
	}

	// What the rule guards against is real: the same key is another message now.
	s.Until("the double has forgotten the key", soon, func() bool { return time.Since(s.log(tasks["outside"])[0].At) > window })
	ch := channeltest.Push(s.doubles.URL(), channeltest.ChannelOptions{})
	defer ch.Close()
	ctx, cancel := context.WithTimeout(s.ctx, soon)
	defer cancel()
	out := ch.Send(ctx, channel.Message{Key: tasks["outside"].Key(), Address: "somewhere"})
	t.Equal("the same key sent by hand after the retention", tidings.Accepted, out.Code)
}

func settleDelay(t *lab.T) {
	s := newScene(t)
	const (
		timeout = 500 * time.Millisecond
		settle  = 2500 * time.Millisecond // several rounds of the worker, on a busy machine too
		lease   = timeout + dispatch.Margin + time.Second
	)
	t.Must("direct the doubles", s.doubles.Settings(0, settle*2/3))
	lane := func(name string, absenceProves bool) worker.Channel {
		return worker.Channel{Name: name, Mode: sms, Timeout: timeout, Lease: lease, Query: &channel.Query{Settle: settle, AbsenceProves: absenceProves}}
	}
	asked, vague, killed := lane("asked", true), lane("vague", false), lane("killed", true)

	// A worker dies with its call, all other calls end without an answer.
	s.script(sms, hang)
	orphan := s.tell("user-orphan", "killed")
	p := s.process(worker.Config{Name: "mortal", Channels: []worker.Channel{killed}})
	s.accepted(orphan)
	t.Fault(p.Kill())
	s.gone("mortal")
	leaseEnd := one[time.Time](s, `SELECT lease_until FROM tidings.task WHERE id = $1`, orphan)

	w := s.worker("w", asked, vague, killed)
	s.Must("direct the doubles", s.doubles.Script(channeltest.Script{Address: "asked:user-accepted", Steps: []channeltest.Step{hang}}))
	s.Must("direct the doubles", s.doubles.Script(channeltest.Script{Address: "asked:user-lost", Steps: []channeltest.Step{{Do: channeltest.DoLose}}}))
	s.Must("direct the doubles", s.doubles.Script(channeltest.Script{Address: "vague:user-vague", Steps: []channeltest.Step{{Do: channeltest.DoLose}}}))
	accepted, lost, unproven := s.tell("user-accepted", "asked"), s.tell("user-lost", "asked"), s.tell("user-vague", "vague", attempts(2))
	s.once(w)
	t.Fault(s.unanswered(accepted))

	// The worker looks, and takes what is due, but asks nothing yet.
	settled := func() bool { // is the settle time of one of them over, by the database's clock?
		return one[bool](s, `SELECT bool_or(doubt_at IS NULL OR doubt_at + $2 <= statement_timestamp()) FROM tidings.task WHERE id = ANY ($1)`,
			[]tidings.UUID{accepted, lost, unproven}, settle)
	}
	looks := 0
	for early := true; early; looks++ {
		marker := s.tell(fmt.Sprintf("user-marker-%d", looks), "asked")
		s.once(w)
		if early = !settled(); early {
			s.state("marker", tidings.Sent, marker)
			t.Equal("queries while the settle time runs", 0, s.counts(accepted).Queries+s.counts(lost).Queries+s.counts(unproven).Queries)
		}
	}
	t.Examined("rounds of the worker while the settle time ran", looks-1)

	s.Until("all are settled", soon, func() bool {
		s.once(w)
		return one[int](s, `SELECT count(*) FROM tidings.task WHERE state <> 'SENT' AND NOT needs_review`) == 0
	})
	for _, c := range []struct {
		what    string
		task    tidings.UUID
		journal []tidings.Outcome
	}{
		{"accepted", accepted, []tidings.Outcome{tidings.Timeout, tidings.QueryFound}},
		{"lost", lost, []tidings.Outcome{tidings.Timeout, tidings.QueryNotFound, tidings.Accepted}},
		{"killed", orphan, []tidings.Outcome{tidings.LeaseExpired, tidings.QueryFound}},
		{"vague", unproven, []tidings.Outcome{tidings.Timeout, tidings.QueryNotFound}},
	} {
		t.Equal(c.what+": journal", c.journal, s.journal(c.task))
		since := leaseEnd.Add(timeout)
		if c.task != orphan {
			since = *s.entries(c.task)[0].Ended
		}
		t.True(c.what+": the question came after the settle time", !s.entries(c.task)[1].Started.Before(since.Add(settle)))
		if c.what == "vague" {
			s.parked("not found without proof of absence, budget spent", c.task)
			continue
		}
		s.state(c.what, tidings.Sent, c.task)
		t.Equal(c.what+": external sends", 1, s.sends(c.task))
	}

	// No worker asks inside the settle time; if one did, the machine would not believe it.
	early := tidings.Held{Action: tidings.ActionQuery, InDoubt: true, Budget: 3, Fallback: tidings.ActionQuery}
	v := tidings.Finish(early, tidings.Observation{Outcome: tidings.QueryNotFound})
	t.Equal("the verdict on a question inside the settle time", "UNKNOWN, in doubt", fmt.Sprintf("%s, %s", v.To, map[bool]string{true: "in doubt"}[v.InDoubt]))
}

// controlSettle declares that the double can be asked at once, which is not so.
func controlSettle(t *lab.T) {
	s := newNaiveScene(t)
	t.Must("direct the doubles", s.doubles.Settings(0, time.Hour))
	s.script(sms, hang)
	w := s.worker("hasty", worker.Channel{Name: sms, Timeout: 300 * time.Millisecond, Query: &channel.Query{AbsenceProves: true}})
	task := s.tell("user", sms)
	s.rounds(w, 3)
	t.Fault(s.unanswered(task))
	t.Equal("journal", []tidings.Outcome{tidings.Timeout, tidings.QueryNotFound, tidings.Accepted}, s.journal(task))
	s.state("task", tidings.Sent, task)
	t.Exposed("external sends", 1, s.sends(task))
}

func retryAfter(t *lab.T) {
	s := newScene(t)
	refuse := func(status, seconds int) channeltest.Step {
		return channeltest.Step{Do: channeltest.DoRefuse, Status: status, RetryAfterS: seconds}
	}
	w := s.worker("w", patient(push)...)
	for _, c := range []struct {
		what string
		step channeltest.Step
		ttl  time.Duration
		want []tidings.Outcome
	}{
		{"429", refuse(429, 1), time.Hour, []tidings.Outcome{tidings.Throttled, tidings.Accepted}},
		{"503", refuse(503, 1), time.Hour, []tidings.Outcome{tidings.HTTP5xx, tidings.Accepted}},
		{"429 beyond the time to live", refuse(429, 3600), time.Second, []tidings.Outcome{tidings.Throttled, tidings.TTLExpired}},
	} {
		s.script(push, c.step)
		task := s.tell(slug("user-"+c.what), push, ttl(c.ttl))
		s.rounds(w, 2)
		t.Equal(c.what+": journal", c.want, s.journal(task))
		log := s.log(task)
		t.Fault(fault.New("HTTP "+c.what, "the push double", fmt.Sprintf("Retry-After: %d s, %d requests in all", c.step.RetryAfterS, len(log))))
		if c.ttl == time.Second {
			s.state(c.what, tidings.Failed, task)
			t.Equal(c.what+": requests", 1, len(log))
			continue
		}
		s.state(c.what, tidings.Sent, task)
		if t.Equal(c.what+": requests", 2, len(log)) {
			t.True(c.what+": the second request came as late as asked", log[1].At.Sub(log[0].At) >= time.Second)
			t.Figure(c.what+": waited", float64(log[1].At.Sub(log[0].At).Milliseconds()), "ms")
		}
	}
}
