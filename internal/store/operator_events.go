// Shows a conversation's log to an operator, with content only where that is asked for.

package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

const (
	defaultLogged = 100
	maxLogged     = 200
)

// LogFilter says which part of a log an operator wants to see.
type LogFilter struct {
	Epoch  int64 // of the history that the part is of; 0: whichever is current
	After  int64 // events behind this seq
	Before int64 // 0: the first ones behind After; otherwise the last ones in front of this seq
	Limit  int   // at most 200; 0: 100
	Bodies bool  // with body and data
}

// LogPart is what there is of it, in the order of the log.
type LogPart struct {
	Epoch  int64         `json:"epoch"`
	Head   int64         `json:"head"`
	MinSeq int64         `json:"min_seq" doc:"Events below were purged."`
	Events []LoggedEvent `json:"events" doc:"In the order of the log."`
	More   bool          `json:"more" doc:"There are more in the direction of reading: behind the last one, with before in front of the first one."`
}

// LoggedEvent is an event as an operator sees it. A recalled message has neither body nor data.
type LoggedEvent struct {
	Seq        int64           `json:"seq"`
	Kind       string          `json:"kind"`
	Sender     string          `json:"sender"`
	Actor      string          `json:"actor,omitempty" doc:"Who did it in the sender's stead."`
	Cmid       string          `json:"cmid,omitempty"`
	Target     int64           `json:"target,omitempty" doc:"Of a recall: the seq of the message."`
	RecalledBy int64           `json:"recalled_by,omitempty" doc:"Of a recalled message: the seq of the recall."`
	At         int64           `json:"at" doc:"When it was stored, in milliseconds since 1970."`
	Body       *string         `json:"body,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// logHead and logTail read a conversation by primary key, and through event's those of its events that are kept and lie in a range. A
// conversation without such events is one row without an event.
const (
	logHead = `SELECT c.epoch, c.next_seq - 1, c.min_seq, coalesce(e.seq, 0), coalesce(e.kind, ''), coalesce(e.sender_user, ''), coalesce(e.actor_user, ''),
		coalesce(e.cmid, ''), coalesce(e.target_seq, 0), coalesce(e.recalled_by, 0), coalesce(e.created_at, 'epoch'),
		CASE WHEN @bodies::boolean AND e.recalled_by IS NULL THEN e.body END, CASE WHEN @bodies::boolean AND e.recalled_by IS NULL THEN e.data END
	  FROM tidings.conversation c LEFT JOIN LATERAL (
		SELECT e.* FROM tidings.event e
		 WHERE e.conv_id = c.conv_id AND e.seq >= c.min_seq AND e.seq > @after::bigint AND e.seq < @before::bigint ORDER BY e.seq`
	logTail = ` LIMIT @limit::bigint) e ON true WHERE c.conv_id = @conv::text`
)

// logAfterSQL reads the first events of the range.
const logAfterSQL = logHead + logTail

// logBeforeSQL reads the last events of the range, the last one first.
const logBeforeSQL = logHead + ` DESC` + logTail

// ShowLog reads a part of the log of conv for an operator, cut when its content is long, but never to nothing. Errors: NOT_FOUND, there is no such
// conversation; EPOCH_CHANGED; INVALID_ARGUMENT.
func (s *Store) ShowLog(ctx context.Context, conv string, f LogFilter) (p LogPart, err error) {
	if err := tidings.CheckID("conv", conv); err != nil {
		return p, err
	}
	if f.After < 0 || f.Before < 0 || f.Limit < 0 {
		return p, tidings.Errorf(tidings.InvalidArgument, "after is %d, before %d and limit %d", f.After, f.Before, f.Limit)
	}
	if f.Limit == 0 {
		f.Limit = defaultLogged
	}
	f.Limit = min(f.Limit, maxLogged)
	sql, before := logBeforeSQL, f.Before
	if before == 0 {
		sql, before = logAfterSQL, forever+1
	}
	args := pgx.NamedArgs{"conv": conv, "after": f.After, "before": before, "limit": f.Limit + 1, "bodies": f.Bodies}
	found := false
	p.Events = []LoggedEvent{}
	err = s.eachByKey(ctx, sql, args, func(row pgx.Rows) error {
		var e LoggedEvent
		var at time.Time
		err := row.Scan(&p.Epoch, &p.Head, &p.MinSeq, &e.Seq, &e.Kind, &e.Sender, &e.Actor, &e.Cmid, &e.Target, &e.RecalledBy, &at, &e.Body, (*[]byte)(&e.Data))
		if found = true; e.Seq > 0 {
			e.At = at.UnixMilli()
			p.Events = append(p.Events, e)
		}
		return err
	})
	switch {
	case err != nil:
		return p, unchanged("read a log", err)
	case !found:
		return p, tidings.Errorf(tidings.NotFound, "there is no such conversation")
	case f.Epoch != 0 && f.Epoch != p.Epoch:
		return p, epochChanged(p.Epoch)
	}
	size := 0
	for i, e := range p.Events {
		if e.Body != nil {
			size += len(*e.Body)
		}
		if size += len(e.Data); i == f.Limit || i > 0 && size > pageBytes {
			p.Events, p.More = p.Events[:i], true
			break
		}
	}
	if f.Before > 0 {
		slices.Reverse(p.Events)
	}
	return p, nil
}
