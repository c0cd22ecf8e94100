// Judges whether a database is the history that was served, and whether it has all of it.

package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
)

// lsn is a position in the write-ahead log.
type lsn uint64

func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint64(l)>>32, uint32(l)) }

func parseLSN(text string) (lsn, error) {
	high, low, ok := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	if err := errors.Join(err, err2); err != nil || !ok {
		return 0, fmt.Errorf("%.40q is no position in the write-ahead log", text)
	}
	return lsn(h<<32 | l), nil
}

// place is which history a database is and how far it has come.
type place struct {
	system   string // identifier
	timeline int64
	at       lsn    // flushed
	database uint32 // oid
	log      uint32 // oid of the table that the lineage's row names
}

// differs says why now cannot be p later on, or "". A timeline that is higher may have left p's before it was there: only its
// history file or what is remembered can tell.
func (p *place) differs(now *place) string {
	switch {
	case p.system != now.system:
		return "its system identifier is another"
	case p.database != now.database || p.log != now.log:
		return "its object ids are others"
	case p.timeline > now.timeline:
		return "its timeline is lower"
	case p.timeline == now.timeline && p.at > now.at:
		return "its position is lower"
	}
	return ""
}

// run is what is another after a restart of the server, or after the log was filled anew.
type run struct {
	started  time.Time // of the server
	events   uint32    // oid of tidings.event
	filenode uint32    // its file: TRUNCATE makes a new one, and so does VACUUM FULL
}

// record is the lineage's row: the place where a first start or a recovery found the database.
type record struct {
	place
	generation int64
	recorded   time.Time
}

// compare orders records of one installation: every recovery makes a higher one, and a restored copy has a lower one.
// A row that is not there is lower than any.
func (r *record) compare(other *record) int {
	switch {
	case r == nil && other == nil:
		return 0
	case r == nil:
		return -1
	case other == nil:
		return 1
	case r.generation != other.generation:
		return int(max(-1, min(1, r.generation-other.generation)))
	}
	return r.recorded.Compare(other.recorded)
}

// sight is what a look at a database shows.
type sight struct {
	recovering bool // it is a standby, or is being restored
	place
	run
	record *record
	alarm  bool // a process has noticed that this history lost something
}

// lookSQL reads all that a judgement starts from. The timeline is taken from the name of the current WAL file, because
// pg_control_checkpoint shows the old one for seconds after a promotion; the position is one that has been flushed, because what has not may be
// lost in a crash, rightly.
const lookSQL = `SELECT r.yes, (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c)::text,
		CASE WHEN NOT r.yes THEN ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint ELSE 0 END,
		CASE WHEN NOT r.yes THEN pg_catalog.pg_current_wal_flush_lsn() ELSE '0/0' END::text,
		(SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()), 'tidings.attempt'::regclass::oid,
		pg_catalog.pg_postmaster_start_time(), 'tidings.event'::regclass::oid, pg_catalog.pg_relation_filenode('tidings.event'::regclass),
		l.system_identifier::text, l.timeline, l.lsn::text, l.database_oid, l.log_oid, l.generation, l.recorded_at, a.node IS NOT NULL
	FROM (SELECT pg_catalog.pg_is_in_recovery() AS yes) r
	LEFT JOIN tidings.lineage l ON l.node = '` + node + `'
	LEFT JOIN tidings.lineage a ON a.node = '` + alarmNode + `' AND a.generation = l.generation AND a.recorded_at = l.recorded_at`

