// Pauses of channels.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// ChannelState says that a channel was paused.
type ChannelState struct {
	Channel string     `json:"channel"`
	Paused  bool       `json:"paused"`          // false when the pause is over
	Until   *time.Time `json:"until,omitempty"` // nil: until it is resumed
	Reason  string     `json:"reason"`
	By      string     `json:"by"`
	At      time.Time  `json:"at"`
}

// pauseSQL stores a pause under its primary key; a later one replaces it.
const pauseSQL = `INSERT INTO tidings.channel_state AS c (channel, paused_until, reason, by, at)
	VALUES (@channel, coalesce(@until::timestamptz, 'infinity'), @reason, @by, statement_timestamp())
	ON CONFLICT (channel) DO UPDATE SET paused_until = excluded.paused_until, reason = excluded.reason, by = excluded.by, at = excluded.at`

// PauseChannel keeps every worker from claiming on a channel, until a time or, when until is nil, until it is resumed. What
// was claimed before is still sent; what expires meanwhile does so.
func (s *Store) PauseChannel(ctx context.Context, channel string, until *time.Time, reason, by string) error {
	if err := tidings.CheckID("channel", channel); err != nil {
		return err
	}
	_, err := s.changed(ctx, "pause a channel", pauseSQL, pgx.NamedArgs{"channel": channel, "until": until, "reason": reason, "by": by})
	return err
}

// resumeSQL deletes a pause by primary key.
const resumeSQL = `DELETE FROM tidings.channel_state c WHERE c.channel = @channel`

// ResumeChannel ends a pause. Resuming a channel that is not paused changes nothing.
func (s *Store) ResumeChannel(ctx context.Context, channel string) error {
	_, err := s.changed(ctx, "resume a channel", resumeSQL, pgx.NamedArgs{"channel": channel})
	return err
}

// channelStatesSQL reads the small table of pauses.
const channelStatesSQL = `SELECT c.channel, c.paused_until > statement_timestamp(), nullif(c.paused_until, 'infinity'), c.reason, c.by, c.at
	FROM tidings.channel_state c ORDER BY c.channel`

// ChannelStates returns the channels that were paused and not resumed, by name.
func (s *Store) ChannelStates(ctx context.Context) ([]ChannelState, error) {
	rows, err := s.pool.Query(ctx, channelStatesSQL)
	if err != nil {
		return nil, unchanged("read channel states", err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ChannelState])
	return states, unchanged("read channel states", err)
}

// countLimit is where the counts of a channel's health stop: a page about a channel with a million due tasks costs no more
// than one with ten thousand. A count of countLimit means that many or more.
const countLimit = 10_001

// ChannelHealth is how a channel is doing. Counts stop at 10 001, which means "more than 10 000".
type ChannelHealth struct {
	Channel   string     `json:"channel"`
	Due       int        `json:"due"`                  // tasks whose time has come
	OldestDue *time.Time `json:"oldest_due,omitempty"` // since when the oldest of them is due
	InFlight  int        `json:"in_flight"`            // tasks that a worker holds
	Review    int        `json:"review"`               // tasks that wait for a person
}

// healthSQL counts a channel's due tasks and finds the oldest through task_due, per priority because that is its second column,
// the held ones through task_lease and the parked ones through task_review.
const healthSQL = `SELECT @channel::text,
	(SELECT count(*) FROM (SELECT FROM tidings.task t WHERE t.channel = @channel::text AND t.priority = ANY ('{0,1,2}'::smallint[])
		AND t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review AND t.next_attempt_at <= statement_timestamp()
		AND t.bucket = ANY (@buckets::smallint[]) LIMIT @limit) due),
	least(` + oldestDue0 + `, ` + oldestDue1 + `, ` + oldestDue2 + `),
	(SELECT count(*) FROM (SELECT FROM tidings.task t WHERE t.channel = @channel::text AND t.state = 'SENDING'
		AND t.bucket = ANY (@buckets::smallint[]) LIMIT @limit) held),
	(SELECT count(*) FROM (SELECT FROM tidings.task t WHERE t.channel = @channel::text AND t.needs_review
		AND t.bucket = ANY (@buckets::smallint[]) ORDER BY t.doubt_at LIMIT @limit) parked)`

// oldestDue… probe task_due for the front of one priority: since when its oldest due task is due.
const (
	oldestDueHead = `(SELECT t.next_attempt_at FROM tidings.task t WHERE t.channel = @channel::text AND t.priority = `
	oldestDueTail = ` AND t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review AND t.next_attempt_at <= statement_timestamp()
		AND t.bucket = ANY (@buckets::smallint[]) ORDER BY t.next_attempt_at LIMIT 1)`
	oldestDue0 = oldestDueHead + `0` + oldestDueTail
	oldestDue1 = oldestDueHead + `1` + oldestDueTail
	oldestDue2 = oldestDueHead + `2` + oldestDueTail
)

// ChannelHealth returns the health of each of the channels, in the order given.
func (s *Store) ChannelHealth(ctx context.Context, channels []string) ([]ChannelHealth, error) {
	all := make([]ChannelHealth, 0, len(channels))
	for _, channel := range channels {
		rows, err := s.pool.Query(ctx, healthSQL, pgx.NamedArgs{"channel": channel, "buckets": s.buckets, "limit": countLimit})
		if err != nil {
			return nil, unchanged("read a channel's health", err)
		}
		health, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[ChannelHealth])
		if err != nil {
			return nil, unchanged("read a channel's health", err)
		}
		all = append(all, health)
	}
	return all, nil
}
