// Tests of what outlives what: owner, supervisor, postmaster.

package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// endPatience is how long a server may live on after its owner.
const endPatience = 10 * time.Second

func TestKilledOwner(t *testing.T) {
	t.Parallel()
	t.Run("persistent", func(t *testing.T) {
		dir := newDir(t, true)
		h := startHelper(t, dir)
		server := h.await(t)
		execute(t, server.URL, `CREATE TABLE kept AS SELECT 42 AS n`)
		h.kill()
		// The helper's other child lives: the pipe has not leaked into it.
		if !alive(server.Sleeper) {
			t.Fatal("the helper's other child has ended, and this test shows nothing")
		}
		eventually(t, endPatience, "end of the server", func() bool { return !alive(server.Postmaster) })
		s := start(t, Options{Dir: dir})
		if got := query[int](t, s.URL("postgres"), `SELECT n FROM kept`); got != 42 {
			t.Errorf("n = %d", got)
		}
		log, err := os.ReadFile(s.LogFile())
		if err != nil || !strings.Contains(string(log), "database system was shut down") || strings.Contains(string(log), "not properly") {
			t.Errorf("the log does not tell of an orderly stop: %v\n%s", err, log)
		}
	})
	t.Run("temporary", func(t *testing.T) {
		h := startHelper(t, "-")
		server := h.await(t)
		h.kill()
		eventually(t, endPatience, "end of the server and of its data", func() bool {
			_, err := os.Stat(server.Place)
			return !alive(server.Postmaster) && errors.Is(err, os.ErrNotExist)
		})
	})
}

// An owner that is killed at any moment of the first start leaves nothing that is in the way of the next start, which
// may come at once.
func TestKilledOwnerWhileStarting(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{50, 150, 300, 500, 800} {
		t.Run(fmt.Sprint(int(after)), func(t *testing.T) {
			t.Parallel()
			dir := newDir(t, false)
			h := startHelper(t, dir)
			pause(t.Context(), after*time.Millisecond) // the moment of the fault, not a wait for something
			h.kill()
			query[int](t, start(t, Options{Dir: dir}).URL("postgres"), `SELECT 1`)
		})
	}
}

func TestKilledSupervisor(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: newDir(t, false)})
	pid := s.PID()
	if err := syscall.Kill(s.run.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, endPatience, "end of the server", func() bool { return !alive(pid) })
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	query[int](t, s.URL("postgres"), `SELECT 1`)
}

// A backend that computes does not notice that the postmaster is gone, and keeps the data in use for a while.
func TestKilledPostmaster(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	execute(t, s.URL("postgres"), `CREATE TABLE kept AS SELECT 42 AS n`)
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		conn.Exec(t.Context(), `SET statement_timeout = '2s'; DO $$ BEGIN LOOP END LOOP; END $$`)
	}()
	eventually(t, endPatience, "a busy backend", func() bool {
		return query[int](t, s.URL("postgres"), `SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%LOOP END LOOP%' AND pid <> pg_backend_pid()`) == 1
	})
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-busy
	if got := query[int](t, s.URL("postgres"), `SELECT n FROM kept`); got != 42 {
		t.Errorf("n = %d", got)
	}
	if log, err := os.ReadFile(s.LogFile()); err != nil || !strings.Contains(string(log), "pre-existing shared memory block") {
		t.Errorf("the backend was not in the way, and this test shows nothing: %v\n%s", err, log)
	}
}

// After a power cut the pid file is still there, and its pid may be that of any process of the same user.
func TestStalePidFile(t *testing.T) {
	t.Parallel()
	o := Options{Dir: newDir(t, false)}
	s := start(t, o)
	pidFile := s.place.pidFile()
	stale, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := s.account.command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		other.Process.Kill()
		other.Wait()
	})
	_, rest, _ := strings.Cut(string(stale), "\n")
	for name, pid := range map[string]int{"reused": other.Process.Pid, "gone": 1 << 30, "of this process": os.Getpid()} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s", pid, rest), 0o600); err != nil {
				t.Fatal(err)
			}
			query[int](t, start(t, o).URL("postgres"), `SELECT 1`)
		})
	}
}

