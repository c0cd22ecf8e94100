// A hub with a database and sessions, for tests.

package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
	"github.com/tidings-project/tidings/lab/tcpproxy"
	"github.com/tidings-project/tidings/outbox"
)

// caughtUpWithin is the bound after which a lost wake-up has been made good.
const caughtUpWithin = 5 * time.Second

// station is a hub with its committer: a gateway without sockets.
type station struct {
	*hub
	t    testing.TB
	g    *Gateway
	stop func()
}

// newTown is a store on a database of its own.
func newTown(t testing.TB) *store.Store {
	t.Helper()
	st := store.New(pgtest.New(t))
	if err := st.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st
}

// busOn is the configuration of a bus on the store's database, through an address if one is given.
func busOn(t testing.TB, st *store.Store, id, addr string) bus.Config {
	conn := st.Pool().Config().ConnConfig.Copy()
	if addr != "" {
		conn = at(t, conn.ConnString(), conn.Host, conn.Port, addr)
	}
	return bus.Config{Conn: conn, Sender: id, Also: outbox.WakeChannel, Log: slog.New(slog.DiscardHandler)}
}

func at(t testing.TB, url, host string, port uint16, addr string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(strings.Replace(url, fmt.Sprintf("%s:%d", host, port), addr, 1))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// proxyTo is a proxy to the store's database.
func proxyTo(t testing.TB, st *store.Store) *tcpproxy.Proxy {
	cfg := st.Pool().Config().ConnConfig
	return tcpproxy.Start(t, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port))
}

// storeThrough is the same store by way of a proxy.
func storeThrough(t testing.TB, st *store.Store, proxy *tcpproxy.Proxy) *store.Store {
	t.Helper()
	cfg := st.Pool().Config().ConnConfig
	config, err := pgxpool.ParseConfig(strings.Replace(cfg.ConnString(), fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), proxy.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return store.New(pool)
}

// stationOn starts a hub.
func stationOn(t testing.TB, st *store.Store, id string, change ...func(*hubConfig)) *station {
	t.Helper()
	cfg := hubConfig{gateway: id, store: st, log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelError})),
		bus: bus.New(busOn(t, st, id, ""))}
	for _, c := range change {
		c(&cfg)
	}
	s := &station{hub: newHub(cfg), t: t, g: newGateway(Config{ID: id, QueueBytes: 8 << 20})}
	s.g.held = s.held.held
	s.g.committer = newCommitter(st, s.committed, committerOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	ready := make(chan struct{})
	work.Go(func() { s.run(ctx, func() { close(ready) }) })
	work.Go(func() { s.g.committer.run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); work.Wait() })
	t.Cleanup(s.stop)
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the hub is not ready")
	}
	return s
}

// ear is a session and what its client was sent.
type ear struct {
	*session
	st     *station
	client net.Conn

	mu     sync.Mutex
	frames []wire.Frame
	code   int // of the close frame
	news   chan struct{}
}

// connect is what a hello does.
func (s *station) connect(user, device string) *ear {
	s.t.Helper()
	e := s.open(user, device)
	if err := s.subscribe(context.Background(), e.session); err != nil {
		s.t.Fatal(err)
	}
	e.uncork()
	return e
}

// open is a hello up to the subscription; what is pushed waits until uncork.
func (s *station) open(user, device string) *ear {
	s.t.Helper()
	server, client := net.Pipe()
	e := &ear{session: newSession(s.g, server), st: s, client: client, news: make(chan struct{})}
	state, err := s.store.Hello(context.Background(), user, device, "install-1", s.gateway, e.connection)
	if err != nil {
		s.t.Fatal(err)
	}
	e.user, e.device, e.installNo, e.version = user, device, state.InstallNo, state.Version
	if !state.OldConnection.IsZero() {
		s.displaced(user, state.OldGateway, state.OldConnection)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.listen()
	}()
	s.t.Cleanup(func() {
		e.hangUp()
		<-ended
		s.g.sessions.Wait()
	})
	return e
}

// hangUp is what the end of the session's reader does.
func (e *ear) hangUp() {
	e.client.Close()
	e.close(0, "")
	e.conn.Close()
	e.st.unsubscribe(e.session)
}

