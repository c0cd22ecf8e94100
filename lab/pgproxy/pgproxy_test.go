// Tests of the proxy in front of PostgreSQL.

package pgproxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

const soon = 20 * time.Second

// scene is a proxy with a client behind it and another connection that sees what is really there.
type scene struct {
	*testing.T
	ctx    context.Context
	proxy  *pgproxy.Proxy
	client *pgx.Conn
	direct *pgx.Conn
}

func connect(t *testing.T, ctx context.Context, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func (s *scene) exec(c *pgx.Conn, sql string, args ...any) {
	s.Helper()
	if _, err := c.Exec(s.ctx, sql, args...); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

// rows is the number of rows that everybody can see.
func (s *scene) rows() (n int) {
	s.Helper()
	if err := s.direct.QueryRow(s.ctx, "SELECT count(*) FROM note").Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *scene) want(n int) {
	s.Helper()
	if got := s.rows(); got != n {
		s.Errorf("%d rows are there, want %d", got, n)
	}
}

// ended waits until the server has ended all transactions that touched the table.
func (s *scene) ended() {
	s.Helper()
	if err := pgx.BeginFunc(s.ctx, s.direct, func(tx pgx.Tx) error {
		_, err := tx.Exec(s.ctx, "LOCK note")
		return err
	}); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) receipt(trap *pgproxy.Trap, want string) {
	s.Helper()
	if r := trap.Wait(soon); !strings.Contains(r.Proof, want) || r.At.IsZero() {
		s.Errorf("receipt %+v, want proof %q", r, want)
	}
}

func TestProxy(t *testing.T) {
	start := sync.OnceValues(func() (*localpg.Server, error) {
		return localpg.Start(context.Background(), localpg.Options{})
	})
	started := false
	t.Cleanup(func() {
		if !started {
			return
		}
		if server, err := start(); err == nil {
			if err := server.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	run := func(name string, f func(*scene)) {
		t.Run(name, func(t *testing.T) {
			started = true
			server, err := start()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := pgproxy.Start(t, server.URL("postgres"))
			s := &scene{T: t, ctx: ctx, proxy: p, client: connect(t, ctx, p.URL()), direct: connect(t, ctx, server.URL("postgres"))}
			s.exec(s.direct, "DROP TABLE IF EXISTS note")
			s.exec(s.direct, "CREATE TABLE note (id int PRIMARY KEY)")
			f(s)
		})
	}

	run("cut before COMMIT", func(s *scene) {
		trap := s.proxy.Arm(pgproxy.Rule{What: "COMMIT", Match: pgproxy.Commit, When: pgproxy.Before, Do: pgproxy.Cut})
		tx, err := s.client.Begin(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := tx.Exec(s.ctx, "INSERT INTO note VALUES (1)"); err != nil {
			s.Fatal(err)
		}
		if err := tx.Commit(s.ctx); err == nil {
			s.Error("COMMIT succeeded")
		}
		s.receipt(trap, "has not seen it")
		s.ended()
		s.want(0)
	})

	run("cut after COMMIT", func(s *scene) {
		trap := s.proxy.Arm(pgproxy.Rule{What: "COMMIT", Match: pgproxy.Commit, When: pgproxy.After, Do: pgproxy.Cut})
		tx, err := s.client.Begin(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := tx.Exec(s.ctx, "INSERT INTO note VALUES ($1)", 1); err != nil {
			s.Fatal(err)
		}
		if err := tx.Commit(s.ctx); err == nil {
			s.Error("COMMIT was answered")
		}
		s.receipt(trap, "COMMIT, ready for query")
		s.want(1)
	})

	for _, when := range []pgproxy.Moment{pgproxy.Before, pgproxy.After} {
		run("hold "+string(when)+" a statement, and release", func(s *scene) {
			trap := s.proxy.Arm(pgproxy.Rule{What: "INSERT", Match: pgproxy.Runs("insert into NOTE"), When: when, Do: pgproxy.Hold})
			done := make(chan error, 1)
			go func() {
				_, err := s.client.Exec(s.ctx, "INSERT INTO note VALUES ($1)", 1)
				done <- err
			}()
			trap.Wait(soon)
			s.want(map[pgproxy.Moment]int{pgproxy.Before: 0, pgproxy.After: 1}[when])
			select {
			case err := <-done:
				s.Fatalf("the client was answered: %v", err)
			default:
			}
			trap.Release()
			if err := <-done; err != nil {
				s.Error(err)
			}
			s.want(1)
		})
	}

	run("a statement prepared earlier is known by its text", func(s *scene) {
		const sql = "INSERT INTO note VALUES ($1)"
		s.exec(s.client, sql, 1) // prepares it
		trap := s.proxy.Arm(pgproxy.Rule{What: "INSERT", Match: pgproxy.Runs("insert"), When: pgproxy.After, Do: pgproxy.Cut})
		if _, err := s.client.Exec(s.ctx, sql, 2); err == nil {
			s.Error("INSERT was answered")
		}
		s.receipt(trap, "INSERT 0 1, ready for query")
		s.want(2)
	})

	run("one statement of a batch", func(s *scene) {
		trap := s.proxy.Arm(pgproxy.Rule{What: "the second", Match: pgproxy.Runs("- 2"), When: pgproxy.After, Do: pgproxy.Hold})
		var batch pgx.Batch
		for i := range 4 {
			batch.Queue(fmt.Sprintf("INSERT INTO note VALUES ($1 - %d)", i), 10)
		}
		done := make(chan error, 1)
		go func() { done <- s.client.SendBatch(s.ctx, &batch).Close() }()
		s.receipt(trap, "INSERT 0 1, INSERT 0 1, ready for query") // the third and the fourth; all are one transaction
		s.want(4)
		trap.Release()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})

	run("an error is an answer", func(s *scene) {
		s.exec(s.direct, "INSERT INTO note VALUES (1)")
		trap := s.proxy.Arm(pgproxy.Rule{What: "INSERT", Match: pgproxy.Runs("insert"), When: pgproxy.After, Do: pgproxy.Cut})
		if _, err := s.client.Exec(s.ctx, "INSERT INTO note VALUES ($1)", 1); err == nil || isServerError(err) {
			s.Errorf("the client was answered: %v", err)
		}
		s.receipt(trap, "error 23505, ready for query")
	})

	run("a statement that the server skips springs no trap", func(s *scene) {
		const sql = "INSERT INTO note VALUES ($1)"
		s.exec(s.client, sql, 1)
		trap := s.proxy.Arm(pgproxy.Rule{What: "SELECT", Match: pgproxy.Runs("select"), When: pgproxy.After, Do: pgproxy.Cut})
		var batch pgx.Batch
		batch.Queue(sql, 1) // fails
		batch.Queue("SELECT $1::int", 1)
		if err := s.client.SendBatch(s.ctx, &batch).Close(); !isServerError(err) {
			s.Errorf("got %v, want the server's error", err)
		}
		if _, err := s.client.Exec(s.ctx, "SELECT $1::int", 1); err == nil {
			s.Error("the next SELECT was answered")
		}
		s.receipt(trap, "SELECT 1, ready for query")
	})

	run("pause, resume, cut", func(s *scene) {
		if r := s.proxy.Pause(); r.Proof != "1 connections" {
			s.Errorf("receipt %+v", r)
		}
		short, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := pgx.Connect(short, s.proxy.URL()); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("connect while paused: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.client.Exec(s.ctx, "INSERT INTO note VALUES (1)")
			done <- err
		}()
		s.proxy.Resume()
		if err := <-done; err != nil {
			s.Error(err)
		}
		s.want(1)
		if r := s.proxy.Cut(); r.Proof == "" {
			s.Errorf("receipt %+v", r)
		}
		if err := s.client.Ping(s.ctx); err == nil {
			s.Error("the connection outlived the cut")
		}
	})

	run("a cancel request passes", func(s *scene) {
		trap := s.proxy.Arm(pgproxy.Rule{What: "sleep", Match: pgproxy.Runs("pg_sleep"), When: pgproxy.After, Do: pgproxy.Hold})
		trap.Release() // it only tells that the answer came
		done := make(chan error, 1)
		go func() {
			_, err := s.client.Exec(s.ctx, "SELECT pg_sleep(60)")
			done <- err
		}()
		asleep := "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
		for n := 0; n == 0; time.Sleep(time.Millisecond) {
			if err := s.direct.QueryRow(s.ctx, asleep).Scan(&n); err != nil {
				s.Fatal(err)
			}
		}
		if err := s.client.PgConn().CancelRequest(s.ctx); err != nil {
			s.Fatal(err)
		}
		if err := <-done; !isServerError(err) {
			s.Errorf("got %v, want the server's error", err)
		}
		s.receipt(trap, "error 57014")
	})

	run("encryption is declined, COPY and long answers pass", func(s *scene) {
		preferring := connect(s.T, s.ctx, strings.Replace(s.proxy.URL(), "sslmode=disable", "sslmode=prefer", 1))
		rows := make([][]any, 100_000)
		for i := range rows {
			rows[i] = []any{i}
		}
		if n, err := preferring.CopyFrom(s.ctx, pgx.Identifier{"note"}, []string{"id"}, pgx.CopyFromRows(rows)); err != nil || n != int64(len(rows)) {
			s.Fatalf("copied %d rows: %v", n, err)
		}
		got, err := preferring.Query(s.ctx, "SELECT id, repeat('x', 100) FROM note")
		if err != nil {
			s.Fatal(err)
		}
		n := 0
		for got.Next() {
			n++
		}
		if got.Err() != nil || n != len(rows) {
			s.Errorf("read %d rows: %v", n, got.Err())
		}
	})
}

// isServerError tells whether the client received an answer, and it was an error.
func isServerError(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e)
}
