// The steps of the model check that take something back, and what the reference model says of them.

package lab_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// takes writes a line of the journal.
func (l *refLog) takes(line string) { l.taken = append(l.taken, fmt.Sprint(line, " in ", l.epoch)) }

// recall is the answer to a recall, rule by rule. at is 0 for one that is new: its time is the product's to say.
func (l *refLog) recall(r store.Recall) store.Recalled {
	if !l.known(r.User) {
		return store.Recalled{Code: tidings.NotMember}
	}
	if seq := l.keys[refKey{r.User, r.Cmid}]; seq > 0 { // before everything else, so that a lost answer can be had again
		e := l.event(seq)
		switch {
		case seq >= l.min && e.Kind == tidings.KindRecall && e.Target == r.Target:
			return store.Recalled{Epoch: l.epoch, Seq: seq, At: e.At, Dup: true}
		case seq >= l.min, r.Target >= l.min: // a recall that was purged had a target that was purged
			return store.Recalled{Code: tidings.IdempotencyMismatch}
		}
		return store.Recalled{Code: tidings.NotFound}
	}
	switch {
	case r.Epoch != 0 && r.Epoch != l.epoch:
		return store.Recalled{Code: tidings.EpochChanged, Epoch: l.epoch}
	case l.open(r.User) == nil:
		return store.Recalled{Code: tidings.NotMember}
	case !l.visible(r.User, r.Target):
		return store.Recalled{Code: tidings.NotFound}
	}
	switch e := l.event(r.Target); {
	case e.Kind != tidings.KindMsg:
		return store.Recalled{Code: tidings.InvalidArgument}
	case e.Sender != r.User:
		return store.Recalled{Code: tidings.NotSender}
	case e.Recalled:
		return store.Recalled{Code: tidings.AlreadyRecalled}
	case r.Target <= l.old:
		return store.Recalled{Code: tidings.RecallWindowExpired}
	}
	seq := l.append(tidings.Event{Kind: tidings.KindRecall, Sender: r.User, SDev: r.Device, Cmid: r.Cmid, Target: r.Target})
	e := l.event(r.Target)
	e.Recalled, e.Body, e.Data = true, nil, nil
	l.takes("recall " + e.Mid + e.Sender)
	l.gone = append(l.gone, fmt.Sprintf("recall  %d", r.Target))
	return store.Recalled{Epoch: l.epoch, Seq: seq}
}

// purge takes events away from the front: up to the last one that is too old among the first limit.
func (l *refLog) purge(limit int) store.Purged {
	p := store.Purged{MinSeq: l.min}
	last := min(l.min+int64(limit)-1, l.head(), l.old)
	if !l.expires || last < l.min {
		return p
	}
	p.Events = int(last - l.min + 1)
	p.More = p.Events == limit
	for seq := l.min; seq <= last; seq++ {
		if l.event(seq).Cmid != "" {
			p.Tombstones++
		}
	}
	l.takes(fmt.Sprint("purge up to ", l.event(last).At))
	l.min, p.MinSeq = last+1, last+1
	return p
}

// modelRetention: one conversation is kept for ever, the others for half a day.
func modelRetention(conv string) *time.Duration {
	if conv == "c-2" {
		return nil
	}
	half := 12 * time.Hour
	return &half
}

// none ends the check when an event that was read has the content of a recalled message: R6.
func (m *chatModel) none(what string, events ...tidings.Event) {
	m.Helper()
	for _, e := range events {
		if e.Body != nil && m.recalled[*e.Body] || e.Recalled && (e.Body != nil || e.Data != nil) {
			m.Fatalf("R6: %s gave the content of %d of %s", what, e.Seq, e.Conv)
		}
	}
}

