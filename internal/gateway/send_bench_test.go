// Measures sends over sockets.

package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// answered is a socket whose peer waits for the answers to its sends.
type answered struct {
	net.Conn
	answers chan bool
	writes  *atomic.Int64
}

func (a answered) Write(b []byte) (int, error) {
	a.writes.Add(1)
	for range bytes.Count(b, []byte(`{"t":"sent"`)) {
		a.answers <- true
	}
	return len(b), nil
}

func (answered) Close() error { return nil }

// BenchmarkSend shows what a message costs the gateway, its sockets left out: 64 sessions, each of which waits for its answer, send
// in conversations of two members, who both get the event.
func BenchmarkSend(b *testing.B) {
	const pairs, each = 64, 20
	h := newHouse(b, func(c *Config) { c.Rate, c.Burst = 1e9, 1e9 })
	var writes atomic.Int64
	join := func(user string) *session {
		s := newSession(h.Gateway, answered{answers: make(chan bool, 1), writes: &writes})
		hello, err := h.store.Hello(b.Context(), user, "d", "i", "gw-1", s.connection)
		s.user, s.device, s.version, s.phase = user, "d", hello.Version, serving
		s.uncork()
		if err = errors.Join(err, h.hub.subscribe(b.Context(), s)); err != nil {
			b.Fatal(err)
		}
		return s
	}
	var all []*session
	for i := range pairs {
		sender, receiver := fmt.Sprint("s", i), fmt.Sprint("r", i)
		for j := range each {
			h.conversation(fmt.Sprint("c", i*each+j), sender, receiver)
		}
		all = append(all, join(sender))
		join(receiver)
	}
	h.exec("ANALYZE")
	writes.Store(0)
	var number atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	began := processorTime()
	var sending sync.WaitGroup
	for i, s := range all {
		sending.Go(func() {
			meter := newMeter(1e9, 1e9, 0)
			for n := number.Add(1); n <= int64(b.N); n = number.Add(1) {
				s.handle(fmt.Appendf(nil, `{"t":"send","rid":"%d","conv":"c%d","cmid":"9a3c5d0e-1f2b-4c3d-8e4f-%012d","body":"%s"}`,
					n, i*each+int(n)%each, n, ordinary), &meter)
				<-s.conn.(answered).answers
			}
		})
	}
	sending.Wait()
	h.sessions.Wait()
	b.StopTimer()
	b.ReportMetric(float64(processorTime()-began)/float64(b.N)/1e3, "cpu-µs/op")
	b.ReportMetric(float64(writes.Load())/float64(b.N), "writes/op")
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

var ordinary = strings.Repeat("What people write to each other. ", 6)
