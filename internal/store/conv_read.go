// Sync and fetch.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

const (
	// MaxPage is the greatest number of events in a Page.
	MaxPage = 500
	// pageBytes is how much content a Page holds before it is cut, so that 500 long messages do not make one answer of many megabytes.
	// A page always has at least one event.
	pageBytes = 1 << 20
)

// Page is a part of a conversation's log as one user can see it. Events and Withheld explain every seq of (After, last], where last is
// the seq of the last event when there is More, and otherwise Head.
type Page struct {
	Conv     string          `json:"conv"`
	Epoch    int64           `json:"epoch"`
	Head     int64           `json:"head"`    // for one who has left: the leave
	MinSeq   int64           `json:"min_seq"` // the first seq that is still kept; Head + 1 when nothing is
	After    int64           `json:"after"`
	Events   []tidings.Event `json:"events"`
	Withheld []Withheld      `json:"withheld"`
	Trimmed  bool            `json:"trimmed"` // something in this page that the user could have read was purged
	More     bool            `json:"more"`
}

// syncSQL reads the state of a conversation, a user's intervals and the first visible events after @after in one statement: one row of
// state, then the events. Each interval is a range of event's primary key; they are walked in order and no further than the limit. The
// conversation is read once, apart from the intervals: in a join with them PostgreSQL 16 and later would look it up for each, to have
// them in the order that array_agg asks for.
const syncSQL = `WITH head AS MATERIALIZED (
		SELECT c.epoch, c.next_seq, c.min_seq FROM tidings.conversation c WHERE c.conv_id = @conv::text
	)
	SELECT c.epoch, c.next_seq - 1, c.min_seq, v.joins, v.leaves, ` + noEvent + `
	  FROM head c CROSS JOIN (SELECT array_agg(m.join_seq ORDER BY m.join_seq) AS joins, array_agg(m.leave_seq ORDER BY m.join_seq) AS leaves
		FROM tidings.member m WHERE m.conv_id = @conv::text AND m.user_id = @user::text HAVING count(*) > 0) v
	UNION ALL (
		SELECT 0, 0, 0, NULL, NULL, ` + eventColumns + `
		  FROM head c CROSS JOIN tidings.member m CROSS JOIN LATERAL (
			SELECT e.* FROM tidings.event e WHERE ` + inside + ` AND e.seq > @after::bigint ORDER BY e.seq LIMIT @limit::bigint) e
		 WHERE m.conv_id = @conv::text AND m.user_id = @user::text AND (m.leave_seq IS NULL OR m.leave_seq > @after::bigint)
		 ORDER BY m.join_seq, e.seq LIMIT @limit::bigint)`

// look reads a user's view of a conversation and the first events of it after a seq. One who never was a member is refused.
func (s *Store) look(ctx context.Context, doing, user, conv string, after int64, limit int) (v view, events []tidings.Event, err error) {
	known := false
	args := pgx.NamedArgs{"user": user, "conv": conv, "after": after, "limit": limit}
	err = s.eachByKey(ctx, syncSQL, args, func(row pgx.Rows) error {
		var (
			epoch, head, minSeq int64
			joins               []int64
			leaves              []*int64
			e                   eventRow
		)
		if err := row.Scan(append([]any{&epoch, &head, &minSeq, &joins, &leaves}, e.targets()...)...); err != nil {
			return err
		}
		if e.Seq > 0 {
			events = append(events, e.event(conv))
		} else {
			known, v = true, newView(epoch, head, minSeq, joins, leaves)
		}
		return nil
	})
	if err != nil {
		return v, nil, unchanged(doing, err)
	}
	if !known {
		return v, nil, notMember(conv)
	}
	return v, events, nil
}

func notMember(conv string) error {
	return tidings.Errorf(tidings.NotMember, "not a member of %s", conv)
}

