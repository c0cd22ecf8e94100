// Command worker runs a worker with the channels of the doubles until SIGTERM. It reads its configuration, the JSON of
// package lab/worker, from standard input. It prints READY with its name and clock before it claims anything, what it logs,
// and DONE when it has drained.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/lab/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	fmt.Println("DONE")
}

func run(ctx context.Context) error {
	var cfg worker.Config
	if err := json.NewDecoder(os.Stdin).Decode(&cfg); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
	pc, err := pgxpool.ParseConfig(cfg.Database)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	pc.ConnConfig.RuntimeParams["application_name"] = cfg.Name
	pc.MaxConns = int32(2*len(cfg.Channels) + 2) // what package dispatch says it uses
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), pc)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	w, err := worker.New(pool, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	fmt.Println("READY", cfg.Name, time.Now().UTC().Format(time.RFC3339Nano))
	return w.Run(ctx)
}
