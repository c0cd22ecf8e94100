// Runs statements whose plans go by keys alone.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// byKeySQL settles for one transaction that rows are found by their keys and in the order of these, whatever the statistics of a young
// table say, and that nothing is compiled, which would take longer than it runs.
const byKeySQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// byKey runs statements with the settings of byKeySQL in one implicit transaction and one round trip; each sees what the ones before it
// did. read is called for the rows of each of them in turn. A commit that came with a warning is OUTCOME_UNKNOWN.
func (s *Store) byKey(ctx context.Context, batch *pgx.Batch, read ...func(pgx.Rows) error) (err error) {
	const doing = "run statements by key"
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return unchanged(doing, err)
	}
	defer conn.Release()
	warned := warnings(conn.Conn())
	settings := &pgx.Batch{}
	settings.Queue(byKeySQL)
	settings.QueuedQueries = append(settings.QueuedQueries, batch.QueuedQueries...)
	results := conn.SendBatch(ctx, settings)
	defer func() {
		if failed := results.Close(); err == nil {
			err = failed
		}
		if err == nil {
			err = waited(doing, warnings(conn.Conn())-warned)
		}
	}()
	if _, err := results.Exec(); err != nil {
		return err
	}
	for _, f := range read {
		rows, err := results.Query()
		if err == nil {
			err = f(rows)
			rows.Close()
		}
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rowsByKey is byKey for one statement whose rows are read by scan.
func rowsByKey[T any](ctx context.Context, s *Store, sql string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) (all []T, err error) {
	batch := &pgx.Batch{}
	batch.Queue(sql, args)
	err = s.byKey(ctx, batch, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// eachByKey is byKey for one statement, whose rows are read one by one.
func (s *Store) eachByKey(ctx context.Context, sql string, args pgx.NamedArgs, read func(pgx.Rows) error) error {
	batch := &pgx.Batch{}
	batch.Queue(sql, args)
	return s.byKey(ctx, batch, func(rows pgx.Rows) error {
		for rows.Next() {
			if err := read(rows); err != nil {
				return err
			}
		}
		return nil
	})
}
