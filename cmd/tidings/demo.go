// The command demo: the stage, and the scenes of notifications played on it.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
)

type demoCmd struct{}

// The demo's times: short, so that what takes minutes in production is over in seconds.
const (
	demoTimeout  = 400 * time.Millisecond
	demoLease    = 2 * time.Second
	demoPatience = 20 * time.Second // for one scene
)

// demoSecret signs the tokens of the demo's people; its server lives as long as the demo.
const demoSecret = "the demo is gone before anybody can use this"

// errInterrupted is the end of a demo that was told to stop.
var errInterrupted = errors.New("interrupted")

// Run plays the scenes on a database of their own.
func (demoCmd) Run(e *env) (err error) {
	began := time.Now()
	fmt.Fprintln(e.stdout, "Starting PostgreSQL, the API, a gateway, a worker, a mail server, a webhook receiver and three scripted providers.")
	box, err := sandbox.Start(e.ctx, sandbox.Options{})
	if e.ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	dir, err := os.MkdirTemp("", "tidings-demo-")
	if err != nil {
		return fmt.Errorf("make a place for files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	level := &slog.LevelVar{}
	level.Set(slog.LevelError)
	s, err := demoServer(e, box, dir, level)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(e.ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-stopped)
	}()
	secret, _, err := s.Store().CreateKey(e.ctx, "demo", store.Scopes)
	if err != nil {
		return err
	}

	st := &stage{env: e, box: box, api: remote{URL: s.URL(), Key: secret}}
	var wrong []string
	for i, sc := range scenes {
		fmt.Fprintf(e.stdout, "\n%d. %s\n", i+1, sc.title)
		err := st.play(i+1, sc)
		if e.ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil {
			fmt.Fprintf(e.stdout, "   WRONG: %v\n", err)
			wrong = append(wrong, fmt.Sprintf("scene %d: %v", i+1, err))
		}
	}
	ended, missed := playChat(e, &chatStage{env: e, box: box, api: st.api, secret: demoSecret, dir: dir, level: level}, len(scenes))
	wrong = append(wrong, missed...)
	if e.ctx.Err() != nil {
		return errInterrupted
	}
	findings, err := s.Store().Verify(e.ctx)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Promise != "" && f.Violations > 0 {
			wrong = append(wrong, fmt.Sprintf("verify: %s is violated: not true that %s", f.Promise, f.Title))
		}
	}
	if len(wrong) > 0 {
		fmt.Fprintf(e.stdout, "\n%s\n", strings.Join(wrong, "\n"))
		return errNo
	}
	fmt.Fprintf(e.stdout, "\n%d scenes ended as they should, and verify finds no violated promise in the tables. It took %v.\n",
		len(scenes)+ended, time.Since(began).Round(time.Second))
	return nil
}

// demoServer is everything in one process. Its journal and its witness are in dir, its errors are printed from level on.
func demoServer(e *env, box *sandbox.Sandbox, dir string, level slog.Leveler) (*server.Server, error) {
	var cfg server.Config
	if err := kong.ApplyDefaults(&cfg); err != nil {
		return nil, fmt.Errorf("read the settings' defaults: %w", err)
	}
	cfg.DatabaseURL, cfg.Listen, cfg.MetricsListen, cfg.Roles = box.DatabaseURL(), "127.0.0.1:0", "", []string{server.RoleAPI, server.RoleWorker, server.RoleGateway}
	cfg.TokenHS256Secret, cfg.GatewayDrain, cfg.OutsideDir = server.Secret{Text: demoSecret}, time.Second, dir
	cfg.Poll, cfg.Backoff, cfg.MaxDelay, cfg.Drain = 50*time.Millisecond, demoTimeout, time.Second, 5*time.Second
	cfg.Channels = box.Channels(demoTimeout, demoLease)
	patient := cfg.Channels["sms"]
	patient.Timeout, patient.Lease = 2300*time.Millisecond, 4*time.Second
	cfg.Channels["patient"] = patient
	return server.New(e.ctx, cfg, slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level})))
}

// stage is where the scenes are played.
type stage struct {
	env *env
	box *sandbox.Sandbox
	api remote
}

