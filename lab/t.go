// What a check runs with.

package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings/lab/fault"
)

// T is what a check runs with: a testing.T that keeps what was expected and observed for the evidence. Its methods may
// be called from several goroutines, as far as testing.T allows it. Nothing given to it may hold a body, an address
// or a token of a notification.
type T struct {
	*testing.T
	ctx context.Context

	mu  sync.Mutex
	rec Record
}

// Seed is the number from which everything random in this run follows.
func (t *T) Seed() uint64 { return t.rec.Seed }

// Rand returns a new source of randomness that depends on the seed alone; every call returns the same sequence.
func (t *T) Rand() *rand.Rand { return rand.New(rand.NewPCG(t.rec.Seed, 0)) }

// Context ends when the check has used up its time (checkTime), so that a check that hangs still leaves evidence.
func (t *T) Context() context.Context { return t.ctx }

// Equal records an expectation and what was observed instead, and tells whether they agree. Values agree when they
// are deeply equal, where integers of all types and all types of string are compared by value, and an empty list
// equals a nil one.
func (t *T) Equal(what string, want, got any) bool {
	t.Helper()
	return t.line(Line{OK: equal(want, got), What: what, Expected: show(want), Observed: show(got)})
}

// True records that something must hold.
func (t *T) True(what string, ok bool) bool {
	t.Helper()
	return t.Equal(what, true, ok)
}

// Within records that something must take at most so long.
func (t *T) Within(what string, limit, took time.Duration) bool {
	t.Helper()
	return t.line(Line{OK: took <= limit, What: what, Expected: "at most " + limit.String(), Observed: took.String()})
}

// Exposed records, in a control, the result of the naive way next to the one that the protection guarantees. The
// control fails when the naive way gives the same: it exposed nothing.
func (t *T) Exposed(what string, guaranteed, naive any) bool {
	t.Helper()
	return t.line(Line{OK: !equal(guaranteed, naive), Exposes: true, What: what,
		Expected: "other than " + show(guaranteed), Observed: show(naive)})
}

// Must ends the check as failed when err is not nil; what says what was being attempted.
func (t *T) Must(what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Until waits until cond holds, asking it every few milliseconds, and ends the check as failed when it does not hold
// in time.
func (t *T) Until(what string, within time.Duration, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// Together runs fn n times at once, released by a barrier, waits for all and records under what how many of them
// were seen running at the same time. fn must not end the check; it may record.
func (t *T) Together(what string, n int, fn func(i int)) {
	var running, most atomic.Int64
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			now := running.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			fn(i)
			running.Add(-1)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	t.Overlapped(what, int(most.Load()))
}

// Note keeps something worth knowing that is not expected to be one way or another.
func (t *T) Note(format string, args ...any) {
	t.change(func(r *Record) { r.Notes = append(r.Notes, clean(fmt.Sprintf(format, args...))) })
}

// Fault keeps the receipt of an injected fault. A receipt without proof makes the run INVALID.
func (t *T) Fault(receipt fault.Receipt) {
	receipt.What, receipt.Proof = clean(receipt.What), clean(receipt.Proof)
	t.change(func(r *Record) { r.Faults = append(r.Faults, receipt) })
}

// Examined adds to how many things of a sort an invariant, restore or absence looked at. Zero makes the run INVALID.
func (t *T) Examined(what string, n int) {
	t.change(func(r *Record) { r.Examined[what] += n })
}

// Overlapped records how many operations ran at the same time. Less than two makes the run INVALID.
func (t *T) Overlapped(what string, n int) {
	t.change(func(r *Record) { r.Overlapped[what] = max(n, r.Overlapped[what]) })
}

// Figure records a measured value; unit is "ms", "1/s", "B" and the like.
func (t *T) Figure(name string, value float64, unit string) {
	t.change(func(r *Record) { r.Figures = append(r.Figures, Figure{name, value, unit}) })
}

// Version records the version of something that took part, such as "postgresql".
func (t *T) Version(of, version string) {
	t.change(func(r *Record) { r.Versions[of] = clean(version) })
}

// NotRun ends the check, which could not run for the reason given. It never counts as passed.
func (t *T) NotRun(reason string) {
	t.Helper()
	t.Skip(reason)
}

// Unknown ends the check, which ran but could not find out. It counts as little as a failed one.
func (t *T) Unknown(reason string) {
	t.Helper()
	t.change(func(r *Record) { r.Unknown = clean(reason) })
	t.T.Fatalf("unknown: %s", reason)
}

// The methods by which a test fails or skips also keep the reason.

func (t *T) Error(args ...any) { t.Helper(); t.failed(fmt.Sprint(args...)); t.T.Error(args...) }
func (t *T) Fatal(args ...any) { t.Helper(); t.failed(fmt.Sprint(args...)); t.T.Fatal(args...) }
func (t *T) Errorf(format string, args ...any) {
	t.Helper()
	t.failed(fmt.Sprintf(format, args...))
	t.T.Errorf(format, args...)
}
func (t *T) Fatalf(format string, args ...any) {
	t.Helper()
	t.failed(fmt.Sprintf(format, args...))
	t.T.Fatalf(format, args...)
}
func (t *T) Skip(args ...any) {
	t.Helper()
	t.change(func(r *Record) { r.NotRun = clean(fmt.Sprint(args...)) })
	t.T.Skip(args...)
}
func (t *T) Skipf(format string, args ...any) {
	t.Helper()
	t.Skip(fmt.Sprintf(format, args...))
}

func (t *T) failed(reason string) {
	t.change(func(r *Record) { r.Failures = append(r.Failures, clean(reason)) })
}

func (t *T) change(f func(*Record)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.rec)
}

func (t *T) line(l Line) bool {
	t.Helper()
	l.What, l.Expected, l.Observed = clean(l.What), clean(l.Expected), clean(l.Observed)
	t.change(func(r *Record) { r.Lines = append(r.Lines, l) })
	if l.OK {
		t.Logf("ok      %s: %s", l.What, l.Observed)
	} else {
		t.T.Errorf("not ok  %s: expected %s, observed %s", l.What, l.Expected, l.Observed)
	}
	return l.OK
}

func show(v any) string { return fmt.Sprintf("%v", v) }

func equal(a, b any) bool { return same(reflect.ValueOf(a), reflect.ValueOf(b)) }

// same compares by value across types that differ in name or width only.
func same(a, b reflect.Value) bool {
	if a.IsValid() && a.Kind() == reflect.Interface || b.IsValid() && b.Kind() == reflect.Interface {
		return equal(a.Interface(), b.Interface())
	}
	switch {
	case !a.IsValid() || !b.IsValid():
		return a.IsValid() == b.IsValid()
	case a.CanInt() && b.CanInt():
		return a.Int() == b.Int()
	case a.CanUint() && b.CanUint():
		return a.Uint() == b.Uint()
	case a.CanInt() && b.CanUint():
		return a.Int() >= 0 && uint64(a.Int()) == b.Uint()
	case a.CanUint() && b.CanInt():
		return same(b, a)
	case a.Kind() == reflect.String && b.Kind() == reflect.String:
		return a.String() == b.String()
	case a.Kind() == reflect.Slice && b.Kind() == reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
	return a.Type() == b.Type() && reflect.DeepEqual(a.Interface(), b.Interface())
}
