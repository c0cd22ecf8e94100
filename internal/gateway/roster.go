// The gateway's sessions, counted and found.

package gateway

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
)

// roster are the gateway's sessions, from the upgrade to the end of their readers, and the limits on their number.
type roster struct {
	mu       sync.Mutex
	serving  bool                  // sockets are taken
	places   int                   // sockets that are taken or about to be
	greeting int                   // those of them without a valid hello
	all      map[*session]struct{} // for the ticker and the drain
	users    map[string][]*session // those that have said hello
}

func (r *roster) init() {
	r.all, r.users = map[*session]struct{}{}, map[string][]*session{}
}

func (r *roster) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = true
}

func (r *roster) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving
}

// shut takes no more sockets. Those whose place was reserved before may still come.
func (r *roster) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = false
}

// reserve takes a place for a socket, or says that there is none: UNAVAILABLE.
func (r *roster) reserve(limit, greeting int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.serving:
		return unavailable("the gateway is not serving")
	case r.places >= limit:
		return unavailable("the gateway has as many connections as it takes")
	case r.greeting >= greeting:
		return unavailable("too many connections are being opened")
	}
	r.places++
	r.greeting++
	return nil
}

// cancel gives back a place that was reserved.
func (r *roster) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places--
	r.greeting--
}

// add puts a session on the place that was reserved for it and starts its reader, unless the gateway has stopped meanwhile.
func (r *roster) add(s *session, start func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.serving {
		return false
	}
	r.all[s] = struct{}{}
	start()
	return true
}

// join counts a session whose user is known. A user can have limit devices; a connection of a device replaces its former one.
func (r *roster) join(s *session, limit int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := 0
	for _, o := range r.users[s.user] {
		if o.device != s.device && o.at() < closing {
			others++
		}
	}
	if others >= limit {
		return &tidings.Error{Code: tidings.RateLimited, Message: "the user has too many connections", RetryAfter: time.Minute}
	}
	r.greeting--
	r.users[s.user] = append(r.users[s.user], s)
	return nil
}

// leave ends what add and join began.
func (r *roster) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
	r.places--
	of := r.users[s.user]
	for i, o := range of {
		if o != s {
			continue
		}
		if len(of) == 1 {
			delete(r.users, s.user)
		} else {
			r.users[s.user] = append(of[:i:i], of[i+1:]...)
		}
		return
	}
	r.greeting-- // it never joined
}

// each calls fn for every session. It must not come back to the roster.
func (r *roster) each(fn func(*session)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		fn(s)
	}
}

// shuffled are all sessions in a random order.
func (r *roster) shuffled() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*session, 0, len(r.all))
	for s := range r.all {
		list = append(list, s)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (r *roster) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// unavailable is a refusal that may be repeated soon.
func unavailable(message string) error {
	return &tidings.Error{Code: tidings.Unavailable, Message: message, RetryAfter: time.Second}
}

// of are a user's sessions. The caller must not change them.
func (r *roster) of(user string) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.users[user]
}