// listen reads until the socket ends.
func (e *ear) listen() {
	r := bufio.NewReader(e.client)
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		n := int(head[1])
		if n == 126 {
			var more [2]byte
			_, _ = io.ReadFull(r, more[:])
			n = int(binary.BigEndian.Uint16(more[:]))
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		e.mu.Lock()
		if head[0]&0xf == 8 {
			e.code = int(binary.BigEndian.Uint16(payload))
		} else if f, err := wire.DecodeFrame(payload); err == nil {
			e.frames = append(e.frames, f)
		} else {
			e.st.t.Errorf("%v: %s", err, payload)
		}
		close(e.news)
		e.news = make(chan struct{})
		e.mu.Unlock()
	}
}

// await waits until ok, which is called under the lock.
func (e *ear) await(what string, within time.Duration, ok func() bool) time.Duration {
	e.st.t.Helper()
	began := time.Now()
	over := time.After(within)
	for {
		e.mu.Lock()
		met, news := ok(), e.news
		e.mu.Unlock()
		if met {
			return time.Since(began)
		}
		select {
		case <-news:
		case <-over:
			e.mu.Lock()
			defer e.mu.Unlock()
			e.st.t.Fatalf("%s of %s: not within %v: %s; heard %s, closed with %d", e.device, e.user, within, what, say(e.frames), e.code)
		}
	}
}

func say(frames []wire.Frame) string {
	var all []string
	for _, f := range frames {
		if f.Event != nil {
			f.Conv, f.Seq = f.Event.Conv, f.Event.Seq
		}
		all = append(all, fmt.Sprintf("%s %s %d", f.T, f.Conv, max(f.Seq, f.Head, f.Read)))
	}
	return strings.Join(all, ", ")
}

// seqs are the seqs of the events heard of a conversation. It needs the lock.
func (e *ear) seqs(conv string) (all []int64) {
	for _, f := range e.frames {
		if f.T == wire.TypeEvent && f.Event.Conv == conv {
			all = append(all, f.Event.Seq)
		}
	}
	return all
}

// heard is the last frame of a type about a conversation. It needs the lock.
func (e *ear) heard(t, conv string) *wire.Frame {
	for i := range e.frames {
		if f := &e.frames[len(e.frames)-1-i]; f.T == t && f.Conv == conv {
			return f
		}
	}
	return nil
}

// awaitSeq waits for an event.
func (e *ear) awaitSeq(conv string, seq int64, within time.Duration) time.Duration {
	e.st.t.Helper()
	return e.await(fmt.Sprintf("event %d of %s", seq, conv), within, func() bool { return slices.Contains(e.seqs(conv), seq) })
}

// awaitFrame waits for another push about a conversation.
func (e *ear) awaitFrame(t, conv string, within time.Duration) (f wire.Frame) {
	e.st.t.Helper()
	e.await(t+" of "+conv, within, func() bool {
		p := e.heard(t, conv)
		if p != nil {
			f = *p
		}
		return p != nil
	})
	return f
}

// awaitCode waits for the close frame.
func (e *ear) awaitCode(code int, within time.Duration) {
	e.st.t.Helper()
	e.await(fmt.Sprintf("the close code %d", code), within, func() bool { return e.code == code })
}

// forget clears what was heard.
func (e *ear) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frames = nil
}

// say sends a message through the station and returns its seq.
func (s *station) say(conv, user, body string) int64 {
	s.t.Helper()
	done := make(chan sent, 1)
	m := tidings.Message{Conv: conv, Sender: user, Device: "d", Cmid: newConnection().String(), Body: body}
	if err := s.g.committer.submit(&outgoing{msg: m, done: func(a tidings.Answer, err error) { done <- sent{a, err} }}); err != nil {
		s.t.Fatal(err)
	}
	a := <-done
	if a.err != nil || a.Code != "" {
		s.t.Fatalf("the message was refused: %s %v", a.Code, a.err)
	}
	return a.Seq
}

// create makes a conversation.
func create(t testing.TB, st *store.Store, conv string, members ...string) {
	t.Helper()
	if _, err := st.CreateConversation(context.Background(), store.Conversation{Conv: conv, RecallWindow: time.Minute, Members: members}); err != nil {
		t.Fatal(err)
	}
}

func sql(t testing.TB, st *store.Store, text string, args ...any) {
	t.Helper()
	if _, err := st.Pool().Exec(context.Background(), text, args...); err != nil {
		t.Fatal(err)
	}
}
