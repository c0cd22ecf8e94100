// Measures the hub.

package gateway

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
)

// sink is a socket whose peer reads everything at once.
type sink struct {
	net.Conn
	bytes *atomic.Int64
}

func (s sink) Write(b []byte) (int, error) {
	s.bytes.Add(int64(len(b)))
	return len(b), nil
}

func (sink) Close() error { return nil }

// stillHub is a hub that does not run: nothing asks the database.
func stillHub() (*hub, *Gateway) {
	log := slog.New(slog.DiscardHandler)
	h := newHub(hubConfig{gateway: "gw", store: store.New(nil), log: log, bus: bus.New(bus.Config{Conn: &pgx.ConnConfig{}, Sender: "gw", Log: log})})
	return h, newGateway(Config{ID: "gw"})
}

// sit attaches a session of its own to a user and gives the user seats.
func sit(h *hub, g *Gateway, n int, bytes *atomic.Int64, convs ...string) {
	s := newSession(g, sink{bytes: bytes})
	s.user, s.device, s.version = fmt.Sprint("user-", n), "d", 1
	u := h.attach(s)
	for _, conv := range convs {
		h.place(u, &store.Interval{Conv: conv, Epoch: 7, Head: 1, JoinSeq: 1}, 1, false)
	}
	s.uncork()
}

// BenchmarkHubFanOut pushes one message to the sessions of a conversation, until the last of them has written it to its socket.
func BenchmarkHubFanOut(b *testing.B) {
	for _, sessions := range []int{10, 1000, 15000} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			h, g := stillHub()
			var bytes atomic.Int64
			for n := range sessions {
				sit(h, g, n, &bytes, "c")
			}
			f, _ := h.feeds.get("c")
			body := "a message of an ordinary length, as people write them"
			b.ResetTimer()
			for n := range b.N {
				e := tidings.Event{Conv: "c", Seq: int64(n) + 2, Kind: tidings.KindMsg, Mid: "99c1f6ad-646c-4aa8-891b-300a2df0e5e6", Sender: "ana", SDev: "a1", Cmid: "m", Body: &body}
				f.mu.Lock()
				h.deliver(f, &e, nil)
				f.mu.Unlock()
			}
			g.sessions.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)*float64(sessions)/b.Elapsed().Seconds(), "pushes/s")
			if bytes.Load() < int64(b.N)*int64(sessions)*100 {
				b.Errorf("%d bytes were written", bytes.Load())
			}
		})
	}
}

// BenchmarkHubMemory reports what the hub keeps for an idle session in three conversations.
func BenchmarkHubMemory(b *testing.B) {
	const sessions = 15000
	for name, convs := range map[string]func(n int) []string{
		"shared": func(int) []string { return []string{"c", "d", "e"} },
		"own":    func(n int) []string { return []string{fmt.Sprint("c", n), fmt.Sprint("d", n), fmt.Sprint("e", n)} },
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				heap := func() uint64 {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					return m.HeapAlloc
				}
				h, g := stillHub()
				var bytes atomic.Int64
				all := make([]*session, sessions)
				for n := range all {
					all[n] = newSession(g, sink{bytes: &bytes})
					all[n].user, all[n].device, all[n].version = fmt.Sprint("user-", n), "d", 1
				}
				before := heap()
				for n, s := range all {
					u := h.attach(s)
					for _, conv := range convs(n) {
						h.place(u, &store.Interval{Conv: conv, Epoch: 7, Head: 1, JoinSeq: 1}, 1, false)
					}
				}
				b.ReportMetric(float64(heap()-before)/sessions, "B/session")
				runtime.KeepAlive(h)
				runtime.KeepAlive(all)
			}
		})
	}
}

// BenchmarkHubCatchUp subscribes 15 000 users who share one conversation and have one of their own, and then compares all positions
// and all memberships with the database.
func BenchmarkHubCatchUp(b *testing.B) {
	const sessions = 15000
	st := newTown(b)
	sql(b, st, `INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT 'c' || n, 7, 2 FROM generate_series(0, $1 - 1) n`, sessions)
	sql(b, st, `INSERT INTO tidings.conversation (conv_id, epoch, next_seq) VALUES ('shared', 7, 2)`)
	sql(b, st, `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT c, 'user-' || n, 1 FROM generate_series(0, $1 - 1) n, LATERAL (VALUES ('c' || n), ('shared')) v (c)`, sessions)
	sql(b, st, `ANALYZE tidings.member, tidings.conversation`)
	h, g := stillHub()
	h.store = st
	var bytes atomic.Int64
	var all []*session
	for n := range sessions {
		s := newSession(g, sink{bytes: &bytes})
		s.user, s.device, s.version = fmt.Sprint("user-", n), "d", 1
		all = append(all, s)
	}
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		for _, s := range all {
			if err := h.subscribe(b.Context(), s); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(time.Since(began).Seconds()/sessions*1e6, "µs/subscribe")
		began = time.Now()
		h.compareHeads(b.Context(), h.feeds.all())
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms/heads")
		began = time.Now()
		h.compareMembers(b.Context(), h.users.all())
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms/members")
		if len(h.feeds.all()) != sessions+1 {
			b.Fatalf("there are %d feeds", len(h.feeds.all()))
		}
		for _, s := range all {
			h.unsubscribe(s)
		}
		for _, u := range h.idle.take() {
			h.reap(u)
		}
		if n := len(h.feeds.all()) + len(h.users.all()); n != 0 {
			b.Fatalf("%d feeds and users are left", n)
		}
	}
}
