// One call of an adapter: its deadline, panics, and adapters that do not return.

package dispatch

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/store"
)

// grace is how long an adapter may take to return after its context ended before its attempt is ended without it.
const grace = 250 * time.Millisecond

// attempt is one call.
type attempt struct {
	store.Claimed
	started time.Time
	shown   []byte // stands for the request hash of a call that shows a message; nil: it shows none
	phase   atomic.Int32
	overdue atomic.Bool // ended by the watch
}

// The phases of an attempt. Only one that is calling can be ended without its adapter; one that still waits will find out by itself
// that it is too late.
const (
	waiting int32 = iota
	calling
	ended
)

// batch is the calls of one claim. They share a deadline, because they start together, and a watch that ends the attempts of
// adapters that do not return.
type batch struct {
	lane     *lane
	ctx      context.Context
	cancel   context.CancelFunc
	startBy  time.Time
	attempts []attempt
	watch    *time.Timer
	open     atomic.Int64
}

// call starts all calls of one claim at once; those that show a message as soon as it is read.
func (l *lane) call(claimed []store.Claimed, sent time.Time) {
	b := &batch{lane: l, startBy: sent.Add(l.cfg.Lease - l.cfg.Timeout - Margin), attempts: make([]attempt, len(claimed))}
	b.ctx, b.cancel = context.WithTimeout(channel.WithStartBy(context.Background(), b.startBy), l.cfg.Timeout)
	b.open.Store(int64(len(claimed)))
	now := time.Now()
	for i := range claimed {
		b.attempts[i].Claimed, b.attempts[i].started = claimed[i], now
	}
	b.watch = time.AfterFunc(l.cfg.Timeout+grace, b.overdue)
	var shown []*attempt
	for i := range b.attempts {
		if a := &b.attempts[i]; a.AboutConv != "" && a.Held.Action == tidings.ActionSend {
			shown = append(shown, a)
		} else {
			go b.run(a)
		}
	}
	if len(shown) > 0 {
		go b.preview(shown)
	}
}

// run makes one call and ends its attempt, unless the watch already did: then the observation is late.
func (b *batch) run(a *attempt) {
	l := b.lane
	if b.ctx.Err() != nil || !time.Now().Before(b.startBy) {
		l.circuit.untried()
		l.end(a, channel.Outcome{Code: tidings.NotSent, Detail: "too late to start within the lease"}, true)
	} else {
		a.phase.Store(calling)
		o := l.observe(b.ctx, a)
		if a.phase.CompareAndSwap(calling, ended) {
			l.judgeCircuit(o)
		} else {
			l.metrics.stuck.Dec()
		}
		l.end(a, o, true)
	}
	b.done()
}

// done counts an attempt that has ended. The last one ends the batch.
func (b *batch) done() {
	if b.open.Add(-1) == 0 {
		b.watch.Stop()
		b.cancel()
	}
}

// overdue ends the attempts whose adapters should have returned by now. Their slots stay taken until they do return, so that the
// number of lost goroutines is bounded.
func (b *batch) overdue() {
	l := b.lane
	for i := range b.attempts {
		if a := &b.attempts[i]; a.phase.CompareAndSwap(calling, ended) {
			a.overdue.Store(true)
			l.judgeCircuit(channel.Outcome{Code: tidings.Timeout}) // it could be started
			l.metrics.stuck.Inc()
			l.w.log.Error("an adapter did not return; its slot stays taken until it does", "channel", l.cfg.Name, "task", a.ID)
			l.end(a, channel.Outcome{Code: tidings.Timeout, Detail: "the adapter did not return"}, false)
		}
	}
}

