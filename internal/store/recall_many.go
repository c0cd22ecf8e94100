// Recalls that nobody asks for one by one: of an erasure, and of a replayed journal.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// recallStep is how many messages one transaction of an erasure recalls at most.
const recallStep = 100

// message is what of a message its recall has to know. Its conversation is locked from the moment it is read.
type message struct {
	Seq    int64
	Mid    tidings.UUID
	Sender string
	Cmid   string
}

// recallManySQL appends a recall event for each of several messages of a locked conversation, and what goes with it as with any recall,
// whoever the sender is and however old they are. The recall has no cmid: nobody can repeat it. Beside what it is given it reads the
// conversation alone, by its primary key. It returns the seq of the first recall.
const recallManySQL = `WITH head AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.next_seq, c.notify_after_ms, clock_timestamp() AS now_at FROM tidings.conversation c WHERE c.conv_id = @conv
	), recalled AS MATERIALIZED (
		SELECT h.conv_id, m.seq, m.mid, m.sender_user, m.cmid, h.epoch, h.now_at, h.next_seq - 1 + m.ord AS recall_seq
		  FROM head h CROSS JOIN unnest(@seqs::bigint[], @mids::uuid[], @senders::text[], @cmids::text[]) WITH ORDINALITY m (seq, mid, sender_user, cmid, ord)
	), appended AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, actor_user, target_seq, created_at)
		SELECT r.conv_id, r.recall_seq, 'recall', r.sender_user, @actor::text, r.seq, r.now_at FROM recalled r
	), advanced AS (
		UPDATE tidings.conversation c SET next_seq = c.next_seq + cardinality(@seqs::bigint[]) WHERE c.conv_id = @conv
	), gone AS (
		INSERT INTO tidings.gone (conv_id, why, user_id, seq, at) SELECT r.conv_id, 'recall', '', r.seq, r.now_at FROM recalled r
	), due AS (
		INSERT INTO tidings.unread_due (conv_id, seq, due_at) SELECT h.conv_id, h.next_seq, h.now_at FROM head h WHERE h.notify_after_ms IS NOT NULL
	), taken_back AS (
		INSERT INTO tidings.taken_back (conv_id, what, mid, user_id, cmid, epoch, at)
		SELECT r.conv_id, 'recall', r.mid, r.sender_user, r.cmid, r.epoch, r.now_at FROM recalled r WHERE @journal::boolean
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq) SELECT r.conv_id, r.recall_seq FROM recalled r
	)
	SELECT h.next_seq FROM head h`

// emptySQL takes the content out of one message, by event's primary key. It is a statement of its own for each message: joined with a list
// of them, a log that the statistics believe to be short is read once for every one.
const emptySQL = `UPDATE tidings.event e SET recalled_by = @recall::bigint, body = NULL, data = NULL, request_hash = NULL WHERE e.conv_id = @conv AND e.seq = @seq::bigint`

// recallMany recalls messages of a conversation, in their order, in the transaction that has locked it and found them. actor is who ordered it,
// nil: nobody; journal: the journal is told.
func recallMany(ctx context.Context, tx pgx.Tx, conv string, messages []message, actor any, journal bool) error {
	if len(messages) == 0 {
		return nil
	}
	seqs, mids, senders, cmids := make([]int64, len(messages)), make([]tidings.UUID, len(messages)), make([]string, len(messages)), make([]string, len(messages))
	for i, m := range messages {
		seqs[i], mids[i], senders[i], cmids[i] = m.Seq, m.Mid, m.Sender, m.Cmid
	}
	var first int64
	err := tx.QueryRow(ctx, recallManySQL, pgx.NamedArgs{"conv": conv, "seqs": seqs, "mids": mids, "senders": senders, "cmids": cmids,
		"actor": actor, "journal": journal}).Scan(&first)
	if err != nil {
		return err
	}
	empty := &pgx.Batch{}
	for i, seq := range seqs {
		empty.Queue(emptySQL, pgx.NamedArgs{"conv": conv, "seq": seq, "recall": first + int64(i)})
	}
	return tx.SendBatch(ctx, empty).Close()
}

// oneByKey runs a statement that answers one row, in a transaction that is under way, with the settings of byKeySQL.
func (s *Store) oneByKey(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs, into ...any) error {
	both := &pgx.Batch{}
	both.Queue(byKeySQL)
	both.Queue(sql, args).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	return tx.SendBatch(ctx, both).Close()
}
