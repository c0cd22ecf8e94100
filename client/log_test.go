// Tests of the client's copies of logs.

package client

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// history is a log as a server has it, for one user: some seqs are withheld, some messages recalled.
type history struct {
	epoch    int64
	events   []tidings.Event // by seq - 1; those that are withheld have no kind
	withheld []wire.Withheld
}

func drawHistory(t *rapid.T, epoch int64) *history {
	h := &history{epoch: epoch}
	n := rapid.Int64Range(0, 40).Draw(t, "length")
	for seq := int64(1); seq <= n; seq++ {
		body := fmt.Sprint(epoch, "/", seq)
		e := tidings.Event{Conv: "c", Seq: seq, Kind: tidings.KindMsg, Body: &body}
		switch rapid.IntRange(0, 7).Draw(t, "what") {
		case 0:
			e = tidings.Event{Conv: "c", Seq: seq}
			if last := len(h.withheld) - 1; last >= 0 && h.withheld[last].To == seq-1 {
				h.withheld[last].To = seq
			} else {
				h.withheld = append(h.withheld, wire.Withheld{From: seq, To: seq, Why: "not_member"})
			}
		case 1:
			if seq > 1 {
				e.Kind, e.Body, e.Target = tidings.KindRecall, nil, rapid.Int64Range(1, seq-1).Draw(t, "target")
			}
		}
		h.events = append(h.events, e)
	}
	return h
}

// visible is an event as the server gives it: recalled or, when the copy is an old one, as it was.
func (h *history) visible(seq int64, old bool) tidings.Event {
	e := h.events[seq-1]
	if e.Kind == tidings.KindMsg && !old && slices.ContainsFunc(h.events, func(r tidings.Event) bool { return r.Target == seq && r.Kind != "" }) {
		strip(&e)
	}
	return e
}

// page is what the server answers to a sync.
func (h *history) page(after int64, limit int) (events []tidings.Event, withheld []wire.Withheld, more bool) {
	last := int64(len(h.events))
	for seq := after + 1; seq <= int64(len(h.events)); seq++ {
		if h.events[seq-1].Kind != "" {
			if len(events) == limit {
				more, last = true, events[limit-1].Seq
				break
			}
			events = append(events, h.visible(seq, false))
		}
	}
	for _, w := range h.withheld {
		if w.From, w.To = max(w.From, after+1), min(w.To, last); w.From <= w.To {
			withheld = append(withheld, w)
		}
	}
	return events, withheld, more
}

// check compares a log with the history up to its cursor.
func (h *history) check(t *rapid.T, l *log) {
	next := int64(1)
	for _, p := range l.run {
		if p.from != next || p.to < p.from {
			t.Fatalf("the run has %d to %d where %d is next", p.from, p.to, next)
		}
		for seq := p.from; seq <= p.to; seq++ {
			if (h.events[seq-1].Kind == "") != (p.event == nil) {
				t.Fatalf("%d: withheld and there at once", seq)
			}
		}
		next = p.to + 1
	}
	if next != l.cursor+1 {
		t.Fatalf("the cursor is %d behind a run that ends at %d", l.cursor, next-1)
	}
	for _, p := range l.run {
		if p.event == nil {
			continue
		}
		recall := slices.IndexFunc(l.run, func(r piece) bool { return r.event != nil && r.event.Target == p.from })
		switch full := h.visible(p.from, true); {
		case recall >= 0 && p.event.Body != nil:
			t.Fatalf("%d has a body, and its recall at %d is here", p.from, l.run[recall].from)
		case p.event.Body != nil && *p.event.Body != *full.Body:
			t.Fatalf("%d has the body %q", p.from, *p.event.Body)
		case p.event.Body == nil && full.Body != nil && h.visible(p.from, false).Body != nil:
			t.Fatalf("%d has lost its body", p.from)
		}
	}
}

