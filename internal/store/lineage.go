// Which PostgreSQL history this is.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
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

// here reads the lineage as it is now. The timeline is taken from the name of the current WAL file, because
// pg_control_checkpoint shows the old one for seconds after a promotion. It fails on a server in recovery.
const here = `here AS MATERIALIZED (
		SELECT (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c)::numeric AS system_identifier,
			('x' || left(pg_catalog.pg_walfile_name(w.lsn), 8))::bit(32)::bigint AS timeline, w.lsn,
			(SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) AS database_oid,
			'tidings.attempt'::regclass::oid AS log_oid, statement_timestamp() AS now_at,
			-- unique among histories: a clock that stands still makes no two equal ones
			(date_part('epoch', statement_timestamp()) * 1000)::bigint * 1024 + floor(random() * 1024)::bigint AS generation
		  FROM (SELECT pg_catalog.pg_current_wal_lsn() AS lsn) w
	)`

// ensureLineageSQL writes the lineage row on the first start, and judges on every later one: another system identifier or other
// oids are a logical restore; a lower timeline, or a lower position on the same one, is a history that ends before ours. A higher
// timeline is a promotion or a recovery to a point in time; what it lost after the recorded position no row can tell.
const ensureLineageSQL = `WITH ` + here + `, first AS (
		INSERT INTO tidings.lineage (node, system_identifier, timeline, lsn, database_oid, log_oid, generation, recorded_at)
		SELECT @node::text, h.system_identifier, h.timeline, h.lsn, h.database_oid, h.log_oid, h.generation, h.now_at FROM here h
		ON CONFLICT (node) DO NOTHING
	)
	SELECT CASE WHEN l.system_identifier <> h.system_identifier THEN 'its system identifier is another'
			WHEN l.database_oid <> h.database_oid OR l.log_oid <> h.log_oid THEN 'its object ids are others'
			WHEN l.timeline > h.timeline THEN 'its timeline is lower'
			WHEN l.timeline = h.timeline AND l.lsn > h.lsn THEN 'its position is lower' ELSE '' END
	  FROM here h LEFT JOIN tidings.lineage l ON l.node = @node::text`

// EnsureLineage writes the lineage row on the first start, with a generation of its own, and refuses a database whose history is
// another than the recorded one, with UNAVAILABLE: after a restore `tidings recover` has to run before anything is sent.
//
// It cannot see a loss after the recorded position: a restore to a point in time, or a promotion of a standby that lagged.
func (s *Store) EnsureLineage(ctx context.Context) error {
	return s.write(ctx, "judge the database's lineage", func(ctx context.Context) error {
		var differs string
		if err := s.pool.QueryRow(ctx, ensureLineageSQL, pgx.NamedArgs{"node": node}).Scan(&differs); err != nil {
			return err
		}
		if differs != "" {
			return tidings.Errorf(tidings.Unavailable,
				"the database was restored or replaced (%s than recorded): run `tidings recover`, or `tidings recover --lossless` if nothing can be lost", differs)
		}
		return nil
	})
}

// recordLineageSQL writes the lineage row as it is now. With @lossless it keeps the generation; otherwise that grows, by more
// than any history restored from an older copy can have grown.
const recordLineageSQL = `WITH ` + here + `
	INSERT INTO tidings.lineage AS l (node, system_identifier, timeline, lsn, database_oid, log_oid, generation, recorded_at)
	SELECT @node::text, h.system_identifier, h.timeline, h.lsn, h.database_oid, h.log_oid, h.generation, h.now_at FROM here h
	ON CONFLICT (node) DO UPDATE SET system_identifier = excluded.system_identifier, timeline = excluded.timeline, lsn = excluded.lsn,
		database_oid = excluded.database_oid, log_oid = excluded.log_oid, recorded_at = excluded.recorded_at,
		generation = CASE WHEN @lossless::boolean THEN l.generation ELSE greatest(l.generation + 1, excluded.generation) END
	RETURNING l.generation, l.system_identifier::text, l.timeline, l.lsn::text, l.database_oid, l.log_oid`
