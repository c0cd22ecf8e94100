// Measures how one message reaches many members who are online, beside Centrifugo's library.

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/store"
)

type (
	fan struct {
		Run               string
		Messages, PauseMS int
		Text, Publish     string
	}
	fanned struct{ Began, Given, Seqs, Last []int64 }
	flood  struct {
		Run           string
		Window        int
		Seconds       float64
		Text, Publish string
	}
	flooded struct {
		Messages  int
		PerSecond float64
	}
)

const (
	fanMessages = 200 // of one round of latencies
	fanWindow   = 8   // messages on their way in a flood
)

// commitsSQL reads when events were committed, in µs since 1970: track_commit_timestamp is on for this measurement.
const commitsSQL = `SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint FROM tidings.event WHERE conv_id = 'fan-0' AND seq = ANY ($1::bigint[]) ORDER BY seq`

// measureFanOut measures how one message gets to many members who are online, beside the publication of the same bytes to as many
// subscribers of Centrifugo's library, which stores nothing.
func (b *bench) measureFanOut(ctx context.Context, p *programs) error {
	with := maps.Clone(settings)
	with["track_commit_timestamp"] = "on"
	server, err := localpg.Start(ctx, localpg.Options{Settings: with})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }()
	own := &bench{server: server, figures: b.figures}
	defer own.close()
	pool, url, err := own.database(ctx, "chat_fan", true)
	if err != nil {
		return err
	}
	if err := store.New(pool).EnsureLineage(ctx); err != nil {
		return err
	}
	// One sender, and the receivers as further members.
	if err := seedCrowd(ctx, pool, "fan", crowd{senders: 1, fewer: *chatConvs}); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT 'fan-0', 'fan-r-' || n, 1 FROM generate_series(0, $1::int - 1) n`, *chatMembers); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	gateway, err := startGateway(p, url)
	if err != nil {
		return err
	}
	defer gateway.stop()
	centrifuge, err := startOther(p.centrifuge, "-one", "-lean")
	if err != nil {
		return err
	}
	defer centrifuge.stop()
	client, err := startClient(p)
	if err != nil {
		return err
	}
	defer client.stop()
	// What is published is what the gateway pushes of such a message.
	pushed := fmt.Sprintf(`{"t":"event","epoch":1792466430123456,"event":{"conv":"fan-0","seq":1000,"kind":"msg","mid":"99c1f6ad-646c-4aa8-891b-300a2df0e5e6","sender":"fan-s-0","sdev":"fan-s-0-d","cmid":"run1-1000","body":"%s","at":1792466430123}}`, text(*chatBody))
	publish := "http://" + centrifuge.addr + "/publish"
	for round := range *rounds + 1 {
		record := func(name string, value float64) {
			if round > 0 {
				b.record(name, value)
			}
		}
		run := fmt.Sprintf("run%d", round)
		err := b.fanOnce(client, "tidings", connect{gateway.addr, "tidings", secret, "fan", 1, *chatMembers}, gateway, fan{run, fanMessages, 5, text(*chatBody), ""}, record,
			func(f fanned) ([]int64, error) { return commits(ctx, pool, f.Seqs) })
		if err != nil {
			return fmt.Errorf("tidings: %w", err)
		}
		err = b.fanOnce(client, "centrifuge", connect{centrifuge.addr, "centrifuge", "", "fan", 0, *chatMembers}, centrifuge, fan{run, fanMessages, 5, pushed, publish}, record,
			func(f fanned) ([]int64, error) { return f.Given, nil })
		if err != nil {
			return fmt.Errorf("centrifuge: %w", err)
		}
	}
	for _, name := range []string{"tidings", "centrifuge"} {
		b.show("/s", name+" deliveries")
		b.show("µs", name+" until the last, p50", name+" until the last, p99")
		fmt.Printf("%s: processor time of a delivery %.2f µs\n", name, b.median(name+" cpu"))
	}
	fmt.Printf("tidings from the send on: p50 %.0f µs, p99 %.0f µs\n", b.median("tidings from the send, p50"), b.median("tidings from the send, p99"))
	b.ratio("chat_fanout_deliveries_to_centrifuge", "tidings deliveries", "centrifuge deliveries")
	b.ratio("chat_fanout_p50_to_centrifuge", "tidings until the last, p50", "centrifuge until the last, p50")
	b.ratio("chat_fanout_p99_to_centrifuge", "tidings until the last, p99", "centrifuge until the last, p99")
	return nil
}

// fanOnce measures latencies, from the instant that since tells to the last receipt, and then a flood.
func (b *bench) fanOnce(client *process, name string, to connect, server *process, f fan, record func(string, float64), since func(fanned) ([]int64, error)) error {
	if err := client.ask("Connect", to, nil); err != nil {
		return err
	}
	var got fanned
	if err := client.ask("Fan", f, &got); err != nil {
		return err
	}
	from, err := since(got)
	if err != nil {
		return err
	}
	if len(from) != len(got.Last) {
		return fmt.Errorf("%d instants of %d messages", len(from), len(got.Last))
	}
	p50, p99 := percentiles(from, got.Last)
	record(name+" until the last, p50", p50)
	record(name+" until the last, p99", p99)
	p50, p99 = percentiles(got.Began, got.Last)
	record(name+" from the send, p50", p50)
	record(name+" from the send, p99", p99)
	before, err := cpuSeconds(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	var all flooded
	if err := client.ask("Flood", flood{"flood" + f.Run, fanWindow, *chatSeconds, f.Text, f.Publish}, &all); err != nil {
		return err
	}
	after, err := cpuSeconds(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	record(name+" deliveries", all.PerSecond)
	record(name+" cpu", (after-before)/float64(all.Messages*to.Receivers)*1e6)
	return client.ask("Close", true, nil)
}

// percentiles are those of the times between instants in ns, in µs.
func percentiles(from, to []int64) (p50, p99 float64) {
	times := make([]float64, len(from))
	for i := range from {
		times[i] = float64(to[i]-from[i]) / 1000
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}

// commits are when events were committed, in ns since 1970.
func commits(ctx context.Context, pool *pgxpool.Pool, seqs []int64) ([]int64, error) {
	rows, err := pool.Query(ctx, commitsSQL, seqs)
	if err != nil {
		return nil, err
	}
	at, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for i := range at {
		at[i] *= int64(time.Microsecond)
	}
	return at, err
}
