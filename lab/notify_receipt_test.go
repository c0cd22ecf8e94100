// The check 33-late-evidence.

package lab_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-late-evidence",
		Expect: "a signed receipt, positive or negative, makes a pending, unknown, parked or leased task SENT, once, and a worker finds nothing of it; SENT and " +
			"FAILED stay; 100 times against a person exactly one of the two settles; one that came too early is matched within seconds",
		Run: lateEvidence,
	})
}

func lateEvidence(t *lab.T) {
	s := newScene(t)
	o := s.operator()
	s.settledByReceipt(o)
	s.settledInTheCall(o)
	s.notMovedByReceipt(o)
	s.matchedLater(o)
	s.receiptAgainstPerson(o)
}

// reports lets the double report and records the answer.
func (s *scene) reports(what string, o *operator, mode string, task tidings.UUID, status string, want reported, change ...func(*channeltest.ReceiptOrder)) {
	s.Helper()
	got, err := o.receipt(mode, task, status, change...)
	s.Must(what+": report", err)
	s.Equal(what+": matched, settled, contradictions, unmatched, replayed", want, got)
}

// settledByReceipt settles tasks that nobody holds: pending, unknown and parked ones.
func (s *scene) settledByReceipt(o *operator) {
	s.Helper()
	pending := s.tell("pending", push)
	s.reports("pending", o, push, pending, "delivered", reported{Matched: 1, Settled: 1}, func(r *channeltest.ReceiptOrder) { r.ID = "push-msg-before" })

	unknown := s.unsure("unknown", sms)
	s.reports("unknown", o, sms, unknown, "failed", reported{Matched: 1, Settled: 1}) // it had the message, so it was accepted

	parked := s.exhausted("parked", 1)[0]
	s.reports("parked", o, push, parked, "delivered", reported{Matched: 1, Settled: 1}, func(r *channeltest.ReceiptOrder) { r.WithoutID = true })
	s.reports("parked, the same again", o, push, parked, "delivered", reported{Replayed: 1}, func(r *channeltest.ReceiptOrder) { r.WithoutID = true })
	s.reports("parked, and then another", o, push, parked, "opened", reported{Matched: 1})

	marker := s.task(s.both("marker"), push)
	s.Equal("tasks that a worker finds", 2, s.once(s.worker("w", patient(push, sms)...)))
	s.state("marker", tidings.Sent, marker)
	for task, journal := range map[tidings.UUID][]tidings.Outcome{
		pending: {tidings.ReceiptSeen},
		unknown: {tidings.Timeout, tidings.ReceiptSeen},
		parked:  {tidings.Timeout, tidings.ReceiptSeen, tidings.ReceiptSeen},
	} {
		s.sentInTheEnd(task, journal)
	}
	s.Equal("pending: requests", 0, s.counts(pending).Requests)
	s.Equal("pending: provider's id", "push-msg-before", s.where(pending).ProviderID)
}

// sentInTheEnd records that a task is SENT without doubt and has this journal.
func (s *scene) sentInTheEnd(task tidings.UUID, journal []tidings.Outcome) {
	s.Helper()
	r := s.where(task)
	s.Equal("state, in doubt, waits for a person, scheduled", []any{tidings.Sent, false, false, false}, []any{r.State, r.InDoubt, r.Review, r.Scheduled})
	s.Equal("attempts", journal, s.journal(task))
}

// exhausted makes n tasks on push that are parked because their only attempt got no answer; the double has accepted all.
func (s *scene) exhausted(name string, n int) []tidings.UUID {
	s.Helper()
	s.script(push, channeltest.Step{Do: channeltest.DoHang, Times: n})
	tasks := make([]tidings.UUID, n)
	for i := range tasks {
		tasks[i] = s.tell(fmt.Sprintf("%s-%d", name, i), push, attempts(1))
	}
	w := s.worker("hasty", worker.Channel{Name: push, Timeout: time.Second, Lease: time.Minute, Concurrency: n})
	s.Until("all are parked", soon, func() bool {
		s.once(w)
		return one[int](s, `SELECT count(*) FROM tidings.task WHERE id = ANY ($1) AND needs_review`, tasks) == n
	})
	return tasks
}

// settledInTheCall settles a task while a worker holds it: before the worker's own end of the attempt.
func (s *scene) settledInTheCall(o *operator) {
	s.Helper()
	task := s.tell("leased", push)
	finish := s.holding(task, "holder")
	s.reports("leased", o, push, task, "delivered", reported{Matched: 1, Settled: 1})
	s.sentInTheEnd(task, []tidings.Outcome{open, tidings.ReceiptSeen})
	finish()
	s.sentInTheEnd(task, []tidings.Outcome{tidings.Accepted, tidings.ReceiptSeen})
	s.Equal("leased: external sends", 1, s.sends(task))
}

