// Runs the outbox's post under the store's deadline, guard and judgement of commits.

package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
)

// Committing runs post, which sends messages by one statement on the connection that it is given, under a deadline of its own. When a
// warning came with the commit the error is OUTCOME_UNKNOWN (see Configure); other errors are those of post. doing names the attempt
// in the error.
func (s *Store) Committing(ctx context.Context, doing string, messages []tidings.Message,
	post func(context.Context, *Committer) ([]tidings.Answer, error)) ([]tidings.Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, unchanged(doing, err)
	}
	defer conn.Release()
	warned := warnings(conn.Conn())
	answers, err := post(ctx, &Committer{conn})
	if err != nil {
		return nil, err
	}
	if err := waited(doing, warnings(conn.Conn())-warned); err != nil {
		return nil, err
	}
	memoryOf(conn.Conn()).appended(messages, answers)
	return answers, nil
}

// Committer is a connection on which each statement is a transaction of its own, which appends nothing to a log that has been replaced.
type Committer struct{ conn *pgxpool.Conn }

// onLogSQL is the guard before another statement of the same transaction. It holds the table of events, as sendSQL does.
const onLogSQL = `SELECT tidings.on_log(@log::oid) FROM (SELECT) one LEFT JOIN tidings.event e ON e.conv_id = '' AND false`

// Query runs a statement and commits it with the last of its rows.
func (c *Committer) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	both := &pgx.Batch{}
	both.Queue(onLogSQL, pgx.NamedArgs{"log": logOf(c.conn.Conn())})
	both.Queue(sql, args...)
	results := c.conn.SendBatch(ctx, both)
	_, err := results.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			return &committedRows{Rows: rows, results: results}, nil
		}
	}
	return nil, errors.Join(err, results.Close())
}

// Exec is Query for a statement whose rows nobody wants.
func (c *Committer) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// committedRows are the rows of a statement with whose last one the transaction is over: an error of the commit is theirs.
type committedRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

func (r *committedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *committedRows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err, r.results = r.results.Close(), nil
	}
}

func (r *committedRows) Err() error { return errors.Join(r.Rows.Err(), r.err) }
