// Servers that processes of their own run, for tests.

package localpg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// helperEnv makes the test binary a process that runs a server for the directory in it ("-" for a temporary one).
const helperEnv = "LOCALPG_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		if err := helper(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// started is what a helper process says when its server runs.
type started struct {
	URL        string
	Postmaster int
	Place      string
	Sleeper    int // a child of the helper that outlives it
}

// helper runs a server until standard input ends. A SIGINT only makes it say so.
func helper(dir string) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT)
	if dir == "-" {
		dir = ""
	}
	s, err := Start(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		return err
	}
	say := json.NewEncoder(os.Stdout)
	if err := say.Encode(started{s.URL("postgres"), s.PID(), s.place.dir, sleeper.Process.Pid}); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for {
		select {
		case <-interrupted:
			if err := say.Encode("interrupted"); err != nil {
				return err
			}
		case <-ended:
			return errors.Join(s.Stop(context.Background()), sleeper.Process.Kill())
		}
	}
}

// helperProcess is a running helper, in a process group of its own.
type helperProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *json.Decoder
}

func startHelper(t *testing.T, dir string) *helperProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helperProcess{cmd, stdin, json.NewDecoder(stdout)}
	t.Cleanup(h.kill)
	return h
}

// await returns what the helper says once its server runs.
func (h *helperProcess) await(t *testing.T) started {
	t.Helper()
	var s started
	if err := h.out.Decode(&s); err != nil {
		t.Fatalf("the helper said nothing: %v", err)
	}
	t.Cleanup(func() { syscall.Kill(s.Sleeper, syscall.SIGKILL) })
	return s
}

// kill ends the helper by SIGKILL, if it still runs, and waits for its end.
func (h *helperProcess) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// newDir returns a new directory for Options.Dir, which the account of the server can reach or not. Whoever is not root
// runs the server itself and reaches both.
func newDir(t *testing.T, reachable bool) string {
	t.Helper()
	outer := t.TempDir()
	mode := os.FileMode(0o700)
	if reachable {
		mode = 0o755
		// The directory above belongs to the test as well.
		if err := os.Chmod(filepath.Dir(outer), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(outer, mode); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(outer, "state")
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	return dir
}

// query returns the one value that an SQL statement gives.
func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// eventually fails the test if a condition does not become true in time.
func eventually(t *testing.T, within time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
