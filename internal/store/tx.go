// Transactions and snapshots.

package store

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
)

// transact runs fn in one transaction under write's deadline and repeats it after a deadlock. Whatever fails before the
// COMMIT is sent certainly changed nothing; only the COMMIT's own answer can be lost, or come with a warning.
//
// It is READ COMMITTED whatever the pool's default is: a statement after a lock has to see what the lock waited for.
func (s *Store) transact(ctx context.Context, doing string, fn func(context.Context, pgx.Tx) error) error {
	return s.write(ctx, doing, func(ctx context.Context) error {
		return s.inTx(ctx, doing, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn)
	})
}

// snapshot runs fn, which only reads, in one transaction all of whose statements see the same state.
func (s *Store) snapshot(ctx context.Context, doing string, fn func(context.Context, pgx.Tx) error) error {
	return unchanged(doing, s.inTx(ctx, doing, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn))
}

func (s *Store) inTx(ctx context.Context, doing string, options pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return unchanged(doing, err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return unchanged(doing, err)
	}
	noted(conn.Conn(), false)
	if err := fn(ctx, tx); err != nil {
		// After an error the transaction is over either way: a rollback that fails closes the connection.
		_ = tx.Rollback(ctx)
		return unchanged(doing, err)
	}
	warned := warnings(conn.Conn())
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if err := waited(doing, warnings(conn.Conn())-warned); err != nil {
		return err
	}
	noted(conn.Conn(), true)
	return nil
}

// unchanged gives a database error its code where nothing can have been changed: of a read, and before a COMMIT. A lost
// connection is no unknown outcome then. An answer that could not be read is: a defect of ours.
func unchanged(doing string, err error) error {
	err = coded(doing, err)
	var e *tidings.Error
	if !errors.As(err, &e) || e.Code != tidings.OutcomeUnknown {
		return err
	}
	if e.Err != nil && !interrupted(e.Err) {
		return &tidings.Error{Code: tidings.Internal, Message: doing + ": " + e.Err.Error(), Err: e.Err}
	}
	return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database cannot be reached", Err: e.Err}
}

// interrupted tells whether err is of the connection: the server, the network or a deadline has ended it.
func interrupted(err error) bool {
	var pg *pgconn.PgError
	var network net.Error
	if errors.As(err, &pg) || errors.As(err, &network) || pgconn.Timeout(err) {
		return true
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		os.ErrDeadlineExceeded, pgconn.ErrConnClosed, pgx.ErrTxClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	return strings.Contains(err.Error(), "closed pool") // the pool's, which has no name for it: the process is stopping
}
