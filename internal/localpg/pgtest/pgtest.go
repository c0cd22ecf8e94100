// Package pgtest gives each test a PostgreSQL database of its own, with the schema of Tidings.
//
// The databases are copies of a migrated template, which take tens of milliseconds. They live in a private server that
// the first of them starts, and that ends with the test process however it ends; or in the server whose superuser's URL
// is in TIDINGS_TEST_POSTGRES. A test that cannot get its database fails: it is never skipped.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg"
)

const (
	startPatience = 2 * time.Minute
	dbPatience    = time.Minute
	closePatience = 10 * time.Second
	poolConns     = 16 // of each pool; the private server allows 200
)

// New returns a pool on a new database with the schema and the trigger that refuses any change of state that the state
// machine does not have. The pool is closed and the database dropped when the test ends.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, NewURL(t))
}

// NewPlain is New without the trigger: the database that a deployment has.
func NewPlain(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, NewPlainURL(t))
}

// NewURL is New for those who connect themselves: the URL of the database's superuser.
func NewURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, guarded)
}

// NewPlainURL is NewURL without the trigger.
func NewPlainURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, plain)
}

// NewEmptyURL returns the URL of a new database without the schema.
func NewEmptyURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, empty)
}

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("parse the URL of the test database: %v", err)
	}
	config.MaxConns = poolConns
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("open a pool on the test database: %v", err)
	}
	// This runs before the database is dropped.
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			p.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(closePatience):
			t.Errorf("%d connections of the test's pool were not released within %v", p.Stat().AcquiredConns(), closePatience)
		}
	})
	return p
}

// newDatabase makes a database of the given kind and has it dropped when the test ends.
func newDatabase(t testing.TB, k kind) string {
	t.Helper()
	server, err := serverURL()
	if err != nil {
		t.Fatalf("no PostgreSQL for this test: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), dbPatience)
	defer cancel()
	name := "test_" + strings.ToLower(rand.Text())
	if err := admin(ctx, server, func(conn *pgx.Conn) error {
		template, err := templateFor(ctx, conn, server, k)
		if err != nil {
			return fmt.Errorf("prepare its template: %w", err)
		}
		_, err = conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template)
		return err
	}); err != nil {
		t.Fatalf("create the test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dbPatience)
		defer cancel()
		if err := admin(ctx, server, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
			return err
		}); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	return inDatabase(server, name)
}

// admin runs f on a connection to the maintenance database.
func admin(ctx context.Context, server string, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// inDatabase returns the URL of another database on the same server.
func inDatabase(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(fmt.Sprintf("serverURL let an unusable URL through: %v", err))
	}
	u.Path = "/" + database
	return u.String()
}

var private struct {
	sync.Mutex
	server *localpg.Server
	err    error
}

// serverURL returns the URL of the server's maintenance database, and starts the private server if there is none.
func serverURL() (string, error) {
	if given := os.Getenv("TIDINGS_TEST_POSTGRES"); given != "" {
		if u, err := url.Parse(given); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return "", fmt.Errorf("TIDINGS_TEST_POSTGRES must be a URL postgres://…")
		}
		return given, nil
	}
	private.Lock()
	defer private.Unlock()
	if private.server == nil && private.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		private.server, private.err = localpg.Start(ctx, localpg.Options{})
	}
	if private.err != nil {
		return "", private.err
	}
	return private.server.URL("postgres"), nil
}

// M is a *testing.M whose Run also stops the private server. Nobody needs it to get rid of the server; it is for those
// who look for leaked goroutines when all tests have run:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }
type M struct{ *testing.M }

// Run runs the tests, stops the private server and returns the exit code.
func (m M) Run() int {
	code := m.M.Run()
	private.Lock()
	defer private.Unlock()
	if private.server == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if err := private.server.Stop(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "stop the test server: %v\n", err)
		return max(code, 1)
	}
	private.server = nil
	return code
}
