// Measures false unknowns after SIGKILL.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab/worker"
)

const kills = 20

// kill measures how much a SIGKILL leaves in doubt that need not be: a worker with 64 calls in flight is killed at a random moment, and the
// tasks that it held are compared with what reached the provider. A task is falsely in doubt when its call had not reached the
// provider; one whose end was recorded is not held any more and cannot be.
func (b *bench) kill(ctx context.Context) error {
	pool, url, err := b.database(ctx, "killed", true)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tidings-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "worker")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/tidings-project/tidings/lab/cmd/worker").CombinedOutput(); err != nil {
		return fmt.Errorf("build the worker: %w: %s", err, out)
	}
	doubles, err := channeltest.Start(channeltest.Options{})
	if err != nil {
		return err
	}
	defer doubles.Close()
	if _, err := pool.Exec(ctx, `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
		SELECT tidings.bucket_of('u-' || g), 'u-' || g, 'plain', 'somewhere' FROM generate_series(0, $1::int - 1) g`, users); err != nil {
		return err
	}
	for i := range kills {
		if err := doubles.Reset(); err != nil {
			return err
		}
		if err := doubles.Script(channeltest.Script{Mode: channeltest.ModePlain, Steps: []channeltest.Step{{Do: channeltest.DoAccept, DelayMS: 50, Times: -1}}}); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "TRUNCATE tidings.notification, tidings.task, tidings.attempt"); err != nil {
			return err
		}
		if err := notify(ctx, pool, fmt.Sprintf("k%d", i), 0, 5000); err != nil {
			return err
		}
		cfg, err := json.Marshal(worker.Config{Database: url, Doubles: doubles.URL(), Name: "victim",
			Channels: []worker.Channel{{Name: "plain", Concurrency: 64, Timeout: 5 * time.Second, Lease: time.Minute}}})
		if err != nil {
			return err
		}
		victim := exec.CommandContext(ctx, program)
		victim.Stdin = bytes.NewReader(cfg)
		if err := victim.Start(); err != nil {
			return err
		}
		for sent := 0; sent < 200; time.Sleep(5 * time.Millisecond) {
			if err := pool.QueryRow(ctx, settledSQL).Scan(&sent); err != nil {
				return err
			}
		}
		time.Sleep(rand.N(100 * time.Millisecond)) // the moment of the kill is what is sampled
		_ = victim.Process.Kill()
		_ = victim.Wait() // killed
		rows, err := pool.Query(ctx, "SELECT id FROM tidings.task WHERE state = 'SENDING'")
		if err != nil {
			return err
		}
		held, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
		if err != nil {
			return err
		}
		falsely := 0
		for _, id := range held {
			counts, err := doubles.Counts(channeltest.ModePlain, tidings.UUID(id).Key())
			if err != nil {
				return err
			}
			if counts.Requests == 0 {
				falsely++
			}
		}
		b.record("held when killed", float64(len(held)))
		b.record("false unknowns per kill", float64(falsely))
	}
	b.show("tasks", "held when killed", "false unknowns per kill")
	total := 0.0
	for _, v := range b.figures["false unknowns per kill"] {
		total += v
	}
	fmt.Printf("ratio false_unknowns_per_kill_mean %.2f\n", total/kills)
	return nil
}
