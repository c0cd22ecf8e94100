// Recovery after a restore: a new generation, and what belongs to the old one.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

// generation is the one that a recovery gives.
type generation struct {
	before     int64 // of the restored copy; 0: it was never started
	generation int64
	at         time.Time // by the database's clock
}

// nextGenerationSQL computes a generation. Its last 10 bits are random, so that two recoveries by a clock that stands still differ.
const nextGenerationSQL = `SELECT k.before, greatest(k.before + 1, @least::bigint, k.fresh), k.now_at
	FROM (SELECT coalesce((SELECT l.generation FROM tidings.lineage l WHERE l.node = @node), 0) AS before, statement_timestamp() AS now_at,
		(date_part('epoch', statement_timestamp()) * 1000)::bigint * 1024 + floor(random() * 1024)::bigint AS fresh) k`

// nextGeneration is greater than the copy's and than every one that the journal knows.
func (s *Store) nextGeneration(ctx context.Context, journal []outside.Taking) (g generation, err error) {
	least := int64(0)
	for _, t := range journal {
		least = max(least, t.Epoch+1)
	}
	err = s.pool.QueryRow(ctx, nextGenerationSQL, pgx.NamedArgs{"node": node, "least": least}).Scan(&g.before, &g.generation, &g.at)
	if err == nil && g.generation >= tidings.MaxNumber {
		return g, tidings.Errorf(tidings.InvalidArgument, "begin a recovery: no generation is left above %d: is the journal that of this installation?", g.generation-1)
	}
	return g, unchanged("begin a recovery", err)
}

// deleteRoutesSQL deletes routes of a copy, whose devices are not connected to anything.
const deleteRoutesSQL = `WITH page AS MATERIALIZED (
		SELECT r.user_id, r.device_id, r.bucket FROM tidings.route r WHERE r.bucket = ANY (@buckets::smallint[]) LIMIT @limit::bigint FOR UPDATE
	)
	DELETE FROM tidings.route r USING page x WHERE r.user_id = x.user_id AND r.device_id = x.device_id AND r.bucket = x.bucket AND r.bucket = ANY (@buckets::smallint[])`

// deleteGatewaysSQL deletes all gateways of a copy: they are few.
const deleteGatewaysSQL = `DELETE FROM tidings.gateway`

func (s *Store) clearRoutes(ctx context.Context, report *RecoverReport) error {
	for n := 1; n > 0; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var err error
		if n, err = s.delete(ctx, "clear the routes", deleteRoutesSQL, pgx.NamedArgs{"buckets": s.buckets, "limit": recoverBatch}); err != nil {
			return err
		}
		report.Routes += n
	}
	_, err := s.delete(ctx, "clear the gateways", deleteGatewaysSQL, pgx.NamedArgs{})
	return err
}

// newEpochsSQL gives a generation to the next conversations in the order of their primary key, and returns the last one's.
const newEpochsSQL = `WITH page AS MATERIALIZED (
		SELECT c.conv_id FROM tidings.conversation c WHERE c.conv_id > @after::text ORDER BY c.conv_id LIMIT @limit::bigint FOR NO KEY UPDATE
	), changed AS (
		UPDATE tidings.conversation c SET epoch = @generation::bigint FROM page x WHERE c.conv_id = x.conv_id
	)
	SELECT count(*), coalesce(max(x.conv_id), '') FROM page x`

func (s *Store) newEpochs(ctx context.Context, report *RecoverReport) error {
	after := ""
	for n := 1; n > 0; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		last := ""
		err := s.write(ctx, "give conversations a new epoch", func(ctx context.Context) error {
			return s.pool.QueryRow(ctx, newEpochsSQL, pgx.NamedArgs{"after": after, "limit": recoverBatch, "generation": report.Generation}).Scan(&n, &last)
		})
		if err != nil {
			return err
		}
		after = last
		report.Conversations += n
	}
	return nil
}
