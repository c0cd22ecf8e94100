// Measures the memory of idle connections.

package gateway

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// BenchmarkIdleConnections reports what 2 000 connections cost that say nothing, each of a user of their own in three
// conversations of fifty. The client's end of each socket is in the same process and counted, which is about 1 kB.
func BenchmarkIdleConnections(b *testing.B) {
	const n = 2000
	h := newHouse(b, func(c *Config) { c.MaxGreeting = n })
	for i := range n / 50 * 3 {
		var members []string
		for j := range 50 {
			members = append(members, fmt.Sprint("u", (i/3*50+j)%n))
		}
		h.conversation(fmt.Sprint("c", i), members...)
	}
	for b.Loop() {
		before := measure()
		peers := make([]*peer, n)
		var opening sync.WaitGroup
		for w := range 8 {
			opening.Go(func() {
				for i := w; i < n; i += 8 {
					p := h.connect()
					p.hello(issue(b, fmt.Sprint("u", i)), "d", "i")
					p.want("welcome")
					p.r = nil
					peers[i] = p
				}
			})
		}
		opening.Wait()
		after := measure()
		b.ReportMetric(float64(after.heap-before.heap)/n, "heap-B/conn")
		b.ReportMetric(float64(after.stack-before.stack)/n, "stack-B/conn")
		b.ReportMetric(float64(after.resident-before.resident)/n, "resident-B/conn")
		b.ReportMetric(float64(after.goroutines-before.goroutines)/n, "goroutines/conn")
		for _, p := range peers {
			_ = p.conn.Close()
		}
		h.empty()
	}
}

type memory struct{ heap, stack, resident, goroutines int }

// measure reads what the process holds after the garbage is gone.
func measure() memory {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	pages := 0
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil { // Linux only
		pages, _ = strconv.Atoi(strings.Fields(string(statm))[1])
	}
	return memory{heap: int(m.HeapAlloc), stack: int(m.StackInuse), resident: pages * os.Getpagesize(), goroutines: runtime.NumGoroutine()}
}
