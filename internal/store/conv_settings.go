// Changes the settings of conversations.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// LongestSetting is the longest recall window and retention: 100 years of 365 days.
const LongestSetting = 100 * 365 * 24 * time.Hour

// Settings are what can be changed of a conversation.
type Settings struct {
	RecallWindow time.Duration  // how long a message can be recalled; 0: never
	Retention    *time.Duration // how long events are kept; nil: for ever
}

// SettingsChange is a change of settings, in whole milliseconds.
type SettingsChange struct {
	RecallWindow *time.Duration // nil: as it is
	Retention    *time.Duration // how long events are kept
	Forever      bool           // they are kept for ever; otherwise a Retention of nil leaves it as it is
}

// settingsSQL changes settings by conversation's primary key, under its lock.
const settingsSQL = `UPDATE tidings.conversation c SET recall_window_ms = coalesce(@window_ms::bigint, c.recall_window_ms),
		retention_ms = CASE WHEN @forever::boolean THEN NULL ELSE coalesce(@retention_ms::bigint, c.retention_ms) END
	WHERE c.conv_id = @conv RETURNING c.recall_window_ms, c.retention_ms`

// ChangeSettings changes settings of conv, those that are not nil, and returns what they are now. A recall is judged by the window at its
// time. What a shorter retention lets the next purge delete does not come back. NOT_FOUND tells that there is no such conversation.
func (s *Store) ChangeSettings(ctx context.Context, conv string, change SettingsChange) (now Settings, err error) {
	if err := tidings.CheckID("conv", conv); err != nil {
		return now, err
	}
	if err := checkSettings(change.RecallWindow, change.Retention); err != nil {
		return now, err
	}
	args := pgx.NamedArgs{"conv": conv, "window_ms": inMilliseconds(change.RecallWindow), "retention_ms": inMilliseconds(change.Retention), "forever": change.Forever}
	err = s.transact(ctx, "change settings of a conversation", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
			return err
		}
		var window int64
		var retention *int64
		if err := tx.QueryRow(ctx, settingsSQL, args).Scan(&window, &retention); err != nil {
			return err
		}
		now = Settings{RecallWindow: time.Duration(window) * time.Millisecond}
		if retention != nil {
			d := time.Duration(*retention) * time.Millisecond
			now.Retention = &d
		}
		return nil
	})
	return now, err
}

// checkSettings judges a recall window and a retention, those that are not nil.
func checkSettings(window, retention *time.Duration) error {
	if window != nil && (*window < 0 || *window > LongestSetting) || retention != nil && (*retention < time.Millisecond || *retention > LongestSetting) {
		return tidings.Errorf(tidings.InvalidArgument, "settings of a conversation: the recall window is 0 to 100 years, the retention a millisecond to 100 years")
	}
	return nil
}

// inMilliseconds is d in milliseconds, NULL where there is none.
func inMilliseconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