// play plays one scene and compares what the tables say with what they should.
func (st *stage) play(n int, sc scene) error {
	ctx, cancel := context.WithTimeout(st.env.ctx, demoPatience)
	defer cancel()
	e := &env{ctx: ctx, stdout: st.env.stdout, stderr: st.env.stderr}
	user := fmt.Sprintf("u-scene-%d", n)
	for _, channel := range sc.channels {
		if err := st.reach(e, user, channel, true); err != nil {
			return err
		}
	}
	if len(sc.script) > 0 {
		if err := st.box.Doubles.Script(channeltest.Script{Address: address(user, sc.channels[0]), Steps: sc.script}); err != nil {
			return err
		}
	}
	order := tidings.Notification{User: user, EventKey: "order-1001-shipped", Title: "Your order", Body: "Order 1001 is on its way.", TTL: tidings.Seconds(time.Hour)}
	if sc.change != nil {
		sc.change(&order)
	}
	var answer tidings.Notified
	if err := st.api.call(e, "POST", "/v1/notifications", order, &answer); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	if sc.meanwhile != nil {
		if err := sc.meanwhile(st, e, user); err != nil {
			return err
		}
	}
	tasks, err := st.await(e, user, func(t api.Task) bool { return t.State.Final() || t.Review && !sc.settled })
	if err != nil {
		return err
	}
	return st.compare(sc, tasks)
}

// compare prints the tasks and says what is not as it should be.
func (st *stage) compare(sc scene, tasks []api.Task) error {
	var wrong []error
	if len(tasks) != len(sc.channels) {
		wrong = append(wrong, fmt.Errorf("%d tasks, not %d", len(tasks), len(sc.channels)))
	}
	table(st.env.stdout, func(row func(...any)) {
		for _, t := range tasks {
			sends, err := st.taken(t)
			if err != nil {
				wrong = append(wrong, err)
			}
			row("   "+t.Channel, attempts(t), "→ "+state(t.Task), fmt.Sprintf("(the provider took it %s)", times(sends)))
			var outcomes []tidings.Outcome
			for _, a := range t.Attempts {
				outcomes = append(outcomes, a.Outcome)
			}
			if fmt.Sprint(outcomes) != fmt.Sprint(sc.outcomes) || t.State != sc.state || t.Review != sc.review || sends != sc.sends {
				wrong = append(wrong, fmt.Errorf("on %s it should be %v → %s (review %t), taken %s", t.Channel, sc.outcomes, sc.state, sc.review, times(sc.sends)))
			}
		}
	})
	return errors.Join(wrong...)
}

// attempts is a journal with actions.
func attempts(t api.Task) string {
	var out []string
	for _, a := range t.Attempts {
		word := string(a.Outcome)
		if a.Action != tidings.ActionNone {
			word = string(a.Action) + " " + word
		}
		out = append(out, word)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func times(n int64) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// address is where a user is reached on a channel; it also says for whom a script is.
func address(user, channel string) string {
	if channel == "email" {
		return user + "@example.test"
	}
	return user + "-on-" + channel
}

// reach makes a user reachable on a channel, or no longer.
func (st *stage) reach(e *env, user, channel string, enabled bool) error {
	return st.api.call(e, "PUT", "/v1/users/"+user+"/channels/"+channel, map[string]any{"address": address(user, channel), "enabled": enabled}, nil)
}

// await reads a user's notification until all its tasks are done.
func (st *stage) await(e *env, user string, done func(api.Task) bool) ([]api.Task, error) {
	seen := []string{"nothing was seen of it"} // or what was seen last
	for {
		n, err := st.api.find(e, user, "order-1001-shipped")
		if err != nil && e.ctx.Err() == nil {
			return nil, fmt.Errorf("wait for the end: %w", err)
		}
		if err == nil {
			seen = nil
			for _, t := range n.Tasks {
				seen = append(seen, fmt.Sprintf("%s %s → %s", t.Channel, attempts(t), state(t.Task)))
			}
		}
		open := 0
		for _, t := range n.Tasks {
			if !done(t) {
				open++
			}
		}
		if err == nil && open == 0 {
			return n.Tasks, nil
		}
		select {
		case <-e.ctx.Done():
			return nil, fmt.Errorf("it was not done in time: %s", strings.Join(seen, "; "))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// taken is how often the other side took a task's message.
func (st *stage) taken(t api.Task) (n int64, err error) {
	key := t.ID.Key()
	switch t.Channel {
	case "email":
		for _, m := range st.box.Mails() {
			if strings.Contains(m.MessageID, key) {
				n++
			}
		}
	case "webhook":
		for _, h := range st.box.Hooks() {
			if h.ID == key {
				n++
			}
		}
	default:
		counts, err := st.box.Doubles.Counts("", key)
		return counts.Sends, err
	}
	return n, nil
}
