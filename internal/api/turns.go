// Keeps requests that wait for a conversation's lock from holding connections.

package api

import (
	"context"
	"sync"

	"github.com/tidings-project/tidings"
)

// writersAtOnce is how many requests of one conversation may be at the database at once: its lock lets one through at a time, and the
// others would only hold connections.
const writersAtOnce = 4

// turns lets requests that need a conversation's lock wait without a connection, so that a conversation that somebody holds keeps
// no other request from the database. MaxInFlight bounds those that wait.
type turns struct {
	mu    sync.Mutex
	convs map[string]*turn
}

type turn struct {
	free  chan struct{}
	users int // that wait or work
}

// take waits for a turn and returns how to end it. The error is UNAVAILABLE when ctx ends first: nothing was asked of the database.
func (t *turns) take(ctx context.Context, conv string) (end func(), err error) {
	t.mu.Lock()
	if t.convs == nil {
		t.convs = map[string]*turn{}
	}
	at := t.convs[conv]
	if at == nil {
		at = &turn{free: make(chan struct{}, writersAtOnce)}
		t.convs[conv] = at
	}
	at.users++
	t.mu.Unlock()
	left := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(t.convs, conv)
		}
	}
	select {
	case at.free <- struct{}{}:
		return func() { <-at.free; left() }, nil
	case <-ctx.Done():
		left()
		return nil, &tidings.Error{Code: tidings.Unavailable, Message: "too many requests wait for this conversation", Err: context.Cause(ctx)}
	}
}
