// Tests of processes that are stopped and killed.

package proc_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidings-project/tidings/lab/proc"
)

// The test binary is also the child: it prints a counter until it is told to end.
const childVar = "TIDINGS_PROC_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVar) {
	case "":
		os.Exit(m.Run())
	case "count":
		for i := 0; ; i++ {
			fmt.Println("count", i)
			time.Sleep(time.Millisecond)
		}
	case "family": // a child with a child of its own, which holds its output open
		grandchild := exec.Command("sleep", "60")
		grandchild.Stdout = os.Stdout
		if err := grandchild.Start(); err != nil {
			panic(err)
		}
		fmt.Println("grandchild", grandchild.Process.Pid)
		_ = grandchild.Wait()
	case "long":
		os.Stdout.Write(append(bytes.Repeat([]byte("x"), 200_000), "\nend without newline"...))
	case "parent": // starts a counting child through this package, says which, and waits to be killed
		testing.Main(func(string, string) (bool, error) { return true, nil },
			[]testing.InternalTest{{Name: "Parent", F: func(t *testing.T) {
				p := proc.Start(t, "child", child("count"))
				p.Await("count 3", 10*time.Second)
				fmt.Println("child", p.Pid())
				select {}
			}}}, nil, nil)
	}
	os.Exit(0)
}

func child(what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.v=false")
	cmd.Env = append(os.Environ(), childVar+"="+what)
	return cmd
}

func TestProcess(t *testing.T) {
	const soon = 10 * time.Second

	t.Run("stop, continue, kill", func(t *testing.T) {
		p := proc.Start(t, "counter", child("count"))
		p.Await("count 5", soon)
		if r := p.Stop(); r.Kind != "SIGSTOP" || r.Proof == "" {
			t.Errorf("no receipt of the stop: %+v", r)
		}
		if r := p.Continue(); r.Proof == "" {
			t.Errorf("no receipt of the continuation: %+v", r)
		}
		last := p.Await("count", soon)
		if next := p.Await("count", soon); next == last {
			t.Errorf("%q was returned twice", last)
		}
		r := p.Kill()
		if r.Kind != "SIGKILL" || !strings.Contains(r.Proof, "killed") {
			t.Errorf("no receipt of the kill: %+v", r)
		}
		if err := syscall.Kill(p.Pid(), 0); err != syscall.ESRCH {
			t.Errorf("the killed process was not reaped: %v", err)
		}
	})

	t.Run("terminate", func(t *testing.T) {
		p := proc.Start(t, "counter", child("count"))
		p.Await("count", soon)
		p.Terminate()
		if s := p.Exit(soon); s.Success() {
			t.Errorf("ended by SIGTERM with %v", s)
		}
	})

	t.Run("a group does not outlive its leader", func(t *testing.T) {
		p := proc.Start(t, "family", child("family"))
		pid := number(t, p.Await("grandchild", soon))
		p.Kill()
		gone(t, pid)
	})

	t.Run("a child does not outlive a killed test", func(t *testing.T) {
		parent := proc.Start(t, "parent", child("parent"))
		pid := number(t, parent.Await("child", soon))
		parent.Kill()
		gone(t, pid)
	})

	t.Run("output without end", func(t *testing.T) {
		p := proc.Start(t, "long", child("long"))
		if n := len(p.Await("x", soon)); n != 1<<16 {
			t.Errorf("a line of 200 000 bytes came as %d", n)
		}
		p.Await("end without newline", soon)
	})

	t.Run("waiting fails when the process ends, or time is up", func(t *testing.T) {
		for _, c := range []struct {
			child string
			wait  time.Duration
			want  string
		}{{"long", soon, "ended without it"}, {"count", 50 * time.Millisecond, "not within"}} {
			if got := failure(t, func(tb testing.TB) {
				proc.Start(tb, "it", child(c.child)).Await("never printed", c.wait)
			}); !strings.Contains(got, c.want) {
				t.Errorf("%s: got %q, want %q", c.child, got, c.want)
			}
		}
	})
}

// recorder is a testing.TB that keeps the message of a fatal failure instead of failing.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs f, which should fail, and returns its message.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.fatal
}

func number(t *testing.T, line string) int {
	t.Helper()
	n, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gone waits until a process that is not our child has ended; a zombie that its new parent has not reaped is ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}
