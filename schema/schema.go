// Package schema holds the database schema: numbered migrations that only go forward, the SQL functions that are offered to
// applications in any language, and the transition trigger of test databases.
package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/tidings-project/tidings"
)

//go:embed migrations/*.sql
var files embed.FS

// versionTable is where goose notes what it has applied. It lies in our schema, so that dropping the schema drops all.
const versionTable = "tidings.migration"

// migrationLock is the key of the advisory lock under which migrations run: concurrent starts wait for each other.
const migrationLock = 0x7469_6469_6e67 // "tiding"

// Migrate brings the database at url (a PostgreSQL connection string) to this release's schema. It is safe to call from
// several processes at once. It never goes backward: a database of a newer release is an error.
func Migrate(ctx context.Context, url string) error {
	db, err := open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database to migrate it: %w", err)
	}
	defer conn.Close()
	// A lock of the session: it is gone with the connection, whatever happens to this process.
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for another migration: %w", err)
	}
	if _, err := conn.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS tidings"); err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	p, err := provider(db)
	if err != nil {
		return err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if current > target {
		return fmt.Errorf("the database has schema version %d, this release knows %d: use a newer release", current, target)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Check tells whether the database at url has this release's schema. A process that must not migrate starts only then.
// A newer schema is accepted: the schema of release n accepts the processes of release n−1.
func Check(ctx context.Context, url string) error {
	db, err := open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return tidings.Errorf(tidings.Unavailable, "connect to the database: %w", err)
	}
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&there); err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if !there {
		return errors.New("the database has no tidings schema: run `tidings migrate`")
	}
	p, err := provider(db)
	if err != nil {
		return err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if current < target {
		return fmt.Errorf("the database has schema version %d, this release needs %d: run `tidings migrate`", current, target)
	}
	return nil
}

// open makes a database of a connection string. Settings of a pool (pool_max_conns) can be in it: they are for others, and the server, to
// which unknown settings are handed on, would refuse them.
func open(url string) (*sql.DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	return stdlib.OpenDB(*cfg.ConnConfig), nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open the embedded migrations: %w", err)
	}
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, fmt.Errorf("set up the migration table: %w", err)
	}
	p, err := goose.NewProvider("", db, migrations, goose.WithStore(store))
	if err != nil {
		return nil, fmt.Errorf("read the embedded migrations: %w", err)
	}
	return p, nil
}

// Hash names the content of all migrations: databases made from equal migrations have equal hashes.
func Hash() string {
	h := sha256.New()
	names, _ := fs.Glob(files, "migrations/*.sql")
	for _, name := range names {
		b, _ := files.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n", name, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// TransitionTrigger is the SQL of a trigger that refuses every change of a task that is not an edge of the state machine.
// It is generated from tidings.Edges and belongs in test databases: production has no triggers, and the controls of the lab
// run without it.
func TransitionTrigger() string {
	var rows []string
	for _, e := range tidings.Edges {
		rows = append(rows, fmt.Sprintf("('%s', %t, '%s', %t, '%s')", e.From, e.FromReview, e.To, e.Review, e.Token))
	}
	return fmt.Sprintf(transitionTrigger, strings.Join(rows, ",\n            "))
}

const transitionTrigger = `
CREATE OR REPLACE FUNCTION tidings.check_transition() RETURNS trigger LANGUAGE plpgsql AS $$
<<change>>
DECLARE
    was  text := CASE WHEN TG_OP = 'INSERT' THEN '' ELSE OLD.state END;
    is_  text := CASE WHEN TG_OP = 'DELETE' THEN '' ELSE NEW.state END;
    was_review boolean := CASE WHEN TG_OP = 'INSERT' THEN false ELSE OLD.needs_review END;
    is_review  boolean := CASE WHEN TG_OP = 'DELETE' THEN false ELSE NEW.needs_review END;
    was_token  uuid := CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE OLD.attempt_token END;
    is_token   uuid := CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE NEW.attempt_token END;
    token text := CASE
        WHEN TG_OP = 'DELETE' THEN 'deleted'
        WHEN was_token IS NULL AND is_token IS NULL THEN 'none'
        WHEN was_token IS NULL THEN 'taken'
        WHEN is_token IS NULL THEN 'cleared'
        WHEN was_token <> is_token THEN 'replaced'
        ELSE 'kept' END;
BEGIN
    IF TG_OP = 'UPDATE' AND was = is_ AND was_review = is_review AND was_token IS NOT DISTINCT FROM is_token THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM (VALUES
            %s
        ) AS edge (was, was_review, is_, is_review, token)
        WHERE edge.was = change.was AND edge.was_review = change.was_review AND edge.is_ = change.is_
          AND edge.is_review = change.is_review AND edge.token = change.token) THEN
        RAISE EXCEPTION 'no edge from %% (review %%) to %% (review %%) with its token %%', was, was_review, is_, is_review, token;
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER check_transition BEFORE INSERT OR UPDATE OR DELETE ON tidings.task
    FOR EACH ROW EXECUTE FUNCTION tidings.check_transition();
`
