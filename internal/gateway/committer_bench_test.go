// Measures the committer.

package gateway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// BenchmarkCommitter shows what a message costs: by one sender on an idle gateway, with the plain call of the store beside it, and
// by 64 of them, each of which waits for its answer, in many conversations and in one.
func BenchmarkCommitter(b *testing.B) {
	for _, c := range []struct {
		name                   string
		senders, conversations int
	}{{"idle", 1, 1}, {"spread", 64, 10_000}, {"hot", 64, 1}} {
		b.Run(c.name, func(b *testing.B) {
			var batches, messages atomic.Int64
			d := newDesk(b, pgtest.NewPlain(b), committerOptions{Observe: func(n int, _ time.Duration) {
				batches.Add(1)
				messages.Add(int64(n))
			}})
			d.converse("c", c.conversations, "ana")
			d.committed = func([]tidings.Event, *late) {}
			d.exec("ANALYZE")
			d.start()
			var next atomic.Int64
			senders(b, c.senders, func() bool {
				n := next.Add(1)
				if n > int64(b.N) {
					return false
				}
				answered := make(chan error, 1)
				m := msg(fmt.Sprintf("c%d", int(n)%c.conversations+1), "ana", fmt.Sprint(n), "a message of a usual length, such as people send")
				if err := d.submit(&outgoing{msg: m, done: func(a tidings.Answer, err error) { answered <- err }}); err != nil {
					b.Error(err)
					return false
				}
				if err := <-answered; err != nil {
					b.Error(err)
				}
				return true
			})
			b.ReportMetric(float64(messages.Load())/float64(max(batches.Load(), 1)), "msgs/batch")
		})
	}
	b.Run("idle without committer", func(b *testing.B) {
		d := newDesk(b, pgtest.NewPlain(b), committerOptions{})
		d.converse("c", 1, "ana")
		d.exec("ANALYZE")
		n := 0
		senders(b, 1, func() bool {
			if n++; n > b.N {
				return false
			}
			if _, err := d.send(context.Background(), []tidings.Message{msg("c1", "ana", fmt.Sprint(n), "a message of a usual length, such as people send")}, 0); err != nil {
				b.Error(err)
			}
			return true
		})
	})
}

// senders runs n goroutines that send while send says so, and reports messages per second.
func senders(b *testing.B, n int, send func() bool) {
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for send() {
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