// observe makes the call of one attempt and contains whatever the adapter does.
func (l *lane) observe(ctx context.Context, a *attempt) (o channel.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			l.w.log.Error("an adapter panicked", "channel", l.cfg.Name, "task", a.ID, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			o = channel.Outcome{Code: tidings.IOError, Detail: "the adapter panicked"}
		}
	}()
	if a.Held.Action == tidings.ActionQuery {
		return l.cfg.Channel.(channel.Querier).Query(ctx, channel.Ref{Key: a.ID.Key(), Address: a.Address, Since: a.FirstCallAt})
	}
	return l.cfg.Channel.Send(ctx, channel.Message{
		Key: a.ID.Key(), User: a.User, EventKey: a.EventKey, Address: a.Address, Title: a.Title, Body: a.Body, Data: a.Data,
		Category: a.Category, CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt, Attempt: a.N, FirstHash: a.RequestHash, Keyed: a.Keyed,
	})
}

// judgeCircuit tells the circuit whether a call could be started.
func (l *lane) judgeCircuit(o channel.Outcome) {
	if o.KeyLost {
		l.circuit.untried()
		return
	}
	l.circuit.record(o.Code != tidings.NotSent, time.Now())
	open := 0.0
	if l.circuit.open() {
		open = 1
	}
	l.metrics.circuit.Set(open)
}

// end decides what becomes of the task and hands the end over to be written down. free gives the slot back with it.
func (l *lane) end(a *attempt, o channel.Outcome, free bool) {
	proof := o.Code == tidings.HTTP5xx && l.contract.Safe != nil && l.contract.Safe(o.Status)
	v := tidings.Finish(a.Held, tidings.Observation{Outcome: o.Code, Proof: proof})
	send := a.Held.Action == tidings.ActionSend
	f := store.Finish{
		ID: a.ID, Note: a.Note, N: a.N, Token: a.Token, Verdict: v, Delay: l.delay(a, v, o),
		Doubted:       send && (v.Outcome == tidings.Timeout || v.Outcome == tidings.IOError || v.Outcome == tidings.HTTP5xx && !proof),
		Unstarted:     v.Outcome == tidings.NotSent && a.FirstCall && !v.InDoubt,
		KeyLost:       o.KeyLost,
		ProviderMsgID: clean(o.ProviderMsgID, 512), Detail: detail(o), AwaitsReceipt: l.receipts,
	}
	if send && !o.KeyLost && v.Outcome != tidings.NotSent {
		f.RequestHash = o.RequestHash
		if a.shown != nil && o.RequestHash != nil {
			f.RequestHash = a.shown
		}
	}
	l.metrics.outcome(v.Outcome)
	l.metrics.calls.Observe(time.Since(a.started).Seconds())
	l.w.ends.add(ending{Finish: f, lane: l, free: free, late: free && a.overdue.Load()})
	if o.AddressGone && a.AddressVersion > 0 {
		l.w.gone.add(goneAddress{task: a.ID, user: a.User, channel: l.cfg.Name, slot: a.Slot, version: a.AddressVersion})
	}
}

// delay is how long the next attempt waits: a backoff, not less than the provider asked for, not before an answer to a question can be
// relied on, and not beyond the time to live, when the task is settled without a call.
func (l *lane) delay(a *attempt, v tidings.Verdict, o channel.Outcome) time.Duration {
	d := max(backoff(l.w.cfg.BackoffBase, l.w.cfg.BackoffCap, a.N), o.RetryAfter)
	if v.InDoubt && a.Held.Fallback == tidings.ActionQuery && a.Held.Action == tidings.ActionSend {
		d = max(d, l.claim.Settle)
	}
	if left := a.ExpiresAt.Sub(a.At) - time.Since(a.started); d > left {
		d = max(0, left) + time.Millisecond
	}
	return d
}

// detail is the observation for people, with the provider's status before it.
func detail(o channel.Outcome) string {
	d := clean(o.Detail, 1024)
	if o.Status != 0 {
		d = strings.TrimSpace(fmt.Sprintf("%d %s", o.Status, d))
	}
	return d
}

// clean makes a text from outside storable: valid UTF-8 without U+0000, of at most limit bytes.
func clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
