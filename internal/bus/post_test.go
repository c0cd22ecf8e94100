// A bus and what it has heard, for tests.

package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

// post is a bus and what it has heard.
type post struct {
	*bus.Bus
	t    *testing.T
	stop func()

	mu     sync.Mutex
	items  []bus.Item
	caught []string // the senders of CatchUp, "*" for everybody; with "+" when it was called again
	woken  int
	news   chan struct{} // closed and replaced with each
}

// open starts a bus that listens also to "other", and waits until it hears.
func open(t *testing.T, url, sender string) *post {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	p := &post{t: t, news: make(chan struct{})}
	p.Bus = bus.New(bus.Config{Conn: cfg, Sender: sender, Also: "other", Log: slog.New(slog.DiscardHandler)})
	note := func(change func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		change()
		close(p.news)
		p.news = make(chan struct{})
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, bus.Handler{
			Heard: func(items []bus.Item) { note(func() { p.items = append(p.items, items...) }) },
			CatchUp: func(sender string, again bool) {
				if sender == "" {
					sender = "*"
				}
				if again {
					sender += "+"
				}
				note(func() { p.caught = append(p.caught, sender) })
			},
			Woken: func() { note(func() { p.woken++ }) },
		})
	}()
	p.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(p.stop)
	p.await("it listens", patience, func() bool { return len(p.caught) > 0 })
	return p
}

// await waits until ok, which is called under the lock.
func (p *post) await(what string, within time.Duration, ok func() bool) (took time.Duration) {
	p.t.Helper()
	began := time.Now()
	over := time.After(within)
	for {
		p.mu.Lock()
		met, news := ok(), p.news
		caught := p.caught
		p.mu.Unlock()
		if met {
			return time.Since(began)
		}
		select {
		case <-news:
		case <-over:
			p.t.Fatalf("not within %v: %s; caught up with %v", within, what, caught)
		}
	}
}

// heads are the last heads heard, by conversation. It needs the lock.
func (p *post) heads() map[string]int64 {
	all := map[string]int64{}
	for _, i := range p.items {
		if i.Wake != nil {
			all[i.Wake.Conv] = i.Wake.Head
		}
	}
	return all
}

func (p *post) awaitHead(conv string, head int64) {
	p.t.Helper()
	p.await(fmt.Sprintf("%s has reached %d", conv, head), patience, func() bool { return p.heads()[conv] == head })
}

// awaitHearing waits until a wake-up of from is heard again; those that are told before are lost.
func (p *post) awaitHearing(from *post) {
	p.t.Helper()
	for began := time.Now(); ; {
		from.Publish(bus.Wake{Conv: "later", Head: 1})
		p.mu.Lock()
		met, news := p.heads()["later"] == 1, p.news
		p.mu.Unlock()
		if met {
			return
		}
		if time.Since(began) > patience {
			p.t.Fatal("nothing is heard any more")
		}
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// forget clears what was caught up with.
func (p *post) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caught = nil
}

func (p *post) caughtUp(with string) func() bool {
	return func() bool {
		for _, c := range p.caught {
			if c == with {
				return true
			}
		}
		return false
	}
}

// acquainted makes two buses that have heard of each other.
func acquainted(t *testing.T, urlA, urlB string) (a, b *post) {
	t.Helper()
	a, b = open(t, urlA, "gw-a"), open(t, urlB, "gw-b")
	for _, p := range []*post{a, b} {
		p.Publish(bus.Wake{Conv: "first", Head: 1})
	}
	a.awaitHead("first", 1)
	b.awaitHead("first", 1)
	a.await("the unknown sender is caught up with", patience, a.caughtUp("gw-b"))
	b.await("the unknown sender is caught up with", patience, b.caughtUp("gw-a"))
	a.forget()
	b.forget()
	return a, b
}

// through is url by way of a proxy.
func through(t *testing.T, url string) (string, *tcpproxy.Proxy) {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	target := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	proxy := tcpproxy.Start(t, target)
	return strings.Replace(url, target, proxy.Addr(), 1), proxy
}

func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
