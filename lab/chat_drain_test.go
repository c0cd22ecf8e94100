// The check 10-sigterm-drain.

package lab_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "10-sigterm-drain",
		Expect: "a gateway with 12 devices, 2 of them under load, gets SIGTERM: new connections get 503 with Retry-After and /readyz says no; each device is told another instant " +
			"within the drain of 2 s and closed with 4001 then, one whose request is unanswered when it is answered; what is sent meanwhile is stored; nothing that was sent is lost, " +
			"clients go on at the other gateway; the process exits with 0 within 10 s and leaves no route",
		Run: sigtermDrain,
	})
}

// farewell is what a device saw of the end of its gateway.
type farewell struct {
	hint   time.Duration // when to connect again, as it was told
	closed time.Time
	code   int64
}

// farewell waits until the device was told that the gateway stops, and was closed.
func (p *peer) farewell() (f farewell) {
	p.c.Helper()
	f.hint = p.drainHint()
	f.code = p.closed(2 * soon).num("close")
	f.closed = time.Now()
	return f
}

// drainHint waits until the device is told that its gateway stops.
func (p *peer) drainHint() (hint time.Duration) {
	p.c.Helper()
	p.wait("draining at "+p.dev, soon, func() bool {
		i := slices.IndexFunc(p.pushes, func(f frame) bool { return f.t() == "draining" })
		if i >= 0 {
			hint = time.Duration(p.pushes[i].num("reconnect_after_ms")) * time.Millisecond
		}
		return i >= 0
	})
	return hint
}

// turnedAway records that a gateway that stops takes no connection and says when to come back.
func (n *node) turnedAway() {
	c := n.c
	c.Helper()
	_, response, err := n.open()
	if response == nil {
		c.Fatalf("open a WebSocket at a gateway that stops: %v", err)
	}
	status := func(r *http.Response) []any {
		seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
		return []any{r.StatusCode, r.Header.Get("Content-Type"), err == nil && seconds > 0}
	}
	refused := []any{http.StatusServiceUnavailable, "application/problem+json", true}
	c.Equal("a new connection: status, type, a Retry-After", refused, status(response))
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		r, err := http.Get(n.url + path)
		c.Must("ask "+path, err)
		_ = r.Body.Close()
		if c.Equal(path, want, r.StatusCode); want != http.StatusOK {
			c.Equal(path+": status, type, a Retry-After", refused, status(r))
		}
	}
}

func sigtermDrain(t *lab.T) {
	const drain, leeway = 2 * time.Second, 5 * time.Second // leeway is a busy machine's
	c := newChat(t)
	quick := with("TIDINGS_GATEWAY_RATE", "100000")
	f := fleet{c.node("a", quick, with("TIDINGS_GATEWAY_DRAIN", drain.String())), c.node("b", quick)}
	a := f[0]
	w := f.talk(4)
	a.conversation("c-busy", "ana")
	a.conversation("c-free", "ana")
	peers := []*peer{a.device("ana", "ana-busy")}
	for i := range 9 {
		peers = append(peers, a.device("ana", fmt.Sprint("ana-", i)))
	}
	busy, idle := peers[0], peers[1:]
	w.more(20, 0, 1, 2, 3)
	id := c.gateway("ana")
	c.True("two of the clients are at the gateway that is to stop", c.gateway("user-0") == id && c.gateway("user-2") == id && c.gateway("user-1") != id)

	leave := c.occupy("c-busy")
	rid := busy.send(message("c-busy", "m-1", "unanswered when the gateway is to stop"))
	c.standing()
	term := time.Now()
	c.Fault(a.Terminate())
	var last *peer // of the devices that are idle, the one that is closed last
	hints, latest := []time.Duration{busy.drainHint()}, time.Duration(0)
	for _, p := range idle {
		hints = append(hints, p.drainHint())
		if hint := hints[len(hints)-1]; hint > latest {
			last, latest = p, hint
		}
	}
	sentLate := last.ask(message("c-free", "m-2", "sent while the gateway stops")).t()
	a.turnedAway()
	c.Equal("a message that is sent while the gateway stops", "sent", sentLate)
	slices.Sort(hints)
	c.Equal("different hints", len(peers), len(slices.Compact(slices.Clone(hints))))
	c.True("hints within the drain", hints[0] > 0 && hints[len(hints)-1] <= drain)

	ends := make([]farewell, len(idle))
	c.Together("devices that are closed", len(idle), func(i int) { ends[i] = idle[i].farewell() })
	early, latestEnd := 0, time.Duration(0)
	for i, end := range ends {
		c.Equal("close code of "+idle[i].dev, 4001, end.code)
		if end.closed.Sub(term) < end.hint {
			early++
		}
		latestEnd = max(latestEnd, end.closed.Sub(term)-end.hint)
	}
	c.Equal("devices that were closed before the instant that they were told", 0, early)
	c.Within("the most that a device was closed after it", leeway, latestEnd)
	c.Until("the instant of the busy one is over", soon, func() bool { return time.Since(term) > drain+100*time.Millisecond })
	c.True("the one with an unanswered request is open and waits", busy.unanswered(rid))
	leave()
	c.Equal("it is answered", "sent", busy.reply(rid).t())
	c.Equal("and closed with", 4001, busy.closed(soon).num("close"))
	c.True("the process exits with 0", a.Exit(soon).Success())
	took := time.Since(term)
	c.Within("from SIGTERM to the exit", 10*time.Second, took)
	c.Figure("from SIGTERM to the exit", float64(took.Milliseconds()), "ms")

	w.more(20, 0, 1, 2, 3)
	for _, i := range []int{0, 2} {
		codes := []int{}
		for _, u := range w.apps[i].told() {
			if s, ok := u.(client.Connection); ok && s.State == client.Offline {
				codes = append(codes, s.Code)
			}
		}
		c.Equal(fmt.Sprintf("close codes that client %d was told of", i), []int{4001}, codes)
	}
	w.judge()
	c.Equal("rows of what was unanswered, and sent late", []int{1, 1}, []int{len(c.seqs("c-busy", "ana", "m-1")), len(c.seqs("c-free", "ana", "m-2"))})
	c.Equal("routes and rows of the gateway that stopped", []int{0, 0}, []int{one[int](c.scene, `SELECT count(*) FROM tidings.route WHERE gateway_id = $1`, id),
		one[int](c.scene, `SELECT count(*) FROM tidings.gateway WHERE gateway_id = $1`, id)})
}
