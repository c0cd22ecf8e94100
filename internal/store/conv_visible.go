// The one rule of what a user may see of a log.

package store

import (
	"slices"
	"time"

	"github.com/tidings-project/tidings"
)

// What a user may read of a conversation is one rule (R3). It is told twice, in SQL by inside and visibleHead, in Go by view, and every
// path that reads goes through these.
const (
	// inside: event e lies in the interval m of conversation c and was not purged. As bounds of a range of event's primary key it
	// never walks through what is hidden.
	inside = `e.conv_id = m.conv_id AND e.seq >= greatest(m.join_seq, c.min_seq) AND e.seq <= coalesce(m.leave_seq, c.next_seq - 1)`

	// visibleHead is the last seq of conversation c that concerns a user with the intervals m, over which it aggregates: for one who
	// has left it is the leave.
	visibleHead = `CASE WHEN bool_or(m.leave_seq IS NULL) THEN c.next_seq - 1 ELSE max(m.leave_seq) END`

	// unread counts the messages of conversation c that a user has not read: of others, not recalled, inside the intervals and after
	// c.read. It stops at one more than countedUnread.
	unread = `(SELECT count(*) FROM (
			SELECT FROM tidings.member m CROSS JOIN LATERAL (
				SELECT FROM tidings.event e
				 WHERE ` + inside + ` AND e.seq > c.read AND e.kind = 'msg' AND e.sender_user <> @user::text AND e.recalled_by IS NULL
				 LIMIT 1001) e
			 WHERE m.conv_id = c.conv_id AND m.user_id = @user::text LIMIT 1001) counted)`

	// eventColumns are the columns that scanEvent reads. What was recalled has no content here, whatever its row says (R6).
	eventColumns = `coalesce(e.seq, 0), coalesce(e.kind, ''), coalesce(e.mid::text, ''), coalesce(e.sender_user, ''), coalesce(e.sender_device, ''),
		coalesce(e.cmid, ''), CASE WHEN e.recalled_by IS NULL THEN e.body END, CASE WHEN e.recalled_by IS NULL THEN e.data END,
		e.recalled_by IS NOT NULL, coalesce(e.target_seq, 0), coalesce(e.actor_user, ''), coalesce(e.created_at, 'epoch')`

	// noEvent stands for eventColumns in a row that has none: its seq is 0.
	noEvent = `0::bigint, '', '', '', '', '', NULL::text, NULL::text, false, 0::bigint, '', 'epoch'::timestamptz`
)

// countedUnread is how far unread messages are counted; beyond it there are "more".
const countedUnread = 1000

// capUnread splits a count of unread.
func capUnread(n int64) (counted int64, more bool) { return min(n, countedUnread), n > countedUnread }

// eventRow is the target of eventColumns. The pointers of targets are to the plain types behind the named ones: pgx reads those
// without reflection.
type eventRow struct {
	tidings.Event
	at time.Time
}

func (r *eventRow) targets() []any {
	return []any{&r.Seq, (*string)(&r.Kind), &r.Mid, &r.Sender, &r.SDev, &r.Cmid, &r.Body, (*[]byte)(&r.Data), &r.Recalled, &r.Target, &r.Actor, &r.at}
}

func (r *eventRow) event(conv string) tidings.Event {
	r.Conv, r.At = conv, r.at.UnixMilli()
	return r.Event
}

// The reasons why a range is withheld.
const (
	Trimmed     = "trimmed"    // it was purged
	NotMemberAt = "not_member" // the user was no member then
)

// Withheld is a range of seqs that a user does not get, both ends inclusive.
type Withheld struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Why  string `json:"why"` // Trimmed or NotMemberAt
}

// span is an interval of membership, both ends inclusive. An open one ends at forever.
type span struct{ from, to int64 }

const forever = tidings.MaxNumber

// view is what a user can see of a conversation at one moment.
type view struct {
	epoch, head, minSeq int64 // of the user: head stops at the leave, minSeq is at most head + 1
	spans               []span
}

// newView makes the view of one whose intervals are joins and leaves, in ascending order and at least one. head and minSeq are the
// conversation's.
func newView(epoch, head, minSeq int64, joins []int64, leaves []*int64) view {
	v := view{epoch: epoch, head: head, spans: make([]span, len(joins))}
	for i, from := range joins {
		v.spans[i] = span{from, forever}
		if leaves[i] != nil {
			v.spans[i].to = *leaves[i]
		}
	}
	if last := v.spans[len(v.spans)-1].to; last != forever {
		v.head = last
	}
	v.minSeq = min(minSeq, v.head+1)
	return v
}

// member tells whether the user was a member at seq.
func (v *view) member(seq int64) bool {
	return slices.ContainsFunc(v.spans, func(s span) bool { return s.from <= seq && seq <= s.to })
}

// withheld are the ranges of (after, last] that the user does not get, in order, and the number of seqs in them. Membership is judged
// first: what was purged outside of it is no loss of this user.
func (v *view) withheld(after, last int64) (ranges []Withheld, n int64) {
	add := func(from, to int64, why string) {
		if from > to {
			return
		}
		n += to - from + 1
		if k := len(ranges) - 1; k >= 0 && ranges[k].To == from-1 && ranges[k].Why == why {
			ranges[k].To = to
			return
		}
		ranges = append(ranges, Withheld{from, to, why})
	}
	next := after + 1
	for _, s := range v.spans {
		add(next, min(s.from-1, last), NotMemberAt)
		next = max(next, s.from)
		add(next, min(s.to, last, v.minSeq-1), Trimmed)
		next = max(next, s.to+1)
	}
	add(next, last, NotMemberAt)
	return ranges, n
}
