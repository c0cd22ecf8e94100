// The scenes of notifications in the demo, as data.

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/server"
)

// scene is one story: what the provider does, what else happens, and what the tables have to say in the end.
type scene struct {
	title     string
	channels  []string
	script    []channeltest.Step // what the provider on the first channel does
	change    func(*tidings.Notification)
	meanwhile func(*stage, *env, string) error // what happens after the submission; gets the user
	settled   bool                             // a person settles it: waiting for one is not yet the end

	outcomes []tidings.Outcome // of each task
	state    tidings.State
	review   bool
	sends    int64 // how often the provider took it
}

// lost is a provider that takes the message and answers too late.
var lost = []channeltest.Step{{Do: channeltest.DoAccept, DelayMS: 1200}}

var scenes = []scene{
	{
		title:    "All is well: a mail over SMTP, a signed webhook and a push message.",
		channels: []string{"email", "webhook", "push"},
		outcomes: []tidings.Outcome{tidings.Accepted}, state: tidings.Sent, sends: 1,
	},
	{
		title:    "The answer is lost. This provider recognises a repeated key, so the same request is sent again.",
		channels: []string{"push"}, script: lost,
		outcomes: []tidings.Outcome{tidings.Timeout, tidings.AcceptedReplay}, state: tidings.Sent, sends: 1,
	},
	{
		title:    "The answer is lost. This provider recognises no key but can be asked, so it is asked.",
		channels: []string{"sms"}, script: lost,
		outcomes: []tidings.Outcome{tidings.Timeout, tidings.QueryFound}, state: tidings.Sent, sends: 1,
	},
	{
		title:    "The answer is lost. This provider can do neither: nothing is guessed, a person has to look.",
		channels: []string{"plain"}, script: lost,
		outcomes: []tidings.Outcome{tidings.Timeout}, state: tidings.Unknown, review: true, sends: 1,
	},
	{
		title:    "The same again, and a person looks and says that it was sent. It can be said once.",
		channels: []string{"plain"}, script: lost, settled: true, meanwhile: (*stage).person,
		outcomes: []tidings.Outcome{tidings.Timeout, tidings.ManualSent}, state: tidings.Sent, sends: 1,
	},
	{
		title:    "A worker process is killed while its call is under way. When its lease is over another one repeats the call with the same key.",
		channels: []string{"mobile"}, script: []channeltest.Step{{Do: channeltest.DoHang}}, meanwhile: (*stage).kill,
		outcomes: []tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, state: tidings.Sent, sends: 1,
	},
	{
		title:    "The answer is lost, and before the provider can be asked the notification expires: it is not called unsent.",
		channels: []string{"patient"}, script: []channeltest.Step{{Do: channeltest.DoHang}},
		change:   func(n *tidings.Notification) { n.TTL = tidings.Seconds(2 * time.Second) },
		outcomes: []tidings.Outcome{tidings.Timeout, tidings.TTLExpiredInDoubt}, state: tidings.Unknown, review: true, sends: 1,
	},
	{
		title:    "The user switches the channel off before the message is due.",
		channels: []string{"push"},
		change: func(n *tidings.Notification) {
			at := time.Now().Add(1500 * time.Millisecond)
			n.NotBefore = &at
		},
		meanwhile: func(st *stage, e *env, user string) error { return st.reach(e, user, "push", false) },
		outcomes:  []tidings.Outcome{tidings.PrefDisabled}, state: tidings.Suppressed,
	},
	{
		title:    "The provider is busy at first; by its contract a 503 proves that nothing was taken.",
		channels: []string{"push"}, script: []channeltest.Step{{Do: channeltest.DoRefuse, Status: http.StatusServiceUnavailable}},
		outcomes: []tidings.Outcome{tidings.HTTP5xx, tidings.Accepted}, state: tidings.Sent, sends: 1,
	},
	{
		title:    "The provider refuses the message.",
		channels: []string{"push"}, script: []channeltest.Step{{Do: channeltest.DoRefuse, Status: http.StatusBadRequest}},
		outcomes: []tidings.Outcome{tidings.Rejected}, state: tidings.Failed,
	},
}

// person settles the user's task as sent, and then tries to say the opposite.
func (st *stage) person(e *env, user string) error {
	tasks, err := st.await(e, user, func(t api.Task) bool { return t.Review })
	if err != nil {
		return err
	}
	who := st.api
	who.Operator = "eve"
	path := "/v1/reviews/" + tasks[0].ID.String()
	seen := tasks[0].AttemptCount
	if err := who.call(e, http.MethodPost, path, api.Resolution{State: "SENT", Note: "the provider's console shows it", AttemptCount: seen}, nil); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	err = who.call(e, http.MethodPost, path, api.Resolution{State: "FAILED", AttemptCount: seen + 1}, nil)
	if tidings.ErrorCode(err) != tidings.AlreadySettled {
		return fmt.Errorf("settling it a second time is answered with %v, not with %s", err, tidings.AlreadySettled)
	}
	return nil
}

// kill lets a worker process of its own take the user's task, kills it once the provider has the message, and starts another.
func (st *stage) kill(e *env, user string) error {
	dir, err := os.MkdirTemp("", "tidings-demo-")
	if err != nil {
		return fmt.Errorf("make a place for a configuration: %w", err)
	}
	defer os.RemoveAll(dir)
	first, err := st.startWorker(e, dir)
	if err != nil {
		return err
	}
	tasks, err := st.await(e, user, func(t api.Task) bool { return t.State == tidings.Sending })
	if err == nil {
		err = st.box.Doubles.WaitFor(e.ctx, channeltest.ModePush, tasks[0].ID.Key(), func(c channeltest.Counts) bool { return c.Sends == 1 })
	}
	err = errors.Join(err, first.Process.Kill())
	_ = first.Wait() // says that it was killed
	if err != nil {
		return err
	}
	fmt.Fprintf(st.env.stdout, "   worker process %d is killed; the provider has the message\n", first.Process.Pid)
	second, err := st.startWorker(e, dir)
	if err != nil {
		return err
	}
	_, err = st.await(e, user, func(t api.Task) bool { return t.State.Final() })
	err = errors.Join(err, second.Process.Signal(syscall.SIGTERM))
	if ended := second.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("the second worker did not stop in order: %w", ended))
	}
	return err
}

// startWorker starts `tidings serve` in the role of a worker for the channel mobile. It ends with this process at the latest.
func (st *stage) startWorker(e *env, dir string) (*exec.Cmd, error) {
	mobile := st.box.Channels(1400*time.Millisecond, demoLease+time.Second)["push"] // a new process connects between the claim and the call
	text, err := yaml.Marshal(map[string]any{"channels": map[string]server.Channel{"mobile": mobile}})
	if err != nil {
		return nil, fmt.Errorf("write a worker's configuration: %w", err)
	}
	file := filepath.Join(dir, "worker.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("write a worker's configuration: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, "serve", "--config", file, "--roles", "worker", "--listen", "127.0.0.1:0", "--metrics-listen", "",
		"--poll", "50ms", "--log-level", "error", "--with-stdin")
	cmd.Env = append(os.Environ(), "TIDINGS_DATABASE_URL="+st.box.DatabaseURL())
	cmd.Stderr = e.stderr
	if _, err := cmd.StdinPipe(); err != nil { // stays open as long as this process lives
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return cmd, nil
}
