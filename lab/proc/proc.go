// Package proc runs real child processes for checks: it waits for what they print, kills and stops them, and sees to
// it that none outlives the check.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidings-project/tidings/lab/fault"
)

// patience bounds every wait for something that the kernel does at once on an idle machine.
const patience = 10 * time.Second

// Process is a running or ended child process, the leader of a process group of its own.
type Process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	out  *lines
	done chan struct{} // closed when the process has been reaped
}

// Build builds the main package pkg, relative to the working directory of the test, and returns the path of the
// program. It lies in a temporary directory of the test.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", program, pkg).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return program
}

// Start starts cmd under a name that receipts and messages use. Its output, unless cmd sends it elsewhere, is kept
// line by line. When the test ends, the process and its whole group are killed and reaped.
func Start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, name: name, cmd: cmd, out: newLines(), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.out
	}
	cmd.SysProcAttr = groupLeader()
	cmd.WaitDelay = time.Second // a grandchild may keep the output open
	if err := launch(cmd); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() { // waited for in Cleanup
		_ = cmd.Wait() // the state tells
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		p.out.end()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	})
	return p
}

// launch starts cmd from one thread that lives as long as this process, because the kernel kills the children (see
// groupLeader) when the thread that started them ends.
func launch(cmd *exec.Cmd) error {
	launcher.Do(func() {
		go func() {
			runtime.LockOSThread()
			for s := range starts {
				s.err <- s.cmd.Start()
			}
		}()
	})
	s := start{cmd, make(chan error)}
	starts <- s
	return <-s.err
}

type start struct {
	cmd *exec.Cmd
	err chan error
}

var (
	launcher sync.Once
	starts   = make(chan start)
)

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Await returns the next line of output that contains text, after the one that the last Await returned. It ends the
// test as failed when there is none in time, or the process ends without printing it.
func (p *Process) Await(text string, within time.Duration) string {
	p.t.Helper()
	line, err := p.out.await(text, within)
	if err != nil {
		p.t.Fatalf("%s: wait for %q: %v; its last lines:\n%s", p.name, text, err, p.out.tail())
	}
	return line
}

// Kill kills the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() fault.Receipt {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	state := p.Exit(patience)
	proof := ""
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		proof = "reaped: " + state.String()
	}
	return fault.New("SIGKILL", p.name, proof)
}

// Stop stops the process with SIGSTOP and waits until it stands still.
func (p *Process) Stop() fault.Receipt {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.until("stopped", func() bool { return stopped(p.Pid()) })
	return fault.New("SIGSTOP", p.name, "all of its threads are stopped")
}

// Continue lets a stopped process go on.
func (p *Process) Continue() fault.Receipt {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
	p.until("continued", func() bool { return !stopped(p.Pid()) })
	return fault.New("SIGCONT", p.name, "it is no longer stopped")
}

// Terminate asks the process to end, with SIGTERM. Exit tells whether it did.
func (p *Process) Terminate() fault.Receipt {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return fault.New("SIGTERM", p.name, "the signal was delivered to a live process")
}

// Exit waits until the process has ended and returns how. It ends the test as failed when it does not end in time.
func (p *Process) Exit(within time.Duration) *os.ProcessState {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("%s: did not end within %v; its last lines:\n%s", p.name, within, p.out.tail())
	}
	return p.cmd.ProcessState
}

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			err = fmt.Errorf("it had ended already; its last lines:\n%s", p.out.tail())
		}
		p.t.Fatalf("send %v to %s: %v", s, p.name, err)
	}
}

func (p *Process) until(what string, cond func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		select {
		case <-p.done:
			p.t.Fatalf("%s ended before it was %s", p.name, what)
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s was not %s within %v", p.name, what, patience)
		}
	}
}
