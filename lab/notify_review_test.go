// The check 33-T3.

package lab_test

import (
	"sync/atomic"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-T3",
		Expect: "[TIMEOUT QUERY_FAILED QUERY_FAILED], parked, workers find nothing of it, 1 external send; of 8 persons at once 1 settles it, " +
			"later ones ALREADY_SETTLED; who saw a page from before a later parking gets CONFLICT",
		Run: queriesFailToo,
	})
}

func queriesFailToo(t *lab.T) {
	s := newScene(t)
	task := s.unsure("ana", sms, attempts(3))
	s.scriptQuery(channeltest.Step{Do: channeltest.DoRefuse, Status: 503, Times: 2})
	w := s.worker("w", patient(sms)...)
	s.rounds(w, 2)
	s.Fault(s.refusals("HTTP 503 to queries", task))
	s.parked("in doubt", task)
	s.Equal("attempts", []tidings.Outcome{tidings.Timeout, tidings.QueryFailed, tidings.QueryFailed}, s.journal(task))
	s.Equal("external sends, queries", []int64{1, 2}, []int64{s.sends(task), s.counts(task).Queries})

	marker := s.tell("ben", sms)
	s.Equal("tasks that a worker finds", 1, s.once(w))
	s.state("marker", tidings.Sent, marker)
	s.parked("passed over", task)

	o := s.operator()
	s.settledOnce(o, task)
	s.stalePage(o)
}

// settledOnce lets 8 persons settle a parked task at once, half of them one way and half the other, and one more afterwards.
func (s *scene) settledOnce(o *operator, task tidings.UUID) {
	s.Helper()
	page := o.page(task)
	s.Equal("attempts that the page shows", 3, page)
	words := []string{"SENT", "FAILED"}
	var won, refused atomic.Int64
	var word atomic.Value
	s.Together("persons", 8, func(i int) {
		code, err := o.resolve(task, words[i%2], page)
		switch {
		case err != nil:
			s.Errorf("resolve: %v", err)
		case code == "":
			won.Add(1)
			word.Store(words[i%2])
		case code == tidings.AlreadySettled:
			refused.Add(1)
		default:
			s.Errorf("resolve: %s", code)
		}
	})
	s.Equal("persons whose word was carried out", 1, won.Load())
	s.Equal("persons who were told ALREADY_SETTLED", 7, refused.Load())
	s.Equal("state, as the one person said", word.Load(), string(s.where(task).State))
	s.Equal("rows of the journal", 4, len(s.journal(task)))

	settled := one[string](s, `SELECT t::text FROM tidings.task t WHERE id = $1`, task)
	for _, word := range words {
		code, err := o.resolve(task, word, o.page(task))
		s.Must("resolve again", err)
		s.Equal("one more person", tidings.AlreadySettled, code)
	}
	s.True("nothing of the task has changed", settled == one[string](s, `SELECT t::text FROM tidings.task t WHERE id = $1`, task))
	s.Equal("rows of the journal in the end", 4, len(s.journal(task)))
}

// stalePage parks a task, lets one person order another send, and another settle it who saw the page from before.
func (s *scene) stalePage(o *operator) {
	s.Helper()
	s.script(plain, late, late)
	task := s.tell("cleo", plain)
	w := s.worker("hasty", hasty(plain)...)
	s.rounds(w, 1)
	s.parked("neither key nor query", task)
	old := o.page(task)
	code, err := o.resolve(task, "resend", old)
	s.Must("order another send", err)
	s.Equal("another send is ordered", "", code)
	s.rounds(w, 1)
	s.parked("parked again", task)
	journal := []tidings.Outcome{tidings.Timeout, tidings.ManualResend, tidings.Timeout}
	s.Equal("attempts until the second parking", journal, s.journal(task))

	for _, word := range []string{"SENT", "FAILED", "resend"} {
		code, err = o.resolve(task, word, old)
		s.Must("resolve by the old page", err)
		s.Equal(word+" by the page from before", tidings.Conflict, code)
	}
	s.parked("after the old page", task)
	s.Equal("attempts after the old page", journal, s.journal(task))
	code, err = o.resolve(task, "SENT", o.page(task))
	s.Must("resolve by the new page", err)
	s.Equal("SENT by the page of now", "", code)
	s.state("in the end", tidings.Sent, task)
	s.Equal("external sends, one of them ordered", 2, s.sends(task))
}
