// Measures sends: rates, latencies and the statements alone.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// connect, send and sent are what the client program takes and answers; see client/send.go.
type (
	connect struct {
		Addr, Protocol, Secret string
		Name                   string
		Senders, Receivers     int
	}
	send struct {
		Run                             string
		Conversations, Window, Receipts int
		Seconds, Rate                   float64
		Body                            int
	}
	sent struct {
		Messages                        int
		PerSecond, P50, P99, Most, Late float64
	}
)

// sends is what the measurement of sends holds.
type sends struct {
	*bench
	gateway, single, client *process // single: its batches are of one message
	alone                   *store.Store
	alonePool               *pgxpool.Pool
	runs                    int
	batch                   int    // messages of the gateway's batches under the load of 64 senders
	during                  func() // runs beside the next load; may be nil
}

func (b *bench) measureSends(ctx context.Context, p *programs) (err error) {
	m := &sends{bench: b}
	_, url, err := b.chatDatabase(ctx, "chat", slices.Collect(maps.Keys(crowds))...)
	if err != nil {
		return err
	}
	_, singleURL, err := b.chatDatabase(ctx, "chat_single", "spread")
	if err != nil {
		return err
	}
	if m.alonePool, _, err = b.chatDatabase(ctx, "chat_alone", "spread", "single"); err != nil {
		return err
	}
	if m.gateway, err = startGateway(p, url); err != nil {
		return err
	}
	defer m.gateway.stop()
	if m.single, err = startGateway(p, singleURL, "TIDINGS_GATEWAY_BATCH=1"); err != nil {
		return err
	}
	defer m.single.stop()
	if m.client, err = startClient(p); err != nil {
		return err
	}
	defer m.client.stop()
	if err := m.openAlone(ctx); err != nil {
		return err
	}
	for round := range *rounds + 1 { // the first one is not counted
		if err := m.round(ctx, round > 0); err != nil {
			return err
		}
	}
	most := m.median("64 senders over many")
	for range *rounds {
		if err := m.openLoop(most / 2); err != nil {
			return err
		}
	}
	m.report()
	if *chatProfile != "" {
		return m.profile(p, *chatProfile)
	}
	return nil
}

// openAlone makes the store that stands for the committer's own statements: two connections, prepared as the product's.
func (m *sends) openAlone(ctx context.Context) error {
	cfg := m.alonePool.Config()
	cfg.MaxConns = 2
	store.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	m.pools = append(m.pools, pool)
	m.alone = store.New(pool)
	return nil
}

