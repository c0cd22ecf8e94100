// The reference model of conversations.

package lab_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// refLog is the reference model of a conversation: all that ever happened, with nothing clever. A purged event is still here, below min.
// Every rule is told in the words of the contract and shares nothing with the product.
type refLog struct {
	conv       string
	epoch, min int64
	first      []string // the first members
	expires    bool     // it has a retention
	old        int64    // up to here events are older than any retention and any window
	events     []tidings.Event
	spans      map[string][]refSpan // by user
	keys       map[refKey]int64     // where the events with a cmid are
	read       map[string]int64
	delivered  map[refDevice]refDelivered
	taken      []string // lines of the journal
	gone       []string // what notifications have to be told
}

// refSpan is a membership, both ends inclusive; to is 0 as long as it lasts.
type refSpan struct{ from, to int64 }

type (
	refKey       struct{ user, cmid string }
	refDevice    struct{ user, device string }
	refDelivered struct{ install, seq int64 }
)

func newRefLog(conv string, epoch int64, first []string, expires bool) *refLog {
	l := &refLog{conv: conv, epoch: epoch, min: 1, first: first, expires: expires, spans: map[string][]refSpan{}, keys: map[refKey]int64{}, read: map[string]int64{},
		delivered: map[refDevice]refDelivered{}}
	for _, user := range first {
		l.join(user, "")
	}
	return l
}

func (l *refLog) append(e tidings.Event) int64 {
	e.Conv, e.Seq = l.conv, l.head()+1
	l.events = append(l.events, e)
	if e.Cmid != "" {
		l.keys[refKey{e.Sender, e.Cmid}] = e.Seq
	}
	return e.Seq
}

func (l *refLog) head() int64                    { return int64(len(l.events)) }
func (l *refLog) event(seq int64) *tidings.Event { return &l.events[seq-1] }

// known: the user is or was a member.
func (l *refLog) known(user string) bool { return l != nil && len(l.spans[user]) > 0 }

// open is the membership that lasts, if there is one.
func (l *refLog) open(user string) *refSpan {
	if n := len(l.spans[user]); n > 0 && l.spans[user][n-1].to == 0 {
		return &l.spans[user][n-1]
	}
	return nil
}

func (l *refLog) member(user string, seq int64) bool {
	return slices.ContainsFunc(l.spans[user], func(s refSpan) bool { return s.from <= seq && (s.to == 0 || seq <= s.to) })
}

// visible: the user may read the event at seq, and it is there.
func (l *refLog) visible(user string, seq int64) bool {
	return seq >= l.min && seq <= l.head() && l.member(user, seq)
}

// headOf is the last seq that concerns a user who is or was a member.
func (l *refLog) headOf(user string) int64 {
	if l.open(user) != nil {
		return l.head()
	}
	spans := l.spans[user]
	return spans[len(spans)-1].to
}

func (l *refLog) minOf(user string) int64 { return min(l.min, l.headOf(user)+1) }

func (l *refLog) join(user, actor string) store.Membership {
	if s := l.open(user); s != nil {
		return store.Membership{Epoch: l.epoch, Seq: s.from}
	}
	if l.known(user) {
		l.takes("join " + user)
	}
	seq := l.append(tidings.Event{Kind: tidings.KindJoin, Sender: user, Actor: actor})
	l.spans[user] = append(l.spans[user], refSpan{from: seq})
	return store.Membership{Epoch: l.epoch, Seq: seq, Changed: true}
}

func (l *refLog) leave(user, actor string) store.Membership {
	s := l.open(user)
	switch {
	case s != nil:
		s.to = l.append(tidings.Event{Kind: tidings.KindLeave, Sender: user, Actor: actor})
		l.takes("leave " + user)
		l.gone = append(l.gone, fmt.Sprintf("leave %s %d", user, s.to))
		return store.Membership{Epoch: l.epoch, Seq: s.to, Changed: true}
	case l.known(user):
		return store.Membership{Epoch: l.epoch, Seq: l.headOf(user)}
	}
	return store.Membership{Epoch: l.epoch}
}

