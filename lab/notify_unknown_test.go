// The checks 33-T1, 33-T2, 33-B2, 33-B3.

package lab_test

import (
	"fmt"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID:     "33-T1",
		Expect: "attempts [TIMEOUT ACCEPTED_REPLAY], both SEND under one key with the same bytes, 2 requests, 1 external send, SENT",
		Run:    resentUnderKey,
	})
	lab.Register(lab.Check{
		ID:     "33-T2",
		Expect: "attempts [TIMEOUT QUERY_FOUND], SEND then QUERY, 1 external send, SENT with the provider's id from the answer",
		Run:    foundByQuery,
	})
	lab.Register(lab.Check{
		ID:     "33-B2",
		Expect: "expired or disabled while unknown: [TIMEOUT TTL_EXPIRED_UNCERTAIN], [TIMEOUT PREF_DISABLED_UNCERTAIN], parked, no query, no second send",
		Run:    goneWhileUnknown,
	})
	lab.Register(lab.Check{
		ID:     "33-B3",
		Expect: "[TIMEOUT HTTP_5XX] with the budget spent and [TIMEOUT REJECTED]: parked and in doubt, not FAILED, 1 external send",
		Run:    refusedWhileUnknown,
	})
}

// unsure makes a new user's task whose message the double has accepted without answering in time: UNKNOWN, in doubt, scheduled.
func (s *scene) unsure(user, channel string, options ...func(*tidings.Notification)) tidings.UUID {
	s.Helper()
	s.script(channel, late)
	task := s.tell(user, channel, options...)
	s.rounds(s.worker("hasty", hasty(channel)...), 1)
	s.Fault(s.unanswered(task))
	r := s.where(task)
	s.Equal(channel+" after the timeout: state, in doubt, scheduled", []any{tidings.Unknown, true, true}, []any{r.State, r.InDoubt, r.Scheduled})
	return task
}

func resentUnderKey(t *lab.T) {
	s := newScene(t)
	task := s.unsure("ana", push)
	s.rounds(s.worker("w", patient(push)...), 1)
	s.state("in the end", tidings.Sent, task)
	s.Equal("in doubt", false, s.where(task).InDoubt)
	s.Equal("attempts", []tidings.Outcome{tidings.Timeout, tidings.AcceptedReplay}, s.journal(task))
	s.Equal("actions", []tidings.Action{tidings.ActionSend, tidings.ActionSend}, s.actions(task))
	log := s.log(task)
	if s.Equal("requests", 2, len(log)) {
		s.True("the same key", log[0].Key == task.Key() && log[1].Key == task.Key())
		s.True("the same bytes", log[0].BodyHash == log[1].BodyHash)
		s.Equal("provider's id", log[0].ID, s.where(task).ProviderID)
	}
	s.Equal("external sends", 1, s.sends(task))
}

func foundByQuery(t *lab.T) {
	s := newScene(t)
	task := s.unsure("ana", sms)
	s.Equal("provider's id before the query", "", s.where(task).ProviderID)
	s.rounds(s.worker("w", patient(sms)...), 1)
	s.state("in the end", tidings.Sent, task)
	s.Equal("in doubt", false, s.where(task).InDoubt)
	s.Equal("attempts", []tidings.Outcome{tidings.Timeout, tidings.QueryFound}, s.journal(task))
	s.Equal("actions", []tidings.Action{tidings.ActionSend, tidings.ActionQuery}, s.actions(task))
	log := s.log(task)
	if s.Equal("requests", 2, len(log)) {
		s.Equal("kinds of request", []string{channeltest.KindSend, channeltest.KindQuery}, []string{log[0].Kind, log[1].Kind})
		s.True("asked by the same reference", log[0].Ref == log[1].Ref)
		s.Equal("provider's id, written back", log[0].ID, s.where(task).ProviderID)
	}
	s.Equal("external sends", 1, s.sends(task))
}

func goneWhileUnknown(t *lab.T) {
	s := newScene(t)
	s.goneWhileUnknown(tidings.PrefDisabledInDoubt, time.Hour, func(user string, _ tidings.UUID) {
		s.disable(user, push)
		s.disable(user, sms)
	})
	s.goneWhileUnknown(tidings.TTLExpiredInDoubt, 3*time.Second, func(_ string, task tidings.UUID) { s.expired(task) })
}

// goneWhileUnknown makes a notification whose tasks on push and sms are in doubt, lets it become one that must not be sent any
// more, and looks at what a worker does then: outcome is what it should write down.
func (s *scene) goneWhileUnknown(outcome tidings.Outcome, life time.Duration, gone func(user string, task tidings.UUID)) {
	s.Helper()
	user := "user-" + string(outcome)
	s.script(push, late)
	s.script(sms, late)
	first := s.worker("hasty", hasty(push, sms)...)
	n := s.both(user, ttl(life))
	s.rounds(first, 1)
	tasks := map[string]tidings.UUID{push: s.task(n, push), sms: s.task(n, sms)}
	for channel, task := range tasks {
		s.Fault(s.unanswered(task))
		s.state(channel+" after the timeout", tidings.Unknown, task)
	}
	gone(user, tasks[push])
	for _, task := range tasks {
		s.due(task)
	}
	marker := s.both("marker-" + user) // due later: a worker that has called it has passed the others
	s.Equal(string(outcome)+": tasks taken or settled", 4, s.once(s.worker("w", patient(push, sms)...)))
	for channel, task := range tasks {
		what := fmt.Sprintf("%s %s", channel, outcome)
		s.state(what+": marker", tidings.Sent, s.task(marker, channel))
		s.parked(what, task)
		s.Equal(what+": attempts", []tidings.Outcome{tidings.Timeout, outcome}, s.journal(task))
		s.Equal(what+": in doubt", true, s.where(task).InDoubt)
		log := s.log(task)
		s.Examined("requests about tasks in doubt", len(log))
		s.Equal(what+": requests, queries among them", []int{1, 0}, []int{len(log), int(s.counts(task).Queries)})
		s.Equal(what+": external sends", 1, s.sends(task))
	}
}

// due waits until a task is due by the database's clock.
func (s *scene) due(task tidings.UUID) {
	s.Helper()
	s.Until("the task is due", soon, func() bool {
		return one[bool](s, `SELECT next_attempt_at <= clock_timestamp() FROM tidings.task WHERE id = $1`, task)
	})
}

func refusedWhileUnknown(t *lab.T) {
	s := newScene(t)
	for status, outcome := range map[int]tidings.Outcome{503: tidings.HTTP5xx, 400: tidings.Rejected} {
		what := fmt.Sprintf("timeout, then %d", status)
		task := s.unsure(fmt.Sprintf("user-%d", status), push, attempts(2))
		s.script(push, refused(status))
		s.rounds(s.worker("w", patient(push)...), 1)
		s.Fault(s.refusals(fmt.Sprintf("HTTP %d", status), task))
		s.parked(what, task)
		s.Equal(what+": in doubt", true, s.where(task).InDoubt)
		s.Equal(what+": attempts", []tidings.Outcome{tidings.Timeout, outcome}, s.journal(task))
		s.Equal(what+": external sends", 1, s.sends(task))
	}
}
