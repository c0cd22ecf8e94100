// The checks 09-per-device-delivered, 09-cursor-rollback, 09-reinstall, 09-read-does-not-fake-delivery.

package lab_test

import (
	"fmt"
	"net/http"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID:     "09-per-device-delivered",
		Expect: "two devices of a user and one that acknowledges over HTTP hold a delivered cursor each: in the answers, the lists and the database",
		Run:    perDeviceDelivered,
	})
	lab.Register(lab.Check{
		ID:     "09-cursor-rollback",
		Expect: "an ack below the stored one, over WebSocket and HTTP, is answered with the stored one and changes nothing; so is a read",
		Run:    cursorRollback,
	})
	lab.Register(lab.Check{
		ID: "09-reinstall",
		Expect: "a new install of a device has no delivered cursor and makes its own, below the former one's; the former install's acks and hellos are INSTALL_REPLACED, on a socket " +
			"that it still has (closed with 4410), on a new one and over HTTP, and change nothing; what the user has read stays",
		Run: reinstall,
	})
	lab.Register(lab.Check{
		ID:     "09-read-does-not-fake-delivery",
		Expect: "a user reads everything on one device, over WebSocket and HTTP: no delivered cursor moves or comes to be, neither the device's own nor another's",
		Run:    readIsNoDelivery,
	})
}

// cursors is a conversation with members ben and ana and the events 1 to head, at one gateway.
func cursors(t *lab.T, head int) (*chat, *node) {
	t.Helper()
	c := newChat(t)
	n := c.node("a")
	n.conversation("c-1", "ben", "ana")
	c.fill("c-1", "ana", "hello", head-2)
	return c, n
}

func cursorTo(t string, seq int64) frame { return frame{"t": t, "conv": "c-1", "seq": seq} }

// ack acknowledges over HTTP.
func (n *node) ack(user, device, install string, seq int64) answer {
	n.c.Helper()
	return n.as(user, http.MethodPut, "/v1/conversations/c-1/delivered", map[string]any{"device": device, "install": install, "seq": seq})
}

func perDeviceDelivered(t *lab.T) {
	c, n := cursors(t, 20)
	first, second := n.device("ben", "ben-1"), n.device("ben", "ben-2")
	c.Equal("ben-1 acks 5", 5, first.ask(cursorTo("ack", 5)).num("seq"))
	c.Equal("ben-2 acks 12", 12, second.ask(cursorTo("ack", 12)).num("seq"))
	c.Equal("ben-3 acks 3 over HTTP", 3, n.ack("ben", "ben-3", "i", 3).body.num("seq"))
	c.Equal("ben-1 acks 6", 6, first.ask(cursorTo("ack", 6)).num("seq"))
	want := []int64{6, 12, 3, 0}
	var stored, shown []int64
	for _, device := range []string{"ben-1", "ben-2", "ben-3", "ben-4"} {
		stored = append(stored, c.delivered("c-1", "ben", device))
		list := n.as("ben", http.MethodGet, "/v1/conversations?device="+device, nil).body.list("list")
		shown = append(shown, list[0].num("delivered"))
	}
	c.Equal("stored", want, stored)
	c.Equal("shown to each device", want, shown)
	c.Equal("shown over WebSocket", []int64{6, 12},
		[]int64{c.listed(first, n, "c-1").num("delivered"), c.listed(second, n, "c-1").num("delivered")})
	c.Equal("read meanwhile", 0, c.listed(first, n, "c-1").num("read"))
}

func cursorRollback(t *lab.T) {
	c, n := cursors(t, 20)
	ben := n.device("ben", "ben-1")
	for _, kind := range []string{"ack", "read"} {
		stored := func() int64 {
			if kind == "ack" {
				return c.delivered("c-1", "ben", "ben-1")
			}
			return c.readCursor("c-1", "ben")
		}
		ben.ask(cursorTo(kind, 15))
		for _, seq := range []int64{14, 1, 15} {
			f := ben.ask(cursorTo(kind, seq))
			c.Equal(fmt.Sprintf("%s %d after 15: code, seq", kind, seq), []any{"", 15}, []any{f.code(), f.num("seq")})
			c.Equal(fmt.Sprintf("%s %d after 15: stored", kind, seq), 15, stored())
		}
		path, body := "/read", map[string]any{"seq": 2}
		if kind == "ack" {
			path, body = "/delivered", map[string]any{"seq": 2, "device": "ben-1", "install": "ben-1-install"}
		}
		a := n.as("ben", http.MethodPut, "/v1/conversations/c-1"+path, body)
		c.Equal(kind+" 2 over HTTP: status, seq", []any{200, 15}, []any{a.status, a.body.num("seq")})
		c.Equal(kind+" 2 over HTTP: stored", 15, stored())
		c.Equal(kind+" 16: seq", 16, ben.ask(cursorTo(kind, 16)).num("seq"))
	}
}