// round measures every contestant once.
func (m *sends) round(ctx context.Context, counts bool) error {
	record := func(name string, value float64) {
		if counts {
			m.record(name, value)
		}
	}
	for _, c := range []struct {
		name, crowd   string
		to            *process
		window, convs int
	}{
		{"64 senders over many", "spread", m.gateway, 1, *chatConvs},
		{"64 senders, batches of one", "spread", m.single, 1, *chatConvs},
		{"512 senders over many", "wide", m.gateway, 1, *chatConvs},
		{"64 on their way from one, over many", "single", m.gateway, 64, *chatConvs},
		{"64 on their way from one, to one", "single", m.gateway, 64, 1},
		{"64 members over many", "crowd", m.gateway, 1, crowds["crowd"].conversations()},
		{"64 members in one", "crowd", m.gateway, 1, 1},
		{"single sender", "single", m.gateway, 1, *chatConvs},
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		got, use, err := m.load(c.to, c.crowd, c.window, c.convs, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		record(c.name, got.PerSecond)
		record(c.name+" p50", got.P50)
		record(c.name+" p99", got.P99)
		record(c.name+" batch", use.batch)
		record(c.name+" gateway", use.gateway)
		record(c.name+" postgres", use.postgres)
		record(c.name+" client", use.client)
		if c.name == "64 senders over many" {
			m.batch = max(1, int(math.Round(use.batch)))
			rate, err := m.statements(ctx)
			if err != nil {
				return fmt.Errorf("the statements alone: %w", err)
			}
			record("the statements alone", rate)
		}
	}
	p50, err := m.post(ctx)
	if err != nil {
		return fmt.Errorf("post_v1: %w", err)
	}
	record("post_v1 p50", p50)
	return nil
}

// usage is processor time per message, in microseconds, and messages per transaction.
type usage struct{ gateway, postgres, client, batch float64 }

// load has a crowd send for a while.
func (m *sends) load(g *process, crowd string, window, convs int, rate float64) (got sent, use usage, err error) {
	c := crowds[crowd]
	if err := m.client.ask("Connect", connect{g.addr, "tidings", secret, crowd, c.senders, c.receivers}, nil); err != nil {
		return got, use, err
	}
	before, err := m.count(g)
	if err != nil {
		return got, use, err
	}
	m.runs++
	var beside sync.WaitGroup
	if m.during != nil {
		beside.Go(m.during)
	}
	err = m.client.ask("Send", send{Run: fmt.Sprintf("run%d", m.runs), Conversations: convs, Window: window, Receipts: 1, Seconds: *chatSeconds, Rate: rate, Body: *chatBody}, &got)
	beside.Wait()
	if err != nil {
		return got, use, errors.Join(err, errors.New(g.said.String()))
	}
	after, err := m.count(g)
	if err != nil {
		return got, use, err
	}
	n := float64(got.Messages)
	use = usage{gateway: (after[0] - before[0]) / n * 1e6, postgres: (after[1] - before[1]) / n * 1e6, client: (after[2] - before[2]) / n * 1e6,
		batch: (after[3] - before[3]) / (after[4] - before[4])}
	return got, use, m.client.ask("Close", true, nil)
}

// count reads processor times and the committer's metrics.
func (m *sends) count(g *process) (now [5]float64, err error) {
	for i, pid := range []int{g.cmd.Process.Pid, m.server.PID(), m.client.cmd.Process.Pid} {
		if now[i], err = cpuSeconds(pid); err != nil {
			return now, err
		}
	}
	metrics, err := g.metric("tidings_gateway_commit_messages_sum", "tidings_gateway_commit_messages_count")
	if err == nil {
		now[3], now[4] = metrics[0], metrics[1]
	}
	return now, err
}

// statements calls what the committer calls, on as many connections and with batches of the same size, and nothing else.
func (m *sends) statements(ctx context.Context) (perSecond float64, err error) {
	var wg sync.WaitGroup
	m.runs++
	counts, errs := make([]int, 2), make([]error, 2)
	body := text(*chatBody)
	began := time.Now()
	until := began.Add(time.Duration(*chatSeconds * float64(time.Second)))
	for w := range counts {
		wg.Go(func() {
			n := 0
			for time.Now().Before(until) {
				batch := make([]tidings.Message, m.batch)
				for i := range batch {
					conv := (2*n + w) % *chatConvs // even ones and odd ones: nobody waits for a lock
					sender := fmt.Sprintf("spread-s-%d", conv%64)
					batch[i] = tidings.Message{Conv: fmt.Sprintf("spread-%d", conv), Sender: sender, Device: sender + "-d", Cmid: fmt.Sprintf("run%d-%d-%d", m.runs, w, n), Body: body}
					n++
				}
				answers, err := m.alone.Send(ctx, batch, 0)
				if err != nil {
					errs[w] = err
					return
				}
				for _, a := range answers {
					if a.Code != "" {
						errs[w] = fmt.Errorf("a message was refused: %s", a.Code)
						return
					}
				}
			}
			counts[w] = n
		})
	}
	wg.Wait()
	return float64(counts[0]+counts[1]) / time.Since(began).Seconds(), errors.Join(errs...)
}

// text is a body of n bytes.
func text(n int) string { return strings.Repeat("What people write to each other. ", n/33+1)[:n] }

// post measures single calls of post_v1 from one connection: the median in ms.
func (m *sends) post(ctx context.Context) (p50 float64, err error) {
	conn, err := m.alonePool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	m.runs++
	var times []float64
	body := text(*chatBody)
	for n, until := 0, time.Now().Add(time.Duration(*chatSeconds*float64(time.Second))); time.Now().Before(until); n++ {
		message, err := json.Marshal(map[string]string{"conv": fmt.Sprintf("single-%d", n%*chatConvs), "sender": "single-s-0", "device": "single-s-0-d",
			"cmid": fmt.Sprintf("run%d-%d", m.runs, n), "body": body})
		if err != nil {
			return 0, err
		}
		began := time.Now()
		var answers []tidings.Answer
		if err := conn.QueryRow(ctx, "SELECT tidings.post_v1(@input::json)", pgx.NamedArgs{"input": string(message)}).Scan(&answers); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(began))/1e6)
		if len(answers) != 1 || answers[0].Code != "" {
			return 0, fmt.Errorf("a message was refused: %+v", answers)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// openLoop sends at a rate, by the clock.
func (m *sends) openLoop(rate float64) error {
	got, _, err := m.load(m.gateway, "spread", 1, *chatConvs, rate)
	if err != nil {
		return fmt.Errorf("at half the rate: %w", err)
	}
	m.record("half the rate", got.PerSecond)
	m.record("half the rate p50", got.P50)
	m.record("half the rate p99", got.P99)
	m.record("half the rate late", got.Late)
	return nil
}

func (m *sends) report() {
	names := []string{"64 senders over many", "64 senders, batches of one", "512 senders over many", "64 on their way from one, over many", "64 on their way from one, to one",
		"64 members over many", "64 members in one", "single sender"}
	m.show("/s", names...)
	m.show("/s", "the statements alone")
	fmt.Printf("\n%-38s %8s %8s %7s   processor time per message: %s\n", "", "p50 ms", "p99 ms", "batch", "gateway, PostgreSQL, client (µs)")
	for _, name := range names {
		fmt.Printf("%-38s %8.2f %8.2f %7.1f   %6.1f %6.1f %6.1f\n", name, m.median(name+" p50"), m.median(name+" p99"), m.median(name+" batch"),
			m.median(name+" gateway"), m.median(name+" postgres"), m.median(name+" client"))
	}
	fmt.Printf("at half the rate, %.0f /s: p50 %.2f ms, p99 %.2f ms (the client was late by up to %.2f ms, p99)\n", m.median("half the rate"),
		m.median("half the rate p50"), m.median("half the rate p99"), m.median("half the rate late"))
	fmt.Printf("a single sender: p50 %.3f ms; post_v1: p50 %.3f ms\n\n", m.median("single sender p50"), m.median("post_v1 p50"))
	m.ratio("chat_send_to_batches_of_one", names[0], names[1])
	m.ratio("chat_send_to_statements_alone", names[0], "the statements alone")
	m.ratio("chat_512_to_64_senders", names[2], names[0])
	m.ratio("chat_hot_to_spread_one_connection", names[4], names[3])
	m.ratio("chat_hot_to_spread_64_members", names[6], names[5])
	m.ratio("chat_single_to_post_v1", "single sender p50", "post_v1 p50")
	fmt.Printf("ratio chat_p99_at_half_rate_ms %.2f\n", m.median("half the rate p99"))
}
