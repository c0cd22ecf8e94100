// What the measurements of conversations share: their flags, and the programs that they build and start.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var (
	chatSeconds     = flag.Float64("chat-seconds", 5, "how long each measurement of conversations sends")
	chatBody        = flag.Int("chat-body", 200, "bytes of a message")
	chatConvs       = flag.Int("chat-conversations", 10_000, "conversations that messages are spread over")
	chatProfile     = flag.String("chat-profile", "", "write a CPU profile of the gateway under load, as text, to this file")
	chatConnections = flag.Int("chat-connections", 15_000, "idle connections")
	chatIdle        = flag.Float64("chat-idle", 30, "seconds that connections idle before memory is looked at")
	chatMembers     = flag.Int("chat-members", 1000, "members who get each message in the measurement of fan-out")
)

// secret signs the tokens of the benchmark's users.
const secret = "known to the benchmark and its clients, 32 bytes and more"

// programs are what the measurements of conversations run: each is a process of its own.
type programs struct {
	dir                         string
	tidings, client, centrifuge string
}

// buildPrograms builds them. The servers get a probe, see client/probe.go, and are otherwise what is released.
func buildPrograms(ctx context.Context) (*programs, error) {
	here, err := sourceDir(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tidings-bench-")
	if err != nil {
		return nil, err
	}
	p := &programs{dir: dir, tidings: filepath.Join(dir, "tidings"), client: filepath.Join(dir, "client"), centrifuge: filepath.Join(dir, "centrifuge")}
	probe := filepath.Join(here, "client", "probe.go")
	overlay := filepath.Join(dir, "overlay.json")
	product := filepath.Dir(here)
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(product, "cmd", "tidings", "bench_probe.go"): probe, filepath.Join(here, "centrifuge", "bench_probe.go"): probe}})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	for _, b := range []struct{ dir, out, what string }{{product, p.tidings, "./cmd/tidings"}, {here, p.client, "./client"},
		{filepath.Join(here, "centrifuge"), p.centrifuge, "."}} {
		if err != nil {
			break
		}
		build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", b.out, b.what)
		build.Dir = b.dir
		if out, failed := build.CombinedOutput(); failed != nil {
			err = fmt.Errorf("build %s in %s: %w: %s", b.what, b.dir, failed, out)
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

// sourceDir is the directory of this module.
func sourceDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/tidings-project/tidings/bench").Output()
	if err != nil {
		return "", fmt.Errorf("find the benchmark's source: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (p *programs) remove() { _ = os.RemoveAll(p.dir) }

// chat measures conversations.
func (b *bench) chat(ctx context.Context, measure func(context.Context, *programs) error) (err error) {
	p, err := buildPrograms(ctx)
	if err != nil {
		return err
	}
	defer p.remove()
	return measure(ctx, p)
}

func (b *bench) chatSend(ctx context.Context) error { return b.chat(ctx, b.measureSends) }
func (b *bench) chatIdle(ctx context.Context) error { return b.chat(ctx, b.measureIdle) }
func (b *bench) chatFan(ctx context.Context) error  { return b.chat(ctx, b.measureFanOut) }
