// Notifies members of messages that they have not read: the queue of what is due.

package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// dueRows is how many rows of the queue a pass takes at most.
	dueRows = 10_000
	// dueFor is how long a pass begins conversations; what is left is found by the next one.
	dueFor = 2 * time.Second
	// unreadPage is how many members are looked at, and at most notified, at once.
	unreadPage = 500

	// Members who were connected and had not read are looked at again when as much time has passed as they have had already, so that
	// the waits double; at most againMost later, and no more when againFor and the conversation's wait, which may have become longer, have
	// passed since the last event that was due.
	againLeast = time.Second
	againMost  = time.Hour
	againFor   = 24 * time.Hour
)

// UnreadNotice is what the notification of an unread message says.
type UnreadNotice struct {
	Title string
	TTL   time.Duration // until it is worthless

	// Resume: a pass, of whatever process, may have ended between creating notifications and asking what came meanwhile.
	Resume bool
}

// NotifiedUnread is what a pass of NotifyUnread did.
type NotifiedUnread struct {
	Rows          int  // of the queue, that are handled
	Notifications int  // were created
	More          bool // something is left to do now
	Busy          bool // another process is at it, and nothing was done here
}

// unreadKey is the key of the advisory lock of a pass: "unread" in ASCII.
const unreadKey = 0x756e72656164

// dueSQL reads what is due through unread_due_at. It names no conversation: the rows are of any.
const dueSQL = `SELECT u.conv_id, u.seq, u.since_at, coalesce(u.upto_seq, 0) FROM tidings.unread_due u
	 WHERE u.due_at <= statement_timestamp() ORDER BY u.due_at LIMIT @limit`

// due is what is due of one conversation.
type due struct {
	conv  string
	seqs  []int64 // of its rows
	news  []int64 // of the events that they tell of
	upto  int64   // the newest of them, and of the rounds before
	since *time.Time
}

// NotifyUnread notifies the members of conversations in which messages, or recalls, have become due: those who have not read for the
// conversation's notify_after_ms and have no device with a current route, unless a notification about an unread message of the
// conversation stands. Its event key is that of the message that it is about, so that however often something is handled, by
// whomever, there is one. It never takes a conversation's lock.
//
// All rows of a conversation are handled at once and then deleted; what a failure leaves is handled again. Members are looked at in
// pages, each with a transaction of its own for the notifications. One process does it at a time. It needs two connections, one of
// which keeps the turn. The error is the first one of conversations that failed; the others are done.
func (s *Store) NotifyUnread(ctx context.Context, notice UnreadNotice) (all NotifiedUnread, err error) {
	const doing = "notify members of unread messages"
	turn, err := s.pool.Begin(ctx)
	if err != nil {
		return all, unchanged(doing, err)
	}
	defer turn.Rollback(context.WithoutCancel(ctx)) // it writes nothing
	var taking bool
	var rows int
	found := map[string]*due{}
	first := &pgx.Batch{}
	first.Queue(turnIdleSQL)
	first.Queue(byKeySQL)
	first.Queue(takingSQL, pgx.NamedArgs{"key": int64(unreadKey)}).QueryRow(func(row pgx.Row) error { return row.Scan(&taking) })
	first.Queue(dueSQL, pgx.NamedArgs{"limit": dueRows}).Query(func(due pgx.Rows) (err error) {
		rows, err = groupDue(due, found)
		return err
	})
	if err := turn.SendBatch(ctx, first).Close(); err != nil {
		return all, unchanged(doing, err)
	}
	if !taking {
		return NotifiedUnread{Busy: true}, nil
	}
	keep := func() error {
		_, err := turn.Exec(ctx, turnIdleSQL)
		return unchanged("keep the turn in notifying members", err)
	}
	all.More = rows == dueRows
	order := make([]*due, 0, len(found))
	for _, d := range found {
		order = append(order, d)
	}
	// One that fails each time, or takes a whole pass, does not keep the same others waiting.
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	began := time.Now()
	for _, d := range order {
		if time.Since(began) > dueFor {
			all.More = true
			break
		}
		if lost := keep(); lost != nil {
			return all, lost
		}
		n, failed := s.notifyConversation(ctx, keep, notice, d)
		all.Notifications += n
		if failed == nil {
			all.Rows += len(d.seqs)
		} else if err == nil {
			err = failed
		}
	}
	return all, err
}

// groupDue reads the rows of dueSQL by their conversations, and tells how many there were.
func groupDue(rows pgx.Rows, found map[string]*due) (n int, err error) {
	var conv string
	var seq, upto int64
	var since *time.Time
	_, err = pgx.ForEachRow(rows, []any{&conv, &seq, &since, &upto}, func() error {
		d := found[conv]
		if d == nil {
			d = &due{conv: conv}
			found[conv] = d
		}
		n++
		d.seqs, d.upto = append(d.seqs, seq), max(d.upto, seq, upto)
		if seq > 0 {
			d.news = append(d.news, seq)
		} else {
			at := *since // the variable is read into again
			d.since = &at
		}
		return nil
	})
	return n, err
}

