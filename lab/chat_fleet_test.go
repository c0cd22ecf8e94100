// A fleet of gateways under load by the client library, and the check 10-sigkill-recovery.

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "10-sigkill-recovery",
		Expect: "6 clients at 2 gateways send without pause; one gateway is killed when a message of its is committed and not answered: its clients go on at the other, every message " +
			"that was sent is at its seq, every cmid has one row, that one is answered with dup=true, and each client was told the log, every event once and in order",
		Run: sigkillRecovery,
	})
}

// fleet is several gateways behind one address: a connection goes to the one that is preferred, or to the next that says it is ready, as
// behind a load balancer that asks.
type fleet []*node

// prefer lets a client connect to node first, as long as that is ready.
func (f fleet) prefer(first int) func(*client.Config) {
	return func(config *client.Config) {
		config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			for i := range f {
				n := f[(first+i)%len(f)]
				if n.ready(ctx) {
					var d net.Dialer
					return d.DialContext(ctx, network, strings.TrimPrefix(n.url, "http://"))
				}
			}
			return nil, errors.New("no gateway is ready")
		}
	}
}

// ready tells what /readyz says.
func (n *node) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// talk is what clients say to each other while something happens to their gateways.
type talk struct {
	c     *chat
	convs []string
	apps  []*app

	over      atomic.Bool
	running   sync.WaitGroup
	confirmed []atomic.Int64 // by client

	mu   sync.Mutex
	sent map[string]client.Sent // by cmid
}

// talk makes n clients, every second one of which prefers each of two gateways, who are members of some conversations, and has them send
// one message after the other, each when the one before is answered, until quiet.
func (f fleet) talk(n int) *talk {
	c := f[0].c
	c.Helper()
	w := &talk{c: c, convs: []string{"c-1", "c-2"}, confirmed: make([]atomic.Int64, n), sent: map[string]client.Sent{}}
	var users []string
	for i := range n {
		users = append(users, fmt.Sprint("user-", i))
	}
	for _, conv := range w.convs {
		f[0].conversation(conv, users...)
	}
	for i, user := range users {
		w.apps = append(w.apps, c.app(f[0].url, user, user+"-d", f.prefer(i%2)))
	}
	for i, a := range w.apps {
		a.becomes(client.Online)
		w.running.Go(func() { w.say(i) })
	}
	c.Cleanup(w.quiet)
	return w
}

func (w *talk) say(i int) {
	ctx, cancel := context.WithTimeout(w.c.ctx, time.Minute)
	defer cancel()
	for k := 0; !w.over.Load(); k++ {
		m := client.Message{Conv: w.convs[k%len(w.convs)], Cmid: fmt.Sprintf("m-%d-%d", i, k), Body: "under load"}
		p, err := w.apps[i].Send(m)
		var sent client.Sent
		if err == nil {
			sent, err = p.Wait(ctx)
		}
		if err != nil {
			w.c.Errorf("send %s: %v", m.Cmid, err)
			return
		}
		w.mu.Lock()
		w.sent[m.Cmid] = sent
		w.mu.Unlock()
		w.confirmed[i].Add(1)
	}
}

// more waits until each of the clients has been answered n more messages.
func (w *talk) more(n int64, clients ...int) {
	w.c.Helper()
	for _, i := range clients {
		want := w.confirmed[i].Load() + n
		w.c.Until(fmt.Sprintf("%d more answers to client %d", n, i), 2*soon, func() bool { return w.confirmed[i].Load() >= want })
	}
}

// quiet ends the talk when the last message is answered.
func (w *talk) quiet() {
	w.over.Store(true)
	w.running.Wait()
}

