// The scene of the demo in which the database is lost and restored.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/localpg"
)

const restoredConv = "c-restored"

// restoreBackup loses what two devices have written after a backup.
func restoreBackup(ctx context.Context, st *chatStage) (string, error) {
	major, err := value[int](ctx, st, `SELECT current_setting('server_version_num')::int / 10000`)
	if err != nil {
		return "", err
	}
	for _, program := range []string{"pg_dump", "pg_restore"} {
		if _, err := localpg.FindClient(program, major, major); err != nil {
			return "", notPlayed{err}
		}
	}
	if err := st.close(); err != nil { // those of the other scenes
		return "", err
	}
	if err := st.create(&env{ctx: ctx}, restoredConv, lifePeople, 0); err != nil {
		return "", err
	}
	var devices []*device
	for _, user := range lifePeople {
		d, err := st.open(user, "watch", nil)
		if err != nil {
			return "", err
		}
		devices = append(devices, d)
	}
	regretted, err := stored(ctx, devices[0], restoredConv, "regretted", "this is recalled after the backup")
	if err == nil {
		_, err = stored(ctx, devices[1], restoredConv, "kept", "this is in the backup")
	}
	if err != nil {
		return "", err
	}
	backup := filepath.Join(st.dir, "backup")
	if err := ran(ctx, "backup", func(e *env) error {
		return (&backupCmd{database: database{URL: st.box.DatabaseURL()}, To: backup}).Run(e)
	}); err != nil {
		return "", err
	}
	if err := st.afterwards(ctx, devices, regretted); err != nil {
		return "", err
	}
	st.level.Set(slog.LevelError + 1) // it says again and again what this scene, the last one, is about
	if err := st.exchange(ctx, backup); err != nil {
		return "", err
	}
	if err := st.refusing(ctx); err != nil {
		return "", err
	}
	if err := ran(ctx, "recover", func(e *env) error {
		return (&recoverCmd{database: database{URL: st.box.DatabaseURL()}, OutsideDir: st.dir}).Run(e)
	}); err != nil {
		return "", err
	}
	return st.converges(ctx, devices, regretted)
}

// afterwards writes what the backup does not have, and waits until the recall is in the journal.
func (st *chatStage) afterwards(ctx context.Context, devices []*device, regretted client.Sent) error {
	for i, d := range devices {
		for n := range 2 {
			sent, err := stored(ctx, d, restoredConv, fmt.Sprintf("late-%d-%d", i, n), fmt.Sprintf("this is not in the backup: %d", n))
			if err != nil {
				return err
			}
			for _, other := range devices {
				if err := other.hears(ctx, "a message", arrived(sent.Seq)); err != nil {
					return err
				}
			}
		}
	}
	pending, err := devices[0].Recall(client.Recall{Conv: restoredConv, Target: client.Position{Epoch: regretted.Epoch, Seq: regretted.Seq}})
	if err == nil {
		_, err = pending.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("recall: %w", err)
	}
	return st.awaits(ctx, "the recall in the journal", `SELECT bool_and(copied) FROM tidings.taken_back`)
}

// ran runs a command of this program; what it printed is part of its error.
func ran(ctx context.Context, name string, run func(*env) error) error {
	var said bytes.Buffer
	if err := run(&env{ctx: ctx, stdout: &said, stderr: &said}); err != nil {
		return fmt.Errorf("tidings %s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// exchange puts a restored database in the place of the present one, under the eyes of the server.
func (st *chatStage) exchange(ctx context.Context, backup string) error {
	return st.box.Exchange(ctx, func(url string) error {
		return ran(ctx, "restore", func(e *env) error { return (&restoreCmd{database: database{URL: url}, From: backup}).Run(e) })
	})
}

// refusing waits until the server says that it serves nobody before a recovery.
func (st *chatStage) refusing(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, st.api.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(req); err == nil {
			text, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err == nil && answer.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), "tidings recover") {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("the server does not notice that the database is another")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// converges sends one more message and compares what the devices have with the table.
func (st *chatStage) converges(ctx context.Context, devices []*device, regretted client.Sent) (string, error) {
	for _, d := range devices {
		d.Reconnect()
	}
	again, err := stored(ctx, devices[1], restoredConv, "again", "and on it goes")
	if err != nil {
		return "", err
	}
	for i, d := range devices {
		for n := range 2 {
			cmid := fmt.Sprintf("late-%d-%d", i, n)
			if err := d.hears(ctx, "that "+cmid+" is lost", func(u client.Update) bool { l, ok := u.(client.Lost); return ok && l.Cmid == cmid }); err != nil {
				return "", err
			}
		}
		if err := d.until(ctx, "the new history", func() bool {
			return len(d.copied(again.Epoch)) > 0 && d.copied(again.Epoch)[len(d.copied(again.Epoch))-1] == "again"
		}); err != nil {
			return "", err
		}
	}
	log, err := value[[]string](ctx, st, `SELECT array_agg(cmid ORDER BY seq) FROM tidings.event WHERE conv_id = $1 AND kind = 'msg'`, restoredConv)
	if err != nil {
		return "", err
	}
	body, err := value[bool](ctx, st, `SELECT body IS NOT NULL FROM tidings.event WHERE conv_id = $1 AND cmid = 'regretted'`, restoredConv)
	if err != nil {
		return "", err
	}
	var wrong []string
	lost := 0
	for _, d := range devices {
		d.mu.Lock()
		if !slices.Equal(d.copied(again.Epoch), log) {
			wrong = append(wrong, fmt.Sprintf("%s has %v", d.user, d.copied(again.Epoch)))
		}
		for _, u := range d.told {
			if _, ok := u.(client.Lost); ok {
				lost++
			}
		}
		d.mu.Unlock()
		if d.text(restoredConv, regretted.Seq) != "" {
			wrong = append(wrong, d.user+" has the recalled text")
		}
	}
	if len(wrong) > 0 || body || !slices.Equal(log, []string{"regretted", "kept", "again"}) || lost != 4 || again.Epoch == regretted.Epoch {
		return "", fmt.Errorf("the log is %v, with the recalled text: %t, lost are %d; %s", log, body, lost, strings.Join(wrong, "; "))
	}
	return fmt.Sprintf("Until `tidings recover` had run nobody was served. Both devices have the new history, epoch %d, and each was told which 2 of its messages are lost. "+
		"What was recalled after the backup has no text: the journal told.", again.Epoch), nil
}

// copied are the cmids of the messages that a device was told of in one history. It needs the device's lock.
func (d *device) copied(epoch int64) (cmids []string) {
	for _, u := range d.told {
		if a, ok := u.(client.Arrived); ok && a.Epoch == epoch && a.Event.Conv == restoredConv && a.Event.Cmid != "" && a.Event.Kind == "msg" {
			cmids = append(cmids, a.Event.Cmid)
		}
	}
	return cmids
}
