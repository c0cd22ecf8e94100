// Measures how one message reaches many.

package gateway

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkFanOut sends messages to a conversation with 500 connected members and reports the events that reach them per second.
// The receivers run in the same process and take part of its time.
func BenchmarkFanOut(b *testing.B) {
	const n = 500
	h := newHouse(b, func(c *Config) { c.Rate, c.Burst = 1e6, 1e6 })
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprint("u", i)
	}
	h.conversation("c", members...)
	var got atomic.Int64
	var receiving sync.WaitGroup
	peers := make([]*peer, n)
	for i := range peers {
		p := h.login(members[i], "d")
		peers[i] = p
		if i == 0 {
			continue
		}
		receiving.Go(func() {
			buffer := make([]byte, 32<<10)
			for {
				k, err := p.conn.Read(buffer)
				if err != nil {
					return
				}
				got.Add(int64(bytes.Count(buffer[:k], []byte(`"t":"event"`)))) // one that is cut is missed: few are
			}
		})
	}
	sent := int64(0)
	began := time.Now()
	for b.Loop() {
		for range 100 {
			peers[0].text(`{"t":"send","rid":"r%d","conv":"c","cmid":"m%d","body":"a message of some length, as people write them"}`, sent, sent)
			sent++
		}
		for answered := 0; answered < 100; {
			if f := peers[0].next(); f.T == "sent" {
				answered++
			}
		}
	}
	eventually(b, "all was received", func() bool { return got.Load() >= sent*(n-1)*99/100 })
	b.ReportMetric(float64(got.Load())/time.Since(began).Seconds(), "deliveries/s")
	for _, p := range peers {
		_ = p.conn.Close()
	}
	receiving.Wait()
}
