// Whether a copy that is said to have lost nothing has all that is known outside of it.

package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

// untoldSQL counts the takings that are not there, and gives the place of the first one, by primary keys. The rows of those that are older
// than 30 days may have been deleted, see ForgetTakings.
const untoldSQL = `SELECT count(*), coalesce(min(r.n), 0)
	  FROM unnest(@convs::text[], @ids::uuid[], @ats::timestamptz[]) WITH ORDINALITY AS r (conv, id, at, n)
	  LEFT JOIN tidings.taken_back t ON t.conv_id = r.conv AND t.id = r.id AND t.conv_id = ANY (@convs::text[])
	 WHERE t.id IS NULL AND r.at > statement_timestamp() - interval '30 days'`

// Lost names what the witness in dir and the journal know and the database does not have, one of each kind; nothing when all is there. It
// does not matter where the database is: a switch to another cluster that lost nothing passes. compared is false when there is nothing to
// compare with: no witness, or one from before the recovery that the database knows of, and no line of its history.
func (s *Store) Lost(ctx context.Context, dir string, journal []outside.Line) (lost []string, compared bool, err error) {
	const doing = "compare with the witness and the journal"
	m, err := NewLineageMemory(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, false, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, false, unchanged(doing, err)
	}
	defer conn.Release()
	now, err := look(ctx, conn.Conn())
	if err != nil {
		return nil, false, unchanged(doing, err)
	}
	var generation int64 // 0: it has no row
	if now.record != nil {
		generation = now.record.generation
	}
	if m.known != nil && m.known.record.generation >= generation {
		compared = true
		what, err := m.lacks(ctx, conn.Conn(), now)
		if err != nil {
			return nil, true, unchanged(doing, err)
		}
		lost = append(lost, what...)
	}
	var (
		convs []string
		ids   []tidings.UUID
		ats   []time.Time
		lines []outside.Line
	)
	for _, l := range journal {
		switch {
		case l.Epoch < generation:
		case l.What != outside.TookRecover:
			convs, ids, ats, lines = append(convs, l.Conv), append(ids, l.ID), append(ats, l.At), append(lines, l)
		case l.Epoch > generation:
			lost = append(lost, fmt.Sprintf("the recovery of %s that gave generation %d (%s, line %d)", l.At.UTC().Format(time.RFC3339), l.Epoch, l.File, l.N))
		}
	}
	var missing, first int
	err = conn.QueryRow(ctx, untoldSQL, pgx.NamedArgs{"convs": convs, "ids": ids, "ats": ats}).Scan(&missing, &first)
	if err != nil {
		return nil, compared, unchanged(doing, err)
	}
	if missing > 0 {
		l := &lines[first-1]
		lost = append(lost, fmt.Sprintf("%d of what the journal tells, such as the %s of %s (%s, line %d)", missing, l.What, l.At.UTC().Format(time.RFC3339), l.File, l.N))
	}
	return lost, compared || len(lines) > 0, nil
}

// lacks names what the memory has and the database does not. As judgeByMemory, but a place that is another proves nothing here.
func (m *LineageMemory) lacks(ctx context.Context, conn *pgx.Conn, now *sight) (lost []string, err error) {
	k := m.known
	if k.record.compare(now.record) > 0 {
		lost = append(lost, "the lineage of "+k.record.recorded.UTC().Format(time.RFC3339Nano)+", which was served")
	}
	if k.system == now.system && k.database == now.database && k.log == now.log {
		what := fmt.Sprintf("timeline %d up to %v, which was served", k.timeline, k.at)
		if k.differs(&now.place) != "" {
			lost = append(lost, what)
		} else if now.timeline > k.timeline {
			left, found, err := branched(ctx, conn, now.timeline, k.timeline)
			if err != nil {
				return nil, err
			}
			if found && left < k.at {
				lost = append(lost, what)
			}
		}
	}
	event, err := m.missing(ctx, conn)
	if err == nil && event != "" {
		lost = append(lost, event+", which was acknowledged")
	}
	return lost, err
}
