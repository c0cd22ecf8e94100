// Copies of a whole cluster: files put back, base backups, recovery to a point in time.

package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
)

// Copy stops the server in order, keeps a copy of its data directory under a name, and starts it again.
func (s *Server) Copy(ctx context.Context, name string) error {
	return s.whileStopped(ctx, "copy the data of PostgreSQL", `mkdir -p copies && rm -rf "copies/$1" && cp -a data "copies/$1"`, name)
}

// PutBack stops the server in order, puts a copy that Copy has kept in the place of its data, as one does with a file copy or a snapshot of
// the disk, and starts it again. The copy can be put back again.
func (s *Server) PutBack(ctx context.Context, name string) error {
	return s.whileStopped(ctx, "put a copy of the data of PostgreSQL back", `[ -d "copies/$1" ] && rm -rf data && cp -a "copies/$1" data`, name)
}

// archive has the server keep its WAL in the directory archive of its place.
func (s *Server) archive() error {
	if err := s.inPlace(`mkdir -p archive`, ""); err != nil {
		return fmt.Errorf("make the archive of WAL: %w", err)
	}
	lines, err := confLines(map[string]string{
		"archive_mode":    "on",
		"archive_command": `cp "%p" "` + s.archived() + `"`,
		"restore_command": `cp "` + s.archived() + `" "%p"`,
	})
	s.settings = lines + s.settings
	return err
}

// archived is the path of an archived file, as archive_command and restore_command write it.
func (s *Server) archived() string {
	return strings.ReplaceAll(filepath.Join(s.place.dir, "archive"), "%", "%%") + "/%f"
}

// Backup makes a base backup of the running server and keeps it under a name.
func (s *Server) Backup(ctx context.Context, name string) error {
	const script = `mkdir -p backups && rm -rf "backups/$1"`
	if err := s.inPlace(script, name); err != nil {
		return fmt.Errorf("make a base backup: %w", err)
	}
	return s.baseBackup(ctx, filepath.Join(s.place.dir, "backups", name), s.URL("postgres"))
}

// baseBackup runs pg_basebackup as the account of the server.
func (s *Server) baseBackup(ctx context.Context, to, from string, more ...string) error {
	cmd := s.account.command(filepath.Join(s.bin.Dir, "pg_basebackup"),
		append(more, "--pgdata="+to, "--dbname="+from, "--checkpoint=fast", "--wal-method=stream", "--no-sync")...)
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run pg_basebackup: %s (%w)", strings.TrimSpace(string(out)), err)
	}
	return nil
}

// RestoreTo stops the server in order, puts a base backup in the place of its data, recovers it from the archive to a target and returns when
// it takes writes, on a new timeline. target are settings of PostgreSQL, such as recovery_target_name or recovery_target_time; the
// end of the archive if there are none. The server has to be one with Options.Archive.
func (s *Server) RestoreTo(ctx context.Context, backup string, target map[string]string) error {
	target = maps.Clone(target)
	if target == nil {
		target = map[string]string{}
	}
	target["recovery_target_action"] = "promote"
	lines, err := confLines(target)
	if err != nil {
		return err
	}
	const doing = "restore PostgreSQL to a point in time"
	const script = `[ -d "backups/$1" ] && rm -rf data && cp -a "backups/$1" data && : >data/recovery.signal && printf %s "$2" >>data/postgresql.auto.conf`
	if err := s.whileStopped(ctx, doing, script, backup, lines); err != nil {
		return err
	}
	if err := s.wait(ctx, doing, `SELECT NOT pg_catalog.pg_is_in_recovery()`); err != nil {
		return err
	}
	for name := range target { // a standby of this server would look for the target, too
		if err := s.tell(ctx, doing, `ALTER SYSTEM RESET `+name); err != nil {
			return err
		}
	}
	return nil
}

// whileStopped runs a script in the place of the server between an orderly stop and a start.
func (s *Server) whileStopped(ctx context.Context, doing, script string, args ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: the server was stopped for good", doing)
	}
	err := s.halt(ctx, "INT")
	if err == nil {
		err = s.inPlace(script, args...)
	}
	// Also after an error: what is there is served again.
	if err = errors.Join(err, s.launch(ctx, true, true)); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// inPlace runs a shell script as the account of the server, in the server's place, with args as $1, $2 and so on.
func (s *Server) inPlace(script string, args ...string) error {
	cmd := s.account.command("/bin/sh", append([]string{"-c", `cd "$PLACE" && { ` + script + `; }`, "sh"}, args...)...)
	cmd.Env = append(cmd.Env, "PLACE="+s.place.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("as %s: %s (%w)", s.account, strings.TrimSpace(string(out)), err)
	}
	return nil
}
