// Conversations that are filled by SQL, and the model of what is in them.

package store_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidings-project/tidings"
)

// epoch is that of the conversations which tests fill by SQL.
const epoch = 77

// step is one event of a history: "join ana", "leave ana", "msg ana", or "recall ana 3".
type step struct {
	kind, user string
	target     int64
}

// history is a conversation that was filled by SQL, and the model of what is in it: the event at seq n is steps[n-1].
type history struct {
	conv   string
	steps  []step
	minSeq int64
}

// fill makes a conversation by SQL alone, so that reading is judged by what stands in the tables. Bodies are "body N" at seq N.
func (b *bench) fill(conv string, lines ...string) *history {
	b.t.Helper()
	h := &history{conv: conv, minSeq: 1}
	b.exec(`INSERT INTO tidings.conversation (conv_id, epoch) VALUES ($1, $2)`, conv, epoch)
	return b.extend(h, lines...)
}

// extend appends events to a history.
func (b *bench) extend(h *history, lines ...string) *history {
	b.t.Helper()
	for _, line := range lines {
		var s step
		words := strings.Fields(line)
		s.kind, s.user = words[0], words[1]
		if len(words) > 2 {
			_, err := fmt.Sscan(words[2], &s.target)
			b.must(err)
		}
		h.steps = append(h.steps, s)
		seq := int64(len(h.steps))
		b.exec(`UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = $1`, h.conv)
		switch s.kind {
		case "join":
			b.exec(`INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ($1, $2, $3)`, h.conv, s.user, seq)
		case "leave":
			b.exec(`UPDATE tidings.member SET leave_seq = $3 WHERE conv_id = $1 AND user_id = $2 AND leave_seq IS NULL`, h.conv, s.user, seq)
		case "recall":
			b.exec(`UPDATE tidings.event SET recalled_by = $3, body = NULL, data = NULL, request_hash = NULL WHERE conv_id = $1 AND seq = $2`, h.conv, s.target, seq)
		}
		b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, sender_device, cmid, body, data, target_seq)
			VALUES ($1, $2, $3, CASE WHEN $3 = 'msg' THEN gen_random_uuid() END, $4, CASE WHEN $3 = 'msg' THEN $4 || '-d' END,
				CASE WHEN $3 IN ('msg', 'recall') THEN 'c' || $2::bigint END, CASE WHEN $3 = 'msg' THEN 'body ' || $2::bigint END,
				CASE WHEN $3 = 'msg' THEN '{"n":1}' END, nullif($5::bigint, 0))`, h.conv, seq, s.kind, s.user, s.target)
	}
	return h
}

// purgeLog deletes the events below minSeq.
func (b *bench) purgeLog(h *history, minSeq int64) {
	b.t.Helper()
	h.minSeq = minSeq
	b.exec(`DELETE FROM tidings.event WHERE conv_id = $1 AND seq < $2`, h.conv, minSeq)
	b.exec(`UPDATE tidings.conversation SET min_seq = $2 WHERE conv_id = $1`, h.conv, minSeq)
}

func (h *history) head() int64 { return int64(len(h.steps)) }

// inside tells by a walk through the events whether a user was a member at seq, joins and leaves included.
func (h *history) inside(user string, seq int64) bool {
	in := false
	for i, s := range h.steps {
		if s.user == user && s.kind == "join" {
			in = true
		}
		if int64(i+1) == seq {
			return in
		}
		if s.user == user && s.kind == "leave" {
			in = false
		}
	}
	return in
}

// seen is the last seq that a user can know of; 0 for one who never was a member.
func (h *history) seen(user string) (last int64) {
	for seq := h.head(); seq > 0; seq-- {
		if h.inside(user, seq) {
			return seq
		}
	}
	return 0
}

// visible are the seqs that a user can read.
func (h *history) visible(user string) (seqs []int64) {
	for seq := h.minSeq; seq <= h.head(); seq++ {
		if h.inside(user, seq) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

func (h *history) recalled(seq int64) bool {
	return slices.ContainsFunc(h.steps, func(s step) bool { return s.kind == "recall" && s.target == seq })
}

// unread counts one by one.
func (h *history) unread(user string, read int64) (n int64) {
	for _, seq := range h.visible(user) {
		if s := h.steps[seq-1]; seq > read && s.kind == "msg" && s.user != user && !h.recalled(seq) {
			n++
		}
	}
	return n
}

// check fails if an event is not what stands at its seq.
func (h *history) check(b *bench, e tidings.Event) {
	b.t.Helper()
	s := h.steps[e.Seq-1]
	if e.Conv != h.conv || string(e.Kind) != s.kind || e.Sender != s.user || e.Target != s.target || e.Recalled != h.recalled(e.Seq) || e.At == 0 {
		b.t.Fatalf("the event at %d is %+v, want %+v", e.Seq, e, s)
	}
	message := s.kind == "msg"
	if (e.Mid != "") != message || (e.SDev != "") != message {
		b.t.Fatalf("the event at %d is %+v", e.Seq, e)
	}
	content := message && !h.recalled(e.Seq)
	if content != (e.Body != nil) || content != (e.Data != nil) || content && (*e.Body != fmt.Sprintf("body %d", e.Seq) || string(e.Data) != `{"n":1}`) {
		b.t.Fatalf("the content at %d is %v %s", e.Seq, e.Body, e.Data)
	}
}
