// Reads and cancels notifications; tasks and journals.

package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Notification is a stored notification with its tasks. Its JSON form is what the API answers.
type Notification struct {
	ID          tidings.UUID       `json:"id"`
	User        string             `json:"user"`
	EventKey    string             `json:"event_key"`
	Title       string             `json:"title,omitempty"` // empty once purged or erased, as are Body and Data; once purged Category and Channels, too
	Body        string             `json:"body,omitempty"`
	Data        json.RawMessage    `json:"data,omitempty"`
	Category    string             `json:"category,omitempty"`
	Channels    []string           `json:"channels,omitempty"`
	Priority    tidings.Priority   `json:"priority"`
	MaxAttempts int                `json:"max_attempts"`
	Duplicates  tidings.Duplicates `json:"duplicates"`
	About       *tidings.About     `json:"about,omitempty"`
	Preview     bool               `json:"preview,omitempty"`       // the body is that of the message it is about, read when the call is made
	AboutGoneAt *time.Time         `json:"about_gone_at,omitempty"` // since when its source message is gone
	NotBefore   *time.Time         `json:"not_before,omitempty"`
	ExpiresAt   time.Time          `json:"expires_at"`
	CreatedAt   time.Time          `json:"created_at"`
	CancelledAt *time.Time         `json:"cancelled_at,omitempty"`
	ErasedAt    *time.Time         `json:"erased_at,omitempty"` // its user was erased
	PurgedAt    *time.Time         `json:"purged_at,omitempty"`
	Tasks       []Task             `json:"tasks"` // by channel and slot; none once purged
}

// Task is a notification on one channel to one address.
type Task struct {
	ID            tidings.UUID     `json:"id"` // also its idempotency key and the reference of queries and receipts (UUID.Key)
	Notification  tidings.UUID     `json:"notification"`
	User          string           `json:"user"`
	Channel       string           `json:"channel"`
	Slot          string           `json:"slot,omitempty"`
	Priority      tidings.Priority `json:"priority"`
	State         tidings.State    `json:"state"`
	Review        bool             `json:"review"`   // waits for a person
	InDoubt       bool             `json:"in_doubt"` // may have been accepted
	AttemptCount  int              `json:"attempt_count"`
	BudgetLeft    int              `json:"budget_left"`
	NextAttemptAt *time.Time       `json:"next_attempt_at,omitempty"`
	LeaseOwner    string           `json:"lease_owner,omitempty"`
	LeaseUntil    *time.Time       `json:"lease_until,omitempty"`
	FirstCallAt   *time.Time       `json:"first_call_at,omitempty"` // the first SEND that may have reached the provider
	DoubtAt       *time.Time       `json:"doubt_at,omitempty"`      // the end of the newest SEND in doubt
	Forced        bool             `json:"forced"`                  // a person ordered one more send
	SettledBy     string           `json:"settled_by,omitempty"`    // the person who settled it
	ProviderMsgID string           `json:"provider_msg_id,omitempty"`
	LastError     string           `json:"last_error,omitempty"`
}

// Attempt is one row of a task's journal. Its token is not shown: it is the proof of holding a task.
type Attempt struct {
	N             int             `json:"n"`
	Action        tidings.Action  `json:"action"`
	Worker        string          `json:"worker"` // the lease's owner; of a decision: who made it
	StartedAt     time.Time       `json:"started_at"`
	FinishedAt    *time.Time      `json:"finished_at,omitempty"`
	Outcome       tidings.Outcome `json:"outcome,omitempty"` // empty while it runs, or as long as nothing is known of its end
	Detail        string          `json:"detail,omitempty"`
	ProviderMsgID string          `json:"provider_msg_id,omitempty"`
	LateOutcome   tidings.Outcome `json:"late_outcome,omitempty"` // what a superseded holder observed
	LateDetail    string          `json:"late_detail,omitempty"`
	LateAt        *time.Time      `json:"late_at,omitempty"`
}

// TaskDetail is a task with its journal and with what of its notification a person needs to judge it.
type TaskDetail struct {
	Task
	EventKey    string         `json:"event_key"`
	Title       string         `json:"title,omitempty"`
	Body        string         `json:"body,omitempty"`
	About       *tidings.About `json:"about,omitempty"`
	Preview     bool           `json:"preview,omitempty"` // the body that was sent was the beginning of the message it is about
	Address     string         `json:"address,omitempty"` // frozen at the first claim
	CreatedAt   time.Time      `json:"created_at"`
	ExpiresAt   time.Time      `json:"expires_at"`
	CancelledAt *time.Time     `json:"cancelled_at,omitempty"`
	ErasedAt    *time.Time     `json:"erased_at,omitempty"` // since when it has neither content nor address
	Attempts    []Attempt      `json:"attempts"`            // by number
}

