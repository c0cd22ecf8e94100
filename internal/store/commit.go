// Runs somebody else's writes under the store's deadline and judgement of commits.

package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Committing runs fn, which commits by itself on the connection that it is given, under a deadline of its own. When a warning came with the
// commit the error is OUTCOME_UNKNOWN (see Configure); other errors are those of fn. doing names the attempt in the error.
func (s *Store) Committing(ctx context.Context, doing string, fn func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return unchanged(doing, err)
	}
	defer conn.Release()
	warned := warnings(conn.Conn())
	if err := fn(ctx, conn); err != nil {
		return err
	}
	return waited(doing, warnings(conn.Conn())-warned)
}
