// A child process: started, started again when it has ended, and ended.

package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tidings-project/tidings"
)

// The states of a child.
const (
	stateUp       = "up"       // it has served since it was started
	stateDraining = "draining" // it was told to stop
	stateDown     = "down"     // there is no process, or it does not serve yet
)

const (
	startAgainAfter = 5 * time.Second        // after the end of a child, whatever ended it
	stopPatience    = 20 * time.Second       // for the orderly end of a child
	lookEvery       = 100 * time.Millisecond // whether a child serves
	firstStarts     = 3                      // somebody may take a port between its choice and its use
)

// child is a process of this program that is kept running.
type child struct {
	name    string
	title   string // in logs
	roles   string
	command func(args ...string) *exec.Cmd
	http    *http.Client
	log     io.Writer
	tell    func(format string, args ...any)

	startNow chan struct{} // holds one

	mu      sync.Mutex
	state   string
	url     string
	process *os.Process
	left    bool          // process was told to stop, or killed
	ended   chan struct{} // closed when process has ended
}

// up says that a process serves, unless it was told to stop meanwhile, or killed.
func (c *child) up(process *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == process && !c.left {
		c.state = stateUp
	}
}

// leave says that the present process, which is returned, is about to end; nil: there is none. It does not come up any more, and what was told to stop is not up
// before its end.
func (c *child) leave(state string) (process *os.Process, ended <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		c.state, c.left = state, true
	}
	return c.process, c.ended
}

// now is the child's state, and its process; 0: there is none.
func (c *child) now() (state string, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		pid = c.process.Pid
	}
	return c.state, pid
}

// gone notes that a process has ended, unless there is another by now.
func (c *child) gone(process *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == process {
		c.process, c.state = nil, stateDown
	}
}

// address is where the child is reached at present.
func (c *child) address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url
}

// keep runs the child until ctx ends, which ends it in order. The first start is reported: nil when the child serves.
func (c *child) keep(ctx context.Context, first chan<- error) {
	for starts := 1; ctx.Err() == nil; starts++ {
		served, err := c.once(ctx, func() {
			if first != nil {
				first <- nil
				first = nil
			}
		})
		if first != nil && !served {
			if starts < firstStarts && ctx.Err() == nil {
				continue
			}
			first <- fmt.Errorf("start %s: it ended before it served: %s", c.title, exit(err))
			return
		}
		if ctx.Err() == nil {
			c.tell("%s has ended (%s) and is started again in %v", c.title, exit(err), startAgainAfter)
		}
		select {
		case <-ctx.Done():
		case <-c.startNow:
		case <-time.After(startAgainAfter):
		}
	}
}

// exit is how a process has ended, in words.
func exit(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// once runs one process to its end. serves is called when it serves.
func (c *child) once(ctx context.Context, serves func()) (served bool, err error) {
	addr, err := freeAddr()
	if err != nil {
		return false, err
	}
	cmd := c.command("--with-stdin", "--roles", c.roles, "--listen", addr)
	cmd.Stderr = &prefixed{to: c.log, prefix: c.title + " | "}
	// The terminal's Ctrl-C is for the parent, which ends its children in order. The pipe ends with the parent, however that goes, and the child with the pipe.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	defer pipe.Close()
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ended := make(chan struct{})
	go func() { // waited for below
		err = cmd.Wait()
		close(ended)
	}()
	c.mu.Lock()
	c.process, c.left, c.ended, c.url = cmd.Process, false, ended, "http://"+addr
	c.mu.Unlock()
	select {
	case <-c.startNow: // asked for twice
	default:
	}
	defer c.gone(cmd.Process)
	served = c.awaitReady(ctx, ended)
	if served {
		c.up(cmd.Process)
		c.tell("%s serves, process %d", c.title, cmd.Process.Pid)
		serves()
	}
	select {
	case <-ended:
	case <-ctx.Done():
		c.end(ended)
	}
	return served, err
}

// awaitReady asks until the child says that it is ready.
func (c *child) awaitReady(ctx context.Context, ended <-chan struct{}) bool {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if status, _ := c.readyz(ctx); status == http.StatusOK {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-ended:
			return false
		case <-ticker.C:
		}
	}
}

// readyz asks the child whether it is ready; 0 when it does not answer.
func (c *child) readyz(ctx context.Context) (status int, text string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address()+"/readyz", nil)
	if err != nil {
		return 0, ""
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(body)
}

// end ends the process in order, or by force when that takes too long.
func (c *child) end(ended <-chan struct{}) {
	_ = c.drain() // one that has ended already
	select {
	case <-ended:
	case <-time.After(stopPatience):
		_ = c.kill() // likewise
		<-ended
	}
}

var errDown = tidings.Errorf(tidings.Conflict, "it does not run")

// drain tells the process to stop.
func (c *child) drain() error {
	process, _ := c.leave(stateDraining) // before the process hears of it: no line is led there any more
	if process == nil {
		return errDown
	}
	c.tell("%s is told to stop", c.title)
	if err := process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return errDown
}

// kill kills the process and returns when it is gone.
func (c *child) kill() error {
	process, ended := c.leave(stateDown) // before its sockets end: no line is led there any more
	if process == nil {
		return errDown
	}
	c.tell("%s is killed", c.title)
	err := process.Kill()
	<-ended
	c.gone(process)
	if errors.Is(err, os.ErrProcessDone) {
		return errDown
	}
	return err
}

// start starts the child now if it waits to be started again.
func (c *child) start() {
	if _, pid := c.now(); pid != 0 {
		return
	}
	select {
	case c.startNow <- struct{}{}:
	default: // that was said already
	}
}

// freeAddr is an address of 127.0.0.1 that nobody listens at. Its port lies below those that systems give to outgoing connections: a client that tries to come back
// could get such a port as its own.
func freeAddr() (string, error) {
	var err error
	for range 50 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(10_000)))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
