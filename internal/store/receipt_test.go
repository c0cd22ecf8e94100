// Tests of receipts.

package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func receipts(providerID, reference string, statuses ...string) (all []store.Receipt) {
	for _, s := range statuses {
		all = append(all, store.Receipt{ProviderMsgID: providerID, Reference: reference, Status: s, Detail: "detail of " + s})
	}
	return all
}

func (b *bench) record(channel string, all []store.Receipt, want store.ReceiptResult) {
	b.t.Helper()
	if got, err := b.RecordReceipts(b.t.Context(), channel, all); got != want || err != nil {
		b.t.Errorf("RecordReceipts = %+v, %v, want %+v", got, err, want)
	}
}

// settled checks that a receipt has made a task SENT.
func (b *bench) settled(id tidings.UUID, outcomes ...tidings.Outcome) {
	b.t.Helper()
	d := b.detail(id)
	if d.State != tidings.Sent || d.InDoubt || d.Review || d.NextAttemptAt != nil || d.LeaseUntil != nil || d.LeaseOwner != "" || d.SettledBy != "" || d.Forced {
		b.t.Errorf("after the receipt %+v", d.Task)
	}
	if got := b.outcomes(id); !slices.Equal(got, outcomes) || d.AttemptCount != len(outcomes) {
		b.t.Errorf("journal %v (count %d), want %v", got, d.AttemptCount, outcomes)
	}
}

func TestReceiptSettles(t *testing.T) {
	one := store.ReceiptResult{Matched: 1, Settled: 1}

	t.Run("a pending task", func(t *testing.T) {
		b := newBench(t)
		id := b.task(push, "u-ana", "e1")
		b.record("push", receipts("p-1", id.Key(), "delivered"), one)
		b.settled(id, tidings.ReceiptSeen)
		d := b.detail(id)
		if a := d.Attempts[0]; a.Action != tidings.ActionNone || a.Detail != "delivered: detail of delivered" || a.ProviderMsgID != "p-1" || a.Worker != "receipt" {
			t.Errorf("journal row %+v", a)
		}
		if d.ProviderMsgID != "p-1" || d.BudgetLeft != tidings.DefaultBudget {
			t.Errorf("task %+v", d.Task)
		}
		if n := len(b.claim(push, 1)); n != 0 {
			t.Errorf("%d tasks are due", n)
		}
		b.kept()
	})
	t.Run("a task in doubt, by a negative receipt without an id", func(t *testing.T) {
		b := newBench(t)
		id := b.task(sms, "u-ana", "e1")
		b.finish(b.claimOne(sms), tidings.Timeout, "")
		b.record("sms", receipts("", id.Key(), "failed"), one)
		b.settled(id, tidings.Timeout, tidings.ReceiptSeen)
		if p := b.detail(id).ProviderMsgID; p != "" {
			t.Errorf("the provider's id is %q", p)
		}
		b.kept()
	})
	t.Run("a parked task", func(t *testing.T) {
		b := newBench(t)
		d := b.parked("u-ana", "e1")
		b.record("plain", receipts("p-1", d.ID.Key(), "delivered"), one)
		b.settled(d.ID, tidings.Timeout, tidings.ReceiptSeen)
		b.want(tidings.AlreadySettled, b.Resolve(t.Context(), b.resolution(d, store.VerbFailed)))
		b.kept()
	})
	t.Run("a task with an ordered resend", func(t *testing.T) {
		b := newBench(t)
		d := b.parked("u-ana", "e1")
		b.must(b.Resolve(t.Context(), b.resolution(d, store.VerbResend)))
		b.record("plain", receipts("p-1", d.ID.Key(), "delivered"), one)
		b.settled(d.ID, tidings.Timeout, tidings.ManualResend, tidings.ReceiptSeen)
		b.kept()
	})
	t.Run("a held task, whose holder reports later", func(t *testing.T) {
		b := newBench(t)
		id := b.task(push, "u-ana", "e1")
		c := b.claimOne(push)
		b.record("push", receipts("p-1", id.Key(), "delivered"), one)
		b.settled(id, "", tidings.ReceiptSeen)
		b.kept()
		stale, err := b.Finish(t.Context(), []store.Finish{ended(c, tidings.Timeout, "")})
		b.must(err)
		if len(stale) != 1 {
			t.Error("the holder's end was not superseded")
		}
		b.settled(id, tidings.Timeout, tidings.ReceiptSeen)
		b.kept()
	})
	t.Run("by the provider's id alone", func(t *testing.T) {
		b := newBench(t)
		id := b.task(push, "u-ana", "e1")
		b.finish(b.claimOne(push), tidings.Accepted, "p-1")
		b.record("push", receipts("p-1", "", "delivered", "read"), store.ReceiptResult{Matched: 2})
		b.settled(id, tidings.Accepted, tidings.ReceiptSeen, tidings.ReceiptSeen)
		b.kept()
	})
}