// judge ends the talk and compares what was answered and what arrived with the log.
func (w *talk) judge() {
	c := w.c
	c.Helper()
	w.quiet()
	rows, twice, elsewhere := map[string]int64{}, 0, 0
	for _, conv := range w.convs {
		log := c.log(conv)
		for _, e := range log {
			if e.kind != "msg" {
				continue
			}
			if _, known := rows[e.cmid]; known {
				twice++
			}
			rows[e.cmid] = e.seq
		}
		apart := 0
		for i, a := range w.apps {
			visible := log[i:] // from its own join on
			c.Until("all of "+conv+" has arrived at "+a.User(), 2*soon, func() bool { return len(a.arrived(conv)) >= len(visible) })
			apart += differences(visible, a.copied(conv, 0))
		}
		c.Equal("events of "+conv+" that clients were not told, or not once and in order", 0, apart)
	}
	for cmid, sent := range w.sent {
		if rows[cmid] != sent.Seq {
			elsewhere++
		}
	}
	c.Equal("sent messages that are not at their seq", 0, elsewhere)
	c.Equal("messages that are there twice", 0, twice)
	c.Equal("messages that nobody was told of", 0, len(rows)-len(w.sent))
	ends := 0
	for _, a := range w.apps {
		for _, u := range a.told() {
			if _, ok := u.(client.Ended); ok {
				ends++
			}
		}
	}
	c.Equal("final answers that applications were told", len(w.sent), ends)
	c.Examined("sent messages", len(w.sent))
	c.whole()
}

// unanswered are the messages of clients that are stored and were not answered.
func (w *talk) unanswered(clients ...int) (cmids []string) {
	for _, i := range clients {
		for _, m := range w.apps[i].Waiting() {
			if len(w.c.seqs(m.Conv, w.apps[i].User(), m.Cmid)) > 0 {
				cmids = append(cmids, m.Cmid)
			}
		}
	}
	return cmids
}

// held are the unanswered messages whose answer is not merely on its way: the same ones for a second, while other clients were answered.
func (w *talk) held(clients ...int) []string {
	same, since := w.unanswered(clients...), time.Now()
	for len(same) > 0 && time.Since(since) < time.Second {
		time.Sleep(20 * time.Millisecond) // between two looks
		if now := w.unanswered(clients...); !slices.Equal(now, same) {
			same, since = now, time.Now()
		}
	}
	return same
}

// dups counts the answers that say that an earlier transmission had stored the message.
func (w *talk) dups() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		if s.Dup {
			n++
		}
	}
	return n
}

// gateway is the gateway at which a user's devices are, the first by its id; "" for none.
func (c *chat) gateway(user string) string {
	c.Helper()
	return one[string](c.scene, `SELECT coalesce(min(gateway_id), '') FROM tidings.route WHERE user_id = $1`, user)
}

func sigkillRecovery(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	quick := with("TIDINGS_GATEWAY_RATE", "100000")
	f := fleet{c.node("a", quick, through(way)), c.node("b", quick)}
	w := f.talk(6)
	w.more(20, 0, 1, 2, 3, 4, 5)
	dead, left := c.gateway("user-0"), c.gateway("user-1")
	c.True("the clients are at two gateways", dead != left && dead == c.gateway("user-2") && left == c.gateway("user-5"))

	before, unanswered := w.dups(), 0
	for {
		trap := way.Arm(pgproxy.Rule{What: "the send", Match: theSend, When: pgproxy.After, Do: pgproxy.Hold})
		receipt := trap.Wait(soon)
		if unanswered = len(w.held(0, 2, 4)); unanswered > 0 {
			c.Fault(receipt)
			break
		}
		trap.Release() // nothing was stored: the other gateway had the conversations
	}
	c.Fault(f[0].Kill())
	killed := time.Now()
	c.Fault(fault.New("unanswered", "messages of clients of the killed gateway", fmt.Sprintf("%d were committed, and not answered when it was killed", unanswered)))
	w.more(1, 0, 2, 4)
	c.Figure("from the kill until each of its clients was answered again", float64(time.Since(killed).Milliseconds()), "ms")
	w.more(20, 0, 1, 2, 3, 4, 5)
	w.judge()
	c.True("what was unanswered was answered with dup=true", w.dups() > before)
	c.Figure("messages", float64(len(w.sent)), "")
	at := map[string]int{}
	for _, a := range w.apps {
		at[c.gateway(a.User())]++
	}
	c.Equal("devices at the gateway that is left", 6, at[left])
}
