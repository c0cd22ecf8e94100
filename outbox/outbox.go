// Package outbox is what an application writes in its own transaction: Notify stores a notification, and Post a message, together
// with the change that it tells of, so that both are there or neither is.
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
)

// DB is where Notify and Post write: the caller's own transaction (pgx.Tx), a connection (*pgx.Conn) or a pool (*pgxpool.Pool).
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// notifySQL calls the one implementation of the rule, which notify_v1 offers to every language. It relies on
// UNIQUE (user_id, event_key, bucket).
const notifySQL = `SELECT a.position, a.id, a.created, a.tasks, a.payload_differs, a.expired FROM tidings.notify_batch(@items::json, @many::int) a`

// Notify submits notifications and answers for each, in the same order, whether it was created. In a transaction of the caller
// nothing is stored before the caller commits; on a pool or connection it is stored when Notify returns without error.
//
// A notification is identified by (User, EventKey). A duplicate, also a concurrent one, is an answer and never an error, so it
// never aborts the caller's transaction. When the transaction that submitted first rolls back, the one that waited for it
// creates the notification. Under REPEATABLE READ and SERIALIZABLE an original that was committed after the transaction's
// snapshot cannot be seen: the answer is then Created false with an absent ID. Under SERIALIZABLE PostgreSQL may still abort a
// transaction that has read notifications itself, as it may any.
//
// Keys are sorted within one call. Two transactions that each call Notify more than once with the same keys in opposite order
// can still deadlock; PostgreSQL then aborts one of them.
//
// Input that would be refused is refused before the database sees it, with the code INVALID_ARGUMENT or TOO_LARGE. Any other
// error means, in a transaction of the caller, that the transaction is aborted; on a pool, that the outcome is unknown unless
// the error carries another code: submit again with the same keys.
func Notify(ctx context.Context, db DB, notifications ...tidings.Notification) ([]tidings.Notified, error) {
	if len(notifications) == 0 {
		return nil, nil
	}
	if len(notifications) > tidings.MaxBatch {
		return nil, tidings.Errorf(tidings.TooLarge, "%d notifications in one call, at most %d are allowed", len(notifications), tidings.MaxBatch)
	}
	for i := range notifications {
		if err := notifications[i].Check(); err != nil {
			if len(notifications) == 1 {
				return nil, err
			}
			return nil, tidings.Errorf(tidings.ErrorCode(err), "notification %d: %w", i, err)
		}
	}
	items, err := json.Marshal(notifications)
	if err != nil {
		return nil, tidings.Errorf(tidings.InvalidArgument, "write the notifications as JSON: %w", err)
	}
	rows, err := db.Query(ctx, notifySQL, pgx.NamedArgs{"items": string(items), "many": len(notifications)})
	if err != nil {
		return nil, coded("notify", err)
	}
	notified := make([]tidings.Notified, len(notifications))
	var (
		position, answered int
		id                 *[16]byte
		n                  tidings.Notified
	)
	if _, err := pgx.ForEachRow(rows, []any{&position, &id, &n.Created, &n.Tasks, &n.PayloadDiffers, &n.Expired}, func() error {
		n.ID = tidings.UUID{}
		if id != nil {
			n.ID = *id
		}
		notified[position-1] = n
		answered++
		return nil
	}); err != nil {
		return nil, coded("notify", err)
	}
	if answered != len(notifications) {
		return nil, fmt.Errorf("notify: the database answered %d of %d notifications", answered, len(notifications))
	}
	return notified, nil
}

// missing are the SQLSTATEs of a database that is not, or not yet again, what it has to be: a table, a schema, a function, a key or a type
// is not there, or the log has become another under a session.
var missing = []string{"42P01", "3F000", "42883", "42P10", "42704", "55000"}

// coded gives a database error its code without repeating details, which may hold a body.
func coded(doing string, err error) error {
	var own *tidings.Error
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &own): // of a pool that refuses its database
		return err
	case errors.As(err, &connect):
		return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database cannot be reached", Err: err}
	case errors.As(err, &pg) && (pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"):
		// The connection was ended, perhaps between the commit and the answer to it.
	case errors.As(err, &pg) && (pg.Code == "23514" || pg.Code == "23502" || pg.Code[:2] == "22"):
		return tidings.Errorf(tidings.InvalidArgument, "%s: refused by the database: %s %s", doing, pg.Code, pg.ConstraintName)
	case errors.As(err, &pg) && pg.Code == "25000":
		return &tidings.Error{Code: tidings.InvalidArgument, Message: doing + ": " + pg.Message, Err: err}
	case errors.As(err, &pg) && (pg.Code[:2] == "08" || pg.Code[:2] == "40" || pg.Code[:2] == "53" || pg.Code[:2] == "57" || pg.Code == "55P03"):
		return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database is not available: " + pg.Code, Err: err}
	case errors.As(err, &pg) && slices.Contains(missing, pg.Code):
		return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database has not got Tidings' schema, or is being replaced: " + pg.Code, Err: err}
	case errors.As(err, &pg):
		return &tidings.Error{Code: tidings.Internal, Message: doing + ": " + pg.Code + ": " + pg.Message, Err: err}
	case pgconn.SafeToRetry(err):
		return &tidings.Error{Code: tidings.Unavailable, Message: doing + ": the database cannot be reached", Err: err}
	}
	return &tidings.Error{Code: tidings.OutcomeUnknown, Message: doing + ": the database's answer was lost: repeat it with the same keys", Err: err}
}

// WakeChannel is the NOTIFY channel on which idle workers listen.
const WakeChannel = "tidings_wake"

// wakeSQL stands alone: a NOTIFY takes a lock of the whole cluster until its transaction is flushed, so it never belongs into a
// transaction that carries data.
const wakeSQL = `SELECT pg_notify('` + WakeChannel + `', '')`

// Wake tells idle workers to look for due tasks now. It saves up to a worker's polling interval; nothing is lost without it.
// Call it after the commit, on a pool or connection, never inside the transaction that called Notify.
func Wake(ctx context.Context, db DB) error {
	if _, inTx := db.(pgx.Tx); inTx {
		return tidings.Errorf(tidings.InvalidArgument, "wake: a transaction cannot wake anyone before it commits: use the pool after the commit")
	}
	if _, err := db.Exec(ctx, wakeSQL); err != nil {
		return fmt.Errorf("wake the workers: %w", err)
	}
	return nil
}
