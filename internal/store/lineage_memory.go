// What a process remembers of the history that it serves.

package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
)

const (
	judgeTimeout = 5 * time.Second // for the judgement of one connection
	judgeTries   = 5               // while other judgements come between
	comeAgain    = 5 * time.Second // what clients of a database that is not served are told to wait
)

// LineageMemory is what a process remembers of the PostgreSQL history that it serves: which one, how far it had come, and the newest of what
// was acknowledged to clients. Whatever connects is judged by it, so that no history is served that has lost some of that. A process
// has one, which its pools share; Configure prepares them.
//
// WAL is a prefix: if the newest acknowledged commit is there, all older ones are. The newest is not known exactly, because commits are
// answered in another order than they stand in the WAL; but no more of those that were remembered later can be older in the WAL than there
// are connections. So the memory holds at least as many.
type LineageMemory struct {
	log     *slog.Logger
	dir     string                        // of the witness; "" for none
	refused atomic.Pointer[tidings.Error] // why the database is not served; nil when it is
	breaks  atomic.Int64
	doubt   chan struct{} // has Watch look at once

	mu      sync.Mutex
	known   *known // nil: nothing yet. What it points to does not change.
	version int64  // grows with everything but a position
	changed chan struct{}
	tried   time.Time // when a connection was last tried while the database was not served
	events  ring[rememberedEvent]
	ends    ring[rememberedEnd]
}

// known is the database as it was last seen, and the row that it had.
type known struct {
	place
	run
	record *record
}

// NewLineageMemory makes a memory that is empty, or holds what the witness in dir tells. dir may be empty: then there is no witness. Watch
// keeps the memory and the witness up to date.
func NewLineageMemory(dir string, log *slog.Logger) (*LineageMemory, error) {
	m := &LineageMemory{log: log, dir: dir, doubt: make(chan struct{}, 1), changed: make(chan struct{})}
	return m, m.readWitness()
}

// Lost tells why the database is not served, with the code UNAVAILABLE; nil when it is.
func (m *LineageMemory) Lost() error {
	if m == nil {
		return nil
	}
	if e := m.refused.Load(); e != nil {
		return e
	}
	return nil
}

// Breaks is how often it has come about that what this process had served before is not what the database holds: because it is not
// served, or because a recovery has given it a new generation. Whatever was built on it has to be given up then.
func (m *LineageMemory) Breaks() int64 { return m.breaks.Load() }

// Changed is closed when Lost or Breaks has changed.
func (m *LineageMemory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// The keys under which a connection keeps its memory, and the number of its breaks when it was judged.
const (
	lineageKey = "tidings.lineage"
	breaksKey  = "tidings.breaks"
)

// memoryOf is the memory that a connection was judged by; nil on a pool that has none.
func memoryOf(conn *pgx.Conn) *LineageMemory {
	m, _ := conn.PgConn().CustomData()[lineageKey].(*LineageMemory)
	return m
}

// missingObjects are the SQLSTATEs by which a statement shows that the database is being replaced under it: the log is another one, or a
// table, schema, function, key or type is not there. Such a statement has changed nothing.
var missingObjects = map[string]bool{"55000": true, "42P01": true, "3F000": true, "42883": true, "42P10": true, "42704": true}

// Configure prepares a pool for a Store, as the function Configure does, and lets nobody have a connection of it whose database may not
// be served. While that is so, one connection is tried now and then, and the others are refused at once.
func (m *LineageMemory) Configure(c *pgxpool.Config) {
	Configure(c)
	m.mu.Lock()
	m.events.grow(int(c.MaxConns))
	m.ends.grow(int(c.MaxConns))
	m.mu.Unlock()
	connecting := c.BeforeConnect
	c.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if err := m.mayTry(); err != nil {
			return err
		}
		if connecting != nil {
			return connecting(ctx, config)
		}
		return nil
	}
	connected := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := connected(ctx, conn); err != nil {
			return err
		}
		conn.PgConn().CustomData()[lineageKey] = m
		return m.judge(ctx, conn)
	}
	prepare := c.PrepareConn
	c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if err := m.Lost(); err != nil {
			return false, err
		}
		if conn.PgConn().CustomData()[breaksKey] != m.Breaks() {
			return false, nil
		}
		if prepare != nil {
			return prepare(ctx, conn)
		}
		return true, nil
	}
	failed := c.ConnConfig.OnPgError
	c.ConnConfig.OnPgError = func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		if missingObjects[e.Code] {
			m.suspect()
			return false
		}
		return failed(conn, e)
	}
}

// mayTry says whether a connection may be made: while the database is not served, only now and then.
func (m *LineageMemory) mayTry() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.refused.Load()
	if e == nil {
		return nil
	}
	if time.Since(m.tried) < watchEvery/2 {
		return e
	}
	m.tried = time.Now()
	return nil
}

// suspect has the database looked at now.
func (m *LineageMemory) suspect() {
	select {
	case m.doubt <- struct{}{}:
	default:
	}
}

