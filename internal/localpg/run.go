// Runs the server and sees to its end.

package localpg

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed supervise.sh
var superviseScript string

// run is one run of the server process under its supervisor.
type run struct {
	cmd  *exec.Cmd
	pipe *os.File // to the supervisor; its end is the signal that this process is gone
	pid  int      // of the postmaster, once ready

	done chan struct{} // closed when supervisor and server have ended
	err  error         // how; valid after done

	logFile string
	logFrom int64 // what the log held before
}

var (
	errPortTaken = errors.New("the port is taken")
	errLingering = errors.New("processes of the server before it still live")
)

// startRun starts the supervisor, and through it the server.
func startRun(s *Server) (*run, error) {
	log, from, err := openLog(s.place.log)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to the supervisor: %w", err)
	}
	defer r.Close()
	orphan, initdb := "keep", ""
	if s.place.temporary {
		orphan, initdb = "remove", "--no-sync"
	}
	// The script comes in a variable, so that ps shows a line that can be read.
	cmd := s.account.command("/bin/sh", "-c", `eval "$SUPERVISE"`, "tidings-postgres", s.bin.Dir, s.place.dir, orphan)
	cmd.Env = append(cmd.Env,
		"SUPERVISE="+superviseScript,
		"CONF="+baseConf+"port = "+strconv.Itoa(s.port)+"\n"+s.settings,
		"HBA="+hba,
		"INITDB="+initdb)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, log, log
	cmd.ExtraFiles = []*os.File{s.place.lock}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), w.Close())
	}
	run := &run{cmd: cmd, pipe: w, done: make(chan struct{}), logFile: s.place.log, logFrom: from}
	go run.wait()
	return run, nil
}

func (r *run) wait() {
	r.err = r.cmd.Wait()
	// If somebody killed the supervisor, this lets its watcher end the server.
	r.pipe.Close()
	close(r.done)
}

// awaitReady returns when the server says in its pid file that it takes connections, as pg_ctl does; knocking instead
// would fill the log.
func (r *run) awaitReady(ctx context.Context, pidFile string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return r.explain()
		case <-ctx.Done():
			return fmt.Errorf("wait until the server is ready: %w\n%s", ctx.Err(), r.said())
		case <-tick.C:
		}
		text, _ := os.ReadFile(pidFile)
		lines := strings.Split(string(text), "\n")
		if len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready" {
			r.pid, _ = strconv.Atoi(lines[0])
			return nil
		}
	}
}

// explain tells why the server ended by itself.
func (r *run) explain() error {
	said := r.said()
	cause := r.err
	switch {
	case strings.Contains(said, "could not create any TCP/IP sockets"):
		cause = errPortTaken
	case strings.Contains(said, "pre-existing shared memory block"):
		cause = errLingering
	case cause == nil:
		cause = errors.New("exit status 0")
	}
	return fmt.Errorf("the server ended: %w\n%s", cause, said)
}

// said returns the end of what this run wrote to the log.
func (r *run) said() string {
	const most = 4096
	f, err := os.Open(r.logFile)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(r.logFrom, size-most), most))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

const (
	orderlyPatience   = time.Minute      // for a stop that flushes
	immediatePatience = 10 * time.Second // for a stop that does not; the postmaster kills what remains after 5 s
)

// end stops the server by a signal to the postmaster, INT or QUIT, and waits for the end of all its processes. If INT
// takes too long, QUIT follows.
func (r *run) end(ctx context.Context, signal string) error {
	var err error
	if signal == "INT" {
		orderly, cancel := context.WithTimeout(ctx, orderlyPatience)
		defer cancel()
		if r.signal(orderly, "INT") {
			return nil
		}
		err = errors.New("stop PostgreSQL in order: it took too long, and was cut short")
	}
	// Not bounded by ctx: returning while the server lives would leave it without an owner.
	immediate, cancel := context.WithTimeout(context.WithoutCancel(ctx), immediatePatience)
	defer cancel()
	if r.signal(immediate, "QUIT") {
		return err
	}
	if killErr := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL); killErr != nil {
		err = errors.Join(err, fmt.Errorf("kill PostgreSQL: %w", killErr))
	}
	<-r.done
	return errors.Join(err, errors.New("stop PostgreSQL: it did not react to SIGQUIT, and was killed"))
}

// signal sends the signal through the supervisor until the server has ended, again every second, because one that
// comes before the server has installed its handlers is lost. It reports whether the server ended before ctx did.
func (r *run) signal(ctx context.Context, signal string) bool {
	for {
		// An error here means that the supervisor is gone, which r.done tells.
		_, _ = r.pipe.WriteString(signal + "\n")
		select {
		case <-r.done:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}

// openLog opens the log for appending, after putting a long one aside, and returns its size.
func openLog(path string) (*os.File, int64, error) {
	const long = 16 << 20
	if info, err := os.Lstat(path); err == nil && info.Size() > long {
		if err := os.Rename(path, path+asideSuffix); err != nil {
			return nil, 0, err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}
