// Which PostgreSQL history this is.

package store

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// Lineage is which PostgreSQL history a database is, and how far it has come.
type Lineage struct {
	SystemIdentifier string `json:"system_identifier"`
	Timeline         int64  `json:"timeline"`
	LSN              string `json:"lsn"`
	DatabaseOID      uint32 `json:"database_oid"`
	LogOID           uint32 `json:"log_oid"`
}

// node is the key of the one lineage row that a plain PostgreSQL has.
const node = "main"

// freshGeneration is a new history's by the clock: its milliseconds, and 10 random bits, so that two by a clock that stands still differ.
const freshGeneration = `((date_part('epoch', statement_timestamp()) * 1000)::bigint * 1024 + floor(random() * 1024)::bigint)`

// here reads the lineage as it is now. The timeline is taken from the name of the current WAL file, because
// pg_control_checkpoint shows the old one for seconds after a promotion. It fails on a server in recovery.
const here = `here AS MATERIALIZED (
		SELECT (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c)::numeric AS system_identifier,
			('x' || left(pg_catalog.pg_walfile_name(w.lsn), 8))::bit(32)::bigint AS timeline, w.lsn,
			(SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) AS database_oid,
			'tidings.attempt'::regclass::oid AS log_oid, statement_timestamp() AS now_at, ` + freshGeneration + ` AS generation
		  FROM (SELECT pg_catalog.pg_current_wal_lsn() AS lsn) w
	)`

// firstLineageSQL writes the lineage row on the first start.
const firstLineageSQL = `WITH ` + here + `
	INSERT INTO tidings.lineage (node, system_identifier, timeline, lsn, database_oid, log_oid, generation, recorded_at)
	SELECT @node::text, h.system_identifier, h.timeline, h.lsn, h.database_oid, h.log_oid, h.generation, h.now_at FROM here h
	ON CONFLICT (node) DO NOTHING`

// EnsureLineage writes the lineage row on the first start, with a generation of its own, and judges the database as every new
// connection of a pool with a LineageMemory is judged. A store without one is judged by the row alone: that cannot show a loss after
// the recorded position, of a restore to a point in time or a promotion of a standby that lagged.
func (s *Store) EnsureLineage(ctx context.Context) error {
	return s.write(ctx, "judge the database's lineage", func(ctx context.Context) error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if _, err := conn.Exec(ctx, firstLineageSQL, pgx.NamedArgs{"node": node}); err != nil {
			return err
		}
		m := memoryOf(conn.Conn())
		if m == nil {
			if m, err = NewLineageMemory("", slog.New(slog.DiscardHandler)); err != nil {
				return err
			}
		}
		return m.judge(ctx, conn.Conn())
	})
}

// recordLineageSQL writes the lineage row as it is now, with @generation if that is greater than the recorded one, and null keeps that. The
// time that it was recorded grows either way: processes know by the two that what they remember is void. An alarm was about what
// was recorded before.
const recordLineageSQL = `WITH ` + here + `, calm AS (
		DELETE FROM tidings.lineage a WHERE a.node = '` + alarmNode + `'
	)
	INSERT INTO tidings.lineage AS l (node, system_identifier, timeline, lsn, database_oid, log_oid, generation, recorded_at)
	SELECT @node::text, h.system_identifier, h.timeline, h.lsn, h.database_oid, h.log_oid, coalesce(@generation::bigint, h.generation), h.now_at FROM here h
	ON CONFLICT (node) DO UPDATE SET system_identifier = excluded.system_identifier, timeline = excluded.timeline, lsn = excluded.lsn,
		database_oid = excluded.database_oid, log_oid = excluded.log_oid,
		recorded_at = greatest(excluded.recorded_at, l.recorded_at + interval '1 microsecond'), generation = greatest(l.generation, @generation::bigint)
	RETURNING l.generation, l.system_identifier::text, l.timeline, l.lsn::text, l.database_oid, l.log_oid`
