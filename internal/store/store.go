// Package store holds the product's SQL, one concrete Store over a pool of connections. Each statement stands directly
// above the one method that runs it, with the invariant and the index it relies on.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
)

// commitTimeout bounds a statement that writes. It is the statement's own: a write that was begun is not abandoned
// because the request behind it is, since a context that ends during COMMIT leaves an unknown outcome.
const commitTimeout = 10 * time.Second

// Store runs the product's statements on one PostgreSQL.
type Store struct {
	pool *pgxpool.Pool
	// buckets are the buckets of the shard group that this store serves: all of them on plain PostgreSQL.
	buckets []int16
}

// New makes a Store on pool, which stays the caller's.
func New(pool *pgxpool.Pool) *Store {
	s := &Store{pool: pool, buckets: make([]int16, 256)}
	for i := range s.buckets {
		s.buckets[i] = int16(i)
	}
	return s
}

// Pool is the pool that the store was made on.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// retries is how often a statement is repeated after a deadlock or a serialization failure: it was certainly rolled
// back, and both can happen to any statement.
const retries = 5

// write runs fn, which writes in one statement or one transaction, under its own deadline, and repeats it after a
// certain rollback by deadlock or serialization failure. doing names the attempt in the error.
func (s *Store) write(ctx context.Context, doing string, fn func(context.Context) error) error {
	return s.writeWithin(ctx, commitTimeout, doing, fn)
}

// writeWithin is write with another deadline.
func (s *Store) writeWithin(ctx context.Context, limit time.Duration, doing string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var err error
	for range retries {
		if err = fn(ctx); err == nil {
			return nil
		}
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || (pg.Code != "40P01" && pg.Code != "40001") {
			break
		}
	}
	return coded(doing, err)
}

// readOnly is the SQLSTATE of a write where none is allowed: on a server that is a standby now, or that its operator has set so.
const readOnly = "25006"

// coded gives a database error its code: a refusal by the database certainly changed nothing, a lost connection may
// have. Only the SQLSTATE and the constraint are repeated, because a detail may hold a row.
func coded(doing string, err error) error {
	if err == nil {
		return nil
	}
	var own *tidings.Error
	if errors.As(err, &own) {
		return err
	}
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &connect):
		return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database cannot be reached", Err: err}
	case errors.As(err, &pg):
		switch {
		case pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC":
			// The connection was ended by the server or a pooler, perhaps between the commit and the answer to it.
			return &tidings.Error{Code: tidings.OutcomeUnknown, Message: fmt.Sprintf("%s: the database ended the connection (%s)", doing, pg.Code), Err: err}
		case pg.Code == "23514" || pg.Code == "23502" || pg.Code[:2] == "22":
			return tidings.Errorf(tidings.InvalidArgument, "%s: refused by the database: %s %s", doing, pg.Code, pg.ConstraintName)
		case missingObjects[pg.Code]:
			return &tidings.Error{Code: tidings.Unavailable, Message: fmt.Sprintf("%s: the database is being replaced (%s)", doing, pg.Code), Err: err}
		case pg.Code[:2] == "57" || pg.Code[:2] == "53" || pg.Code[:2] == "08" || pg.Code[:2] == "40" || pg.Code == "55P03" || pg.Code == readOnly:
			return &tidings.Error{Code: tidings.Unavailable, Message: fmt.Sprintf("%s: the database is not available (%s)", doing, pg.Code), Err: err}
		}
		return &tidings.Error{Code: tidings.Internal, Message: fmt.Sprintf("%s: %s: %s", doing, pg.Code, pg.Message), Err: err}
	case pgconn.SafeToRetry(err):
		return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database cannot be reached", Err: err}
	case errors.Is(err, pgx.ErrNoRows):
		return &tidings.Error{Code: tidings.NotFound, Message: doing + ": not found", Err: err}
	}
	return &tidings.Error{Code: tidings.OutcomeUnknown, Message: doing + ": the database's answer was lost", Err: err}
}

// Refused tells whether err certainly left the database unchanged, as opposed to a lost answer.
func Refused(err error) bool { return err != nil && tidings.ErrorCode(err) != tidings.OutcomeUnknown }

// byIndex runs a statement of the hot path in a transaction of its own whose plans do without sequential scans: a plan made
// while a table was empty would scan it for as long as its statistics say so; and which are not compiled, which would take longer
// than they run. The settings and the statement travel together and end with the same implicit transaction. read is called with the
// rows, and committed, which may be nil, with the connection's memory when the transaction is over. The parameter @log is set here.
func (s *Store) byIndex(ctx context.Context, sql string, args pgx.NamedArgs, read func(pgx.Rows) error, committed func(*LineageMemory)) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	args["log"] = logOf(conn.Conn())
	batch := &pgx.Batch{}
	batch.Queue("SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
	batch.Queue(sql, args)
	results := conn.SendBatch(ctx, batch)
	if _, err = results.Exec(); err == nil {
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			err = read(rows)
		}
	}
	if err = errors.Join(err, results.Close()); err == nil && committed != nil {
		committed(memoryOf(conn.Conn()))
	}
	return err
}