func TestReceiptTwice(t *testing.T) {
	b := newBench(t)
	id := b.task(push, "u-ana", "e1")
	all := append(receipts("p-1", id.Key(), "sent", "delivered"), receipts("p-1", id.Key(), "sent")...)
	b.record("push", all, store.ReceiptResult{Matched: 2, Settled: 1, Replayed: 1})
	b.record("push", all, store.ReceiptResult{Replayed: 3})
	b.record("push", receipts("p-1", "", "read"), store.ReceiptResult{Matched: 1}) // the id is known by the first two
	b.settled(id, tidings.ReceiptSeen, tidings.ReceiptSeen, tidings.ReceiptSeen)
	b.record("push", nil, store.ReceiptResult{})
	b.kept()
}

// A receipt for a task that was certainly not accepted contradicts its channel's contract: it is written down, and changes
// nothing.
func TestReceiptContradicts(t *testing.T) {
	b := newBench(t)
	id := b.task(push, "u-ana", "e1")
	b.finish(b.claimOne(push), tidings.Rejected, "")
	suppressed := b.task(push, "u-ana", "e2")
	_, err := b.CancelNotification(t.Context(), b.detail(suppressed).Notification)
	b.must(err)
	b.claimOne(push)
	b.record("push", append(receipts("p-1", id.Key(), "sent", "delivered"), receipts("p-2", suppressed.Key(), "sent")...),
		store.ReceiptResult{Matched: 3, Contradictions: 3})
	if s1, s2 := b.detail(id).State, b.detail(suppressed).State; s1 != tidings.Failed || s2 != tidings.Suppressed {
		t.Errorf("the tasks are %s and %s", s1, s2)
	}
	if got := b.outcomes(id); !slices.Equal(got, []tidings.Outcome{tidings.Rejected, tidings.ReceiptSeen, tidings.ReceiptSeen}) {
		t.Errorf("journal %v", got)
	}
	i := slices.IndexFunc(b.kept(), func(f store.Finding) bool { return f.Name == "no-contradiction" && f.Violations == 2 })
	if i < 0 {
		t.Error("verify does not tell")
	}
}

func TestReceiptFindsNoTask(t *testing.T) {
	b := newBench(t)
	other := b.task(sms, "u-ana", "e1")
	all := slices.Concat(
		receipts("p-1", other.Key(), "delivered"), // of another channel
		receipts("p-2", "", "delivered"), receipts("p-3", strings.Repeat("0", 32), "delivered"), receipts("p-4", "not one of ours", "delivered"))
	b.record("push", all, store.ReceiptResult{Unmatched: 4})
	if s := b.detail(other).State; s != tidings.Pending {
		t.Errorf("a receipt of another channel made the task %s", s)
	}
	for _, bad := range []store.Receipt{{Status: "x"}, {ProviderMsgID: "p"}, {ProviderMsgID: "p", Status: strings.Repeat("x", 65)},
		{ProviderMsgID: "\xff", Status: "x"}, {Reference: "a\x00", Status: "x"}} {
		_, err := b.RecordReceipts(t.Context(), "push", []store.Receipt{bad})
		b.want(tidings.InvalidArgument, err)
	}
	_, err := b.RecordReceipts(t.Context(), "push", []store.Receipt{{ProviderMsgID: strings.Repeat("p", 513), Status: "x"}})
	b.want(tidings.TooLarge, err)
	// A detail comes from anywhere and is only for people.
	b.record("push", []store.Receipt{{ProviderMsgID: "p-5", Status: "x", Detail: "a\x00b\xff" + strings.Repeat("ü", 2000)}}, store.ReceiptResult{Unmatched: 1})
	if d := one[string](b, `SELECT detail FROM tidings.receipt WHERE provider_msg_id = 'p-5'`); !strings.HasPrefix(d, "abü") || len(d) > 2000 {
		t.Errorf("detail of %d bytes %q…", len(d), d[:4])
	}
}

// Two tasks with one provider id: which of them a receipt means is not known, so it settles neither.
func TestReceiptIsAmbiguous(t *testing.T) {
	b := newBench(t)
	for i := range 2 {
		b.task(push, "u-ana", fmt.Sprint("e", i))
		b.finish(b.claimOne(push), tidings.Accepted, "p-1")
	}
	b.record("push", receipts("p-1", "", "delivered"), store.ReceiptResult{Unmatched: 1})
}

