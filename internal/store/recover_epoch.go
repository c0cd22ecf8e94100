// Recovery after a restore: a new generation, and what belongs to the old one.

package store

import (
	"context"
	"math/rand/v2"
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

	installation tidings.UUID
}

// copyGenerationSQL reads what a generation is computed from.
const copyGenerationSQL = `SELECT coalesce((SELECT l.generation FROM tidings.lineage l WHERE l.node = @node), 0), ` + freshGeneration + `, statement_timestamp(),
	(SELECT i.id FROM tidings.installation i WHERE i.one)`

// farAhead is ten years of generations. So much further on than the clock and the copy no journal can be.
const farAhead = 10 * 365 * 24 * 3600 * 1000 * 1024

// nextGeneration is greater than the copy's and than every one that the journal knows. A journal that cannot be this copy's is refused.
func (s *Store) nextGeneration(ctx context.Context, journal []outside.Line) (g generation, err error) {
	const doing = "begin a recovery"
	if err := s.pool.QueryRow(ctx, copyGenerationSQL, pgx.NamedArgs{"node": node}).Scan(&g.before, &g.generation, &g.at, &g.installation); err != nil {
		return g, unchanged(doing, err)
	}
	if g.generation <= g.before { // the clock is behind: a step of any length, up to a second's, so that two recoveries of one copy differ
		g.generation = g.before + 1 + rand.Int64N(1<<20)
	}
	plausible := g.generation + farAhead
	for i := range journal {
		t := &journal[i]
		switch {
		case !t.Installation.IsZero() && t.Installation != g.installation:
			return g, tidings.Errorf(tidings.InvalidArgument, "%s: %s, line %d, is of the installation %v, and this database of %v", doing, t.File, t.N, t.Installation, g.installation)
		case t.Epoch > plausible:
			return g, tidings.Errorf(tidings.InvalidArgument, "%s: %s, line %d, has the epoch %d, more than ten years ahead of the clock and of this copy", doing, t.File, t.N, t.Epoch)
		}
		g.generation = max(g.generation, t.Epoch+1)
	}
	if g.generation >= tidings.MaxNumber {
		return g, tidings.Errorf(tidings.InvalidArgument, "%s: no generation is left above %d", doing, g.generation-1)
	}
	return g, nil
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