// send is the answer to a message. at is 0 for one that is new: its time and mid are the product's to say.
func (l *refLog) send(m *tidings.Message) tidings.Answer {
	if l == nil {
		return tidings.Answer{Code: tidings.NotMember}
	}
	if seq := l.keys[refKey{m.Sender, m.Cmid}]; seq > 0 {
		e := l.event(seq)
		switch {
		case seq < l.min:
			return tidings.Answer{Code: tidings.OriginalExpired, Seq: seq, Epoch: l.epoch}
		case e.Kind != tidings.KindMsg, !e.Recalled && (*e.Body != m.Body || string(e.Data) != string(m.Data)):
			return tidings.Answer{Code: tidings.IdempotencyMismatch}
		}
		mid, err := tidings.ParseUUID(e.Mid)
		if err != nil {
			panic(err) // it was written by String
		}
		return tidings.Answer{Seq: seq, Mid: mid, Epoch: l.epoch, At: e.At, Dup: true}
	}
	if l.open(m.Sender) == nil {
		return tidings.Answer{Code: tidings.NotMember}
	}
	body := m.Body
	seq := l.append(tidings.Event{Kind: tidings.KindMsg, Sender: m.Sender, SDev: m.Device, Cmid: m.Cmid, Body: &body, Data: m.Data})
	return tidings.Answer{Seq: seq, Epoch: l.epoch}
}

func (l *refLog) outcome(user, cmid string) (store.Outcome, refusal) {
	if l != nil {
		switch seq := l.keys[refKey{user, cmid}]; {
		case seq >= l.min:
			return store.Outcome{Epoch: l.epoch, Stored: "yes", Seq: seq}, refusal{}
		case seq > 0:
			return store.Outcome{Epoch: l.epoch, Stored: "purged", Seq: seq}, refusal{}
		case l.known(user):
			return store.Outcome{Epoch: l.epoch, Stored: "no"}, refusal{}
		}
	}
	return store.Outcome{}, refusal{code: tidings.NotMember}
}

// refusal is what a refusal says beside its words.
type refusal struct {
	code        tidings.Code
	epoch, head int64
}

// judge refuses a request that speaks of a conversation, as far as all such requests are refused alike.
func (l *refLog) judge(user string, epoch int64) refusal {
	switch {
	case !l.known(user):
		return refusal{code: tidings.NotMember}
	case epoch != 0 && epoch != l.epoch:
		return refusal{code: tidings.EpochChanged, epoch: l.epoch}
	}
	return refusal{}
}

// sync explains each seq after another, one by one.
func (l *refLog) sync(user string, epoch, after int64, limit int) (store.Page, refusal) {
	if no := l.judge(user, epoch); no.code != "" {
		return store.Page{}, no
	}
	head := l.headOf(user)
	switch {
	case after < 0 || limit < 1:
		return store.Page{}, refusal{code: tidings.InvalidArgument}
	case after > head:
		return store.Page{}, refusal{tidings.CursorAhead, l.epoch, head}
	}
	p := store.Page{Conv: l.conv, Epoch: l.epoch, Head: head, MinSeq: l.minOf(user), After: after, Events: []tidings.Event{}, Withheld: []store.Withheld{}}
	last := after
	var ranges []store.Withheld
	for seq := after + 1; seq <= head; seq++ {
		if l.visible(user, seq) {
			if len(p.Events) == limit {
				p.More = true
				break
			}
			p.Events, last = append(p.Events, *l.event(seq)), seq
			continue
		}
		why := store.Trimmed
		if !l.member(user, seq) {
			why = store.NotMemberAt
		}
		if n := len(ranges); n > 0 && ranges[n-1].To == seq-1 && ranges[n-1].Why == why {
			ranges[n-1].To = seq
		} else {
			ranges = append(ranges, store.Withheld{From: seq, To: seq, Why: why})
		}
	}
	for _, w := range ranges {
		if !p.More || w.To < last {
			p.Withheld = append(p.Withheld, w)
			p.Trimmed = p.Trimmed || w.Why == store.Trimmed
		}
	}
	return p, refusal{}
}

