// The migrated template that test databases are copied from.

package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/schema"
)

// kind is what a test database starts with.
type kind int

const (
	empty   kind = iota
	plain        // the schema
	guarded      // the schema and the transition trigger
)

// name is the name of the kind's template: the same for the same schema, so that all packages that use one server share
// it, and another for another schema.
func (k kind) name() string {
	switch k {
	case plain:
		return "tidings_plain_" + short(schema.Hash())
	case guarded:
		return "tidings_guarded_" + short(schema.Hash()+schema.TransitionTrigger())
	}
	return "template0"
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// complete holds the kinds whose templates this process has seen to be complete.
var complete sync.Map

// templateFor returns the name of the kind's template, after building it if the server does not have it.
func templateFor(ctx context.Context, conn *pgx.Conn, server string, k kind) (string, error) {
	if _, ok := complete.Load(k); !ok && k != empty {
		if err := ensure(ctx, conn, server, k); err != nil {
			return "", err
		}
		complete.Store(k, nil)
	}
	return k.name(), nil
}

// buildLock is the advisory lock under which templates are built: "tidings" in ASCII.
const buildLock = 0x74696469_6e6773

// ensure builds the template of a kind. A database becomes a template when it is complete; one that is not a template
// was left by a builder that died.
func ensure(ctx context.Context, conn *pgx.Conn, server string, k kind) (err error) {
	const completeSQL = `SELECT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1 AND datistemplate)`
	var there bool
	if err := conn.QueryRow(ctx, completeSQL, k.name()).Scan(&there); err != nil || there {
		return err
	}
	from := empty
	if k == guarded {
		from = plain
		if err := ensure(ctx, conn, server, plain); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_lock($1)`, int64(buildLock)); err != nil {
		return err
	}
	defer func() {
		_, unlockErr := conn.Exec(ctx, `SELECT pg_catalog.pg_advisory_unlock($1)`, int64(buildLock))
		err = errors.Join(err, unlockErr)
	}()
	if err := conn.QueryRow(ctx, completeSQL, k.name()).Scan(&there); err != nil || there {
		return err
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+k.name()+" WITH (FORCE)"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+k.name()+" TEMPLATE "+from.name()); err != nil {
		return err
	}
	if err := k.fill(ctx, inDatabase(server, k.name())); err != nil {
		return fmt.Errorf("fill template %s: %w", k.name(), err)
	}
	// Without connections to it nothing can keep CREATE DATABASE from copying it.
	_, err = conn.Exec(ctx, "ALTER DATABASE "+k.name()+" IS_TEMPLATE true ALLOW_CONNECTIONS false")
	return err
}

// fill adds to a new database what the kind has over the one it was copied from.
func (k kind) fill(ctx context.Context, url string) error {
	if k == plain {
		return schema.Migrate(ctx, url)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, schema.TransitionTrigger())
	return errors.Join(err, conn.Close(ctx))
}
