// Recalls that nobody asks for one by one: of an erasure, and of a replayed journal.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// recallHead and recallMine make the statement that recalls the messages that the CTE mine, between them, finds in a locked conversation
// (conv_id, seq, mid, sender_user): whoever the sender is and however old they are. For each a recall event is appended, and what goes
// with it as with any recall. The recall has no cmid: nobody can repeat it.
const (
	recallHead = `WITH head AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.next_seq, clock_timestamp() AS now_at FROM tidings.conversation c WHERE c.conv_id = @conv
	)`

	recallMine = `, recalled AS MATERIALIZED (
		SELECT m.conv_id, m.seq, m.mid, m.sender_user, h.epoch, h.now_at, h.next_seq - 1 + row_number() OVER (ORDER BY m.seq) AS recall_seq
		  FROM mine m JOIN head h ON h.conv_id = m.conv_id
	), appended AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, actor_user, target_seq, created_at)
		SELECT r.conv_id, r.recall_seq, 'recall', r.sender_user, @actor::text, r.seq, r.now_at FROM recalled r
	), emptied AS (
		UPDATE tidings.event e SET recalled_by = r.recall_seq, body = NULL, data = NULL, request_hash = NULL
		  FROM recalled r WHERE e.conv_id = @conv AND e.conv_id = r.conv_id AND e.seq = r.seq
	), advanced AS (
		UPDATE tidings.conversation c SET next_seq = x.next_seq FROM (SELECT r.conv_id, max(r.recall_seq) + 1 AS next_seq FROM recalled r GROUP BY r.conv_id) x
		 WHERE c.conv_id = @conv AND c.conv_id = x.conv_id
	), gone AS (
		INSERT INTO tidings.gone (conv_id, why, user_id, seq, at) SELECT r.conv_id, 'recall', '', r.seq, r.now_at FROM recalled r
	), taken_back AS (
		INSERT INTO tidings.taken_back (conv_id, what, mid, epoch, at) SELECT r.conv_id, 'recall', r.mid, r.epoch, r.now_at FROM recalled r WHERE @journal::boolean
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq) SELECT r.conv_id, r.recall_seq FROM recalled r
	)`
)

// oneByKey runs a statement that answers one row, in a transaction that is under way, with the settings of byKeySQL.
func (s *Store) oneByKey(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs, into ...any) error {
	both := &pgx.Batch{}
	both.Queue(byKeySQL)
	both.Queue(sql, args).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	return tx.SendBatch(ctx, both).Close()
}
