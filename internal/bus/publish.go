// The telling half of a Bus.

package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The bounds of what waits to be told. What is beyond them is dropped, and listeners notice by a skipped number.
const (
	maxWakes  = 1 << 16 // conversations
	maxItems  = 1 << 13 // other items
	maxJoined = 1 << 10 // names of one conversation
)

// Publish tells other processes that conversations have grown. It never blocks. Wake-ups of one conversation that are still to be
// told become one.
func (b *Bus) Publish(wakes ...Wake) {
	b.mu.Lock()
	for _, w := range wakes {
		known := b.wakes[w.Conv]
		switch {
		case known == nil && len(b.wakes) >= maxWakes:
			b.lost = true
		case known == nil:
			b.wakes[w.Conv] = &w
			b.order = append(b.order, w.Conv)
		default:
			known.merge(w)
		}
		if known != nil && len(known.Joined) > maxJoined {
			known.Joined, b.lost = nil, true
		}
	}
	b.mu.Unlock()
	b.wake()
}

func (w *Wake) merge(other Wake) {
	if w.Epoch != other.Epoch && w.Epoch != 0 && other.Epoch != 0 {
		w.Head = 0 // of another history
	}
	if other.Epoch != 0 {
		w.Epoch = other.Epoch
	}
	w.Head = max(w.Head, other.Head)
	w.Joined = append(w.Joined[:len(w.Joined):len(w.Joined)], other.Joined...)
}

// Tell tells other processes something that is not coalesced. It never blocks.
func (b *Bus) Tell(items ...Item) {
	b.mu.Lock()
	if len(b.items)+len(items) > maxItems {
		b.lost = true
	} else {
		b.items = append(b.items, items...)
	}
	b.mu.Unlock()
	b.wake()
}

// Flush waits until what was published before is on the bus.
func (b *Bus) Flush(ctx context.Context) error {
	done := make(chan struct{})
	b.mu.Lock()
	b.flushes = append(b.flushes, done)
	b.mu.Unlock()
	b.wake()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the bus: %w", ctx.Err())
	}
}

func (b *Bus) wake() {
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// batch is what one NOTIFY statement tells.
type batch struct {
	texts   []string
	flushes []chan struct{}
}

// take makes the next batch of what is due and returns the sender's new last number. While nobody else listens nothing is told, and
// a number is skipped, so that whoever comes notices.
func (b *Bus) take(last int64) (batch, int64, error) {
	alone := b.heard.alone(time.Now())
	b.mu.Lock()
	items, wakes, order, lost := b.items, b.wakes, b.order, b.lost
	next := batch{flushes: b.flushes}
	b.items, b.order, b.lost, b.flushes = nil, nil, false, nil
	if len(order) > 0 {
		b.wakes = map[string]*Wake{}
	}
	b.mu.Unlock()
	if alone && len(order)+len(items) > 0 {
		items, order, lost = nil, nil, true
	}
	for _, conv := range order {
		w := wakes[conv]
		for ; len(w.Joined) > joinedPerItem; w.Joined = w.Joined[joinedPerItem:] {
			items = append(items, Item{Wake: &Wake{Conv: w.Conv, Epoch: w.Epoch, Head: w.Head, Joined: w.Joined[:joinedPerItem]}})
		}
		items = append(items, Item{Wake: w})
	}
	if lost {
		last++
	}
	var err error
	next.texts, err = pack(b.self, last+1, items)
	return next, last + int64(len(next.texts)), err
}

const notifySQL = `SELECT pg_notify($1, p) FROM unnest($2::text[]) p`

// notify is the goroutine that tells. A batch whose NOTIFY failed is sent again as it is: a listener that has heard it knows its
// numbers.
func (b *Bus) notify(ctx context.Context) {
	var (
		conn   *pgx.Conn
		last   int64
		unsent batch
		pause  = tick / 4
		beats  = time.NewTicker(beat)
		ending = ctx.Done()
		bye    bool
	)
	if b.self.Listens { // others learn of it before it can miss much
		unsent.texts = append(unsent.texts, repetition(b.self, last, false))
	}
	defer beats.Stop()
	defer func() { closeConn(conn) }()
	for {
		repeat := false
		if len(unsent.texts) == 0 {
			select {
			case <-b.due:
			case <-beats.C:
				repeat = true
			case <-ending:
				bye, ending = true, nil
			}
			var err error
			if unsent, last, err = b.take(last); err != nil {
				b.cfg.Log.Error("wake-ups were dropped", "error", err)
				last++
			}
			if bye || repeat && len(unsent.texts) == 0 {
				unsent.texts = append(unsent.texts, repetition(b.self, last, bye))
			}
		}
		began := time.Now()
		var err error
		if conn, err = b.send(ctx, conn, unsent.texts); err == nil {
			for _, done := range unsent.flushes {
				close(done)
			}
			unsent = batch{}
			pause = tick / 4
		}
		switch {
		case bye || err != nil && ctx.Err() != nil:
			return
		case err == nil:
			sleep(ctx, pace-time.Since(began))
		default:
			b.cfg.Log.Warn("other gateways were not told; it is tried again", "error", err)
			sleep(ctx, pause)
			pause = min(2*pause, patience)
		}
	}
}

// send puts texts on the channel, on conn or a new connection, and returns the connection to be used next.
func (b *Bus) send(ctx context.Context, conn *pgx.Conn, texts []string) (*pgx.Conn, error) {
	if len(texts) == 0 {
		return conn, nil
	}
	ctx = context.WithoutCancel(ctx) // the last words are said after ctx has ended
	if conn == nil {
		var err error
		// Nobody waits for the flush of a wake-up, and the lock of the cluster is held until then.
		if conn, err = b.connect(ctx, "tidings notify", map[string]string{"synchronous_commit": "off"}); err != nil {
			return nil, err
		}
	}
	sending, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := conn.Exec(sending, notifySQL, Channel, texts); err != nil {
		closeConn(conn)
		return nil, fmt.Errorf("notify the other gateways: %w", err)
	}
	return conn, nil
}

// connect makes a connection of the bus's own.
func (b *Bus) connect(ctx context.Context, name string, settings map[string]string) (*pgx.Conn, error) {
	cfg := b.cfg.Conn.Copy()
	cfg.RuntimeParams["application_name"] = name
	for key, value := range settings {
		cfg.RuntimeParams[key] = value
	}
	ctx, cancel := context.WithTimeout(ctx, dialing)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect the bus: %w", err)
	}
	return conn, nil
}

// closeConn ends a connection without waiting for a peer that may be gone.
func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience/4)
	defer cancel()
	_ = conn.Close(ctx) // nothing depends on how it ends
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