// judge decides whether the database at the other end of a connection may be served, and remembers what it has seen.
func (m *LineageMemory) judge(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	const doing = "judge the database's lineage"
	for range judgeTries {
		// What is known is read before the database is: nothing that was seen before it can be news to it.
		m.mu.Lock()
		k, version := m.known, m.version
		m.mu.Unlock()
		now, err := look(ctx, conn)
		var j judgement
		var pg *pgconn.PgError
		switch {
		case err == nil:
			j, err = k.judge(ctx, conn, now, m)
		case errors.As(err, &pg) && missingObjects[pg.Code] && k != nil:
			j, err = judgement{historyLost, "its tables are not there", false}, nil
		}
		if err != nil {
			return unchanged(doing, err)
		}
		breaks, ok := m.settle(version, now, j)
		if !ok {
			continue
		}
		if j.verdict >= standby {
			if j.alarm {
				m.raiseAlarm(ctx, conn, k, now)
			}
			return j.refusal()
		}
		conn.PgConn().CustomData()[breaksKey] = breaks
		if now.record != nil && now.timeline > now.record.timeline {
			m.recordTimeline(ctx, conn, now)
		}
		return nil
	}
	return tidings.Errorf(tidings.Unavailable, "%s: it is judged again and again", doing)
}

// settle remembers a sight after its judgement, unless another one has come between, and returns the number of breaks with it. What
// follows from it is told to those who wait for Changed.
func (m *LineageMemory) settle(version int64, now *sight, j judgement) (breaks int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.version != version {
		return 0, false
	}
	refused := m.refused.Load()
	breaks = m.breaks.Load()
	switch j.verdict {
	case unchangedHistory:
		k := *m.known
		k.at = max(k.at, now.at)
		m.known = &k
	case continued:
		m.known = &known{now.place, now.run, now.record}
		m.version++
	case renewed:
		if k := m.known; k != nil && k.record != nil && refused == nil && k.record.generation != now.record.generation {
			breaks++ // a recovery beside a process that served
		}
		m.known = &known{now.place, now.run, now.record}
		m.events.clear()
		m.ends.clear()
		m.version++
	default:
		if refused == nil {
			breaks++
		}
		e := j.refusal()
		if refused == nil || refused.Message != e.Message {
			m.log.Error("the database is not served", "why", e.Message)
			m.version++
			m.refused.Store(e)
		}
	}
	if j.verdict < standby {
		if refused != nil {
			m.refused.Store(nil)
			m.version++
			m.log.Info("the database is served again")
		}
		if j.why != "" {
			m.log.Info("the database was judged", "found", j.why)
		}
	}
	if breaks != m.breaks.Load() || refused != m.refused.Load() {
		m.breaks.Store(breaks)
		close(m.changed)
		m.changed = make(chan struct{})
		m.suspect()
	}
	return breaks, true
}

// alarmNode is the key of a row beside the lineage's that says: a process has noticed that this history lost something. It holds the
// generation and the time of the row that was served, so that a recovery, which records another, ends it.
const alarmNode = node + ": lost"

// raiseAlarmSQL writes that row by primary key, with the position that is known to be lost.
const raiseAlarmSQL = `INSERT INTO tidings.lineage AS a (node, system_identifier, timeline, lsn, database_oid, log_oid, generation, recorded_at)
	SELECT '` + alarmNode + `', l.system_identifier, @timeline::bigint, @lsn::text::pg_lsn, l.database_oid, l.log_oid, l.generation, l.recorded_at
	  FROM tidings.lineage l WHERE l.node = '` + node + `' AND l.generation = @generation AND l.recorded_at = @recorded_at
	ON CONFLICT (node) DO UPDATE SET timeline = excluded.timeline, lsn = excluded.lsn, database_oid = excluded.database_oid, log_oid = excluded.log_oid,
		system_identifier = excluded.system_identifier, generation = excluded.generation, recorded_at = excluded.recorded_at`

// raiseAlarm tells the other processes. Those whose own acknowledged commits are all there would go on serving, and clients would
// mix two histories of one epoch.
func (m *LineageMemory) raiseAlarm(ctx context.Context, conn *pgx.Conn, k *known, now *sight) {
	if now.record == nil {
		return
	}
	if _, err := conn.Exec(ctx, raiseAlarmSQL, pgx.NamedArgs{"timeline": k.timeline, "lsn": k.at.String(),
		"generation": now.record.generation, "recorded_at": now.record.recorded}); err != nil {
		m.log.Warn("other processes were not told that the database lost something; it is tried again", "error", err)
	}
}

// recordTimelineSQL records, by primary key, that the history goes on on a higher timeline.
const recordTimelineSQL = `UPDATE tidings.lineage l SET timeline = @timeline, lsn = @lsn::text::pg_lsn
	WHERE l.node = '` + node + `' AND l.generation = @generation AND l.recorded_at = @recorded_at AND l.timeline < @timeline`

func (m *LineageMemory) recordTimeline(ctx context.Context, conn *pgx.Conn, now *sight) {
	if _, err := conn.Exec(ctx, recordTimelineSQL, pgx.NamedArgs{"timeline": now.timeline, "lsn": now.at.String(),
		"generation": now.record.generation, "recorded_at": now.record.recorded}); err != nil {
		m.log.Warn("the new timeline was not recorded; the next connection tries again", "timeline", now.timeline, "error", err)
	}
}
