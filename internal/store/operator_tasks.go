// Finds tasks for an operator: by user, by event key, by the provider's id.

package store

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Bounds of a search for tasks.
const (
	// SearchedNotifications is how many notifications of a user a search looks at; of more, those with the first event keys.
	SearchedNotifications = 10_000
	// providerTasks is how many tasks with one provider's id a search looks at. A provider that keeps its promise gives each id once.
	providerTasks = 1000
	// providerChannels is how many channels with receipts a search by a provider's id looks at.
	providerChannels = 200

	defaultTasks = 50
	maxTasks     = 500
)

// TaskFilter says which tasks an operator looks for: those of User, those that a provider knows as ProviderMsgID, or where both are given
// those for which both hold. One of the two is needed.
type TaskFilter struct {
	User          string
	EventKey      string // only of this event; empty: of all
	ProviderMsgID string
	Limit         int    // at most 500; 0: 50
	After         string // the cursor that the page before returned
}

// TaskItem is a task in such a list. TaskDetail has its journal.
type TaskItem struct {
	Task          tidings.UUID  `json:"task"`
	Notification  tidings.UUID  `json:"notification"`
	User          string        `json:"user"`
	EventKey      string        `json:"event_key"`
	Channel       string        `json:"channel"`
	Slot          string        `json:"slot" doc:"Empty: the address without a name."`
	State         tidings.State `json:"state"`
	NeedsReview   bool          `json:"needs_review"`
	InDoubt       bool          `json:"in_doubt"`
	AttemptCount  int           `json:"attempt_count"`
	ProviderMsgID string        `json:"provider_msg_id,omitempty"`
	LastError     string        `json:"last_error,omitempty"`
	CreatedAt     time.Time     `json:"created_at"`
	NextAttemptAt *time.Time    `json:"next_attempt_at,omitempty"`
}

const taskItemColumns = `t.id, t.notification_id, t.user_id, n.event_key, t.channel, t.slot, t.state, t.needs_review, t.outcome_uncertain, t.attempt_count,
		coalesce(t.provider_msg_id, ''), coalesce(t.last_error, ''), n.created_at, t.next_attempt_at`

// notesCountSQL counts a user's notifications as far as a search looks, through the unique index on (user_id, event_key, bucket).
const notesCountSQL = `SELECT count(*) FROM (SELECT FROM tidings.notification n
	 WHERE n.user_id = @user::text AND n.event_key BETWEEN @first_key::text AND @last_key::text AND n.bucket = @bucket::smallint
	 ORDER BY n.event_key LIMIT @most::bigint + 1) counted`

// tasksOfUserSQL reads a user's notifications through the unique index on (user_id, event_key, bucket), sorts them by time, and reads their
// tasks by primary key, newest first. Nothing else is ordered by user and time, and an index for that would cost every submission.
const tasksOfUserSQL = `WITH mine AS MATERIALIZED (
		SELECT n.id, n.bucket, n.event_key, n.created_at, n.payload_hash FROM tidings.notification n
		 WHERE n.user_id = @user::text AND n.event_key BETWEEN @first_key::text AND @last_key::text AND n.bucket = @bucket::smallint
		 ORDER BY n.event_key LIMIT @most::bigint
	)
	SELECT ` + taskItemColumns + `
	  FROM (SELECT m.* FROM mine m WHERE m.created_at <= coalesce(@at::timestamptz, 'infinity') ORDER BY m.created_at DESC OFFSET 0) n
	  JOIN tidings.task t ON ` + ofNote + `
	 WHERE t.bucket = @bucket::smallint AND (n.created_at, t.id) < (coalesce(@at::timestamptz, 'infinity'), @id::uuid)
	 ORDER BY n.created_at DESC, t.id DESC LIMIT @limit::bigint`

