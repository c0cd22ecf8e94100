// Measures a rolling restart: gateways that stop and start one after the other under clients that send.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/store"
)

var (
	rollingClients = flag.Int("rolling-clients", 300, "clients of the product's library during the rolling restart")
	rollingRate    = flag.Float64("rolling-rate", 300, "messages per second of all of them")
	rollingDrain   = flag.Duration("rolling-drain", 10*time.Second, "over how long a gateway that stops closes its sockets")
)

const rollingGateways = 3

// Two users each are in a conversation.
const (
	rollingConversationsSQL = `INSERT INTO tidings.conversation (conv_id, epoch) SELECT 'rolling-' || n, (SELECT generation FROM tidings.lineage) FROM generate_series(0, ($1::int - 1) / 2) n`
	rollingMembersSQL       = `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT 'rolling-' || n / 2, 'u-' || n, 1 FROM generate_series(0, $1::int - 1) n`

	// rollingRowsSQL gives what the log has of the messages that were sent: a body says which message it is.
	rollingRowsSQL = `SELECT e.body, e.conv_id, e.seq FROM tidings.event e WHERE e.kind = 'msg'`
)

// rolling is what the measurement holds.
type rolling struct {
	*bench
	programs *programs
	url      string
	front    *balancer
	gateways []*process
	talkers  talkers
}

func (b *bench) chatRolling(ctx context.Context) error { return b.chat(ctx, b.measureRolling) }

func (b *bench) measureRolling(ctx context.Context, p *programs) (err error) {
	pool, url, err := b.database(ctx, "chat_rolling", true)
	if err != nil {
		return err
	}
	if err := store.New(pool).EnsureLineage(ctx); err != nil {
		return err
	}
	for _, seed := range []string{rollingConversationsSQL, rollingMembersSQL} {
		if _, err := pool.Exec(ctx, seed, *rollingClients); err != nil {
			return err
		}
	}
	r := &rolling{bench: b, programs: p, url: url}
	if r.front, err = newBalancer(); err != nil {
		return err
	}
	defer r.front.close()
	defer func() {
		for _, g := range r.gateways {
			g.stop()
		}
	}()
	for range rollingGateways {
		if err := r.start(); err != nil {
			return err
		}
	}
	if err := r.talkers.open(ctx, r.front.url(), *rollingClients); err != nil {
		return err
	}
	defer r.talkers.close()
	r.talkers.talk(ctx, *rollingRate)
	r.talkers.part() // the first seconds do not count
	pause(ctx, time.Duration(*chatSeconds*float64(time.Second)))
	r.talkers.part()
	pause(ctx, time.Duration(*chatSeconds*float64(time.Second)))
	before := r.talkers.part()
	r.front.count()
	began := time.Now()
	moved, err := r.restartAll(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	during := r.talkers.part()
	connects, most := r.front.count()
	lost, doubled, err := r.judge(ctx, pool)
	if err != nil {
		return err
	}
	fmt.Printf("rolling restart of %d gateways, drain %v, %d clients, %.0f messages/s: %d sockets moved in %.1f s; %d connections were made, at most %d in one second\n",
		rollingGateways, *rollingDrain, *rollingClients, *rollingRate, moved, took.Seconds(), connects, most)
	fmt.Printf("%d messages: %d lost, %d doubled; p50 and p99 of a send before %.2f and %.2f ms (%d), during %.2f and %.2f ms (%d)\n",
		r.talkers.sent(), lost, doubled, before.at(50), before.at(99), len(before), during.at(50), during.at(99), len(during))
	fmt.Printf("ratio chat_rolling_p99_during_to_before %.2f\nratio chat_rolling_lost_and_doubled %d\n", during.at(99)/before.at(99), lost+doubled)
	if lost+doubled > 0 {
		return fmt.Errorf("%d messages were lost, %d doubled", lost, doubled)
	}
	return nil
}

// start starts a gateway and puts it behind the balancer.
func (r *rolling) start() error {
	g, err := startGateway(r.programs, r.url, "TIDINGS_GATEWAY_DRAIN="+rollingDrain.String(), "TIDINGS_DRAIN="+(*rollingDrain+30*time.Second).String())
	if err != nil {
		return err
	}
	r.gateways = append(r.gateways, g)
	r.front.add(g.addr)
	return nil
}

// restartAll replaces one gateway after the other: SIGTERM, its end, a new one that is ready. It returns how many sockets it moved.
func (r *rolling) restartAll(ctx context.Context) (moved int, err error) {
	for range rollingGateways {
		old := r.gateways[0]
		r.gateways = r.gateways[1:]
		sockets := r.front.open(old.addr)
		moved += sockets
		began := time.Now()
		if err := old.terminate(*rollingDrain + 30*time.Second); err != nil {
			return moved, err
		}
		stopped := time.Since(began)
		r.front.remove(old.addr)
		if err := r.start(); err != nil {
			return moved, err
		}
		fmt.Printf("  a gateway with %d sockets stopped in %.1f s; the next one was ready after %.1f s\n", sockets, stopped.Seconds(), time.Since(began).Seconds())
		pause(ctx, 2*time.Second) // for the balancer to see it, and a glance of an operator
		if ctx.Err() != nil {
			return moved, ctx.Err()
		}
	}
	return moved, nil
}

// terminate asks a process to end and waits until it has, with 0.
func (p *process) terminate(within time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop a gateway: %w", err)
	}
	var late atomic.Bool
	timer := time.AfterFunc(within, func() { late.Store(true); _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	defer p.in.Close()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	switch {
	case late.Load():
		return fmt.Errorf("stop a gateway: it did not end within %v: %s", within, &p.said)
	case errors.As(err, &exit):
		return fmt.Errorf("stop a gateway: %w: %s", err, &p.said)
	}
	return err
}

// judge ends the talk and compares what was answered, and what arrived, with the log.
func (r *rolling) judge(ctx context.Context, pool *pgxpool.Pool) (lost, doubled int, err error) {
	if err := r.talkers.end(ctx); err != nil {
		return 0, 0, err
	}
	rows, err := pool.Query(ctx, rollingRowsSQL)
	if err != nil {
		return 0, 0, err
	}
	stored, heads := map[string]int64{}, map[string]int64{}
	for rows.Next() {
		var body, conv string
		var seq int64
		if err := rows.Scan(&body, &conv, &seq); err != nil {
			return 0, 0, err
		}
		if _, twice := stored[body]; twice {
			doubled++
		}
		stored[body] = seq
		heads[conv] = max(heads[conv], seq)
	}
	if rows.Err() != nil {
		return 0, 0, rows.Err()
	}
	for body, seq := range r.talkers.answers {
		if stored[body] != seq {
			lost++
		}
	}
	missing, twice, err := r.talkers.heard(ctx, heads)
	return lost + missing, doubled + twice, err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// latencies are in milliseconds.
type latencies []float64

// at is a percentile.
func (l latencies) at(percent int) float64 {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