// sameEpoch refuses a caller who knows another history of the log; 0 stands for the current one.
func (v *view) sameEpoch(epoch int64) error {
	if epoch == 0 || epoch == v.epoch {
		return nil
	}
	return epochChanged(v.epoch)
}

func epochChanged(now int64) error {
	return &tidings.Error{Code: tidings.EpochChanged, Message: "the log has another history than that of the request", Epoch: now}
}

func cursorAhead(epoch, head, seq int64) error {
	e := tidings.Errorf(tidings.CursorAhead, "%d is beyond the head, which is %d", seq, head)
	e.Epoch, e.Head = epoch, head
	return e
}

// Sync reads up to limit events (at most MaxPage) of conv after a seq, as user can see them. epoch 0 is the current one.
//
// Errors: NOT_MEMBER (never a member, or no such conversation), EPOCH_CHANGED, INVALID_ARGUMENT (a negative after, no limit),
// CURSOR_AHEAD; judged in this order.
func (s *Store) Sync(ctx context.Context, user, conv string, epoch, after int64, limit int) (Page, error) {
	limit = min(limit, MaxPage)
	v, events, err := s.look(ctx, "read events", user, conv, max(after, 0), max(limit, 0)+1)
	if err != nil {
		return Page{}, err
	}
	switch err := v.sameEpoch(epoch); {
	case err != nil:
		return Page{}, err
	case after < 0 || limit < 1:
		return Page{}, tidings.Errorf(tidings.InvalidArgument, "after is %d and limit %d", after, limit)
	case after > v.head:
		return Page{}, cursorAhead(v.epoch, v.head, after)
	}
	p := Page{Conv: conv, Epoch: v.epoch, Head: v.head, MinSeq: v.minSeq, After: after, Events: events}
	last := v.head
	if n := fitting(events, limit); n < len(events) {
		p.Events, p.More, last = events[:n], true, events[n-1].Seq
	}
	hidden := int64(0)
	p.Withheld, hidden = v.withheld(after, last)
	if int64(len(p.Events))+hidden != last-after {
		return Page{}, tidings.Errorf(tidings.Internal, "the log of %s has a hole between %d and %d", conv, after, last)
	}
	for _, w := range p.Withheld {
		p.Trimmed = p.Trimmed || w.Why == Trimmed
	}
	if p.Events == nil {
		p.Events = []tidings.Event{}
	}
	if p.Withheld == nil {
		p.Withheld = []Withheld{}
	}
	return p, nil
}

// fitting is how many of the events fit into a page of at most limit.
func fitting(events []tidings.Event, limit int) int {
	size := 0
	for i := range events {
		if events[i].Body != nil {
			size += len(*events[i].Body)
		}
		if size += len(events[i].Data); i == limit || i > 0 && size > pageBytes {
			return i
		}
	}
	return len(events)
}

// Fetch reads one event of conv, if user was a member at its seq. epoch 0 is the current one; epochNow is that which was found.
//
// Errors: NOT_MEMBER (not a member then, or no such conversation), EPOCH_CHANGED, INVALID_ARGUMENT (seq < 1), NOT_FOUND (purged, or
// beyond the head).
func (s *Store) Fetch(ctx context.Context, user, conv string, epoch, seq int64) (epochNow int64, e tidings.Event, err error) {
	v, events, err := s.look(ctx, "read an event", user, conv, max(seq, 1)-1, 1)
	if err != nil {
		return 0, e, err
	}
	switch err := v.sameEpoch(epoch); {
	case err != nil:
		return v.epoch, e, err
	case seq < 1:
		return v.epoch, e, tidings.Errorf(tidings.InvalidArgument, "seq is %d", seq)
	case !v.member(seq):
		return v.epoch, e, notMember(conv)
	case len(events) == 0 || events[0].Seq != seq:
		return v.epoch, e, tidings.Errorf(tidings.NotFound, "%s has no event %d, or not any longer", conv, seq)
	}
	return v.epoch, events[0], nil
}
