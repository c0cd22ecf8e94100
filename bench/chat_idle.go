// Measures what connections cost that say nothing, beside an echo server and Centrifugo's library.

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidings-project/tidings/internal/store"
)

const (
	groupSize          = 50 // members of a conversation, or subscribers of a channel
	groupConversations = 3  // of a user
)

// idleMembersSQL puts user u-n into the conversations c-(n/50)-0, -1 and -2.
const (
	idleConversationsSQL = `INSERT INTO tidings.conversation (conv_id, epoch) SELECT 'c-' || n || '-' || k, (SELECT generation FROM tidings.lineage)
		FROM generate_series(0, $1::int / 50) n, generate_series(0, 2) k`
	idleMembersSQL = `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT 'c-' || n / 50 || '-' || k, 'u-' || n, 1
		FROM generate_series(0, $1::int - 1) n, generate_series(0, 2) k`
)

type (
	idle struct {
		Addr, Protocol, Secret string
		Locals                 int
		Name                   string
		Connections            int
		Seconds                float64
	}
	idled struct {
		Open, Pings int
		Took        float64
	}
)

// measureIdle measures what connections cost that say nothing: each is of a user of its own, in three conversations of fifty or subscribed to
// three channels of fifty.
func (b *bench) measureIdle(ctx context.Context, p *programs) error {
	pool, url, err := b.database(ctx, "chat_idle", true)
	if err != nil {
		return err
	}
	if err := store.New(pool).EnsureLineage(ctx); err != nil {
		return err
	}
	for _, seed := range []string{idleConversationsSQL, idleMembersSQL} {
		if _, err := pool.Exec(ctx, seed, *chatConnections); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	contestants := []struct {
		name, protocol string
		start          func() (*process, error)
	}{
		{"tidings", "tidings", func() (*process, error) { return startGateway(p, url) }},
		{"centrifuge", "centrifuge", func() (*process, error) { return startOther(p.centrifuge) }},
		{"centrifuge, lean", "centrifuge", func() (*process, error) { return startOther(p.centrifuge, "-lean") }},
		{"echo", "echo", func() (*process, error) { return startOther(p.client, "echo") }},
	}
	figures := []string{"RSS", "RSS without garbage", "heap", "stacks", "kernel slabs", "TCP buffers"}
	for range *rounds {
		for _, c := range contestants {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := b.idleOnce(p, c.name, c.protocol, c.start); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	for _, c := range contestants {
		fmt.Printf("%s: %d connections within %.1f s, %.1f goroutines for each; bytes for each:\n", c.name, *chatConnections, b.median(c.name+" took"), b.median(c.name+" goroutines"))
		for _, f := range figures {
			b.show("B", c.name+" "+f)
		}
	}
	fmt.Println("(kernel: of the whole machine, for both ends of each connection)")
	for _, f := range []struct{ name, figure string }{{"rss", "RSS"}, {"rss_without_garbage", "RSS without garbage"}} {
		fmt.Printf("ratio chat_idle_%s_kB %.2f\n", f.name, b.median("tidings "+f.figure)/1000)
		b.ratio("chat_idle_"+f.name+"_to_centrifuge", "tidings "+f.figure, "centrifuge "+f.figure)
		b.ratio("chat_idle_"+f.name+"_to_centrifuge_lean", "tidings "+f.figure, "centrifuge, lean "+f.figure)
		b.ratio("chat_idle_"+f.name+"_to_echo", "tidings "+f.figure, "echo "+f.figure)
	}
	return nil
}

// idleOnce holds idle connections at a new server and records what each of them costs.
func (b *bench) idleOnce(p *programs, name, protocol string, start func() (*process, error)) error {
	server, err := start()
	if err != nil {
		return err
	}
	defer server.stop()
	client, err := startClient(p)
	if err != nil {
		return err
	}
	defer client.stop()
	empty, err := lookAt(server)
	if err != nil {
		return err
	}
	var got idled
	err = client.ask("Idle", idle{Addr: server.addr, Protocol: protocol, Secret: secret, Locals: 8, Name: "u", Connections: *chatConnections, Seconds: *chatIdle}, &got)
	if err != nil {
		return err
	}
	if got.Open != *chatConnections {
		return fmt.Errorf("%d of %d connections are open", got.Open, *chatConnections)
	}
	full, err := lookAt(server)
	if err != nil {
		return err
	}
	b.record(name+" took", got.Took)
	for figure, value := range full {
		b.record(name+" "+figure, (value-empty[figure])/float64(*chatConnections))
	}
	return client.ask("Close", true, nil)
}

// lookAt is what a server and the kernel hold, in bytes.
func lookAt(server *process) (map[string]float64, error) {
	pid := server.cmd.Process.Pid
	as, err := resident(pid)
	if err != nil {
		return nil, err
	}
	slab, tcp, err := kernelMemory()
	if err != nil {
		return nil, err
	}
	text, err := server.get("/memory")
	if err != nil {
		return nil, err
	}
	var memory struct{ Heap, Stack, Goroutines float64 }
	if err := json.Unmarshal(text, &memory); err != nil {
		return nil, err
	}
	clean, err := resident(pid)
	return map[string]float64{"RSS": as, "RSS without garbage": clean, "heap": memory.Heap, "stacks": memory.Stack, "goroutines": memory.Goroutines,
		"kernel slabs": slab, "TCP buffers": tcp}, err
}
