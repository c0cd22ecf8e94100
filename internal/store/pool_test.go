// Tests of sessions with the database, and of what is known after a commit.

package store

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/schema"
)

func configured(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(c)
	}
	Configure(c)
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// With a synchronous standby, whatever is answered has waited for it, also what was only looked up. When that wait is cancelled,
// PostgreSQL says COMMIT and warns: the answer is then unknown.
func TestCancelledSynchronousWait(t *testing.T) {
	ctx := t.Context()
	server, err := localpg.Start(ctx, localpg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	url := server.URL("postgres")
	if err := schema.Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	pool := configured(t, url, nil)
	s := New(pool)
	if err := s.EnsureLineage(ctx); err != nil {
		t.Fatal(err)
	}
	c := Conversation{Conv: "c-1", Members: []string{"u-ana"}}
	if _, err := s.CreateConversation(ctx, c); err != nil {
		t.Fatal(err)
	}
	send := func(cmid string, wait time.Duration) func() error {
		return func() error {
			_, err := s.Send(ctx, []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: cmid}}, wait)
			return err
		}
	}
	if err := send("m-1", 0)(); err != nil {
		t.Fatal(err)
	}

	if _, err := pool.Exec(ctx, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	// cancelled runs fn until it is seen to wait for the standby, cancels that, and returns fn's error; or it returns that fn did
	// not wait.
	cancelled := func(fn func() error) (waited bool, err error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- fn() }()
		for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); {
			select {
			case err := <-done:
				return false, err
			default:
			}
			var n int
			if err := pool.QueryRow(ctx, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				return true, <-done
			}
		}
		return false, <-done
	}
	// The server takes the setting up when its checkpointer has read it.
	for deadline := time.Now().Add(time.Minute); ; {
		waited, err := cancelled(func() error {
			_, err := pool.Exec(ctx, `SELECT pg_logical_emit_message(true, 'tidings', '')`)
			return err
		})
		if err != nil { // a pool's Exec says nothing of a warning
			t.Fatal(err)
		}
		if waited {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not wait for its standby")
		}
	}
	for name, fn := range map[string]func() error{
		"a send":                     send("m-2", 0),
		"a send with a wait":         send("m-3", time.Second),
		"a repeat":                   send("m-1", 0),
		"a repeat with a wait":       send("m-1", time.Second),
		"an outcome":                 func() error { _, err := s.Outcome(ctx, "c-1", "u-ana", "m-1"); return err },
		"a join":                     func() error { _, err := s.Join(ctx, "c-1", "u-ben", ""); return err },
		"a join of a member":         func() error { _, err := s.Join(ctx, "c-1", "u-ana", ""); return err },
		"a leave":                    func() error { _, err := s.Leave(ctx, "c-1", "u-ben", ""); return err },
		"a new conversation":         func() error { _, err := s.CreateConversation(ctx, Conversation{Conv: "c-2"}); return err },
		"a conversation of the kind": func() error { _, err := s.CreateConversation(ctx, c); return err },
	} {
		waited, err := cancelled(fn)
		if !waited || tidings.ErrorCode(err) != tidings.OutcomeUnknown {
			t.Errorf("%s: waited %t, %v", name, waited, err)
		}
	}
	// A look that finds nothing needs no standby, and answers.
	answers, err := s.Send(ctx, []tidings.Message{{Conv: "c-none", Sender: "u-ana", Cmid: "m-1"}}, 0)
	if err != nil || answers[0].Code != tidings.NotMember {
		t.Errorf("%+v, %v", answers, err)
	}
}

// Sessions of a configured pool see warnings and read what was committed, whatever the database was told.
func TestConfigureSession(t *testing.T) {
	url := pgtest.NewURL(t)
	pool := configured(t, url, nil)
	if _, err := pool.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''serializable''', current_database());
		EXECUTE format('ALTER DATABASE %I SET client_min_messages = ''error''', current_database()); END $$`); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `DO $$ BEGIN RAISE WARNING 'one'; RAISE NOTICE 'none'; RAISE WARNING 'two'; END $$`); err != nil {
		t.Fatal(err)
	}
	if n := warnings(conn.Conn()); n != 2 {
		t.Errorf("%d warnings were counted", n)
	}
	s := New(pool)
	if err := s.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConversation(t.Context(), Conversation{Conv: "c-1", Members: []string{"u-ana"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Send(t.Context(), []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: "m-1"}}, 0); err != nil || got[0].Seq != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A send whose answer is lost is unknown, and its repeat finds it; one that never left is not.
func TestSendTellsWhatIsKnown(t *testing.T) {
	pool := configured(t, pgtest.NewURL(t), func(c *pgxpool.Config) {
		c.MaxConns = 1
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &fragile{Conn: conn}, err
		}
	})
	s := New(pool)
	if err := s.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConversation(t.Context(), Conversation{Conv: "c-1", Members: []string{"u-ana"}}); err != nil {
		t.Fatal(err)
	}
	seq := int64(1)
	for _, wait := range []time.Duration{0, time.Second} {
		for _, cmid := range []string{"prepares", "cut"} {
			batch := []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: cmid + wait.String()}}
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conn.Conn().PgConn().Conn().(*fragile).cutsAnswers.Store(cmid == "cut")
			conn.Release()
			answers, err := s.Send(t.Context(), batch, wait)
			if cmid == "cut" {
				if tidings.ErrorCode(err) != tidings.OutcomeUnknown {
					t.Errorf("cut, wait %v: %+v, %v", wait, answers, err)
				}
				answers, err = s.Send(t.Context(), batch, time.Minute)
			}
			seq++
			if err != nil || answers[0].Code != "" || answers[0].Seq != seq {
				t.Errorf("%s, wait %v: %+v, %v", cmid, wait, answers, err)
			}
		}
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM tidings.event WHERE kind = 'msg'`).Scan(&n); err != nil || n != 4 {
		t.Errorf("%d messages are stored, %v", n, err)
	}
	pool.Close()
	if _, err := s.Send(t.Context(), []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: "closed"}}, 0); tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("on a closed pool: %v", err)
	}
}
