// Concurrent histories of a conversation, and the judge of them.

package lab_test

import (
	"cmp"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what several clients have asked of one conversation and been told, with the times of each. A history is right if its
// operations can be put in an order, each at some moment between its question and its answer, in which a plain log would have given
// the same answers (linearizability). porcupine looks for that order.
type history struct {
	began time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// What is asked. key is the sender and its cmid.
type (
	sendOp    struct{ key string }
	outcomeOp struct{ key string }
	syncOp    struct{ after int64 }
)

// What is told.
type (
	sentAt struct { // of sendOp
		seq int64
		dup bool
		any bool // whether it was stored by an earlier transmission of the same request is not known
	}
	storedAt struct{ seq int64 } // of outcomeOp; 0: not stored
	page     struct {            // of syncOp
		head int64
		keys []string // from after + 1 on
	}
)

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// add adds an operation that began at call and has its answer now.
func (h *history) add(client int, call int64, in, out any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: h.now()})
}

// logState is a log of some length: its last event and the log before it. It is never changed.
type logState struct {
	seq    int64
	key    string
	before *logState
	sum    uint64 // of all keys
}

func (s *logState) append(key string) *logState {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key))
	return &logState{seq: s.seq + 1, key: key, before: s, sum: (s.sum ^ sum.Sum64()) * 1099511628211}
}

// where is the seq of a key, 0 when it is not there.
func (s *logState) where(key string) int64 {
	for ; s.before != nil; s = s.before {
		if s.key == key {
			return s.seq
		}
	}
	return 0
}

// since are the keys after a seq.
func (s *logState) since(after int64) (keys []string) {
	for ; s.before != nil && s.seq > after; s = s.before {
		keys = append(keys, s.key)
	}
	slices.Reverse(keys)
	return keys
}

// step tells whether a log could have given this answer, and what it is afterwards.
func (s *logState) step(in, out any) (bool, *logState) {
	switch in := in.(type) {
	case sendOp:
		told := out.(sentAt)
		if at := s.where(in.key); at != 0 {
			return told.seq == at && (told.dup || told.any), s
		}
		return told.seq == s.seq+1 && (!told.dup || told.any), s.append(in.key)
	case outcomeOp:
		return out.(storedAt).seq == s.where(in.key), s
	case syncOp:
		told := out.(page)
		return told.head == s.seq && slices.Equal(told.keys, s.since(in.after)), s
	}
	return false, s
}

// possible tells whether a log that began with some events could have given all these answers.
func possible(first []string, ops []porcupine.Operation, within time.Duration) porcupine.CheckResult {
	start := &logState{}
	for _, key := range first {
		start = start.append(key)
	}
	model := porcupine.Model{
		Init: func() any { return start },
		Step: func(state, in, out any) (bool, any) {
			ok, next := state.(*logState).step(in, out)
			return ok, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(*logState), b.(*logState)
			return x == y || x.seq == y.seq && x.sum == y.sum
		},
		Hash: func(s any) uint64 { return s.(*logState).sum },
	}
	return porcupine.CheckOperationsTimeout(model, ops, within)
}

// doctored are histories with one lie each.
func (h *history) doctored() map[string][]porcupine.Operation {
	ops := slices.Clone(h.ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	lie := func(i int, out any) []porcupine.Operation {
		c := slices.Clone(ops)
		c[i].Output = out
		return c
	}
	times := map[string]int{} // by key: only what one request speaks of cannot be true otherwise
	for _, op := range ops {
		if in, ok := op.Input.(sendOp); ok {
			times[in.key]++
		}
	}
	first := func(op porcupine.Operation) (sentAt, bool) {
		in, _ := op.Input.(sendOp)
		told, ok := op.Output.(sentAt)
		return told, ok && !told.dup && !told.any && times[in.key] == 1
	}
	all := map[string][]porcupine.Operation{}
	for i, op := range ops {
		switch told := op.Output.(type) {
		case sentAt:
			if _, ok := first(op); !ok {
				continue
			}
			all["a message that nobody stored before is called a duplicate"] = lie(i, sentAt{told.seq, true, false})
			for j, later := range ops[i+1:] {
				if next, ok := first(later); ok && later.Call > op.Return {
					c := lie(i, sentAt{next.seq, false, false})
					c[i+1+j].Output = told
					all["of two messages, one after the other, the later one stands before the earlier one"] = c
					break
				}
			}
		case page:
			if n := len(told.keys); n > 0 && slices.ContainsFunc(ops, func(o porcupine.Operation) bool {
				sent, ok := o.Output.(sentAt)
				return ok && sent.seq == told.head && o.Return < op.Call
			}) {
				all["a sync misses a message that was sent before it began"] = lie(i, page{told.head - 1, told.keys[:n-1]})
			}
		case storedAt:
			if slices.ContainsFunc(ops, func(o porcupine.Operation) bool {
				return o.Input == sendOp(op.Input.(outcomeOp)) && o.Return < op.Call
			}) {
				all["a stored message is called not stored"] = lie(i, storedAt{})
			}
		}
	}
	return all
}
