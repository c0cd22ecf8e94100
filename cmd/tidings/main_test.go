// The program as a process, for all tests of the commands.

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// asProgram makes this test binary the program itself, for the tests and the scenes that need processes.
const asProgram = "TIDINGS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(pgtest.M{M: m})
}

// command runs a command in this process.
func command(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	httpClient.CloseIdleConnections()
	return code, out.String(), errs.String()
}

// want runs a command, fails unless it exits with the code, and returns what it printed.
func want(t testing.TB, code int, args ...string) string {
	t.Helper()
	got, stdout, stderr := command(t, args...)
	if got != code {
		t.Fatalf("tidings %s exits with %d, not %d:\n%s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	return stdout + stderr
}

// with is a command with flags behind it.
func with(flags []string, command ...string) []string { return append(command, flags...) }

// program runs a command as a process of its own, which carries a mark in its environment.
type program struct {
	t    testing.TB
	cmd  *exec.Cmd
	mark string

	mu     sync.Mutex
	output bytes.Buffer
	ended  chan error
}

func start(t testing.TB, dir string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], args...), mark: "TIDINGS_TEST_MARK=" + rand.Text(), ended: make(chan error, 1)}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), asProgram+"=1", p.mark)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has usually ended
		p.wait()
	})
	return p
}

// Write takes the program's output.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// wait waits for the program's end and returns its exit code.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
	case <-time.After(time.Minute):
		p.t.Fatalf("the program does not end:\n%s", p.text())
	}
	return p.cmd.ProcessState.ExitCode()
}

// says waits until the output holds all the words.
func (p *program) says(words ...string) string {
	p.t.Helper()
	var text string
	await(p.t, "the program to print "+strings.Join(words, ", "), func() bool {
		text = p.text()
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}, func() string { return text })
	return text
}

// line waits until a line of the output holds the words, and returns it.
func (p *program) line(words string) string {
	p.t.Helper()
	for line := range strings.Lines(p.says(words)) {
		if strings.Contains(line, words) {
			return line
		}
	}
	return "" // never: it says them
}

// marked are the processes that carry the program's mark: itself, and whatever it started.
func (p *program) marked() (pids []string) {
	p.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		if environ, err := os.ReadFile(f); err == nil && bytes.Contains(environ, []byte(p.mark)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// await polls until done, for at most a minute.
func await(t testing.TB, what string, done func() bool, state func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s:\n%s", what, state())
		}
	}
}

func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// listen takes a free port.
func listen(t testing.TB) (l net.Listener, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return l, port
}
