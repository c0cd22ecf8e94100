// The checks 33-NC1, 33-NC2, 33-NC3, 33-NC4.

package lab_test

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/worker"
)

// Each control does without one protection of the product and shows what it is there for. What is naive stands here.

func init() {
	lab.Register(lab.Check{
		ID:     "33-NC1",
		Expect: "2 workers that select without a lock and update by id both hold the one task and send it: 2 external sends",
		Run:    claimWithoutLock,
	})
	lab.Register(lab.Check{
		ID:     "33-NC2",
		Expect: "resent blindly after a timeout: attempts [TIMEOUT ACCEPTED], one notification, SENT, and 2 external sends",
		Run:    resendBlindly,
	})
	lab.Register(lab.Check{
		ID:     "33-NC3",
		Level:  lab.ChannelDouble,
		Expect: "the late end of a superseded attempt, written by id alone, changes 1 row: SENT becomes UNKNOWN; by id and token 0 rows",
		Run:    finishByIDAlone,
	})
	lab.Register(lab.Check{
		ID:     "33-NC4",
		Expect: "a 503 after a timeout that clears the doubt, with the budget spent: FAILED beside 1 external send",
		Run:    clearDoubtOn503,
	})
}

// claimByID takes a task that somebody has selected before, by its id alone, and returns how many rows that changed.
const claimByID = `UPDATE tidings.task SET state = 'SENDING', attempt_token = gen_random_uuid(), lease_owner = 'naive',
	lease_until = now() + interval '1 minute', next_attempt_at = NULL, attempt_count = attempt_count + 1, budget_left = budget_left - 1 WHERE id = $1`

func claimWithoutLock(t *lab.T) {
	s := newNaiveScene(t)
	task := s.tell("ana", sms)
	ch := channeltest.SMS(s.doubles.URL(), channeltest.ChannelOptions{})
	t.Cleanup(ch.Close)
	var selected sync.WaitGroup // both have selected before either updates
	selected.Add(2)
	var held atomic.Int64
	s.Together("naive workers", 2, func(int) {
		var id tidings.UUID
		err := s.pool.QueryRow(s.ctx, `SELECT id FROM tidings.task WHERE state IN ('PENDING', 'UNKNOWN') AND next_attempt_at <= now() ORDER BY id LIMIT 1`).Scan(&id)
		selected.Done()
		if err != nil {
			s.Errorf("select a task: %v", err)
			return
		}
		selected.Wait()
		tag, err := s.pool.Exec(s.ctx, claimByID, id)
		if err != nil {
			s.Errorf("take the task: %v", err)
			return
		}
		held.Add(tag.RowsAffected())
		if o := ch.Send(s.ctx, channel.Message{Key: id.Key(), Address: "sms:ana", Body: "x"}); o.Code != tidings.Accepted {
			s.Errorf("send: %s %s", o.Code, o.Detail)
		}
	})
	s.Equal("notifications", 1, one[int](s, `SELECT count(*) FROM tidings.notification`))
	s.Exposed("workers that hold the one task", 1, held.Load())
	s.Exposed("external sends", 1, s.sends(task))
}

func resendBlindly(t *lab.T) {
	s := newNaiveScene(t)
	s.script(sms, late)
	task := s.tell("ana", sms)
	// Blind is who takes the provider for one that recognises a key: then the next action is to send.
	blind := worker.Channel{Name: sms, Lease: time.Minute, Key: &channel.Key{Carrier: "header Idempotency-Key", Window: 24 * time.Hour}}
	s.rounds(s.worker("hasty", blind), 1)
	s.Fault(s.unanswered(task))
	blind.Timeout = 10 * time.Second
	s.rounds(s.worker("w", blind), 1)
	s.Equal("attempts", []tidings.Outcome{tidings.Timeout, tidings.Accepted}, s.journal(task))
	s.Equal("notifications", 1, one[int](s, `SELECT count(*) FROM tidings.notification`))
	s.state("in the end", tidings.Sent, task)
	s.Exposed("external sends", 1, s.sends(task))
}

// finishNaively writes down that an attempt ended in doubt, by the task's id alone, and returns how many rows that changed.
const finishNaively = `UPDATE tidings.task SET state = 'UNKNOWN', outcome_uncertain = true, attempt_token = NULL, lease_owner = NULL,
	lease_until = NULL, next_attempt_at = now(), doubt_at = now() WHERE id = $1`

func finishByIDAlone(t *lab.T) {
	s := newNaiveScene(t)
	task := s.superseded("ana")
	s.state("before", tidings.Sent, task)
	first := s.entries(task)[0]
	s.Equal("what the first attempt saw too late", tidings.Timeout, *first.Late)

	s.Equal("rows that match id and token", 0, s.exec(finishNaively+` AND attempt_token = $2`, task, *first.Token))
	s.state("after the end by id and token", tidings.Sent, task)
	s.Equal("rows that match the id", 1, s.exec(finishNaively, task))
	s.Exposed("state after the end by id alone", tidings.Sent, s.where(task).State)
}

// superseded makes a task on push that is SENT by a second attempt, while the first one, whose lease was taken away, ended
// without an answer and too late.
func (s *scene) superseded(user string) tidings.UUID {
	s.Helper()
	s.script(push, hang)
	task := s.tell(user, push)
	first := s.worker("first", worker.Channel{Name: push, Timeout: 2 * time.Second, Lease: time.Minute})
	done := make(chan error, 1)
	go func() {
		_, err := first.RunOnce(s.ctx)
		done <- err // received below
	}()
	s.accepted(task)
	s.Equal("leases taken away", 1, s.exec(`UPDATE tidings.task SET lease_until = clock_timestamp() WHERE id = $1 AND lease_owner = 'first'`, task))
	s.rounds(s.worker("second", patient(push)...), 1)
	s.Must("end the first attempt", <-done)
	s.Equal("attempts", []tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, s.journal(task))
	return task
}

func clearDoubtOn503(t *lab.T) {
	s := newNaiveScene(t)
	task := s.unsure("ana", push, attempts(2))
	s.script(push, refused(503))
	ch := channeltest.Push(s.doubles.URL(), channeltest.ChannelOptions{})
	t.Cleanup(ch.Close)
	s.Equal("tasks taken", 1, s.exec(claimByID, task))
	o := ch.Send(s.ctx, channel.Message{Key: task.Key(), Address: "push:ana", Body: "x"})
	s.Equal("second attempt", tidings.HTTP5xx, o.Code)
	s.Fault(s.refusals("HTTP 503", task))
	s.Equal("budget left", 0, s.where(task).Budget)
	// "This one was not accepted, and there is no budget for another": true of this one only.
	s.exec(`UPDATE tidings.task SET state = 'FAILED', outcome_uncertain = false, attempt_token = NULL, lease_owner = NULL, lease_until = NULL WHERE id = $1`, task)
	s.Equal("external sends", 1, s.sends(task))
	s.Exposed("state of a task whose message has left", tidings.Unknown, s.where(task).State)
}
