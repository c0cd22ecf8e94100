// The child processes together: an API with the worker, and two gateways.

package front

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"github.com/tidings-project/tidings/internal/server"
)

// Children are the processes that serve, each kept running until Stop.
type Children struct {
	all      []*child // api, and gateways
	api      *child
	gateways []*child
	http     *http.Client
	log      *journal

	endGateways, endAPI context.CancelFunc
	serving, calling    sync.WaitGroup // of the gateways, and of the API
}

// StartChildren starts the API with the worker, and the gateways a and b, and returns when all of them are ready. command makes a process of `tidings serve` with these
// arguments behind those that it has itself; what the processes say goes to stderr, each line with the name of its process in front.
func StartChildren(ctx context.Context, command func(args ...string) *exec.Cmd, stderr io.Writer) (*Children, error) {
	c := &Children{http: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, log: &journal{}}
	out := &shared{to: stderr}
	for _, n := range []struct{ name, title, roles string }{
		{"api", "api", server.RoleAPI + "," + server.RoleWorker}, {"a", "gateway a", server.RoleGateway}, {"b", "gateway b", server.RoleGateway},
	} {
		c.all = append(c.all, &child{name: n.name, title: n.title, roles: n.roles, command: command, http: c.http, log: out, tell: c.log.add, startNow: make(chan struct{}, 1), state: stateDown})
	}
	c.api, c.gateways = c.all[0], c.all[1:]
	// They are ended by Stop, in order, and not by ctx all at once.
	forAPI, endAPI := context.WithCancel(context.WithoutCancel(ctx))
	forGateways, endGateways := context.WithCancel(context.WithoutCancel(ctx))
	c.endAPI, c.endGateways = endAPI, endGateways
	started := make(chan error, len(c.all)) // one from each
	c.calling.Go(func() { c.api.keep(forAPI, started) })
	for _, g := range c.gateways {
		c.serving.Go(func() { g.keep(forGateways, started) })
	}
	for range c.all {
		var err error
		select {
		case err = <-started:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

// Stop ends the gateways, and then the API, in order, and returns when they are gone.
func (c *Children) Stop() {
	c.endGateways()
	c.serving.Wait()
	c.endAPI()
	c.calling.Wait()
	c.http.CloseIdleConnections()
}

// gateway finds one by its name; nil: there is none.
func (c *Children) gateway(name string) *child {
	for _, g := range c.gateways {
		if g.name == name {
			return g
		}
	}
	return nil
}

// pick is a gateway that serves, the preferred one if it does; nil: none does.
func (c *Children) pick(preferred string) *child {
	var other *child
	for _, g := range c.gateways {
		switch state, _ := g.now(); {
		case state != stateUp:
		case g.name == preferred:
			return g
		case other == nil:
			other = g
		}
	}
	return other
}

// await returns when every process that runs answers /readyz as is says, or ctx ends; then it returns those that do not.
func (c *Children) await(ctx context.Context, is func(status int, text string) bool) (others []*child) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		others = nil
		for _, p := range c.all {
			if state, _ := p.now(); state != stateUp {
				continue
			}
			if status, text := p.readyz(ctx); !is(status, text) {
				others = append(others, p)
			}
		}
		if len(others) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return others
		case <-ticker.C:
		}
	}
}