func reinstall(t *lab.T) {
	c, n := cursors(t, 20)
	old := n.device("ben", "ben-1", "first")
	c.Equal("the first install acks 15", 15, old.ask(cursorTo("ack", 15)).num("seq"))
	old.ask(cursorTo("read", 10))
	state := func() []int64 {
		c.Helper()
		return []int64{c.delivered("c-1", "ben", "ben-1"), c.readCursor("c-1", "ben")}
	}

	// The second install is first heard of over HTTP, so that the first one still has its socket.
	c.Equal("the second install acks 2 over HTTP", 2, n.ack("ben", "ben-1", "second", 2).body.num("seq"))
	c.Equal("stored: delivered, read", []int64{2, 10}, state())
	f := old.ask(cursorTo("ack", 18))
	c.Equal("an ack of the first install on its socket", "INSTALL_REPLACED", f.code())
	c.Equal("its socket is closed with", 4410, old.closed(soon).num("close"))
	a := n.ack("ben", "ben-1", "first", 18)
	c.Equal("over HTTP: status, code", []any{http.StatusConflict, "INSTALL_REPLACED"}, []any{a.status, a.body.code()})
	p, _, err := n.open()
	c.Must("open a WebSocket", err)
	c.Equal("its hello", "INSTALL_REPLACED", p.hello(token("ben"), "ben-1", "first").code())
	c.Equal("the new socket is closed with", 4410, p.closed(soon).num("close"))
	c.Equal("stored after all that: delivered, read", []int64{2, 10}, state())

	next := n.device("ben", "ben-1", "second")
	row := c.listed(next, n, "c-1")
	c.Equal("the second install's list: delivered, read", []int64{2, 10}, []int64{row.num("delivered"), row.num("read")})
	c.Equal("it acks 7", 7, next.ask(cursorTo("ack", 7)).num("seq"))
	c.Equal("it acks 3", 7, next.ask(cursorTo("ack", 3)).num("seq"))

	third := n.device("ben", "ben-1", "third")
	c.Equal("the second one's socket is closed with", 4404, next.closed(soon).num("close"))
	row = c.listed(third, n, "c-1")
	c.Equal("the third install's list: delivered, read", []int64{0, 10}, []int64{row.num("delivered"), row.num("read")})
	c.Equal("it acks 1", 1, third.ask(cursorTo("ack", 1)).num("seq"))
	c.Equal("an ack of the second install over HTTP", "INSTALL_REPLACED", n.ack("ben", "ben-1", "second", 20).body.code())
	c.Equal("stored in the end: delivered, read", []int64{1, 10}, state())
}

func readIsNoDelivery(t *lab.T) {
	c, n := cursors(t, 20)
	first, second := n.device("ben", "ben-1"), n.device("ben", "ben-2")
	second.ask(cursorTo("ack", 4))
	devices := func() []int64 {
		c.Helper()
		return []int64{c.delivered("c-1", "ben", "ben-1"), c.delivered("c-1", "ben", "ben-2")}
	}
	c.Equal("before", []int64{0, 4}, devices())
	c.Equal("ben-1 reads to 12", 12, first.ask(cursorTo("read", 12)).num("seq"))
	c.Equal("delivered after a read on ben-1", []int64{0, 4}, devices())
	a := n.as("ben", http.MethodPut, "/v1/conversations/c-1/read", map[string]any{"seq": 20})
	c.Equal("read to 20 over HTTP", 20, a.body.num("seq"))
	c.Equal("delivered after a read over HTTP", []int64{0, 4}, devices())
	rows := c.exec(`UPDATE tidings.delivered SET seq = seq WHERE conv_id = 'c-1'`)
	c.Equal("rows of delivered cursors", 1, rows)
	for i, p := range []*peer{first, second} {
		row := c.listed(p, n, "c-1")
		c.Equal(p.dev+"'s list: delivered, read, unread", []int64{devices()[i], 20, 0}, []int64{row.num("delivered"), row.num("read"), row.num("unread")})
	}
	c.Equal("ben-1 acks 8", 8, first.ask(cursorTo("ack", 8)).num("seq"))
}