// tasksOfProviderSQL finds tasks by their provider's id through task_provider_msg, and through receipts that name it: a receipt's id may be
// another than the task's. Receipts begin with the channel, so that index is stepped through from each channel to the next.
const tasksOfProviderSQL = `WITH RECURSIVE step (channel, n) AS (
		(SELECT r.channel, 1 FROM tidings.receipt r ORDER BY r.channel LIMIT 1)
		 UNION ALL
		SELECT (SELECT r.channel FROM tidings.receipt r WHERE r.channel > s.channel ORDER BY r.channel LIMIT 1), s.n + 1
		  FROM step s WHERE s.channel IS NOT NULL AND s.n < @channels::bigint
	), found AS MATERIALIZED (
		(SELECT t.id FROM tidings.task t WHERE hashtextextended(t.provider_msg_id, 0) = hashtextextended(@provider_id::text, 0)
			AND t.provider_msg_id = @provider_id::text AND t.bucket = ANY (@buckets::smallint[]) LIMIT @most::bigint)
		 UNION
		(SELECT r.matched_task FROM step s JOIN tidings.receipt r ON r.channel = s.channel AND r.provider_msg_id = @provider_id::text
		  WHERE r.matched_task IS NOT NULL LIMIT @most::bigint)
	)
	SELECT ` + taskItemColumns + `
	  FROM found f
	  JOIN tidings.task t ON t.id = f.id AND t.bucket = get_byte(uuid_send(f.id), 0)
	  JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
	 WHERE t.bucket = ANY (@buckets::smallint[]) AND (n.created_at, t.id) < (coalesce(@at::timestamptz, 'infinity'), @id::uuid)
	   AND (@user::text = '' OR t.user_id = @user) AND (@event_key::text = '' OR n.event_key = @event_key)
	 ORDER BY n.created_at DESC, t.id DESC LIMIT @limit::bigint`

// FindTasks returns a page of the tasks that an operator looks for, newest first, and the cursor of the next page, empty when there is none.
// partial tells that the user has more than SearchedNotifications: only those with the first event keys were looked at. A user or an id
// that nobody knows has no tasks. INVALID_ARGUMENT: neither of the two is named, one is no id, or the cursor is not of this list.
func (s *Store) FindTasks(ctx context.Context, f TaskFilter) (items []TaskItem, next string, partial bool, err error) {
	at, id, err := parsePlace(f.After)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, "", false, err
	}
	if f.Limit <= 0 {
		f.Limit = defaultTasks
	}
	f.Limit = min(f.Limit, maxTasks)
	args := pgx.NamedArgs{"at": &at, "id": id, "user": f.User, "provider_id": f.ProviderMsgID, "event_key": f.EventKey, "limit": f.Limit + 1}
	if f.After == "" {
		args["at"], args["id"] = nil, lastUUID
	}
	batch := &pgx.Batch{}
	page := func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[TaskItem])
		return err
	}
	if f.ProviderMsgID != "" {
		args["buckets"], args["most"], args["channels"] = s.buckets, providerTasks, providerChannels
		batch.Queue(tasksOfProviderSQL, args)
		err = s.byKey(ctx, batch, page)
	} else {
		args["bucket"], args["most"] = tidings.Bucket(f.User), SearchedNotifications
		args["first_key"], args["last_key"] = f.EventKey, f.EventKey
		if f.EventKey == "" {
			args["last_key"] = lastID("")
		}
		batch.Queue(notesCountSQL, args)
		batch.Queue(tasksOfUserSQL, args)
		err = s.byKey(ctx, batch, func(rows pgx.Rows) error {
			n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			partial = n > SearchedNotifications
			return err
		}, page)
	}
	if err != nil {
		return nil, "", false, unchanged("find tasks", err)
	}
	if len(items) > f.Limit {
		items = items[:f.Limit]
		next = placeCursor(items[f.Limit-1].CreatedAt, items[f.Limit-1].Task)
	}
	return items, next, partial, nil
}

// check refuses what cannot be looked for.
func (f *TaskFilter) check() error {
	for name, id := range map[string]string{"user": f.User, "event_key": f.EventKey} {
		if id == "" {
			continue
		}
		if err := tidings.CheckID(name, id); err != nil {
			return err
		}
	}
	switch {
	case f.User == "" && f.ProviderMsgID == "":
		return tidings.Errorf(tidings.InvalidArgument, "tasks are found by user or by provider_id: name one of them")
	case len(f.ProviderMsgID) > maxReceiptID || !utf8.ValidString(f.ProviderMsgID) || strings.ContainsRune(f.ProviderMsgID, 0):
		return tidings.Errorf(tidings.InvalidArgument, "provider_id is not text of at most %d bytes", maxReceiptID)
	}
	return nil
}

// lastUUID is the greatest.
var lastUUID = tidings.UUID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// lastID is the greatest id that begins so.
func lastID(prefix string) string {
	return prefix + strings.Repeat("~", max(tidings.MaxID-len(prefix), 0))
}
