// A device that connects to two gateways at about the same time, again and again.

package lab_test

import (
	"math/rand/v2"
	"sync"
	"time"
)

// random is a source of numbers of its own for one of several that run together.
func random(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// restless is a user with one device, which is at a gateway or at two of them for a moment.
type restless struct {
	c     *chat
	user  string
	nodes []*node
	lost  int // rounds in which a route was swept
}

// contact is one connection of the device.
type contact struct {
	peer    *peer
	welcome frame
}

// round connects to both gateways, in some order and as close together as it happens, perhaps while the route is swept, and tells
// whether one owner is left, which lives, and the other connection was closed.
func (d *restless) round(r *rand.Rand) bool {
	first, gap, sweep := r.IntN(2), time.Duration(r.IntN(3))*time.Millisecond, r.IntN(32)
	var made [2]contact
	if sweep == 0 { // the older one has its route and loses it before the newer one comes
		made[0] = d.connect(d.nodes[first])
		d.c.sweeps(d.user)
		made[1] = d.connect(d.nodes[1-first])
	} else {
		var both sync.WaitGroup
		both.Go(func() { made[0] = d.connect(d.nodes[first]) })
		both.Go(func() {
			time.Sleep(gap) // what is earlier is random anyway
			made[1] = d.connect(d.nodes[1-first])
		})
		both.Wait()
	}
	if sweep == 1 {
		d.c.sweeps(d.user)
	}
	if sweep < 2 {
		d.lost++
	}
	defer func() {
		for _, m := range made {
			if m.peer != nil && (m.peer.over() || r.IntN(4) > 0) { // the others are there when the next ones come
				m.peer.drop()
			}
		}
	}()
	for _, m := range made {
		if m.welcome.t() != "welcome" && m.welcome.t() != "closed" {
			d.c.Errorf("connect %s: %v", d.user, m.welcome)
			return false
		}
	}
	for deadline := time.Now().Add(3 * soon); ; pauseABit() {
		owner := d.owner(made)
		if owner >= 0 && made[1-owner].peer.over() {
			return d.alive(made[owner], made[1-owner])
		}
		if time.Now().After(deadline) {
			d.c.Errorf("%s has no owner alone: the route is that of connection %d, ended %v and %v", d.user, owner, made[0].peer.over(), made[1].peer.over())
			return false
		}
	}
}

// connect opens a connection of the device, which a newer one may close before its welcome.
func (d *restless) connect(n *node) (made contact) {
	p, _, err := n.open()
	if err != nil {
		d.c.Errorf("open a WebSocket: %v", err)
		return made
	}
	return contact{p, p.hello(token(d.user), d.user+"-d", d.user+"-install")}
}

// owner is the connection that has the device's newest route: 0, 1, or -1 for neither.
func (d *restless) owner(made [2]contact) int {
	var connection string
	err := d.c.pool.QueryRow(d.c.ctx, `SELECT coalesce((SELECT r.connection_id::text FROM tidings.route r JOIN tidings.device d ON d.user_id = r.user_id AND d.device_id = r.device_id
		WHERE r.user_id = $1 AND r.version = d.connects), '')`, d.user).Scan(&connection)
	if err != nil {
		d.c.Errorf("look for a route: %v", err)
	}
	for i, m := range made {
		if connection != "" && m.welcome.str("connection") == connection {
			return i
		}
	}
	return -1
}

// alive tells whether the owner is served, and the other was closed because of it.
func (d *restless) alive(owner, other contact) bool {
	answer, code := owner.peer.ask(frame{"t": "conversations"}), other.peer.closed(soon).num("close")
	if answer.t() != "conversations" || code != 4404 {
		d.c.Errorf("%s: the owner answers %v, the other was closed with %d", d.user, answer, code)
		return false
	}
	return true
}

// over tells whether the connection has ended.
func (p *peer) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended != nil
}
