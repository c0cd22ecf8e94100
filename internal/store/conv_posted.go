// The queue of events that gateways have not been told of.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Posted is an event of which the gateways have to be told: one that was not appended by a gateway's Send.
type Posted struct {
	Conv string
	Seq  int64
	User string // of a join: who may be connected and not know the conversation yet
}

// postedKey is the key of the advisory lock under which posted rows are taken: "posted" in ASCII.
const postedKey = 0x706f73746564

// takingSQL is false while another process takes them.
const takingSQL = `SELECT pg_try_advisory_xact_lock(@key)`

// postedSQL reads by the primary key. It names no conversation: the rows are few, and of any.
const postedSQL = `SELECT p.conv_id, p.seq, coalesce(p.user_id, '') FROM tidings.posted p ORDER BY p.conv_id, p.seq LIMIT @limit`

const deletePostedSQL = `DELETE FROM tidings.posted p USING unnest(@convs::text[], @seqs::bigint[]) AS t (conv_id, seq)
	WHERE p.conv_id = ANY (@convs::text[]) AND p.conv_id = t.conv_id AND p.seq = t.seq`

// TakePosted hands up to limit posted rows to put, in the order of their conversations and seqs, deletes them when put returns
// without an error, and returns how many there were. One process does it at a time; another gets 0. A row may be handed out
// again after an error, never lost.
func (s *Store) TakePosted(ctx context.Context, limit int, put func([]Posted) error) (n int, err error) {
	err = s.transact(ctx, "take posted events", func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		var taking bool
		if err := tx.QueryRow(ctx, takingSQL, pgx.NamedArgs{"key": int64(postedKey)}).Scan(&taking); err != nil || !taking {
			return err
		}
		rows, err := tx.Query(ctx, postedSQL, pgx.NamedArgs{"limit": limit})
		if err != nil {
			return err
		}
		taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Posted])
		if err != nil || len(taken) == 0 {
			return err
		}
		if err := put(taken); err != nil {
			return &tidings.Error{Code: tidings.Unavailable, Message: "take posted events: they cannot be told of", Err: err}
		}
		convs, seqs := make([]string, len(taken)), make([]int64, len(taken))
		for i, p := range taken {
			convs[i], seqs[i] = p.Conv, p.Seq
		}
		if _, err := tx.Exec(ctx, deletePostedSQL, pgx.NamedArgs{"convs": convs, "seqs": seqs}); err != nil {
			return err
		}
		n = len(taken)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
