// What a database holds, for a backup and for the comparison with its copy.

package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Contents is what a database held in one snapshot.
type Contents struct {
	At      time.Time        `json:"at"`     // by the database's clock: what was committed before is in it
	Server  string           `json:"server"` // PostgreSQL's version, for example 15.18
	Major   int              `json:"major"`
	Schema  int64            `json:"schema"`  // the newest migration
	Lineage json.RawMessage  `json:"lineage"` // the rows of that table
	Rows    map[string]int64 `json:"rows"`    // of each table
}

// factsSQL reads what the whole database is. current_setting is without what a distribution adds to the version.
const factsSQL = `SELECT transaction_timestamp(), split_part(current_setting('server_version'), ' ', 1), current_setting('server_version_num')::int / 10000,
	(SELECT coalesce(max(m.version_id), 0) FROM tidings.migration m WHERE m.is_applied),
	(SELECT coalesce(json_agg(l ORDER BY l.node), '[]') FROM tidings.lineage l)`

// tablesSQL names the tables.
const tablesSQL = `SELECT t.tablename FROM pg_catalog.pg_tables t WHERE t.schemaname = 'tidings' ORDER BY t.tablename`

func contents(ctx context.Context, tx pgx.Tx) (c Contents, err error) {
	if err := tx.QueryRow(ctx, factsSQL).Scan(&c.At, &c.Server, &c.Major, &c.Schema, &c.Lineage); err != nil {
		return c, err
	}
	tables, err := tablesIn(ctx, tx)
	c.Rows = map[string]int64{}
	for _, name := range tables {
		var n int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+quoted(name)).Scan(&n); err != nil {
			return c, err
		}
		c.Rows[name] = n
	}
	return c, err
}

func tablesIn(ctx context.Context, q interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}) ([]string, error) {
	rows, err := q.Query(ctx, tablesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func quoted(table string) string { return pgx.Identifier{"tidings", table}.Sanitize() }

// Contents counts the rows of every table, all in one snapshot.
func (s *Store) Contents(ctx context.Context) (c Contents, err error) {
	err = s.snapshot(ctx, "count the rows", func(ctx context.Context, tx pgx.Tx) error {
		c, err = contents(ctx, tx)
		return err
	})
	return c, err
}

// exportSQL gives the snapshot of its transaction to other sessions, for as long as the transaction lives: it may idle meanwhile.
const exportSQL = `SELECT pg_catalog.pg_export_snapshot(), set_config('idle_in_transaction_session_timeout', '0', true)`

// Export counts the rows of every table and calls use with the snapshot in which it did so, which another session can take for its own
// until use returns. An error of use is returned as it is.
func (s *Store) Export(ctx context.Context, use func(snapshot string, c Contents) error) error {
	const doing = "export a snapshot"
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return unchanged(doing, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // there is nothing to commit
	var snapshot string
	if err := tx.QueryRow(ctx, exportSQL).Scan(&snapshot, nil); err != nil {
		return unchanged(doing, err)
	}
	c, err := contents(ctx, tx)
	if err != nil {
		return unchanged("count the rows", err)
	}
	return use(snapshot, c)
}

// vacantSQL tells whether there is nothing of Tidings, and which server it is.
const vacantSQL = `SELECT pg_catalog.to_regnamespace('tidings') IS NULL, current_setting('server_version_num')::int / 10000`

// Vacant tells whether a database has no schema of Tidings, and the major version of its server.
func (s *Store) Vacant(ctx context.Context) (vacant bool, major int, err error) {
	err = s.pool.QueryRow(ctx, vacantSQL).Scan(&vacant, &major)
	return vacant, major, unchanged("look for the schema", err)
}

// Analyze gives the planner its statistics of a database that was just filled.
func (s *Store) Analyze(ctx context.Context) error {
	tables, err := tablesIn(ctx, s.pool)
	if err != nil {
		return unchanged("name the tables", err)
	}
	for i := range tables {
		tables[i] = quoted(tables[i])
	}
	_, err = s.pool.Exec(ctx, "ANALYZE "+strings.Join(tables, ", "))
	return unchanged("analyze the tables", err)
}
