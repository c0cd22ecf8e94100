// An encoded event that all its receivers share.

package gateway

import (
	"sync/atomic"
	"weak"
)

// entry is one encoded event, shared by the queues of all sessions that it was offered to.
type entry struct {
	seq   int64
	size  int                    // bytes of the frame as it was made
	bytes atomic.Pointer[[]byte] // the JSON text of the `event` push; nil once voided
}

func newEntry(seq int64, frame []byte) *entry {
	e := &entry{seq: seq, size: len(frame)}
	e.bytes.Store(&frame)
	return e
}

// frame is the JSON text of the push, nil once the event was recalled: then nothing is to be written. A writer asks as late as
// it can, because what it has taken can be voided no more.
func (e *entry) frame() []byte {
	if b := e.bytes.Load(); b != nil {
		return *b
	}
	return nil
}

func (e *entry) void() { e.bytes.Store(nil) }

// offered finds the entries that are still in some queue, by seq. It holds them weakly: an entry that every session has written
// or dropped is gone, and one that waits anywhere is found, however long it waits.
type offered struct {
	entries []weak.Pointer[entry] // in the order of their seqs
	prune   int                   // the length at which those that are gone are looked for
}

func (o *offered) add(e *entry) {
	if len(o.entries) >= o.prune {
		o.forget()
	}
	o.entries = append(o.entries, weak.Make(e))
}

// forget drops what nobody holds any more.
func (o *offered) forget() {
	kept := o.entries[:0]
	for _, w := range o.entries {
		if w.Value() != nil {
			kept = append(kept, w)
		}
	}
	clear(o.entries[len(kept):])
	o.entries = kept
	if len(kept) == 0 {
		o.entries = nil
	}
	o.prune = 2*len(kept) + 32
}

// void voids the entry of one event.
func (o *offered) void(seq int64) {
	for _, w := range o.entries {
		if e := w.Value(); e != nil && e.seq == seq {
			e.void()
		}
	}
}

// voidAll voids every entry: recalls may have been skipped.
func (o *offered) voidAll() {
	for _, w := range o.entries {
		if e := w.Value(); e != nil {
			e.void()
		}
	}
	*o = offered{}
}
