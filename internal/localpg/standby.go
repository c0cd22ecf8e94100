// Standbys: streaming replication, promotion.

package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// pollEvery is how often something is asked that the server does by itself.
const pollEvery = 20 * time.Millisecond

// Standby makes a temporary server that follows the primary by streaming replication, and returns when it takes connections. Its password is
// the primary's. Options.Dir must be empty.
func Standby(ctx context.Context, primary *Server, o Options) (*Server, error) {
	const doing = "start a standby"
	if o.Dir != "" {
		return nil, errors.New(doing + ": only a temporary one can be made")
	}
	settings, err := confLines(o.Settings)
	if err != nil {
		return nil, err
	}
	p, err := openPlace(ctx, primary.account, "")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: primary.bin, account: primary.account, place: p, settings: settings, port: o.Port}
	err = s.baseBackup(ctx, filepath.Join(p.dir, "data"), primary.URL("postgres"), "--write-recovery-conf")
	if err == nil {
		err = p.keepSecret(s.account, primary.password)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", doing, err), p.close())
	}
	return begin(ctx, s, o)
}

// keepSecret writes the password of a cluster that was not made here.
func (p *place) keepSecret(a account, password string) error {
	path := filepath.Join(p.dir, "password")
	if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
		return err
	}
	if a.switched {
		return os.Lchown(path, a.uid, a.gid)
	}
	return nil
}

// Promote makes a standby a primary and returns when it takes writes, on a new timeline. The former primary should not run any more.
func (s *Server) Promote(ctx context.Context) error {
	return s.tell(ctx, "promote a standby", `SELECT pg_catalog.pg_promote(true, 60)`)
}

// StopReceiving has a standby receive nothing more: what the primary commits from now on is lost when the standby is promoted.
func (s *Server) StopReceiving(ctx context.Context) error {
	const doing = "stop a standby's receiver"
	for _, sql := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_catalog.pg_reload_conf()`} {
		if err := s.tell(ctx, doing, sql); err != nil {
			return err
		}
	}
	return s.wait(ctx, doing, `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver)`)
}

// CatchUp returns when a standby has replayed all that its primary had written when it was asked.
func (s *Server) CatchUp(ctx context.Context, primary *Server) error {
	const doing = "wait for a standby"
	conn, err := pgx.Connect(ctx, primary.URL("postgres"))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var at string
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_flush_lsn()::text`).Scan(&at); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return s.wait(ctx, doing, `SELECT pg_catalog.pg_last_wal_replay_lsn() >= '`+at+`'`)
}

// tell runs a statement on the server.
func (s *Server) tell(ctx context.Context, doing, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// wait asks the server until the answer is yes.
func (s *Server) wait(ctx context.Context, doing, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for yes := false; !yes; pause(ctx, pollEvery) {
		if err := conn.QueryRow(ctx, sql).Scan(&yes); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	return nil
}
