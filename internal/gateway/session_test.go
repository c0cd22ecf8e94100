// Tests of a session's queue and writer.

package gateway

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// socket is a session without a gateway around it, and the peer's end of its socket. Nobody reads what the peer sends.
func socket(t *testing.T, cfg Config) (*session, *peer) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(cfg)
	t.Cleanup(func() {
		_ = client.Close()
		_ = conn.Close()
		g.sessions.Wait()
	})
	return newSession(g, conn), &peer{t: t, conn: client, r: newReaderOf(client)}
}

func event(n int64) *entry {
	return newEntry(n, fmt.Appendf(nil, `{"t":"event","epoch":1,"event":{"conv":"c","seq":%d}}`, n))
}

// What one commit has for a session goes out in one write, and an event without an answer goes out, too.
func TestEventAndAnswerAreOneWrite(t *testing.T) {
	var writes atomic.Int64
	g := newGateway(Config{})
	open := func() *session {
		s := newSession(g, answered{answers: make(chan bool, 1), writes: &writes})
		s.uncork()
		return s
	}
	sender, receiver := open(), open()
	var l late
	for n := range int64(2) {
		sender.push(event(n), &l)
		receiver.push(event(n), &l)
	}
	if sender.writing || receiver.writing {
		t.Error("a writer has begun")
	}
	sender.send([]byte(`{"t":"sent"}`))
	l.begin()
	g.sessions.Wait()
	if writes.Load() != 2 || g.metrics.queued.Load() != 0 {
		t.Errorf("there were %d writes, %d bytes are left", writes.Load(), g.metrics.queued.Load())
	}
}

func TestWhatIsQueuedWaitsForTheWelcomeAndKeepsItsOrder(t *testing.T) {
	s, p := socket(t, Config{})
	s.send([]byte(`{"t":"welcome","rid":"h"}`))
	recalled := event(2)
	s.push(event(1), nil)
	s.push(recalled, nil)
	s.push(event(3), nil)
	recalled.void()
	s.uncork()
	if f := p.next(); f.T != wire.TypeWelcome {
		t.Errorf("the first frame is %s", f.raw)
	}
	for _, seq := range []int64{1, 3} {
		if f := p.next(); f.Event == nil || f.Event.Seq != seq {
			t.Errorf("the frame of event %d is %s", seq, f.raw)
		}
	}
	s.finish(wire.CloseDraining, "")
	p.ends(4001)
	if s.pushes != 0 || s.replies != 0 || s.g.metrics.queued.Load() != 0 {
		t.Errorf("%d and %d bytes are still counted, %d in all", s.pushes, s.replies, s.g.metrics.queued.Load())
	}
}

func TestAFullQueueClosesAndKeepsNothing(t *testing.T) {
	s, p := socket(t, Config{QueueBytes: 10_000})
	s.send([]byte(`{"t":"welcome","rid":"h"}`))
	n := 0
	for ; s.at() < closing; n++ {
		s.push(event(int64(n)), nil)
		if n > 10_000 {
			t.Fatal("the queue has no end")
		}
	}
	if n < 100 {
		t.Errorf("only %d events were taken", n)
	}
	if before := p.ends(4002); len(before) > 0 {
		t.Errorf("before the end came %d frames", len(before))
	}
	s.push(event(1), nil)
	s.send([]byte("x"))
	if queued := s.g.metrics.queued.Load(); queued != 0 {
		t.Errorf("%d bytes are still queued", queued)
	}
}

// A burst of the longest messages is no fault of a receiver that reads.
func TestABurstIsNoFault(t *testing.T) {
	s, p := socket(t, Config{})
	s.uncork()
	const n = 100
	body := strings.Repeat("x", 16_000)
	for i := range n {
		s.push(newEntry(int64(i), []byte(`{"t":"event","body":"`+body+`"}`)), nil)
	}
	for range n {
		p.next()
	}
	if s.at() >= closing {
		t.Error("the session was closed")
	}
}

func TestManyWritersOfOneSession(t *testing.T) {
	s, p := socket(t, Config{})
	s.uncork()
	const writers, each = 8, 500
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for i := range each {
				if i%2 == 0 {
					s.push(event(int64(w*each+i)), nil)
				} else {
					s.send(fmt.Appendf(nil, `{"t":"lag","conv":"c","head":%d}`, w*each+i))
				}
				if i%50 == 0 {
					s.pong("ping")
				}
			}
		})
	}
	last := [writers]int64{}
	for range writers * each {
		f := p.next()
		n := f.Head
		if f.Event != nil {
			n = f.Event.Seq
		}
		w := n / each
		if n%each < last[w] {
			t.Fatalf("of writer %d came %d after %d", w, n%each, last[w])
		}
		last[w] = n % each
	}
	work.Wait()
	s.close(wire.CloseDraining, "")
	p.ends(4001)
}

// What is committed after the sync of one who has just connected is pushed: nothing falls between the two.
func TestNothingIsMissedBetweenWelcomeAndTheFirstPush(t *testing.T) {
	h := newHouse(t)
	h.conversation("c", "ana", "ben")
	var sending sync.WaitGroup
	stop := make(chan struct{})
	sending.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond): // a pace that leaves the machine to the others
			}
			m := tidings.Message{Conv: "c", Sender: "ana", Device: "a1", Cmid: fmt.Sprint("m", i), Body: "b"}
			if err := h.committer.submit(&outgoing{msg: m, done: func(tidings.Answer, error) {}}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 10 {
		p := h.login("ben", fmt.Sprint("b", i%3)) // whose first frame is the welcome
		p.text(`{"t":"sync","rid":"s","conv":"c","after":0,"limit":1}`)
		head, pushed := int64(0), map[int64]bool{}
		for after := 0; after < 5; {
			f := p.next()
			switch {
			case f.T == wire.TypeEvents:
				head = f.Head
			case f.T == wire.TypeEvent:
				pushed[f.Event.Seq] = true
				if head > 0 && f.Event.Seq > head {
					after++
				}
			}
		}
		for n := head + 1; n <= head+5; n++ {
			if !pushed[n] {
				t.Errorf("event %d was neither synced, up to %d, nor pushed: %v", n, head, pushed)
			}
		}
		_ = p.conn.Close()
	}
	close(stop)
	sending.Wait()
}
