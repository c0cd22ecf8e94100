// Command bench measures Tidings on the same PostgreSQL, in one run, beside a plain claim of one task at a time and beside River
// (github.com/riverqueue/river) at the same durability. It starts a private PostgreSQL, takes the median of several rounds, in
// which the contestants take turns, and prints absolute figures and lines `ratio NAME VALUE`.
//
// It is a module of its own, so that the product does not depend on River.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/schema"
)

var (
	rounds  = flag.Int("rounds", 5, "rounds; the median counts")
	only    = flag.String("only", "", "measure only these, separated by commas: create, settle, flat, kill, chat-send, chat-idle, chat-fan, chat-purge, chat-rolling")
	profile = flag.String("cpuprofile", "", "write a CPU profile of this process")
	tasks   = flag.Int("tasks", 40_000, "tasks per round")
)

// settings are the server's, beside localpg's own: the same for every contestant. Durability is PostgreSQL's default.
var settings = map[string]string{
	"shared_buffers": "1GB", "wal_init_zero": "off", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "max_connections": "100",
	"autovacuum_naptime": "5s", "track_io_timing": "off",
}

func main() {
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			panic(err)
		}
		_ = pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	server, err := localpg.Start(ctx, localpg.Options{Settings: settings})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }()
	b := &bench{server: server, figures: map[string][]float64{}}
	defer b.close()
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"create", b.create}, {"settle", b.settle}, {"flat", b.flat}, {"kill", b.kill},
		{"chat-send", b.chatSend}, {"chat-idle", b.chatIdle}, {"chat-fan", b.chatFan}, {"chat-purge", b.chatPurge}, {"chat-rolling", b.chatRolling}} {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), part.name) {
			continue
		}
		began := time.Now()
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("# %s took %.0f s\n\n", part.name, time.Since(began).Seconds())
	}
	return nil
}

// bench holds what the parts share.
type bench struct {
	server  *localpg.Server
	pools   []*pgxpool.Pool
	figures map[string][]float64
}

func (b *bench) close() {
	for _, p := range b.pools {
		p.Close()
	}
}

// database makes an empty database and a pool on it; migrated databases have the product's schema.
func (b *bench) database(ctx context.Context, name string, migrated bool) (*pgxpool.Pool, string, error) {
	admin, err := pgxpool.New(ctx, b.server.URL("postgres"))
	if err != nil {
		return nil, "", err
	}
	defer admin.Close()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, "", err
	}
	url := b.server.URL(name)
	if migrated {
		if err := schema.Migrate(ctx, url); err != nil {
			return nil, "", err
		}
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, "", err
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, "", err
	}
	b.pools = append(b.pools, pool)
	return pool, url, nil
}

func (b *bench) record(name string, value float64) { b.figures[name] = append(b.figures[name], value) }

func (b *bench) median(name string) float64 {
	values := slices.Clone(b.figures[name])
	slices.Sort(values)
	return values[len(values)/2]
}

// show prints medians and the spread of the rounds.
func (b *bench) show(unit string, names ...string) {
	for _, name := range names {
		values := slices.Clone(b.figures[name])
		slices.Sort(values)
		fmt.Printf("%-34s %10.0f %s   (%.0f … %.0f)\n", name, b.median(name), unit, values[0], values[len(values)-1])
	}
}

func (b *bench) ratio(name, of, to string) {
	fmt.Printf("ratio %s %.2f\n", name, b.median(of)/b.median(to))
}