func TestSecondStart(t *testing.T) {
	t.Parallel()
	for _, reachable := range []bool{true, false} {
		o := Options{Dir: newDir(t, reachable)}
		server := startHelper(t, o.Dir).await(t)
		s, err := Start(t.Context(), o)
		if err == nil {
			s.Stop(context.Background())
			t.Fatal("two servers on the same data")
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", server.Postmaster)) {
			t.Errorf("the error does not name process %d: %v", server.Postmaster, err)
		}
		if err := Remove(t.Context(), o.Dir); err == nil {
			t.Error("the data of a running server were removed")
		}
		query[int](t, server.URL, `SELECT 1`)
	}
}

// A server that somebody started on the data by hand holds no lock.
func TestServerByHand(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere PostgreSQL's own interlock is left to act")
	}
	o := Options{Dir: newDir(t, false)}
	s := start(t, o)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	byHand := s.account.command(filepath.Join(s.bin.Dir, "postgres"), "-D", s.DataDir())
	if err := byHand.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		byHand.Process.Signal(syscall.SIGQUIT)
		byHand.Wait()
	})
	eventually(t, endPatience, "pid file", func() bool { return readPid(s.place.pidFile()) == byHand.Process.Pid })
	again, err := Start(t.Context(), o)
	if err == nil {
		again.Stop(context.Background())
		t.Fatal("two servers on the same data")
	}
	if want := fmt.Sprintf("(process %d) that was started by hand", byHand.Process.Pid); !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not say %q: %v", want, err)
	}
}

func TestFirstStartsAtOnce(t *testing.T) {
	t.Parallel()
	for _, reachable := range []bool{true, false} {
		o := Options{Dir: newDir(t, reachable)}
		var (
			wg      sync.WaitGroup
			servers [4]*Server
			errs    [4]error
		)
		for i := range servers {
			wg.Go(func() { servers[i], errs[i] = Start(t.Context(), o) })
		}
		wg.Wait()
		running := 0
		for i, s := range servers {
			if errs[i] != nil {
				if !strings.Contains(errs[i].Error(), "are in use: process") {
					t.Errorf("reachable %v: %v", reachable, errs[i])
				}
				continue
			}
			running++
			query[int](t, s.URL("postgres"), `SELECT 1`)
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if running != 1 {
			t.Errorf("reachable %v: %d servers ran on the same data", reachable, running)
		}
	}
}

// Ctrl-C at a terminal signals the whole foreground process group.
func TestInterruptedGroup(t *testing.T) {
	t.Parallel()
	h := startHelper(t, "-")
	server := h.await(t)
	if err := syscall.Kill(-h.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var said string
	if err := h.out.Decode(&said); err != nil || said != "interrupted" {
		t.Fatalf("the helper said %q: %v", said, err)
	}
	query[int](t, server.URL, `SELECT 1`)
	h.stdin.Close()
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("the helper's orderly stop: %v", err)
	}
	if alive(server.Postmaster) {
		t.Errorf("process %d still lives", server.Postmaster)
	}
}

// Nothing of the environment matters: not the home directory, nor what would direct PostgreSQL elsewhere.
func TestHostileEnvironment(t *testing.T) {
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	closedTmp := t.TempDir()
	if err := os.Chmod(closedTmp, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, home := range []string{"", "/nonexistent", closed} {
		t.Setenv("HOME", home)
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("TMPDIR", closedTmp)
		t.Setenv("PGDATA", "/nonexistent")
		t.Setenv("PGPORT", "1")
		t.Setenv("PGHOST", "nowhere.invalid")
		t.Setenv("LC_ALL", "xx_XX.UTF-8")
		t.Setenv("TZ", "Nowhere/Nothing")
		s := start(t, Options{})
		query[int](t, s.URL("postgres"), `SELECT 1`)
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// No process of the server belongs to root or listens for other machines.
func TestListensHereOnly(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		tried++
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.IP.String(), fmt.Sprint(s.port)), time.Second)
		if err == nil {
			conn.Close()
			t.Errorf("the server listens on %v", ip.IP)
		}
	}
	t.Logf("%d other addresses tried", tried)
}
