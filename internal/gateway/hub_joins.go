// Users who joined conversations that have no feed here.

package gateway

import (
	"context"
	"sync"

	"github.com/tidings-project/tidings/internal/wire"
)

// maxJoins is how many conversations with new members wait to be looked at. What is beyond is found by walking through the
// memberships.
const maxJoins = 1 << 14

// joins are users who joined conversations that have no feed here.
type joins struct {
	mu    sync.Mutex
	users map[string][]*user // by conversation
	due   signal
	over  bool // some were dropped
}

func (j *joins) init() { j.users, j.due = map[string][]*user{}, newSignal() }

func (j *joins) add(conv string, u *user) {
	j.mu.Lock()
	if _, known := j.users[conv]; known || len(j.users) < maxJoins {
		j.users[conv] = append(j.users[conv], u)
	} else {
		j.over = true
	}
	j.mu.Unlock()
	j.due.give()
}

func (j *joins) take() (users map[string][]*user, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	users, over = j.users, j.over
	j.users, j.over = map[string][]*user{}, false
	return users, over
}

// joinUsers seats users of whom a wake-up said that they have joined.
func (h *hub) joinUsers(ctx context.Context) {
	for h.joins.due.wait(ctx) {
		all, over := h.joins.take()
		var made []string
		for conv, users := range all {
			m, err := h.join(ctx, conv, users)
			if err != nil && ctx.Err() == nil {
				h.log.Warn("new members could not be looked up; the next comparison finds them", "conversation", conv, "error", err)
			}
			if m {
				made = append(made, conv)
			}
		}
		if err := h.settle(ctx, made); err != nil || over {
			h.behind.give()
			h.walk.give()
		}
	}
}

// join seats those of the users who are members. The feed begins before the first of their joins, so that these are pushed.
func (h *hub) join(ctx context.Context, conv string, users []*user) (made bool, err error) {
	byID, ids := make(map[string]*user, len(users)), make([]string, 0, len(users))
	for _, u := range users {
		if byID[u.id] == nil {
			byID[u.id], ids = u, append(ids, u.id)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	head, _, in, err := h.store.MembersAmong(ctx, conv, ids)
	if err != nil || len(in) == 0 {
		return false, err
	}
	first := head
	for i := range in {
		first = min(first, in[i].JoinSeq)
	}
	pos := beforeJoin(head, first)
	for i := range in {
		u := byID[in[i].User]
		p := h.place(u, &in[i], pos, true)
		made = made || p.made
		if p.fresh {
			u.send(func() []byte { return wire.AppendJoined(nil, conv, in[i].Epoch, in[i].JoinSeq) })
		}
	}
	return made, nil
}

// beforeJoin is where a feed begins that is made for a new member: before the join, so that it is pushed with what follows, or at
// the head when that is too much.
func beforeJoin(head, join int64) int64 {
	if head-join >= farBehind {
		return head
	}
	return join - 1
}