const (
	notificationColumns = `n.id, n.user_id, n.event_key, coalesce(n.title, ''), coalesce(n.body, ''), n.data, coalesce(n.category, ''), n.channels,
		n.priority, n.max_attempts, n.duplicates, n.about_conv, n.about_seq, n.preview, n.about_gone_at, n.not_before, n.expires_at, n.created_at,
		n.cancelled_at, n.erased_at, n.purged_at`

	taskColumns = `t.id, t.notification_id, t.user_id, t.channel, t.slot, t.priority, t.state, t.needs_review, t.outcome_uncertain, t.attempt_count,
		t.budget_left, t.next_attempt_at, coalesce(t.lease_owner, ''), t.lease_until, t.first_call_at, t.doubt_at, t.force_send,
		coalesce(t.settled_by, ''), coalesce(t.provider_msg_id, ''), coalesce(t.last_error, '')`
)

// fields are the places for taskColumns.
func (t *Task) fields() []any {
	return []any{&t.ID, &t.Notification, &t.User, &t.Channel, &t.Slot, &t.Priority, &t.State, &t.Review, &t.InDoubt, &t.AttemptCount,
		&t.BudgetLeft, &t.NextAttemptAt, &t.LeaseOwner, &t.LeaseUntil, &t.FirstCallAt, &t.DoubtAt, &t.Forced,
		&t.SettledBy, &t.ProviderMsgID, &t.LastError}
}

func scanTask(row pgx.CollectableRow) (t Task, err error) {
	err = row.Scan(t.fields()...)
	return t, err
}

// notificationByIDSQL reads a notification by its primary key.
const notificationByIDSQL = `SELECT ` + notificationColumns + ` FROM tidings.notification n WHERE n.id = @id AND n.bucket = @bucket`

// GetNotification reads a notification and its tasks in one snapshot. The error is NOT_FOUND when there is none.
func (s *Store) GetNotification(ctx context.Context, id tidings.UUID) (Notification, error) {
	return s.notification(ctx, notificationByIDSQL, pgx.NamedArgs{"id": id, "bucket": id.Bucket()})
}

// notificationByKeySQL reads a notification through the unique index on (user_id, event_key, bucket).
const notificationByKeySQL = `SELECT ` + notificationColumns + ` FROM tidings.notification n
	WHERE n.user_id = @user AND n.event_key = @event_key AND n.bucket = @bucket`

// FindNotification is GetNotification by the notification's identity.
func (s *Store) FindNotification(ctx context.Context, user, eventKey string) (Notification, error) {
	return s.notification(ctx, notificationByKeySQL, pgx.NamedArgs{"user": user, "event_key": eventKey, "bucket": tidings.Bucket(user)})
}

// ofNote finds the tasks t of a notification n by their primary key: their ids begin alike. A notification that was purged has no
// hash, and no tasks.
const ofNote = `t.id BETWEEN tidings.first_task_id(n.bucket, n.payload_hash) AND tidings.last_task_id(n.bucket, n.payload_hash)
		AND t.bucket = n.bucket AND t.notification_id = n.id`

// tasksSQL reads the tasks of a notification by primary keys.
const tasksSQL = `SELECT ` + taskColumns + ` FROM tidings.notification n JOIN tidings.task t ON ` + ofNote + `
	WHERE n.id = @notification AND n.bucket = @bucket ORDER BY t.channel, t.slot`

func (s *Store) notification(ctx context.Context, sql string, args pgx.NamedArgs) (n Notification, err error) {
	err = s.snapshot(ctx, "read a notification", func(ctx context.Context, tx pgx.Tx) error {
		var conv *string
		var seq *int64
		err := tx.QueryRow(ctx, sql, args).Scan(&n.ID, &n.User, &n.EventKey, &n.Title, &n.Body, &n.Data, &n.Category, &n.Channels,
			&n.Priority, &n.MaxAttempts, &n.Duplicates, &conv, &seq, &n.Preview, &n.AboutGoneAt, &n.NotBefore, &n.ExpiresAt, &n.CreatedAt,
			&n.CancelledAt, &n.ErasedAt, &n.PurgedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return tidings.Errorf(tidings.NotFound, "there is no such notification")
		}
		if err != nil {
			return err
		}
		if conv != nil && seq != nil {
			n.About = &tidings.About{Conv: *conv, Seq: *seq}
		}
		rows, err := tx.Query(ctx, tasksSQL, pgx.NamedArgs{"notification": n.ID, "bucket": n.ID.Bucket()})
		if err != nil {
			return err
		}
		n.Tasks, err = pgx.CollectRows(rows, scanTask)
		return err
	})
	return n, err
}

