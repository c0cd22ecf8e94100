// The hearing half of a Bus.

package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// listen is the goroutine that hears. While it has no connection it calls CatchUp in place of every notification that it may miss.
func (b *Bus) listen(ctx context.Context, h Handler) {
	var caught time.Time // the last CatchUp of a deaf listener
	for pause := time.Duration(0); ctx.Err() == nil; {
		began := time.Now()
		err := b.hear(ctx, h)
		b.heard.deafened()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 2*(dialing+patience) {
			pause, caught = 0, time.Time{} // it had been heard
		}
		if pause == 0 {
			b.cfg.Log.Warn("the bus is not heard; the database is looked at instead", "error", err)
			pause = tick / 4
		}
		if time.Since(caught) >= beat {
			h.CatchUp("", !caught.IsZero())
			h.Woken()
			caught = time.Now()
		}
		sleep(ctx, pause)
		if pause *= 2; pause > patience {
			pause = patience
		}
	}
}

// hear keeps one connection listening until it is lost.
func (b *Bus) hear(ctx context.Context, h Handler) error {
	conn, err := b.connect(ctx, "tidings listen", nil)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	for _, channel := range []string{Channel, b.cfg.Also} {
		if channel == "" {
			continue
		}
		if _, err := b.try(ctx, conn, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return fmt.Errorf("listen on %s: %w", channel, err)
		}
	}
	// From here on nothing is missed; what was told before may have been.
	b.heard.hearing(time.Now())
	h.CatchUp("", false)
	h.Woken()
	for brought := time.Now(); ; {
		waiting, cancel := context.WithTimeout(ctx, tick)
		n, err := conn.WaitForNotification(waiting)
		timedOut := waiting.Err() != nil
		cancel()
		now := time.Now()
		switch {
		case err == nil:
			brought = now
			b.judge(n, h, now)
		case ctx.Err() != nil:
			return ctx.Err()
		case !timedOut || conn.IsClosed():
			return fmt.Errorf("wait for notifications: %w", err)
		case now.Sub(brought) >= probeAfter:
			// Our own repeated numbers come back on this connection: it is too silent.
			if _, err := b.try(ctx, conn, "SELECT 1"); err != nil {
				return fmt.Errorf("probe the listening connection: %w", err)
			}
			brought = now
		}
		b.heard.silent(now, h.CatchUp)
	}
}

func (b *Bus) try(ctx context.Context, conn *pgx.Conn, sql string) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return conn.Exec(ctx, sql)
}

func (b *Bus) judge(n *pgconn.Notification, h Handler, now time.Time) {
	if n.Channel != Channel {
		h.Woken()
		return
	}
	var p payload
	if err := json.Unmarshal([]byte(n.Payload), &p); err != nil {
		b.cfg.Log.Warn("a notification could not be read", "channel", Channel, "bytes", len(n.Payload), "error", err)
		h.CatchUp("", false)
		return
	}
	if p.Sender == b.self.Sender && p.Run == b.self.Run {
		return
	}
	fresh, lost := b.heard.hear(&p, now)
	if fresh && len(p.Items) > 0 {
		h.Heard(p.Items)
	}
	if lost {
		h.CatchUp(p.Sender, false)
	}
}
