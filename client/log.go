// The copy of a log: merge, holes, epochs.

package client

import (
	"slices"
	"sort"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// maxAhead is how many events that came too early a log keeps. Those beyond come again with a sync.
const maxAhead = 512

// log is the copy of one history of a conversation's log. Events are merged into it in any order and any number of times.
type log struct {
	epoch  int64
	cursor int64 // every seq up to it is in run, or was, or was known before
	head   int64 // the greatest seq that is expected; sync until the cursor is there
	run    []piece
	ahead  map[int64]tidings.Event // beyond a hole
	voided map[int64]bool          // beyond the cursor, recalled, and not here yet
}

// piece is an event, or a range that is withheld. The pieces of a run follow each other without a hole.
type piece struct {
	from, to int64
	why      string // of a range
	event    *tidings.Event
}

func newLog(at Position) log {
	return log{epoch: at.Epoch, cursor: at.Seq, head: at.Seq, ahead: map[int64]tidings.Event{}, voided: map[int64]bool{}}
}

// add merges an event. It returns the seqs at or below the cursor of before whose content is gone by it.
func (l *log) add(e tidings.Event) (recalled []int64) {
	_, here := l.ahead[e.Seq]
	drop := e.Seq > l.cursor+1 && !here && len(l.ahead) >= maxAhead // it comes again
	if e.Kind == tidings.KindRecall && e.Target > 0 && e.Target < e.Seq && !(drop && e.Target > l.cursor) {
		recalled = l.void(e.Target)
	}
	l.head = max(l.head, e.Seq)
	if e.Seq <= l.cursor {
		if e.Recalled {
			recalled = append(recalled, l.void(e.Seq)...)
		}
		return recalled
	}
	if l.voided[e.Seq] {
		strip(&e)
	}
	if had, ok := l.ahead[e.Seq]; ok && (had.Recalled || !e.Recalled) {
		return recalled
	}
	if drop {
		return recalled
	}
	l.ahead[e.Seq] = e
	l.advance()
	return recalled
}

// at is the event at seq, wherever it is.
func (l *log) at(seq int64) *tidings.Event {
	if e, ok := l.ahead[seq]; ok {
		return &e
	}
	if p := l.find(seq); p != nil {
		return p.event
	}
	return nil
}

// recalled tells whether it is known that the event at seq was recalled.
func (l *log) recalled(seq int64) bool {
	e := l.at(seq)
	return l.voided[seq] || e != nil && e.Recalled
}

// void takes the content of the event at seq, now or when it comes.
func (l *log) void(seq int64) (recalled []int64) {
	if seq > l.cursor {
		l.voided[seq] = true
		if e, ok := l.ahead[seq]; ok {
			strip(&e)
			l.ahead[seq] = e
		}
		return nil
	}
	if p := l.find(seq); p != nil && p.event != nil && !p.event.Recalled {
		voided := *p.event // the one in the run may be on its way to the application
		strip(&voided)
		p.event = &voided
		return []int64{seq}
	}
	return nil
}

func strip(e *tidings.Event) { e.Recalled, e.Body, e.Data = true, nil, nil }

// page merges the answer to a sync. It says whether the page continues the run; one that does not is useless.
func (l *log) page(after int64, events []tidings.Event, withheld []wire.Withheld) (recalled []int64, ok bool) {
	if after > l.cursor {
		return nil, false
	}
	for len(events) > 0 || len(withheld) > 0 {
		if len(withheld) > 0 && (len(events) == 0 || withheld[0].From < events[0].Seq) {
			w := withheld[0]
			withheld = withheld[1:]
			if w.From > l.cursor+1 {
				return recalled, false
			}
			l.withhold(w)
			continue
		}
		if events[0].Seq > l.cursor+1 {
			return recalled, false
		}
		recalled = append(recalled, l.add(events[0])...)
		events = events[1:]
	}
	return recalled, true
}

// withhold takes a range as known that begins at the cursor or before.
func (l *log) withhold(w wire.Withheld) {
	if w.To <= l.cursor {
		return
	}
	from := l.cursor + 1
	for seq := range l.ahead {
		if seq <= w.To {
			delete(l.ahead, seq)
		}
	}
	for seq := range l.voided {
		if seq <= w.To {
			delete(l.voided, seq)
		}
	}
	l.run = append(l.run, piece{from: from, to: w.To, why: w.Why})
	l.cursor = w.To
	l.head = max(l.head, w.To)
	l.advance()
}

// advance moves the cursor over what came early.
func (l *log) advance() {
	for {
		e, ok := l.ahead[l.cursor+1]
		if !ok {
			return
		}
		l.cursor++
		delete(l.ahead, e.Seq)
		delete(l.voided, e.Seq)
		l.run = append(l.run, piece{from: e.Seq, to: e.Seq, event: &e})
	}
}

// gap is the number of seqs to ask for: up to the first event beyond the hole, or up to the head.
func (l *log) gap() int64 {
	next := l.head + 1
	for seq := range l.ahead {
		next = min(next, seq)
	}
	return next - l.cursor - 1
}

// complete sets the head to what an answer to a sync said that came to the end, and to what was heard of since it was asked for.
func (l *log) complete(head, heard int64) {
	l.head = max(head, heard, l.cursor)
	for seq := range l.ahead {
		l.head = max(l.head, seq)
	}
}

// index is that of the first piece which ends at seq or later.
func (l *log) index(seq int64) int {
	return sort.Search(len(l.run), func(i int) bool { return l.run[i].to >= seq })
}

func (l *log) find(seq int64) *piece {
	if i := l.index(seq); i < len(l.run) && l.run[i].from <= seq {
		return &l.run[i]
	}
	return nil
}

// events are at most limit of those in the run, beginning at from.
func (l *log) events(from int64, limit int) (list []tidings.Event) {
	for _, p := range l.run[l.index(from):] {
		if len(list) == limit {
			break
		}
		if p.event != nil {
			list = append(list, *p.event)
		}
	}
	return list
}

// forget keeps of the pieces up to seq only the last ones. It waits until there is much to gain.
func (l *log) forget(seq int64, keep int) {
	old := l.index(seq+1) - keep
	if old > keep/2+16 {
		l.run = slices.Clone(l.run[old:])
	}
}