// TestMergeEqualsTheLog lets pushes come in any order, often and old, and syncs between them: what is here is always a prefix of
// the log, nothing that is known to be recalled has a body, and syncs alone make it complete.
func TestMergeEqualsTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l log
		var h *history
		for epoch := int64(1); epoch <= rapid.Int64Range(1, 3).Draw(t, "epochs"); epoch++ {
			h = drawHistory(t, epoch)
			l = newLog(Position{Epoch: epoch})
			seen := map[int64]bool{} // recalled copies that were told of
			for range rapid.IntRange(0, 60).Draw(t, "pushes") {
				if len(h.events) == 0 {
					break
				}
				seq := rapid.Int64Range(1, int64(len(h.events))).Draw(t, "seq")
				if h.events[seq-1].Kind == "" || rapid.IntRange(0, 9).Draw(t, "sync") == 0 {
					after := min(l.cursor, rapid.Int64Range(0, int64(len(h.events))).Draw(t, "after"))
					events, withheld, _ := h.page(after, rapid.IntRange(1, 10).Draw(t, "limit"))
					if _, ok := l.page(after, events, withheld); !ok {
						t.Fatal("a page that continues the run is refused")
					}
				} else {
					e := h.visible(seq, rapid.Bool().Draw(t, "old"))
					recalled := l.add(e)
					if e.Recalled {
						seen[seq] = true
					}
					for _, seq := range recalled {
						if p := l.find(seq); p == nil || p.event == nil || p.event.Body != nil {
							t.Fatalf("%d is said to be recalled", seq)
						}
					}
				}
				h.check(t, &l)
				for seq := range seen {
					if p := l.find(seq); p != nil && p.event.Body != nil {
						t.Fatalf("the recalled copy of %d was overwritten", seq)
					}
				}
			}
			for l.head = int64(len(h.events)); l.cursor < l.head; {
				before := l.cursor
				events, withheld, _ := h.page(l.cursor, int(max(1, min(l.gap(), 7))))
				if _, ok := l.page(before, events, withheld); !ok || l.cursor == before {
					t.Fatalf("a sync behind %d does not move the cursor", before)
				}
				h.check(t, &l)
			}
			for _, p := range l.run {
				if p.event != nil && (p.event.Body == nil) != (h.visible(p.from, false).Body == nil) {
					t.Fatalf("at the end %d has another content than the log", p.from)
				}
			}
			if len(l.ahead) > 0 || len(l.voided) > 0 {
				t.Fatalf("the complete copy still has %v ahead and %v voided", l.ahead, l.voided)
			}
		}
	})
}

func TestAPageWithAHoleMovesNoCursor(t *testing.T) {
	l := newLog(Position{Epoch: 1})
	body := "x"
	event := func(seq int64) tidings.Event {
		return tidings.Event{Conv: "c", Seq: seq, Kind: tidings.KindMsg, Body: &body}
	}
	if _, ok := l.page(0, []tidings.Event{event(1), event(3)}, nil); ok || l.cursor != 1 {
		t.Fatalf("the cursor is %d", l.cursor)
	}
	if _, ok := l.page(1, nil, []wire.Withheld{{From: 3, To: 4}}); ok || l.cursor != 1 {
		t.Fatalf("the cursor is %d", l.cursor)
	}
	if _, ok := l.page(2, []tidings.Event{event(3)}, nil); ok || l.cursor != 1 {
		t.Fatalf("the cursor is %d", l.cursor)
	}
}

func TestALogKeepsABoundedNumberOfEarlyEvents(t *testing.T) {
	l := newLog(Position{Epoch: 1})
	for seq := int64(2); seq < 5*maxAhead; seq++ {
		l.add(tidings.Event{Conv: "c", Seq: seq, Kind: tidings.KindRecall, Target: 1})
	}
	if len(l.ahead) > maxAhead || len(l.voided) > 1 || l.head != 5*maxAhead-1 {
		t.Fatalf("%d events are kept, %d voided, the head is %d", len(l.ahead), len(l.voided), l.head)
	}
	body := "secret"
	l.add(tidings.Event{Conv: "c", Seq: 1, Kind: tidings.KindMsg, Body: &body})
	if l.cursor != maxAhead+1 || l.run[0].event.Body != nil {
		t.Fatalf("the cursor is %d, the recalled message %+v", l.cursor, l.run[0].event)
	}
	l.forget(l.cursor, 10)
	if len(l.run) != 10 || l.find(l.cursor) == nil {
		t.Fatalf("%d pieces are left", len(l.run))
	}
}
