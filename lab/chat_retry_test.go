// The check 28-retry-after.

package lab_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "28-retry-after",
		Expect: "a gateway that stops tells its clients when to connect again; each knocks once at that instant or up to 1 s later, and as its door still leads there gets 503 with " +
			"Retry-After, waits at least so long and at most 1 s longer before it knocks again, each time, and is served when the door leads to another gateway, where what it queued is stored",
		Run: waitsAsAsked,
	})
}

// door is where clients connect, and leads to one node. It knows when they knock and what they are told.
type door struct {
	c   *chat
	url string

	mu     sync.Mutex
	node   *node
	knocks map[string][]knock // by client, which the path names
	asked  map[string]time.Time
	hints  map[string]time.Duration // of the frame draining, that came at asked
}

// knock is an attempt to connect, and its answer.
type knock struct {
	at     time.Time
	status int
	later  time.Duration // Retry-After
}

// door puts a door in front of the node.
func (n *node) door() *door {
	n.c.Helper()
	d := &door{c: n.c, node: n, knocks: map[string][]knock{}, asked: map[string]time.Time{}, hints: map[string]time.Duration{}}
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		d.serve(w, r)
	}))
	n.c.Cleanup(func() { server.Close(); serving.Wait() }) // the clients, which came later, are gone by then
	d.url = server.URL
	return d
}

// to leads to another node from now on.
func (d *door) to(n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.node = n
}

func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	who := strings.Trim(r.URL.Path, "/")
	k := knock{at: time.Now()}
	d.mu.Lock()
	url := strings.Replace(d.node.url, "http", "ws", 1) + "/v1/ws"
	d.mu.Unlock()
	protocol := []string{"tidings.v1"}
	dialer := websocket.Dialer{Subprotocols: protocol, HandshakeTimeout: soon}
	there, response, err := dialer.DialContext(d.c.ctx, url, nil)
	if response != nil {
		k.status = response.StatusCode
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		k.later = time.Duration(seconds) * time.Second
	}
	d.mu.Lock()
	d.knocks[who] = append(d.knocks[who], k)
	d.mu.Unlock()
	switch {
	case err == nil:
	case response == nil:
		w.WriteHeader(http.StatusBadGateway)
		return
	default: // a refusal is passed on as it is
		maps.Copy(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
		return
	}
	defer there.Close()
	upgrader := websocket.Upgrader{Subprotocols: protocol}
	here, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer here.Close()
	var back sync.WaitGroup
	back.Go(func() {
		pass(there, here, func(f frame, raw []byte) [][]byte {
			if f.t() == "draining" {
				d.mu.Lock()
				d.asked[who], d.hints[who] = time.Now(), time.Duration(f.num("reconnect_after_ms"))*time.Millisecond
				d.mu.Unlock()
			}
			return [][]byte{raw}
		})
	})
	pass(here, there, func(_ frame, raw []byte) [][]byte { return [][]byte{raw} })
	back.Wait()
}

// seen are a client's knocks so far.
func (d *door) seen(who string) []knock {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]knock(nil), d.knocks[who]...)
}

func waitsAsAsked(t *lab.T) {
	const much = time.Second // what a wait may be longer than asked, on a busy machine
	c := newChat(t)
	a, b := c.node("a", with("TIDINGS_GATEWAY_DRAIN", "1s")), c.node("b")
	a.conversation("c-1", "ana", "ben", "cid")
	front := a.door()
	apps := map[string]*app{}
	for _, user := range []string{"ben", "cid"} {
		apps[user] = c.app(front.url+"/"+user, user, user+"-1")
		apps[user].becomes(client.Online)
	}
	// A message that is not answered keeps the process: it stops and still says so.
	ana := a.device("ana", "ana-1")
	leave := c.occupy("c-1")
	rid := ana.send(message("c-1", "m-1", "unanswered"))
	c.standing()
	c.Fault(a.Terminate())
	queued := map[string]*client.Pending{}
	for user, app := range apps {
		c.Until(user+" was turned away twice", 2*soon, func() bool { return len(front.seen(user)) >= 3 })
		queued[user] = app.queue("c-1", "m-"+user, "queued while no gateway takes it")
	}
	c.True("the process that stops is still there for one who waits", ana.unanswered(rid))
	front.to(b)
	leave()
	c.Equal("what it was asked before is answered", "sent", ana.reply(rid).t())
	for user, app := range apps {
		sent := app.answered(queued[user])
		c.Equal("the message of "+user+" has one row, at its seq", []int64{sent.Seq}, c.seqs("c-1", user, "m-"+user))
		c.waited(front, user, much)
	}
	c.True("the process exits with 0", a.Exit(soon).Success())
	c.whole()
}

// waited records how a client waited before each knock but the first.
func (c *chat) waited(front *door, user string, much time.Duration) {
	c.Helper()
	knocks := front.seen(user)
	front.mu.Lock()
	last, asked, what := front.asked[user], front.hints[user], "the hint"
	front.mu.Unlock()
	refused, early := 0, 0
	for i, k := range knocks[1:] {
		if i > 0 {
			last, asked, what = knocks[i].at, knocks[i].later, "Retry-After"
			c.Equal(fmt.Sprintf("%s, knock %d: status, a Retry-After", user, i+1), []any{http.StatusServiceUnavailable, true}, []any{knocks[i].status, asked > 0})
			refused++
		}
		if wait := k.at.Sub(last); wait < asked-time.Millisecond { // a hint is rounded down to whole milliseconds
			c.Errorf("%s: knocked %v after it was asked by %s to wait %v", user, wait, what, asked)
			early++
		}
		c.Within(fmt.Sprintf("%s, knock %d: longer than %v by %s", user, i+2, asked, what), much, k.at.Sub(last)-asked)
	}
	c.Equal(user+": knocks that came too early", 0, early)
	c.Equal(user+": the last knock is served", http.StatusSwitchingProtocols, knocks[len(knocks)-1].status)
	c.True(user+": was turned away at least twice", refused >= 2)
	c.Examined("waits", len(knocks)-1)
}
