// The newest of what was acknowledged: remembered, and looked up.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// ring holds the newest values that were put into it.
type ring[V any] struct {
	values []V
	next   int
}

const leastRing = 64

// grow makes room for n more, and for leastRing in any case. What is in it stays.
func (r *ring[V]) grow(n int) {
	old := r.all()
	*r = ring[V]{values: make([]V, 0, max(leastRing, cap(r.values)+n))}
	for _, v := range old {
		r.put(v)
	}
}

func (r *ring[V]) put(v V) {
	switch {
	case cap(r.values) == 0:
	case len(r.values) < cap(r.values):
		r.values = append(r.values, v)
	default:
		r.values[r.next] = v
		r.next = (r.next + 1) % len(r.values)
	}
}

// all are the values, the oldest first.
func (r *ring[V]) all() []V {
	return append(append([]V(nil), r.values[r.next:]...), r.values[:r.next]...)
}

func (r *ring[V]) clear() { r.values, r.next = r.values[:0], 0 }

// rememberedEvent is an event whose commit was acknowledged. An event without a mid is known by its time, which no second one at the
// same seq has.
type rememberedEvent struct {
	conv       string
	epoch, seq int64
	mid        tidings.UUID
	at         time.Time
}

// rememberedEnd is an attempt whose end was acknowledged.
type rememberedEnd struct {
	task, note, token tidings.UUID
	n                 int
	since             time.Time // by this process's clock
}

// endsFor is how long the end of an attempt is looked up: later its notification may be forgotten.
const endsFor = time.Hour

// appended remembers a batch of messages that was committed, by one of its events: they are there together, or not.
func (m *LineageMemory) appended(batch []tidings.Message, answers []tidings.Answer) {
	if m == nil {
		return
	}
	newest := -1
	for i := len(answers) - 1; i >= 0; i-- {
		if answers[i].Code == "" && (newest < 0 || !answers[i].Dup) {
			if newest = i; !answers[i].Dup {
				break
			}
		}
	}
	if newest >= 0 {
		a := &answers[newest]
		m.remember(rememberedEvent{batch[newest].Conv, a.Epoch, a.Seq, a.Mid, time.UnixMilli(a.At)})
	}
}

func (m *LineageMemory) remember(e rememberedEvent) {
	m.mu.Lock()
	m.events.put(e)
	m.mu.Unlock()
}

// finished remembers a batch of ends that was committed, by one of those that were applied.
func (m *LineageMemory) finished(batch []Finish, applied map[tidings.UUID]bool) {
	if m == nil {
		return
	}
	for i := range batch {
		if f := &batch[i]; applied[f.Token] && !f.Note.IsZero() {
			m.mu.Lock()
			m.ends.put(rememberedEnd{f.ID, f.Note, f.Token, f.N, time.Now()})
			m.mu.Unlock()
			return
		}
	}
}

// noteKey is where a connection keeps the event that its transaction appends, until inTx has committed it.
const noteKey = "tidings.note"

// note has an event remembered when its transaction is committed. Only the last one of a transaction is.
func note(tx pgx.Tx, conv string, epoch, seq int64, at time.Time) {
	if memoryOf(tx.Conn()) != nil {
		tx.Conn().PgConn().CustomData()[noteKey] = rememberedEvent{conv: conv, epoch: epoch, seq: seq, at: at}
	}
}

// noted remembers, or with committed false forgets, what a transaction has noted.
func noted(conn *pgx.Conn, committed bool) {
	data := conn.PgConn().CustomData()
	if e, ok := data[noteKey].(rememberedEvent); ok {
		delete(data, noteKey)
		if m := memoryOf(conn); committed && m != nil {
			m.remember(e)
		}
	}
}

// logOf is the oid of the log that a connection was judged on, for tidings.on_log; nil, which lets everything pass, on a pool without a
// memory.
func logOf(conn *pgx.Conn) *uint32 {
	m := memoryOf(conn)
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || m.known.events == 0 {
		return nil
	}
	return &m.known.events
}

// missingSQL names one of the remembered events and ends that is not there, by primary keys; empty when all are. An event that was
// purged was there: the log begins later, in the same epoch. A purge of notifications deletes the attempts, too, and leaves the notification
// as a tombstone.
const missingSQL = `SELECT coalesce((
	SELECT 'event ' || r.seq || ' of conversation ' || r.conv
	  FROM unnest(@convs::text[], @epochs::bigint[], @seqs::bigint[], @mids::uuid[], @ats::timestamptz[]) AS r (conv, epoch, seq, mid, at)
	  LEFT JOIN tidings.conversation c ON c.conv_id = r.conv AND c.conv_id = ANY (@convs::text[])
	  LEFT JOIN tidings.event e ON e.conv_id = r.conv AND e.seq = r.seq AND e.conv_id = ANY (@convs::text[])
	 WHERE CASE WHEN e.seq IS NULL THEN (c.epoch = r.epoch AND c.min_seq > r.seq) IS NOT TRUE
		WHEN r.mid IS NULL THEN e.created_at <> r.at ELSE e.mid IS DISTINCT FROM r.mid END
	 LIMIT 1), (
	SELECT 'the end of attempt ' || r.n || ' of task ' || r.task
	  FROM unnest(@tasks::uuid[], @ns::int[], @tokens::uuid[], @notes::uuid[], @buckets::smallint[]) AS r (task, n, token, note, bucket)
	  LEFT JOIN tidings.attempt a ON a.task_id = r.task AND a.n = r.n AND a.bucket = r.bucket AND a.bucket = ANY (@buckets::smallint[])
	  LEFT JOIN tidings.notification n ON n.id = r.note AND n.bucket = r.bucket AND n.bucket = ANY (@buckets::smallint[])
	 WHERE CASE WHEN a.task_id IS NULL THEN n.purged_at IS NULL
		ELSE a.token IS DISTINCT FROM r.token OR a.outcome IS NULL OR (a.outcome = 'LEASE_EXPIRED' AND a.late_outcome IS NULL) END
	 LIMIT 1), '')`

// missing names something that was acknowledged and is not there; "" when everything that is remembered is.
func (m *LineageMemory) missing(ctx context.Context, conn *pgx.Conn) (what string, err error) {
	m.mu.Lock()
	events, ends := m.events.all(), m.ends.all()
	m.mu.Unlock()
	var (
		convs                []string
		epochs, seqs         []int64
		mids                 []*tidings.UUID
		ats                  []time.Time
		tasks, tokens, notes []tidings.UUID
		ns                   []int32
		buckets              []int16
	)
	for i := range events {
		e := &events[i]
		convs, epochs, seqs, ats = append(convs, e.conv), append(epochs, e.epoch), append(seqs, e.seq), append(ats, e.at)
		mids = append(mids, nil)
		if !e.mid.IsZero() {
			mids[i] = &e.mid
		}
	}
	for _, e := range ends {
		if time.Since(e.since) < endsFor {
			tasks, ns, tokens = append(tasks, e.task), append(ns, int32(e.n)), append(tokens, e.token)
			notes, buckets = append(notes, e.note), append(buckets, e.task.Bucket())
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(byKeySQL)
	batch.Queue(missingSQL, pgx.NamedArgs{"convs": convs, "epochs": epochs, "seqs": seqs, "mids": mids, "ats": ats,
		"tasks": tasks, "ns": ns, "tokens": tokens, "notes": notes, "buckets": buckets}).
		QueryRow(func(row pgx.Row) error { return row.Scan(&what) })
	return what, conn.SendBatch(ctx, batch).Close()
}
