// Listen: the plain form, for workers.

package bus

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// keepAlive is how long the listening connection may be silent before it is probed: a peer that vanished without a word is
// noticed by the probe.
const keepAlive = 30 * time.Second

// Listen keeps one connection of its own listening on channel and calls woken after each notification, and once after each
// (re)connection, because what was sent before is gone. It returns when ctx ends. woken must not block.
func Listen(ctx context.Context, cfg *pgx.ConnConfig, channel string, log *slog.Logger, woken func()) {
	pause := 100 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		err := listen(ctx, cfg, channel, woken)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > keepAlive {
			pause = 100 * time.Millisecond
		}
		log.Warn("the listening connection was lost; polling goes on", "channel", channel, "error", err, "again_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 10*time.Second)
	}
}

func listen(ctx context.Context, cfg *pgx.ConnConfig, channel string, woken func()) error {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing depends on how it ends
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen on %s: %w", channel, err)
	}
	woken()
	for {
		waiting, cancel := context.WithTimeout(ctx, keepAlive)
		_, err := conn.WaitForNotification(waiting)
		timedOut := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			woken()
		case ctx.Err() != nil:
			return ctx.Err()
		case timedOut && !conn.IsClosed():
			probing, cancel := context.WithTimeout(ctx, keepAlive/3)
			_, err := conn.Exec(probing, "SELECT 1")
			cancel()
			if err != nil {
				return fmt.Errorf("probe the listening connection: %w", err)
			}
		default:
			return fmt.Errorf("wait for notifications: %w", err)
		}
	}
}
