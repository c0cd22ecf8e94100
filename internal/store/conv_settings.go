// Changes the settings of conversations.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// LongestSetting is the longest recall window, retention and wait before a notification: 100 years of 365 days.
const LongestSetting = 100 * 365 * 24 * time.Hour

// Settings are what can be changed of a conversation.
type Settings struct {
	RecallWindow time.Duration  // how long a message can be recalled; 0: never
	Retention    *time.Duration // how long events are kept; nil: for ever
	NotifyAfter  *time.Duration // after how long a member is notified of an unread message; nil: never
	Preview      bool           // the notification shows the message's text
}

// SettingsChange is a change of settings, in whole milliseconds.
type SettingsChange struct {
	RecallWindow *time.Duration // nil: as it is
	Retention    *time.Duration // how long events are kept
	Forever      bool           // they are kept for ever; otherwise a Retention of nil leaves it as it is
	NotifyAfter  *time.Duration // after how long a member is notified of an unread message
	NeverNotify  bool           // nobody is; otherwise a NotifyAfter of nil leaves it as it is
	Preview      *bool          // nil: as it is
}

// settingsSQL changes settings by conversation's primary key, under its lock.
const settingsSQL = `UPDATE tidings.conversation c SET recall_window_ms = coalesce(@window_ms::bigint, c.recall_window_ms),
		retention_ms = CASE WHEN @forever::boolean THEN NULL ELSE coalesce(@retention_ms::bigint, c.retention_ms) END,
		notify_after_ms = CASE WHEN @never_notify::boolean THEN NULL ELSE coalesce(@notify_after_ms::bigint, c.notify_after_ms) END,
		preview = coalesce(@preview::boolean, c.preview)
	WHERE c.conv_id = @conv RETURNING c.recall_window_ms, c.retention_ms, c.notify_after_ms, c.preview`

// ChangeSettings changes settings of conv, those that are not nil, and returns what they are now. A recall is judged by the window at its
// time. What a shorter retention lets the next purge delete does not come back. Members are notified of messages that are sent from then
// on. NOT_FOUND tells that there is no such conversation.
func (s *Store) ChangeSettings(ctx context.Context, conv string, change SettingsChange) (now Settings, err error) {
	if err := tidings.CheckID("conv", conv); err != nil {
		return now, err
	}
	if err := checkSettings(change.RecallWindow, change.Retention, change.NotifyAfter); err != nil {
		return now, err
	}
	args := pgx.NamedArgs{"conv": conv, "window_ms": inMilliseconds(change.RecallWindow), "retention_ms": inMilliseconds(change.Retention), "forever": change.Forever,
		"notify_after_ms": inMilliseconds(change.NotifyAfter), "never_notify": change.NeverNotify, "preview": change.Preview}
	err = s.transact(ctx, "change settings of a conversation", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
			return err
		}
		var window int64
		var retention, after *int64
		now = Settings{}
		if err := tx.QueryRow(ctx, settingsSQL, args).Scan(&window, &retention, &after, &now.Preview); err != nil {
			return err
		}
		now.RecallWindow, now.Retention, now.NotifyAfter = time.Duration(window)*time.Millisecond, ofMilliseconds(retention), ofMilliseconds(after)
		return nil
	})
	return now, err
}

// checkSettings judges a recall window, a retention and a wait before a notification, those that are not nil.
func checkSettings(window, retention, notifyAfter *time.Duration) error {
	long := func(d *time.Duration) bool { return d == nil || *d >= time.Millisecond && *d <= LongestSetting }
	if window != nil && (*window < 0 || *window > LongestSetting) || !long(retention) || !long(notifyAfter) {
		return tidings.Errorf(tidings.InvalidArgument,
			"settings of a conversation: the recall window is 0 to 100 years, the retention and the wait before a notification are a millisecond to 100 years")
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

// ofMilliseconds is the opposite.
func ofMilliseconds(ms *int64) *time.Duration {
	if ms == nil {
		return nil
	}
	d := time.Duration(*ms) * time.Millisecond
	return &d
}