func (l *refLog) fetch(user string, epoch, seq int64) (tidings.Event, refusal) {
	no := l.judge(user, epoch)
	switch {
	case no.code != "":
		return tidings.Event{}, no
	case seq < 1:
		return tidings.Event{}, refusal{code: tidings.InvalidArgument}
	case !l.member(user, seq):
		return tidings.Event{}, refusal{code: tidings.NotMember}
	case !l.visible(user, seq):
		return tidings.Event{}, refusal{code: tidings.NotFound}
	}
	return *l.event(seq), refusal{}
}

// unread counts what a user has not read.
func (l *refLog) unread(user string) (n int64) {
	for seq := l.read[user] + 1; seq <= l.head(); seq++ {
		if e := l.event(seq); l.visible(user, seq) && e.Kind == tidings.KindMsg && e.Sender != user && !e.Recalled {
			n++
		}
	}
	return n
}

func (l *refLog) reads(user string, epoch, seq int64) (store.ReadState, refusal) {
	no := l.judge(user, epoch)
	switch {
	case no.code != "":
		return store.ReadState{}, no
	case seq < 1:
		return store.ReadState{}, refusal{code: tidings.InvalidArgument}
	case seq > l.headOf(user):
		return store.ReadState{}, refusal{tidings.CursorAhead, l.epoch, l.headOf(user)}
	}
	moved := seq > l.read[user]
	l.read[user] = max(l.read[user], seq)
	return store.ReadState{Epoch: l.epoch, Seq: l.read[user], Unread: l.unread(user), Moved: moved}, refusal{}
}

// acks takes the acks of one conversation that no install stands in the way of, and answers them with what is stored in the end.
func (l *refLog) acks(acks []store.Ack) []store.Acked {
	answers := make([]store.Acked, len(acks))
	for i, a := range acks {
		d := refDevice{a.User, a.Device}
		if no := l.judge(a.User, a.Epoch); no.code != "" {
			answers[i] = store.Acked{Code: no.code, Epoch: no.epoch}
		} else if was := l.delivered[d]; was.install != a.InstallNo {
			l.delivered[d] = refDelivered{a.InstallNo, min(a.Seq, l.headOf(a.User))}
		} else {
			l.delivered[d] = refDelivered{a.InstallNo, max(was.seq, min(a.Seq, l.headOf(a.User)))}
		}
	}
	for i, a := range acks {
		if answers[i].Code == "" {
			answers[i] = store.Acked{Epoch: l.epoch, Head: l.headOf(a.User), Seq: l.delivered[refDevice{a.User, a.Device}].seq}
		}
	}
	return answers
}

func (l *refLog) summary(user, device string, install int64) store.Summary {
	s := store.Summary{Conv: l.conv, Epoch: l.epoch, Head: l.headOf(user), MinSeq: l.minOf(user), Read: l.read[user], Unread: l.unread(user), Left: l.open(user) == nil}
	if d := l.delivered[refDevice{user, device}]; d.install == install {
		s.Delivered = d.seq
	}
	for seq := l.head(); seq > 0; seq-- {
		if l.visible(user, seq) {
			last := *l.event(seq)
			s.Last, s.At = &last, last.At
			break
		}
	}
	return s
}

// kept are the events that are still there.
func (l *refLog) kept() []tidings.Event { return l.events[l.min-1:] }

// purged are the request keys of those that are not, in the order of seqs.
func (l *refLog) purged() (keys []refKey) {
	for _, k := range slices.SortedFunc(maps.Keys(l.keys), func(a, b refKey) int { return cmp.Compare(l.keys[a], l.keys[b]) }) {
		if l.keys[k] < l.min {
			keys = append(keys, k)
		}
	}
	return keys
}