// taskDetailSQL reads a task and its notification, both by primary key.
const taskDetailSQL = `SELECT ` + taskColumns + `, n.event_key, coalesce(n.title, ''), coalesce(n.body, ''), n.about_conv, n.about_seq, n.preview, coalesce(t.address, ''),
		n.created_at, n.expires_at, n.cancelled_at, n.erased_at
	  FROM tidings.task t
	  JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
	 WHERE t.id = @id AND t.bucket = @bucket AND n.bucket = @bucket`

// attemptsSQL reads a task's journal by the primary key's first column.
const attemptsSQL = `SELECT a.n, a.action, a.worker, a.started_at, a.finished_at, coalesce(a.outcome, ''), coalesce(a.detail, ''),
		coalesce(a.provider_msg_id, ''), coalesce(a.late_outcome, ''), coalesce(a.late_detail, ''), a.late_at
	  FROM tidings.attempt a WHERE a.task_id = @id AND a.bucket = @bucket ORDER BY a.n`

// TaskDetail reads a task and its journal in one snapshot. The error is NOT_FOUND when there is none, or no more.
func (s *Store) TaskDetail(ctx context.Context, id tidings.UUID) (d TaskDetail, err error) {
	args := pgx.NamedArgs{"id": id, "bucket": id.Bucket()}
	err = s.snapshot(ctx, "read a task", func(ctx context.Context, tx pgx.Tx) error {
		var conv *string
		var seq *int64
		err := tx.QueryRow(ctx, taskDetailSQL, args).Scan(append(d.Task.fields(), &d.EventKey, &d.Title, &d.Body, &conv, &seq, &d.Preview, &d.Address, &d.CreatedAt, &d.ExpiresAt, &d.CancelledAt, &d.ErasedAt)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return tidings.Errorf(tidings.NotFound, "there is no such task")
		}
		if err != nil {
			return err
		}
		if conv != nil && seq != nil {
			d.About = &tidings.About{Conv: *conv, Seq: *seq}
		}
		rows, err := tx.Query(ctx, attemptsSQL, args)
		if err != nil {
			return err
		}
		d.Attempts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Attempt])
		return err
	})
	return d, err
}

// cancelSQL marks a notification, by primary key. The mark is made once and is all that a cancellation is: every claim
// judges it.
const cancelSQL = `WITH target AS MATERIALIZED (
		SELECT n.id, n.bucket, n.cancelled_at IS NULL AND n.purged_at IS NULL AS open, n.purged_at IS NOT NULL AS purged, statement_timestamp() AS now_at
		  FROM tidings.notification n WHERE n.id = @id AND n.bucket = @bucket FOR UPDATE
	), marked AS (
		UPDATE tidings.notification n SET cancelled_at = t.now_at
		  FROM target t WHERE n.id = t.id AND n.bucket = t.bucket AND n.bucket = @bucket AND t.open
	)
	SELECT t.open, t.purged FROM target t`

// CancelNotification forbids every further send of a notification and tells whether this call did (false: an earlier one).
// A task that was not sent becomes SUPPRESSED when it is claimed; one that may have been accepted waits for a person; a
// call that is on its way is not taken back. Errors: NOT_FOUND, ORIGINAL_EXPIRED when it was purged.
func (s *Store) CancelNotification(ctx context.Context, id tidings.UUID) (cancelled bool, err error) {
	err = s.write(ctx, "cancel a notification", func(ctx context.Context) error {
		var purged bool
		err := s.pool.QueryRow(ctx, cancelSQL, pgx.NamedArgs{"id": id, "bucket": id.Bucket()}).Scan(&cancelled, &purged)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return tidings.Errorf(tidings.NotFound, "there is no such notification")
		case err == nil && purged:
			return tidings.Errorf(tidings.OriginalExpired, "the notification was purged")
		}
		return err
	})
	return cancelled, err
}
