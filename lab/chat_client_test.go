// Devices of the client library in a scene.

package lab_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidings-project/tidings/client"
)

// app is an application on a device: the client library, and what it was told.
type app struct {
	*client.Client
	c *chat

	mu      sync.Mutex
	updates []client.Update
}

// app opens a client of a user's device at a URL. Its pauses are short; change may say otherwise.
func (c *chat) app(url, user, device string, change ...func(*client.Config)) *app {
	c.Helper()
	a := &app{c: c}
	config := client.Config{URL: url, Device: device, Install: device + "-install", Name: "lab", Handle: a.handle, AckEvery: 20 * time.Millisecond,
		BackoffMin: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond,
		Token: func(context.Context) (client.Token, error) { return client.Token{Text: token(user)}, nil }}
	for _, f := range change {
		f(&config)
	}
	var err error
	a.Client, err = client.Open(config)
	c.Must("open a client", err)
	c.Cleanup(a.close)
	return a
}

func (a *app) close() {
	if err := a.Close(); err != nil {
		a.c.Errorf("close a client: %v", err)
	}
}

func (a *app) handle(u client.Update) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.updates = append(a.updates, u)
}

// told are the updates so far.
func (a *app) told() []client.Update {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.updates)
}

// becomes waits until the connection is in a state.
func (a *app) becomes(state client.State) {
	a.c.Helper()
	a.c.Until("the client is "+string(state), soon, func() bool { return a.State().State == state })
}

// arrived are the seqs of a conversation that have arrived, in the order in which they did.
func (a *app) arrived(conv string) (seqs []int64) {
	for _, u := range a.told() {
		if e, ok := u.(client.Arrived); ok && e.Event.Conv == conv {
			seqs = append(seqs, e.Event.Seq)
		}
	}
	return seqs
}

// queue puts a message into the outbox.
func (a *app) queue(conv, cmid, body string) *client.Pending {
	a.c.Helper()
	p, err := a.Send(client.Message{Conv: conv, Cmid: cmid, Body: body})
	a.c.Must("queue "+cmid, err)
	return p
}

// answered waits for the final answer to a message, which has to be that it is stored.
func (a *app) answered(p *client.Pending) client.Sent {
	a.c.Helper()
	ctx, cancel := context.WithTimeout(a.c.ctx, soon)
	defer cancel()
	sent, err := p.Wait(ctx)
	a.c.Must("send "+p.Cmid, err)
	return sent
}
