// Workers of a scene, in this process and in others.

package lab_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/proc"
	"github.com/tidings-project/tidings/lab/worker"
)

// serve names channels for a worker, each with the double of its name.
func serve(names ...string) []worker.Channel {
	var channels []worker.Channel
	for _, n := range names {
		channels = append(channels, worker.Channel{Name: n})
	}
	return channels
}

// patient are channels whose calls may take long, for attempts that shall not fail for want of time.
func patient(names ...string) []worker.Channel { return withTimeout(10*time.Second, names) }

// hasty are channels whose calls end soon, for attempts that shall get no answer in time.
func hasty(names ...string) []worker.Channel { return withTimeout(400*time.Millisecond, names) }

// withTimeout are channels whose leases do not matter: on a busy machine nothing comes too late for them.
func withTimeout(timeout time.Duration, names []string) []worker.Channel {
	channels := serve(names...)
	for i := range channels {
		channels[i].Timeout, channels[i].Lease = timeout, time.Minute
	}
	return channels
}

// worker makes a worker in this process.
func (s *scene) worker(name string, channels ...worker.Channel) *worker.Worker {
	s.Helper()
	return s.workerWith(worker.Config{Name: name, Channels: channels})
}

// workerWith is worker with everything that can be set.
func (s *scene) workerWith(cfg worker.Config) *worker.Worker {
	s.Helper()
	cfg.Doubles = s.doubles.URL()
	w, err := worker.New(s.pool, cfg)
	s.Must("make a worker", err)
	s.Cleanup(w.Close)
	return w
}

// tapped is the push double's channel, in whose calls a check takes part: before and after are called beside each Send, if
// they are set.
type tapped struct {
	*channeltest.PushChannel
	before, after func(channel.Message)
}

func (c tapped) Send(ctx context.Context, m channel.Message) channel.Outcome {
	if c.before != nil {
		c.before(m)
	}
	o := c.PushChannel.Send(ctx, m)
	if c.after != nil {
		c.after(m)
	}
	return o
}

// tap is the channel of the push double, tapped.
func (s *scene) tap(before, after func(channel.Message)) worker.Channel {
	s.Helper()
	ch := channeltest.Push(s.doubles.URL(), channeltest.ChannelOptions{})
	s.Cleanup(ch.Close)
	return worker.Channel{Name: push, Timeout: 10 * time.Second, Lease: time.Minute, Channel: tapped{ch, before, after}}
}

// once lets a worker claim and call once and returns how many tasks it took or settled.
func (s *scene) once(w *worker.Worker) int {
	s.Helper()
	n, err := w.RunOnce(s.ctx)
	s.Must("run a worker once", err)
	return n
}

// rounds lets a worker work until it has found something n times: as often as tasks come due.
func (s *scene) rounds(w *worker.Worker, n int) {
	s.Helper()
	for range n {
		s.Until("a worker finds something due", soon, func() bool { return s.once(w) > 0 })
	}
}

// process starts a worker in a process of its own and waits until it is ready to claim.
func (s *scene) process(cfg worker.Config) *proc.Process {
	s.Helper()
	p := s.start(cfg, exec.Command(program(s.T, "./cmd/worker")))
	p.Await("READY", soon)
	return p
}

// start starts cmd, which is a worker, and hands it its configuration. An empty Database is the scene's.
func (s *scene) start(cfg worker.Config, cmd *exec.Cmd) *proc.Process {
	s.Helper()
	cfg.Doubles = s.doubles.URL()
	if cfg.Database == "" {
		cfg.Database = s.url()
	}
	text, err := json.Marshal(cfg)
	s.Must("write the configuration of a worker", err)
	cmd.Stdin = strings.NewReader(string(text))
	return proc.Start(s, cfg.Name, cmd)
}

// gone waits until the database has ended the sessions of a worker's process that was killed: a session first carries out
// what it was sent before.
func (s *scene) gone(name string) {
	s.Helper()
	s.Until("the sessions of "+name+" end", soon, func() bool {
		return one[int](s, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name) == 0
	})
}

// accepted waits until the doubles have accepted a task's message.
func (s *scene) accepted(task tidings.UUID) {
	s.Helper()
	s.Until("the double accepts", soon, func() bool { return s.sends(task) > 0 })
}

// becomes waits until a task is in a state.
func (s *scene) becomes(task tidings.UUID, want tidings.State) {
	s.Helper()
	s.Until("the task becomes "+string(want), soon, func() bool { return s.where(task).State == want })
}

// programs are what this process has built: each once, since a build takes longer than most checks.
var programs sync.Map // package → func() (string, error)

// program builds a main package, named relative to this directory, and returns the path of the program.
func program(t *lab.T, pkg string) string {
	t.Helper()
	build, _ := programs.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return buildProgram(pkg) }))
	path, err := build.(func() (string, error))()
	t.Must("build "+pkg, err)
	return path
}

// buildProgram builds into the module's bin. Another process of checks may do the same at the same time, so the program
// appears there at once or not at all.
func buildProgram(pkg string) (string, error) {
	bin := filepath.Join(lab.Root(), "bin")
	path := filepath.Join(bin, "lab-"+filepath.Base(pkg))
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if out, err := exec.Command("go", "build", "-o", fresh, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, errors.Join(os.MkdirAll(bin, 0o755), os.Rename(fresh, path))
}
