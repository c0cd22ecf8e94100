// What a double remembers: requests, keys and external sends.

package channeltest

import (
	"fmt"
	"sync"
	"time"
)

// Entry is one request that reached a double.
type Entry struct {
	N        int64     `json:"n"` // 1, 2, 3 … in the order in which they were judged
	At       time.Time `json:"at"`
	Mode     string    `json:"mode"`
	Kind     string    `json:"kind"`
	Ref      string    `json:"ref"`
	Key      string    `json:"key,omitempty"` // the Idempotency-Key header
	Address  string    `json:"address,omitempty"`
	Do       string    `json:"do"`
	Accepted bool      `json:"accepted"` // one more external send
	Replayed bool      `json:"replayed"`
	ID       string    `json:"id,omitempty"`
	BodyHash string    `json:"body_hash,omitempty"` // SHA-256 of the body
}

// Counts are totals since the start or the last reset.
type Counts struct {
	Requests int64 `json:"requests"`
	Sends    int64 `json:"sends"` // external sends: acceptances that were no replays
	Replays  int64 `json:"replays"`
	Queries  int64 `json:"queries"`
}

const (
	maxEntries = 1 << 16 // older entries are dropped; the counts stay
	maxRefs    = 1 << 20 // then a double refuses with 507, before acceptance
)

type acceptance struct {
	id string
	at time.Time
}

type refKey struct{ mode, ref string }

type refState struct {
	Counts
	accepted []acceptance
}

// ledger is what the doubles remember.
type ledger struct {
	mu           sync.Mutex
	keyRetention time.Duration // 0: for ever
	visibleAfter time.Duration
	entries      []Entry // a ring of maxEntries
	n            int64
	ids          int64
	counts       map[string]*Counts // by mode
	refs         map[refKey]*refState
	keys         map[string]acceptance // push only
}

func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.entries, l.counts, l.refs, l.keys = 0, nil, map[string]*Counts{}, map[refKey]*refState{}, map[string]acceptance{}
}

// record judges a request and writes it down, before any answer. e comes back with N, ID, Accepted and Replayed; full
// means that a new reference found no place.
func (l *ledger) record(e Entry, accept bool) (_ Entry, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rs := l.refs[refKey{e.Mode, e.Ref}]
	if rs == nil {
		if len(l.refs) >= maxRefs {
			return e, true
		}
		rs = &refState{}
		l.refs[refKey{e.Mode, e.Ref}] = rs
	}
	total := l.counts[e.Mode]
	if total == nil {
		total = &Counts{}
		l.counts[e.Mode] = total
	}
	if accept {
		original, known := l.keys[e.Key]
		known = known && e.Mode == ModePush && e.Key != "" && (l.keyRetention == 0 || e.At.Sub(original.at) < l.keyRetention)
		if known {
			e.ID, e.Replayed = original.id, true
			total.Replays++
			rs.Replays++
		} else {
			l.ids++
			e.ID, e.Accepted = fmt.Sprintf("%s-msg-%06d", e.Mode, l.ids), true
			total.Sends++
			rs.Sends++
			rs.accepted = append(rs.accepted, acceptance{e.ID, e.At})
			if e.Mode == ModePush && e.Key != "" {
				l.keys[e.Key] = acceptance{e.ID, e.At}
			}
		}
	}
	if e.Kind == KindQuery {
		total.Queries++
		rs.Queries++
	}
	total.Requests++
	rs.Requests++
	l.n++
	e.N = l.n
	if len(l.entries) < maxEntries {
		l.entries = append(l.entries, e)
	} else {
		l.entries[(e.N-1)%maxEntries] = e
	}
	return e, false
}

// visible are the ids that a query shows now.
func (l *ledger) visible(mode, ref string, now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := []string{}
	if rs := l.refs[refKey{mode, ref}]; rs != nil {
		for _, a := range rs.accepted {
			if now.Sub(a.at) >= l.visibleAfter {
				ids = append(ids, a.id)
			}
		}
	}
	return ids
}

// accepted are the ids of the external sends for a reference, first one first.
func (l *ledger) accepted(mode, ref string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	if rs := l.refs[refKey{mode, ref}]; rs != nil {
		for _, a := range rs.accepted {
			ids = append(ids, a.id)
		}
	}
	return ids
}

// read are the entries after N = after, oldest first, at most limit of them.
func (l *ledger) read(mode, ref string, after int64, limit int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Entry{}
	first := l.n - int64(len(l.entries))
	for n := max(after, first); n < l.n && len(out) < limit; n++ {
		e := l.entries[n%maxEntries]
		if (mode == "" || e.Mode == mode) && (ref == "" || e.Ref == ref) {
			out = append(out, e)
		}
	}
	return out
}

// count are the totals of a mode ("": all) or of one reference.
func (l *ledger) count(mode, ref string) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum Counts
	add := func(c *Counts) {
		sum.Requests += c.Requests
		sum.Sends += c.Sends
		sum.Replays += c.Replays
		sum.Queries += c.Queries
	}
	for _, m := range []string{ModePush, ModeSMS, ModePlain} {
		switch {
		case mode != "" && mode != m:
		case ref != "":
			if rs := l.refs[refKey{m, ref}]; rs != nil {
				add(&rs.Counts)
			}
		case l.counts[m] != nil:
			add(l.counts[m])
		}
	}
	return sum
}

func (l *ledger) set(keyRetention, visibleAfter time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keyRetention, l.visibleAfter = keyRetention, visibleAfter
}
