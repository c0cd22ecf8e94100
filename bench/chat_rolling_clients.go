// The clients of a rolling restart: the product's library, sending by the clock.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/token"
)

// talkers are users u-0, u-1, … of whom each two talk to each other.
type talkers struct {
	clients []*client.Client
	ending  chan struct{}
	talking sync.WaitGroup

	mu      sync.Mutex
	answers map[string]int64            // by body: the seq
	times   latencies                   // since part
	arrived []map[string]map[int64]bool // by client: what Handle had, by conversation
	twice   int
	wrong   error
}

// open opens n clients at a URL and waits until all are connected.
func (t *talkers) open(ctx context.Context, url string, n int) error {
	t.ending, t.answers, t.arrived = make(chan struct{}), map[string]int64{}, make([]map[string]map[int64]bool, n)
	for i := range n {
		user := fmt.Sprint("u-", i)
		t.arrived[i] = map[string]map[int64]bool{}
		c, err := client.Open(client.Config{URL: url, Device: user + "-d", Name: "bench", Handle: func(u client.Update) { t.hear(i, u) },
			Token: func(context.Context) (client.Token, error) {
				now := time.Now()
				text, err := token.IssueHS256([]byte(secret), "tidings", token.Claims{User: user, Issued: now, Expires: now.Add(time.Hour)})
				return client.Token{Text: text}, err
			}})
		if err != nil {
			return err
		}
		t.clients = append(t.clients, c)
	}
	for _, c := range t.clients {
		for deadline := time.Now().Add(time.Minute); c.State().State != client.Online; time.Sleep(5 * time.Millisecond) {
			if ctx.Err() != nil || time.Now().After(deadline) {
				return errors.Join(fmt.Errorf("a client is not connected: %w", c.State().Err), ctx.Err())
			}
		}
	}
	return nil
}

func (t *talkers) hear(i int, u client.Update) {
	a, ok := u.(client.Arrived)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seqs := t.arrived[i][a.Event.Conv]
	if seqs == nil {
		seqs = map[int64]bool{}
		t.arrived[i][a.Event.Conv] = seqs
	}
	if seqs[a.Event.Seq] {
		t.twice++
	}
	seqs[a.Event.Seq] = true
}

// talk has them send, together so many messages per second, whatever becomes of those before, until end.
func (t *talkers) talk(ctx context.Context, rate float64) {
	each := time.Duration(float64(len(t.clients)) / rate * float64(time.Second))
	began := time.Now()
	for i := range t.clients {
		t.talking.Go(func() {
			first := began.Add(each * time.Duration(i) / time.Duration(len(t.clients)))
			for k := 0; ; k++ {
				due := first.Add(each * time.Duration(k))
				select {
				case <-t.ending:
					return
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				t.say(ctx, i, k, due)
			}
		})
	}
}

// say sends a message that was due at an instant.
func (t *talkers) say(ctx context.Context, i, k int, due time.Time) {
	body := fmt.Sprintf("message %d of %d: %s", k, i, text(*chatBody))
	p, err := t.clients[i].Send(client.Message{Conv: fmt.Sprint("rolling-", i/2), Body: body})
	if err != nil {
		t.fail(err)
		return
	}
	t.talking.Go(func() {
		sent, err := p.Wait(ctx)
		if err != nil {
			t.fail(err)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.answers[body] = sent.Seq
		t.times = append(t.times, float64(time.Since(due))/1e6)
	})
}

func (t *talkers) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrong == nil {
		t.wrong = err
	}
}

// part returns the times of the sends that were answered since the last part.
func (t *talkers) part() latencies {
	t.mu.Lock()
	defer t.mu.Unlock()
	times := t.times
	t.times = nil
	return times
}

func (t *talkers) sent() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.answers)
}

// end ends the talk when everything is answered.
func (t *talkers) end(ctx context.Context) error {
	close(t.ending)
	answered := make(chan struct{})
	go func() { t.talking.Wait(); close(answered) }() // ends with the context at the latest
	select {
	case <-answered:
	case <-time.After(time.Minute):
		return errors.New("some messages were not answered within a minute")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.wrong, ctx.Err())
}

// heard waits until everything has arrived at everybody, and counts what has not, and what came twice.
func (t *talkers) heard(ctx context.Context, heads map[string]int64) (missing, twice int, err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		t.mu.Lock()
		missing, twice = 0, t.twice
		for i := range t.clients {
			conv := fmt.Sprint("rolling-", i/2)
			missing += int(heads[conv]) - len(t.arrived[i][conv])
		}
		t.mu.Unlock()
		if missing == 0 || ctx.Err() != nil || time.Now().After(deadline) {
			return missing, twice, ctx.Err()
		}
	}
}

func (t *talkers) close() {
	for _, c := range t.clients {
		_ = c.Close() // nothing is in a file
	}
	t.talking.Wait()
}
