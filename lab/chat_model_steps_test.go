// The random steps of the model check.

package lab_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// modelStep is something that can happen next; the weights make 100.
type modelStep struct {
	name   string
	weight int
	take   func()
}

func (m *chatModel) steps() []modelStep {
	return []modelStep{
		{"send", 25, m.sendSome}, {"join", 10, m.joinOne}, {"leave", 4, m.leaveOne}, {"sync", 12, m.syncOne}, {"fetch", 7, m.fetchOne}, {"ack", 7, m.ackSome},
		{"read", 6, m.readOne}, {"list", 5, m.listOne}, {"outcome", 5, m.outcomeOf}, {"create", 3, func() { m.create(m.conv()) }}, {"install", 2, m.installOne},
		{"recall", 9, m.recallSome}, {"age", 2, m.ageSome}, {"purge", 2, m.purgeOne}, {"epoch", 1, m.newEpoch},
	}
}

// create creates a conversation, or one that is there once more, alike or not.
func (m *chatModel) create(conv string) {
	m.Helper()
	l := m.logs[conv]
	if l == nil {
		first := slices.Clone(modelUsers[:1+m.r.IntN(3)])
		made, err := m.store.CreateConversation(m.ctx, store.Conversation{Conv: conv, RecallWindow: time.Hour, Retention: modelRetention(conv), Members: first})
		m.Must("create a conversation", err)
		m.same("created", true, made)
		m.logs[conv] = newRefLog(conv, m.generation, first, modelRetention(conv) != nil)
		m.learn(m.logs[conv], 1)
		return
	}
	c := store.Conversation{Conv: conv, RecallWindow: time.Hour, Retention: modelRetention(conv), Members: slices.Clone(l.first)}
	slices.Reverse(c.Members)
	want := refusal{}
	switch m.r.IntN(3) {
	case 0:
		c.RecallWindow, want.code = time.Minute, tidings.Conflict
	case 1:
		c.Members, want.code = append(c.Members, "zoe"), tidings.Conflict
	}
	made, err := m.store.CreateConversation(m.ctx, c)
	m.same("create again", want, m.refused(err))
	m.same("created again", false, made)
}

// sendSome sends a batch: new messages, repeats, other contents under a known key, to whichever conversation by whomever.
func (m *chatModel) sendSome() {
	var batch []tidings.Message
	for range 1 + m.r.IntN(5) {
		var msg tidings.Message
		if len(m.sent) > 0 && m.r.IntN(3) == 0 {
			msg = m.sent[m.r.IntN(len(m.sent))]
			if m.r.IntN(3) == 0 {
				msg.Body += ", or not"
			}
		} else {
			m.cmids++
			msg = tidings.Message{Conv: m.conv(), Sender: m.user()}
			for range 3 { // members send more often
				if l := m.logs[msg.Conv]; l != nil && l.open(msg.Sender) == nil {
					msg.Sender = m.user()
				}
			}
			msg.Cmid, msg.Body = fmt.Sprintf("m-%d", m.cmids), fmt.Sprintf("words %d", m.cmids)
			msg.Device = []string{"", msg.Sender + "-1"}[m.r.IntN(2)]
			if m.r.IntN(4) == 0 {
				msg.Data = json.RawMessage(fmt.Sprintf(`{"n": %d}`, m.cmids))
			}
			m.sent = append(m.sent, msg)
		}
		key := tidings.Message{Conv: msg.Conv, Sender: msg.Sender, Cmid: msg.Cmid}
		if known := slices.ContainsFunc(batch, func(o tidings.Message) bool {
			return o.Conv == key.Conv && o.Sender == key.Sender && o.Cmid == key.Cmid
		}); !known {
			batch = append(batch, msg)
		}
	}
	answers, err := m.store.Send(m.ctx, batch, []time.Duration{0, time.Second}[m.r.IntN(2)])
	m.Must("send", err)
	m.same("answers to a batch", len(batch), len(answers))
	for i := range batch {
		l := m.logs[batch[i].Conv]
		want := l.send(&batch[i])
		if want.Code == "" && !want.Dup { // a new message: the product says which mid and when
			want.Mid, want.At = answers[i].Mid, answers[i].At
			if want.Mid.IsZero() || want.At == 0 {
				m.Fatalf("a new message without mid or time: %v", answers[i])
			}
			l.event(want.Seq).Mid, l.event(want.Seq).At = want.Mid.String(), want.At
		}
		m.same(fmt.Sprintf("send %+v", batch[i]), want, answers[i])
		m.answers["sent "+string(want.Code)+map[bool]string{true: "dup"}[want.Dup]]++
	}
}

// learn takes the times of events that are no messages from the product.
func (m *chatModel) learn(l *refLog, from int64) {
	for seq := from; seq <= l.head(); seq++ {
		l.event(seq).At = one[time.Time](m.scene, `SELECT created_at FROM tidings.event WHERE conv_id = $1 AND seq = $2`, l.conv, seq).UnixMilli()
	}
}

func (m *chatModel) joinOne()  { m.change(m.store.Join, (*refLog).join) }
func (m *chatModel) leaveOne() { m.change(m.store.Leave, (*refLog).leave) }

func (m *chatModel) outcomeOf() {
	conv, user, cmid := m.conv(), m.user(), "m-none"
	if len(m.sent) > 0 && m.r.IntN(5) > 0 {
		msg := m.sent[m.r.IntN(len(m.sent))]
		conv, user, cmid = msg.Conv, msg.Sender, msg.Cmid
	}
	want, no := m.logs[conv].outcome(user, cmid)
	got, err := m.store.Outcome(m.ctx, conv, user, cmid)
	m.same("refusal of an outcome", no, m.refused(err))
	m.same("outcome", want, got)
}

