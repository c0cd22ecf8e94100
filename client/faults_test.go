// Tests of the client over a bad network and under a slow application.

package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

// cutter makes connections that can be cut from outside.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
	cuts  int
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0) // what is under way is lost
		if conn.Close() == nil {
			c.cuts++
		}
	}
	c.conns = nil
}

// TestCutConnectionsLoseAndRepeatNothing cuts the connections again and again while two clients talk. Each message is stored once, in
// the order in which its sender sent it, and both have the same log.
func TestCutConnectionsLoseAndRepeatNothing(t *testing.T) {
	h := newHouse(t)
	h.create("c-g", "u-ana", "u-ben")
	var cuts cutter
	var clients []*client.Client
	var logs []*heard
	for _, user := range []string{"u-ana", "u-ben"} {
		c, all := h.client(user, "d-"+user, func(cfg *client.Config) {
			cfg.Outbox, cfg.Dial, cfg.BackoffMax = filepath.Join(t.TempDir(), "outbox"), cuts.dial, 20*time.Millisecond
		})
		clients, logs = append(clients, c), append(logs, all)
	}
	const n = 60
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sending sync.WaitGroup
	for _, c := range clients {
		sending.Go(func() {
			for i := range n {
				p, err := c.Send(client.Message{Conv: "c-g", Cmid: fmt.Sprint("m-", i), Body: "text"})
				if err != nil {
					t.Error(err)
					return
				}
				if i%4 == 0 {
					if _, err := p.Wait(ctx); err != nil {
						t.Error(err)
					}
				}
			}
			if err := c.Flush(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for next := 0; ; { // after each cut some messages get through, however slow the machine is
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(1+rand.IntN(5)) * time.Millisecond):
			}
			ended := 0
			for _, all := range logs {
				for _, u := range all.updates() {
					switch u := u.(type) {
					case client.Ended:
						ended++
					case client.Connection:
						if u.State == client.Stopped {
							t.Errorf("a client has stopped: %+v", u)
							cancel()
							return
						}
					}
				}
			}
			if ended >= next {
				next = ended + 1 + rand.IntN(8)
				cuts.cut()
			}
		}
	}()
	sending.Wait()
	close(stop)
	<-stopped
	if cuts.cuts < 5 {
		t.Fatalf("only %d connections were cut", cuts.cuts)
	}
	for i, all := range logs {
		eventually(t, "everything arrives", func() bool { return len(all.events()) == 2*n+2-i }, all)
		checkOrder(t, all.events(), n)
	}
	if a, b := logs[0].events(), logs[1].events(); !slices.EqualFunc(a[1:], b, func(a, b tidings.Event) bool { return a.Mid == b.Mid && a.Seq == b.Seq }) {
		t.Fatal("the logs differ")
	}
}

// checkOrder makes sure that seqs have no hole and that the n messages of each sender are there once and in their order.
func checkOrder(t *testing.T, events []tidings.Event, n int) {
	t.Helper()
	next := map[string]int{}
	for i, e := range events {
		if e.Seq != events[0].Seq+int64(i) {
			t.Fatalf("%d stands at place %d", e.Seq, i)
		}
		if e.Kind != tidings.KindMsg {
			continue
		}
		if want := fmt.Sprint("m-", next[e.Sender]); e.Cmid != want {
			t.Fatalf("%s's message %s stands where %s should", e.Sender, e.Cmid, want)
		}
		next[e.Sender]++
	}
	for sender, count := range next {
		if count != n {
			t.Fatalf("%s has %d messages", sender, count)
		}
	}
}

// TestASlowApplicationBlocksNothing holds Handle: the connection lives on, memory keeps Window events, and the rest comes when Handle
// goes on.
func TestASlowApplicationBlocksNothing(t *testing.T) {
	h := newHouse(t)
	h.create("c-g", "u-ana", "u-ben")
	held, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	all := &heard{}
	ben, _ := h.client("u-ben", "d-b", func(c *client.Config) {
		c.Window = 10
		c.Handle = func(u client.Update) {
			if _, ok := u.(client.Arrived); ok {
				once.Do(func() { close(held) })
				<-gate
			}
			all.handle(u)
		}
	})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	<-held
	ana, _ := h.client("u-ana", "d-a", func(c *client.Config) { c.Handle, c.Pipeline = nil, 16 })
	const n = 100
	for i := range n {
		if _, err := ana.Send(client.Message{Conv: "c-g", Cmid: fmt.Sprint("m-", i), Body: "text"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ana.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := ben.Conversations(t.Context()) // the connection answers while Handle is held
	if err != nil || len(list) != 1 || list[0].Head != n+2 || list[0].Delivered >= 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if events, _ := ben.Events("c-g", 0, 2*n); len(events) > 12 {
		t.Fatalf("%d events are in memory", len(events))
	}
	open()
	eventually(t, "everything arrives", func() bool { return len(all.events()) == n+1 }, all)
	checkOrder(t, all.events(), n)
}