// holding lets a worker call the double for a due task on push, and returns when the double has accepted and the worker has
// written nothing down. finish lets it, and waits until it has.
func (s *scene) holding(task tidings.UUID, name string) (finish func()) {
	s.Helper()
	gate, done := make(chan struct{}), make(chan error, 1)
	w := s.worker(name, s.tap(nil, func(channel.Message) { <-gate }))
	go func() {
		_, err := w.RunOnce(s.ctx)
		done <- err // received by finish
	}()
	s.accepted(task)
	return func() {
		s.Helper()
		close(gate)
		s.Must("end the attempt", <-done)
	}
}

// notMovedByReceipt reports on tasks that are final.
func (s *scene) notMovedByReceipt(o *operator) {
	s.Helper()
	s.script(push, refused(400))
	failed := s.tell("refused", push)
	s.rounds(s.worker("w", patient(push)...), 1)
	sent := s.tell("sent", push)
	s.rounds(s.worker("w", patient(push)...), 1)

	s.reports("sent", o, push, sent, "failed", reported{Matched: 1})
	s.sentInTheEnd(sent, []tidings.Outcome{tidings.Accepted, tidings.ReceiptSeen})
	s.reports("refused", o, push, failed, "delivered", reported{Matched: 1, Contradictions: 1})
	s.state("refused", tidings.Failed, failed)
	s.Equal("refused: attempts", []tidings.Outcome{tidings.Rejected, tidings.ReceiptSeen}, s.journal(failed))
}

// matchedLater reports by the provider's id alone while nobody but the provider knows it.
func (s *scene) matchedLater(o *operator) {
	s.Helper()
	s.server("worker", map[string]any{"idle": map[string]any{"double": map[string]any{"url": s.doubles.URL(), "mode": plain}}}) // it sweeps
	task := s.tell("early", push)
	finish := s.holding(task, "slow")
	onlyID := func(r *channeltest.ReceiptOrder) { r.OnlyID = true }
	s.reports("early", o, push, task, "delivered", reported{Unmatched: 1}, onlyID)
	s.reports("foreign", o, push, task, "delivered", reported{Unmatched: 1}, onlyID, func(r *channeltest.ReceiptOrder) { r.ID = "push-msg-of-another" })
	s.Equal("early: journal before our own finish", []tidings.Outcome{open}, s.journal(task))
	finish()
	s.Until("the early receipt is matched", soon, func() bool {
		return one[bool](s, `SELECT coalesce(bool_or(matched_task = $1), false) FROM tidings.receipt`, task)
	})
	s.sentInTheEnd(task, []tidings.Outcome{tidings.Accepted, tidings.ReceiptSeen})
	s.Equal("receipts without a task", 1, one[int](s, `SELECT count(*) FROM tidings.receipt WHERE matched_task IS NULL`))
}

// receiptAgainstPerson lets the double and a person settle each of 100 parked tasks at once.
func (s *scene) receiptAgainstPerson(o *operator) {
	s.Helper()
	const n = 100
	var byReceipt, byPerson, contradicted int
	for i, task := range s.exhausted("contended", n) {
		word := []string{"SENT", "FAILED"}[i%2]
		var settled reported
		var code tidings.Code
		var failed atomic.Value
		s.Together("receipt and person", 2, func(who int) {
			var err error
			if who == i/2%2 { // each starts first as often
				settled, err = o.receipt(push, task, "delivered")
			} else {
				code, err = o.resolve(task, word, 1)
			}
			if err != nil {
				failed.Store(err)
			}
		})
		if err, _ := failed.Load().(error); err != nil {
			s.Fatalf("settle at once: %v", err)
		}
		journal, want := s.journal(task), []tidings.Outcome{}
		switch {
		case settled == reported{Matched: 1, Settled: 1} && (code == tidings.AlreadySettled || code == tidings.Conflict):
			byReceipt++
			want = []tidings.Outcome{tidings.Timeout, tidings.ReceiptSeen}
			word = "SENT"
		case settled.Matched == 1 && settled.Settled == 0 && code == "":
			byPerson++
			contradicted += settled.Contradictions
			want = []tidings.Outcome{tidings.Timeout, tidings.Outcome("MANUAL_" + word), tidings.ReceiptSeen}
		default:
			s.Errorf("task %d: the receipt was answered %+v, the person %q", i, settled, code)
		}
		if state := s.where(task).State; string(state) != word || fmt.Sprint(journal) != fmt.Sprint(want) {
			s.Errorf("task %d: %s with %v, and not %s with %v", i, state, journal, word, want)
		}
	}
	s.Equal("tasks settled exactly once", n, byReceipt+byPerson)
	s.Equal("deadlocks", 0, one[int](s, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
	s.Note("settled by the receipt %d, by the person %d, of which %d said FAILED", byReceipt, byPerson, contradicted)
}
