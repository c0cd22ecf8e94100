// How a pool's sessions have to be.

package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
)

// warningsKey is where a connection keeps, in its custom data, how many warnings it has had.
const warningsKey = "tidings.warnings"

// sessionSQL makes what a session does independent of the settings of its role and database: a warning that is not sent cannot be
// counted, a statement after a lock has to see what the lock waited for, and a wait for a lock that somebody keeps has to end
// while it is certain that nothing was written, before the statement's own deadline cuts the connection. A process that vanished
// without a word in the midst of a transaction keeps its locks until the server ends that.
const sessionSQL = `SELECT set_config('client_min_messages', 'warning', false), set_config('default_transaction_isolation', 'read committed', false),
	set_config('lock_timeout', '5s', false), set_config('idle_in_transaction_session_timeout', '10s', false)`

// Configure prepares a pool for a Store that commits messages: its connections count the warnings that come with a commit. When
// the wait for a synchronous standby is cancelled, PostgreSQL commits all the same and only warns; to whom asked, the commit
// is then as unknown as one whose answer was lost. A Store on a pool that was not prepared takes such a commit for done.
func Configure(c *pgxpool.Config) {
	given := c.ConnConfig.OnNotice
	c.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		// It is called by whoever reads from the connection, so by one goroutine at a time.
		data := conn.CustomData()
		count, _ := data[warningsKey].(int)
		data[warningsKey] = count + 1
		if given != nil {
			given(conn, n)
		}
	}
	failed := c.ConnConfig.OnPgError
	c.ConnConfig.OnPgError = func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		// A session that may not write stays so, also when new ones may: the next statement has to get another.
		return e.Code != readOnly && failed(conn, e)
	}
	connected := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sessionSQL); err != nil {
			return fmt.Errorf("prepare a database session: %w", err)
		}
		if connected != nil {
			return connected(ctx, conn)
		}
		return nil
	}
}

// warnings is how many warnings a connection has had.
func warnings(conn *pgx.Conn) int {
	count, _ := conn.PgConn().CustomData()[warningsKey].(int)
	return count
}

// waited judges a commit by the number of warnings that came with it.
func waited(doing string, warnings int) error {
	if warnings == 0 {
		return nil
	}
	return tidings.Errorf(tidings.OutcomeUnknown, "%s: the commit came with a warning: it is not known whether it would survive a failover", doing)
}