func (m *chatModel) syncOne() {
	user, conv := m.user(), m.conv()
	l := m.logs[conv]
	epoch, after, limit := m.epoch(l), m.seq(l), m.r.IntN(9)
	if m.r.IntN(4) == 0 {
		limit = 1000
	}
	want, no := l.sync(user, epoch, after, limit)
	got, err := m.store.Sync(m.ctx, user, conv, epoch, after, limit)
	what := fmt.Sprintf("sync of %s by %s from %d with limit %d", conv, user, after, limit)
	m.same("refusal: "+what, no, m.refused(err))
	m.same(what, want, got)
	m.none(what, got.Events...)
}

func (m *chatModel) fetchOne() {
	user, conv := m.user(), m.conv()
	l := m.logs[conv]
	epoch, seq := m.epoch(l), m.seq(l)
	want, no := l.fetch(user, epoch, seq)
	_, got, err := m.store.Fetch(m.ctx, user, conv, epoch, seq)
	what := fmt.Sprintf("fetch of %d of %s by %s", seq, conv, user)
	m.same("refusal: "+what, no, m.refused(err))
	m.same(what, want, got)
	m.none(what, got)
}

func (m *chatModel) readOne() {
	user, conv := m.user(), m.conv()
	l := m.logs[conv]
	epoch, seq := m.epoch(l), m.seq(l)
	want, no := l.reads(user, epoch, seq)
	got, err := m.store.Read(m.ctx, user, conv, epoch, seq)
	what := fmt.Sprintf("%s has read %s up to %d", user, conv, seq)
	m.same("refusal: "+what, no, m.refused(err))
	m.same(what, want, got)
}

// ackSome acknowledges for several devices, some of them twice, some by an install that was replaced.
func (m *chatModel) ackSome() {
	var acks []store.Ack
	devices := m.devices()
	for range 1 + m.r.IntN(4) {
		d, conv := devices[m.r.IntN(len(devices))], m.conv()
		acks = append(acks, store.Ack{Conv: conv, User: d.user, Device: d.device, InstallNo: int64(len(m.installs[d])), Epoch: m.epoch(m.logs[conv]), Seq: m.seq(m.logs[conv])})
		if m.r.IntN(3) == 0 {
			acks = append(acks, acks[len(acks)-1])
			acks[len(acks)-1].Seq++
		}
		if m.r.IntN(6) == 0 {
			acks[len(acks)-1].InstallNo--
		}
	}
	got, err := m.store.Ack(m.ctx, acks)
	m.Must("acknowledge", err)
	want := make([]store.Acked, len(acks))
	places := map[string][]int{}
	for i, a := range acks {
		switch {
		case a.Seq < 1:
			want[i].Code = tidings.InvalidArgument
		case a.InstallNo < int64(len(m.installs[refDevice{a.User, a.Device}])):
			want[i].Code = tidings.InstallReplaced
		case m.logs[a.Conv] == nil:
			want[i].Code = tidings.NotMember
		default:
			places[a.Conv] = append(places[a.Conv], i)
		}
	}
	for conv, at := range places {
		var some []store.Ack
		for _, i := range at {
			some = append(some, acks[i])
		}
		for k, a := range m.logs[conv].acks(some) {
			want[at[k]] = a
		}
	}
	m.same(fmt.Sprintf("acks %+v", acks), want, got)
	for _, a := range got {
		m.answers["ack "+string(a.Code)]++
	}
}

func (m *chatModel) listOne() {
	d := m.devices()[m.r.IntN(2*len(modelUsers))]
	after, limit := []string{"", "c-1", "c-2"}[m.r.IntN(3)], 1+m.r.IntN(4)
	want := []store.Summary{}
	more := false
	for _, conv := range modelConvs {
		if l := m.logs[conv]; conv > after && l.known(d.user) {
			if more = len(want) == limit; more {
				break
			}
			want = append(want, l.summary(d.user, d.device, int64(len(m.installs[d]))))
		}
	}
	got, gotMore, err := m.store.Conversations(m.ctx, d.user, d.device, after, limit)
	m.Must("list conversations", err)
	m.same("list", want, got)
	for _, c := range got {
		if c.Last != nil {
			m.none("list", *c.Last)
		}
	}
	m.same("more of the list", more, gotMore)
}

// installOne has a device come with a new install, with its current one or with one that was replaced.
func (m *chatModel) installOne() {
	d := m.devices()[m.r.IntN(2*len(modelUsers))]
	all := m.installs[d]
	switch m.r.IntN(3) {
	case 0:
		m.install(d, fmt.Sprintf("install-%d", len(all)))
	case 1:
		m.install(d, all[len(all)-1])
	default:
		if len(all) > 1 {
			_, err := m.store.Hello(m.ctx, d.user, d.device, all[0], "gateway", m.uuid())
			m.same("hello of a former install", refusal{code: tidings.InstallReplaced}, m.refused(err))
		}
	}
}

func (m *chatModel) install(d refDevice, name string) {
	m.Helper()
	h, err := m.store.Hello(m.ctx, d.user, d.device, name, "gateway", m.uuid())
	m.Must("say hello", err)
	if all := m.installs[d]; len(all) == 0 || all[len(all)-1] != name {
		m.installs[d] = append(all, name)
	}
	m.same("number of an install", int64(len(m.installs[d])), h.InstallNo)
}

func (m *chatModel) uuid() (id tidings.UUID) {
	for i := range id {
		id[i] = byte(m.r.IntN(256))
	}
	return id
}

// newEpoch gives a log another history's name, as a restore does.
func (m *chatModel) newEpoch() {
	l := m.some()
	l.epoch++
	m.exec(`UPDATE tidings.conversation SET epoch = $2 WHERE conv_id = $1`, l.conv, l.epoch)
}