// recallSome asks for a recall: one that should be done, one by somebody else or of something else, or an earlier one once more.
func (m *chatModel) recallSome() {
	m.cmids++
	r := store.Recall{Conv: m.conv(), User: m.user(), Cmid: fmt.Sprintf("r-%d", m.cmids)}
	l := m.logs[r.Conv]
	r.Epoch, r.Target = m.epoch(l), m.seq(l)
	switch n := m.r.IntN(10); {
	case n < 3 && len(m.recalls) > 0: // once more, sometimes with another target
		r = m.recalls[m.r.IntN(len(m.recalls))]
		if m.r.IntN(4) == 0 {
			r.Target++
		}
	case n < 8 && l != nil: // by the sender of a message, perhaps of one that was recalled
		var candidates []tidings.Event
		for _, e := range l.kept() {
			if e.Kind == tidings.KindMsg {
				candidates = append(candidates, e)
			}
		}
		if len(candidates) > 0 {
			e := candidates[m.r.IntN(len(candidates))]
			r.User, r.Target, r.Device = e.Sender, e.Seq, e.SDev
		}
	case n == 8 && len(m.sent) > 0: // under the key of a message
		msg := m.sent[m.r.IntN(len(m.sent))]
		r.Conv, r.User, r.Cmid = msg.Conv, msg.Sender, msg.Cmid
	}
	l = m.logs[r.Conv]
	m.recalls = append(m.recalls, r)
	what := fmt.Sprintf("recall %+v", r)
	var content string
	if l != nil && r.Target > 0 && r.Target <= l.head() && l.event(r.Target).Body != nil {
		content = *l.event(r.Target).Body
	}
	got, err := m.store.Recall(m.ctx, r, m.r.IntN(2) == 0)
	if r.Target < 1 {
		m.same("refusal: "+what, refusal{code: tidings.InvalidArgument}, m.refused(err))
		return
	}
	m.Must(what, err)
	want := l.recall(r)
	if want.Code == "" && !want.Dup {
		m.learn(l, want.Seq)
		want.At = l.event(want.Seq).At
		m.recalled[content] = true
		m.sent = append(m.sent, tidings.Message{Conv: r.Conv, Sender: r.User, Cmid: r.Cmid, Body: "a message under a recall's key"})
	}
	m.same(what, want, got)
	m.answers["recall "+string(want.Code)+map[bool]string{true: "dup"}[want.Dup]]++
}

// ageSome makes the front of a log a day older, so that its retention and its recall window are over.
func (m *chatModel) ageSome() {
	l := m.some()
	if len(l.kept()) == 0 {
		return
	}
	last := min(l.min+int64(m.r.IntN(12)), l.head())
	if l.min == 1 { // the first members and their conversation are of one moment
		last = max(last, int64(len(l.first)))
		m.exec(`UPDATE tidings.conversation SET created_at = created_at - interval '24 hours' WHERE conv_id = $1`, l.conv)
	}
	m.exec(`UPDATE tidings.event SET created_at = created_at - interval '24 hours' WHERE conv_id = $1 AND seq <= $2`, l.conv, last)
	for seq := l.min; seq <= last; seq++ {
		l.event(seq).At -= (24 * time.Hour).Milliseconds()
	}
	l.old = max(l.old, last)
}

// purgeOne asks which conversations have something to purge, and has one of all purge a step.
func (m *chatModel) purgeOne() {
	var expired []string
	for _, conv := range modelConvs {
		if l := m.logs[conv]; l != nil && l.expires && l.min <= min(l.old, l.head()) {
			expired = append(expired, conv)
		}
	}
	var got []string
	for after, more := "", true; more; {
		var convs []string
		var err error
		convs, after, more, err = m.store.Expired(m.ctx, after, 1+m.r.IntN(4))
		m.Must("look for conversations to purge", err)
		got = append(got, convs...)
	}
	m.same("conversations with something to purge", strings.Join(expired, " "), strings.Join(got, " "))

	conv, limit := m.conv(), 1+m.r.IntN(12)
	l := m.logs[conv]
	p, err := m.store.PurgeLog(m.ctx, conv, limit)
	if l == nil {
		m.same("a purge of an absent conversation", refusal{code: tidings.NotFound}, m.refused(err))
		return
	}
	m.Must("purge a conversation", err)
	p.Held = 0
	m.same(fmt.Sprintf("purge of %s by %d", conv, limit), l.purge(limit), p)
	if p.Events > 0 {
		m.answers["purged"]++
	}
}

// journal are the lines of the journal of a conversation, in the order of their times.
func (m *chatModel) journal(conv string) (lines []string) {
	m.Helper()
	var line string
	m.each(`SELECT concat(what, ' ', mid, user_id, 'up to ' || round(extract(epoch FROM cutoff_at) * 1000 - 0.5), ' in ', epoch) FROM tidings.taken_back
		WHERE conv_id = $1 ORDER BY at`, conv, []any{&line}, func() { lines = append(lines, line) })
	return lines
}

// gone is what notifications have to be told of recalls and leaves.
func (m *chatModel) gone(conv string) (lines []string) {
	m.Helper()
	var line string
	m.each(`SELECT concat(why, ' ', user_id, ' ', seq) FROM tidings.gone WHERE conv_id = $1 AND why <> 'read' ORDER BY at, seq`, conv, []any{&line},
		func() { lines = append(lines, line) })
	return slices.Clip(lines)
}