// look looks at a database, in one round trip.
func look(ctx context.Context, conn *pgx.Conn) (*sight, error) {
	var (
		s                    sight
		at                   string
		r                    record
		system, recordedAt   *string
		timeline, generation *int64
		database, log        *uint32
		recorded             *time.Time
	)
	err := conn.QueryRow(ctx, lookSQL, pgx.QueryExecModeSimpleProtocol).Scan(&s.recovering, &s.system, &s.timeline, &at, &s.database, &s.log,
		&s.started, &s.events, &s.filenode, &system, &timeline, &recordedAt, &database, &log, &generation, &recorded, &s.alarm)
	if err == nil {
		s.at, err = parseLSN(at)
	}
	if err == nil && system != nil {
		r = record{place{system: *system, timeline: *timeline, database: *database, log: *log}, *generation, *recorded}
		r.at, err = parseLSN(*recordedAt)
		s.record = &r
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// verdict is what a judgement comes to.
type verdict int

const (
	unchangedHistory verdict = iota // the very run of the server that is known
	continued                       // the same history, restarted or carried on elsewhere, with all that was acknowledged
	renewed                         // the first look, or one after a recovery: what was remembered is void
	standby                         // a server in recovery
	historyLost                     // it has lost something, or is another
)

// judgement is a verdict with its reason.
type judgement struct {
	verdict
	why   string // of standby and historyLost; of the others what is worth a line in the log
	alarm bool   // the row does not show the loss to others
}

// judge compares a sight with what is known, which may be nothing, and looks up what that leaves open.
func (k *known) judge(ctx context.Context, conn *pgx.Conn, now *sight, m *LineageMemory) (j judgement, err error) {
	r := now.record
	switch {
	case now.recovering:
		return judgement{standby, "it is a standby, or is still being restored", false}, nil
	case r != nil && r.differs(&now.place) != "":
		return judgement{historyLost, r.differs(&now.place) + " than recorded", false}, nil
	case k == nil || k.record.compare(r) < 0:
		j, err = judgeByRecord(ctx, conn, now)
	default:
		j, err = k.judgeByMemory(ctx, conn, now, m)
		// A process that was led to quite another database must not stop those whose database that is.
		j.alarm = j.verdict == historyLost && !now.alarm && k.system == now.system && k.database == now.database && k.log == now.log
	}
	if err == nil && j.verdict != historyLost && now.alarm {
		j = judgement{historyLost, "another process has noticed that it lost something", false}
	}
	return j, err
}

func (k *known) judgeByMemory(ctx context.Context, conn *pgx.Conn, now *sight, m *LineageMemory) (judgement, error) {
	isLost := func(format string, args ...any) (judgement, error) {
		return judgement{verdict: historyLost, why: fmt.Sprintf(format, args...)}, nil
	}
	if k.record.compare(now.record) > 0 {
		return isLost("its lineage was recorded before the one that was served")
	}
	if why := k.differs(&now.place); why != "" {
		return isLost("%s than it was", why)
	}
	if k.events != 0 && k.events != now.events {
		return isLost("its log is another table")
	}
	if now.timeline > k.timeline {
		left, found, err := branched(ctx, conn, now.timeline, k.timeline)
		if err != nil {
			return judgement{}, err
		}
		if found && left < k.at {
			return isLost("timeline %d left timeline %d at %v, which had come to %v", now.timeline, k.timeline, left, k.at)
		}
	} else if k.run == now.run {
		return judgement{verdict: unchangedHistory}, nil
	}
	missing, err := m.missing(ctx, conn)
	if err == nil && missing != "" {
		return isLost("it does not have %s, which was acknowledged", missing)
	}
	return judgement{verdict: continued}, err
}

// judgeByRecord judges without a memory. The row shows the position at which it was written, and nothing of what came later.
func judgeByRecord(ctx context.Context, conn *pgx.Conn, now *sight) (judgement, error) {
	r := now.record
	if r == nil {
		return judgement{verdict: renewed}, nil
	}
	if now.timeline > r.timeline {
		ended, found, err := branched(ctx, conn, now.timeline, r.timeline)
		if err != nil {
			return judgement{}, err
		}
		if found && ended < r.at {
			return judgement{historyLost, fmt.Sprintf("timeline %d left timeline %d at %v, before the recorded position", now.timeline, r.timeline, ended), false}, nil
		}
	}
	return judgement{renewed, fmt.Sprintf("nothing is remembered of it: a loss after timeline %d, position %v cannot be noticed", r.timeline, r.at), false}, nil
}

// historySQL reads a timeline's history, null when there is none.
const historySQL = `SELECT pg_catalog.pg_read_binary_file(@path::text, 0, 1048576, true)`

// notAllowed is the SQLSTATE of a function that may not be used.
const notAllowed = "42501"

// branched reads in a timeline's history where it, or one that it comes from, left an older one. That needs the right to execute
// pg_read_binary_file; found is false without it, and when there is no such file. A timeline that does not come from the older
// one left it at 0.
func branched(ctx context.Context, conn *pgx.Conn, timeline, older int64) (at lsn, found bool, err error) {
	var text []byte
	err = conn.QueryRow(ctx, historySQL, pgx.NamedArgs{"path": fmt.Sprintf("pg_wal/%08X.history", timeline)}).Scan(&text)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == notAllowed, err == nil && text == nil:
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // timeline, position, reason
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.ParseInt(fields[0], 10, 64); err == nil && parent == older {
			at, err := parseLSN(fields[1])
			return at, true, err
		}
	}
	return 0, true, nil
}

// refusal is the error of a database that is not served.
func (j judgement) refusal() *tidings.Error {
	e := &tidings.Error{Code: tidings.Unavailable, RetryAfter: comeAgain}
	if j.verdict == standby {
		e.Message = "the database cannot be served: " + j.why
	} else {
		e.Message = fmt.Sprintf("the database was restored or replaced (%s): run `tidings recover`. (`tidings recover --lossless` only after a planned switch of which you know that it lost nothing)", j.why)
	}
	return e
}