func TestSweepReceipts(t *testing.T) {
	b := newBench(t)
	id := b.task(push, "u-ana", "e1")
	c := b.claimOne(push)
	b.record("push", receipts("p-1", "", "delivered"), store.ReceiptResult{Unmatched: 1})
	b.record("push", receipts("foreign", "", "delivered"), store.ReceiptResult{Unmatched: 1})
	if n, err := b.SweepReceipts(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("SweepReceipts = %d, %v", n, err)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.receipt WHERE sweep_at > statement_timestamp()`); n != 2 {
		t.Fatalf("%d receipts have a later turn", n)
	}
	b.finish(c, tidings.Accepted, "p-1")
	b.exec(`UPDATE tidings.receipt SET sweep_at = statement_timestamp(), received_at = received_at - interval '1 hour'`)
	if n, err := b.SweepReceipts(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("SweepReceipts = %d, %v", n, err)
	}
	b.settled(id, tidings.Accepted, tidings.ReceiptSeen)
	if turn := one[time.Duration](b, `SELECT sweep_at - statement_timestamp() FROM tidings.receipt WHERE matched_task IS NULL`); turn < 10*time.Minute || turn > 20*time.Minute {
		t.Errorf("a receipt of an hour has its next turn in %v", turn)
	}

	if n, err := b.PurgeReceipts(t.Context(), 2*time.Hour); n != 0 || err != nil {
		t.Errorf("PurgeReceipts = %d, %v", n, err)
	}
	if n, err := b.PurgeReceipts(t.Context(), time.Minute); n != 2 || err != nil {
		t.Errorf("PurgeReceipts = %d, %v", n, err)
	}
}

// Receipts, a person's word and the holder's own end at once: exactly one of them settles the task, everything is in the
// journal, and nobody moves a SENT task back.
func TestReceiptsAgainstAllOthers(t *testing.T) {
	b := newBench(t)
	const many = 100
	t.Run("and a person", func(t *testing.T) {
		d := b.parked("u-ana", "parked")
		var settled, word atomic.Int32
		atOnce(many+1, func(i int) {
			if i == many/2 {
				switch err := b.Resolve(t.Context(), b.resolution(d, store.VerbFailed)); tidings.ErrorCode(err) {
				case "":
					word.Add(1)
				case tidings.AlreadySettled:
				default:
					t.Error(err)
				}
				return
			}
			r, err := b.RecordReceipts(t.Context(), "plain", receipts(fmt.Sprint("p-", i), d.ID.Key(), "delivered"))
			if err != nil || r.Matched != 1 {
				t.Errorf("RecordReceipts = %+v, %v", r, err)
			}
			settled.Add(int32(r.Settled))
		})
		after := b.detail(d.ID)
		if settled.Load()+word.Load() != 1 || (after.State == tidings.Sent) != (settled.Load() == 1) || after.Review {
			t.Errorf("%d receipts and %d words settled it; it is %s", settled.Load(), word.Load(), after.State)
		}
		if n := len(b.outcomes(d.ID)); n != 1+many+int(word.Load()) || after.AttemptCount != n {
			t.Errorf("the journal has %d rows, the count is %d", n, after.AttemptCount)
		}
	})
	t.Run("and the holder", func(t *testing.T) {
		for round := range 5 {
			id := b.task(push, "u-ana", fmt.Sprint("held", round))
			c := b.claimOne(push)
			var settled, ends atomic.Int32
			atOnce(9, func(i int) {
				if i == 4 {
					stale, err := b.Finish(t.Context(), []store.Finish{ended(c, tidings.Timeout, "")})
					if err != nil {
						t.Error(err)
					}
					ends.Add(int32(1 - len(stale)))
					return
				}
				r, err := b.RecordReceipts(t.Context(), "push", receipts(fmt.Sprint(round, "-", i), id.Key(), "delivered"))
				if err != nil || r.Matched != 1 {
					t.Errorf("RecordReceipts = %+v, %v", r, err)
				}
				settled.Add(int32(r.Settled))
			})
			if settled.Load() != 1 {
				t.Errorf("%d receipts settled it (the holder's end counted: %d)", settled.Load(), ends.Load())
			}
			b.settled(id, tidings.Timeout, tidings.ReceiptSeen, tidings.ReceiptSeen, tidings.ReceiptSeen, tidings.ReceiptSeen,
				tidings.ReceiptSeen, tidings.ReceiptSeen, tidings.ReceiptSeen, tidings.ReceiptSeen)
		}
	})
	b.kept()
}

// Batches with the same tasks in opposite orders neither deadlock for good nor count anything twice; sweeps run among them.
func TestReceiptBatchesAtOnce(t *testing.T) {
	b := newBench(t)
	var tasks []tidings.UUID
	for i := range 20 {
		tasks = append(tasks, b.task(push, fmt.Sprint("u-", i), "e1"))
	}
	var settled, matched atomic.Int32
	atOnce(6, func(i int) {
		if i == 5 {
			if _, err := b.SweepReceipts(t.Context(), 100); err != nil {
				t.Error(err)
			}
			return
		}
		var all []store.Receipt
		for j := range tasks {
			k := j
			if i%2 == 1 {
				k = len(tasks) - 1 - j
			}
			all = append(all, receipts(fmt.Sprint("p-", k), tasks[k].Key(), fmt.Sprint("status-", i/2))...)
		}
		r, err := b.RecordReceipts(t.Context(), "push", all)
		if err != nil {
			t.Error(err)
		}
		settled.Add(int32(r.Settled))
		matched.Add(int32(r.Matched))
	})
	if settled.Load() != 20 || matched.Load() != 60 {
		t.Errorf("%d tasks were settled, %d receipts matched", settled.Load(), matched.Load())
	}
	for _, id := range tasks {
		b.settled(id, tidings.ReceiptSeen, tidings.ReceiptSeen, tidings.ReceiptSeen)
	}
	b.kept()
}