// notifyConversation notifies the members of one conversation and ends what was due. After an error all of it is due still.
func (s *Store) notifyConversation(ctx context.Context, keep func() error, notice UnreadNotice, d *due) (created int, err error) {
	if notice.Resume {
		if err := s.tellAllAgain(ctx, d.conv); err != nil {
			return 0, err
		}
	}
	again := false // somebody has to be looked at again
	for after, more := "", true; more; {
		if err := keep(); err != nil {
			return created, err
		}
		if err := context.Cause(ctx); err != nil {
			return created, err
		}
		page, err := s.unreadMembers(ctx, d, after)
		if err != nil {
			return created, err
		}
		if more = len(page) == unreadPage; more {
			after = page[len(page)-1].user
		}
		var waiting []unreadMember
		for _, m := range page {
			switch {
			case m.seq == 0: // nothing that they have not read, or they want none
			case m.old:
				waiting = append(waiting, m)
			case m.seq <= d.upto:
				again = true // the wait has become longer; what is newer has a row of its own
			}
		}
		if len(waiting) == 0 {
			continue
		}
		told, connected, err := s.notifyMembers(ctx, notice, d.conv, waiting)
		if err != nil {
			return created, err
		}
		created, again = created+len(told), again || connected
		if err := s.tellAgain(ctx, d.conv, told); err != nil {
			return created, err
		}
	}
	return created, s.settleDue(ctx, d, again)
}

// deleteDueSQL ends what was handled, by the primary key. A row with seq 0 that has changed meanwhile stays.
const deleteDueSQL = `DELETE FROM tidings.unread_due u WHERE u.conv_id = @conv AND u.seq = ANY (@seqs::bigint[])
	AND (u.seq > 0 OR u.since_at = @since::timestamptz)`

// againSQL makes a conversation due again, by the primary key: one row for all members who were connected, whatever the number of
// messages. The first wait is the conversation's own.
const againSQL = `WITH clock AS MATERIALIZED (SELECT k.now_at, coalesce(@since::timestamptz, k.now_at) AS since_at FROM (SELECT statement_timestamp() AS now_at) k)
	INSERT INTO tidings.unread_due AS u (conv_id, seq, due_at, since_at, upto_seq)
	SELECT c.conv_id, 0, k.now_at + least(greatest(k.now_at - k.since_at, c.notify_after_ms * interval '1 millisecond', @least_ms * interval '1 millisecond'),
			@most_ms * interval '1 millisecond'), k.since_at, @upto::bigint
	  FROM tidings.conversation c CROSS JOIN clock k
	 WHERE c.conv_id = @conv AND c.notify_after_ms IS NOT NULL AND k.since_at > k.now_at - (@for_ms + c.notify_after_ms) * interval '1 millisecond'
	ON CONFLICT (conv_id, seq) DO UPDATE SET due_at = least(u.due_at, excluded.due_at), since_at = greatest(u.since_at, excluded.since_at),
		upto_seq = greatest(u.upto_seq, excluded.upto_seq)`

// settleDue ends what was due of a conversation; again: somebody has to be looked at once more. Something new begins the waits anew.
func (s *Store) settleDue(ctx context.Context, d *due, again bool) error {
	return s.transact(ctx, "end what was due of a conversation", func(ctx context.Context, tx pgx.Tx) error {
		settle := &pgx.Batch{}
		settle.Queue(byKeySQL)
		settle.Queue(deleteDueSQL, pgx.NamedArgs{"conv": d.conv, "seqs": d.seqs, "since": d.since})
		if again {
			since := d.since
			if len(d.news) > 0 {
				since = nil
			}
			settle.Queue(againSQL, pgx.NamedArgs{"conv": d.conv, "since": since, "upto": d.upto, "least_ms": float64(againLeast.Milliseconds()),
				"most_ms": float64(againMost.Milliseconds()), "for_ms": float64(againFor.Milliseconds())})
		}
		return tx.SendBatch(ctx, settle).Close()
	})
}

// clearDueSQL deletes rows of a copy, in the order of the primary key.
const clearDueSQL = `WITH page AS MATERIALIZED (SELECT u.conv_id, u.seq FROM tidings.unread_due u ORDER BY u.conv_id, u.seq LIMIT @limit::bigint FOR UPDATE)
	DELETE FROM tidings.unread_due u USING page x WHERE u.conv_id = x.conv_id AND u.seq = x.seq`

// clearUnread empties the queue of a restored copy: what was due in it, the lost history has notified of already.
func (s *Store) clearUnread(ctx context.Context) error {
	for n := 1; n > 0; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var err error
		if n, err = s.delete(ctx, "clear the queue of unread messages", clearDueSQL, pgx.NamedArgs{"limit": recoverBatch}); err != nil {
			return err
		}
	}
	return nil
}

// waitingDueSQL counts rows, and finds the one that has been due for longest through unread_due_at.
const waitingDueSQL = `SELECT (SELECT count(*) FROM (SELECT u.conv_id FROM tidings.unread_due u LIMIT @limit::bigint) counted),
	coalesce((SELECT date_part('epoch', statement_timestamp() - u.due_at) FROM tidings.unread_due u
		WHERE u.due_at <= statement_timestamp() ORDER BY u.due_at LIMIT 1), 0)`

// WaitingUnread tells how many rows wait in the queue of NotifyUnread, counted up to a million, and for how many seconds the oldest that
// is due has been due.
func (s *Store) WaitingUnread(ctx context.Context) (rows int, oldest float64, err error) {
	err = s.pool.QueryRow(ctx, waitingDueSQL, pgx.NamedArgs{"limit": 1_000_000}).Scan(&rows, &oldest)
	return rows, oldest, unchanged("count what waits to be notified", err)
}
