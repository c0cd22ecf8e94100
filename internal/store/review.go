// Parked tasks: list and resolve.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// ReviewFilter narrows the list of tasks that wait for a person.
type ReviewFilter struct {
	Channel string // empty: all
	User    string // empty: all
	Limit   int    // at most maxReviews; 0: defaultReviews
	After   string // the cursor that the page before returned
}

// Sizes of a page of reviews.
const (
	defaultReviews = 50
	maxReviews     = 500
)

// ReviewItem is a task that waits for a person. TaskDetail has its journal.
type ReviewItem struct {
	Task
	EventKey    string     `json:"event_key"`
	Title       string     `json:"title,omitempty"`
	Category    string     `json:"category,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   time.Time  `json:"expires_at"`
	CancelledAt *time.Time `json:"cancelled_at,omitempty"`
	ErasedAt    *time.Time `json:"erased_at,omitempty"` // since when it has no content
}

// reviewsSQL reads parked tasks through task_review, oldest doubt first, and their notifications by primary key.
const reviewsSQL = `SELECT ` + taskColumns + `, n.event_key, coalesce(n.title, ''), coalesce(n.category, ''), n.created_at, n.expires_at, n.cancelled_at, n.erased_at
	  FROM tidings.task t
	  JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
	 WHERE t.needs_review AND t.bucket = ANY (@buckets::smallint[]) AND (t.doubt_at, t.id) > (@doubt_at::timestamptz, @id::uuid)
	   AND (@channel::text = '' OR t.channel = @channel) AND (@user::text = '' OR t.user_id = @user)
	 ORDER BY t.doubt_at, t.id LIMIT @limit`

// ListReviews returns a page of the tasks that wait for a person, oldest doubt first, and the cursor of the next page, empty
// when there is none. A task that is settled or parked meanwhile leaves or joins the list at its place.
func (s *Store) ListReviews(ctx context.Context, f ReviewFilter) (items []ReviewItem, next string, err error) {
	doubtAt, id, err := parsePlace(f.After)
	if err != nil {
		return nil, "", err
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultReviews
	}
	limit = min(limit, maxReviews)
	rows, err := s.pool.Query(ctx, reviewsSQL, pgx.NamedArgs{"buckets": s.buckets, "doubt_at": doubtAt, "id": id,
		"channel": f.Channel, "user": f.User, "limit": limit + 1})
	if err != nil {
		return nil, "", unchanged("list reviews", err)
	}
	items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r ReviewItem, err error) {
		err = row.Scan(append(r.Task.fields(), &r.EventKey, &r.Title, &r.Category, &r.CreatedAt, &r.ExpiresAt, &r.CancelledAt, &r.ErasedAt)...)
		return r, err
	})
	if err != nil {
		return nil, "", unchanged("list reviews", err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = placeCursor(*items[limit-1].DoubtAt, items[limit-1].ID)
	}
	return items, next, nil
}

// What a person can say about a parked task.
const (
	VerbSent   = "SENT"   // it was sent
	VerbFailed = "FAILED" // it was not sent
	VerbResend = "resend" // send it once more: a second copy is accepted
)

// Resolution is a person's word about a parked task.
type Resolution struct {
	Task         tidings.UUID
	Verb         string // VerbSent, VerbFailed or VerbResend
	Note         string // why; at most maxNote bytes
	By           string // who; at most tidings.MaxID bytes
	AttemptCount int    // the attempt count that the person saw
}

const maxNote = 2000

// lockTaskSQL locks a task by primary key. What it returns is read after the lock was won.
const lockTaskSQL = `SELECT t.needs_review, t.attempt_count FROM tidings.task t WHERE t.id = @id AND t.bucket = @bucket FOR UPDATE`

// mayResendSQL tells by primary keys why a locked task must not be sent any more; empty when nothing speaks against it. A claim
// would park it again for the same reasons.
const mayResendSQL = `SELECT CASE WHEN n.erased_at IS NOT NULL THEN 'its content was erased'
		WHEN n.cancelled_at IS NOT NULL THEN 'it was cancelled'
		WHEN p.enabled IS NOT TRUE THEN 'its channel is switched off for the user'
		WHEN EXISTS (SELECT FROM tidings.optout o WHERE o.user_id = t.user_id AND o.bucket = @bucket
			AND o.category = n.category AND o.channel IN ('', t.channel)) THEN 'the user opted out'
		WHEN n.about_gone_at IS NOT NULL THEN 'the message it speaks of is gone'
		WHEN n.expires_at <= statement_timestamp() THEN 'it expired' ELSE '' END
	  FROM tidings.task t
	  JOIN tidings.notification n ON n.id = t.notification_id AND n.bucket = t.bucket
	  LEFT JOIN tidings.channel_pref p ON p.user_id = t.user_id AND p.channel = t.channel AND p.slot = t.slot AND p.bucket = t.bucket
	 WHERE t.id = @id AND t.bucket = @bucket AND n.bucket = @bucket`

// resolveSQL carries out a person's word on a locked, parked task, by primary key. The doubt itself stays on record: a person
// has judged it, nothing has cleared it.
// edge: resolve-sent, resolve-failed, resend
const resolveSQL = `WITH parked AS MATERIALIZED (
		SELECT t.id, t.bucket, t.attempt_count + 1 AS n, t.budget_left + (@verb::text = 'resend')::int AS budget,
			statement_timestamp() AS now_at
		  FROM tidings.task t WHERE t.id = @id AND t.bucket = @bucket AND t.state = 'UNKNOWN' AND t.needs_review
	), settled AS (
		UPDATE tidings.task t SET state = CASE @verb::text WHEN 'resend' THEN 'UNKNOWN' ELSE @verb END, needs_review = false,
			attempt_count = p.n, budget_left = p.budget, force_send = @verb = 'resend',
			next_attempt_at = CASE WHEN @verb = 'resend' THEN p.now_at END,
			settled_by = CASE WHEN @verb <> 'resend' THEN @by::text END
		  FROM parked p WHERE t.id = p.id AND t.bucket = p.bucket AND t.bucket = @bucket
	)
	INSERT INTO tidings.attempt (bucket, task_id, n, action, worker, started_at, finished_at, outcome, detail)
	SELECT p.bucket, p.id, p.n, 'NONE', @by::text, p.now_at, p.now_at, 'MANUAL_' || upper(@verb), nullif(@note::text, '')
	  FROM parked p`

// Resolve carries out a person's word about a parked task, once: of two persons one wins. Errors: NOT_FOUND; ALREADY_SETTLED
// when the task is not parked (any more); CONFLICT when its attempt count is not the one that the person saw;
// INVALID_ARGUMENT, also for a resend of what must not be sent any more.
func (s *Store) Resolve(ctx context.Context, r Resolution) error {
	switch {
	case r.Verb != VerbSent && r.Verb != VerbFailed && r.Verb != VerbResend:
		return tidings.Errorf(tidings.InvalidArgument, "a task is resolved as %s, %s or %s, not as %q", VerbSent, VerbFailed, VerbResend, r.Verb)
	case r.By == "" || len(r.By) > tidings.MaxID:
		return tidings.Errorf(tidings.InvalidArgument, "a resolution names who made it, in at most %d bytes", tidings.MaxID)
	case len(r.Note) > maxNote:
		return tidings.Errorf(tidings.TooLarge, "the note is %d bytes long, at most %d are allowed", len(r.Note), maxNote)
	}
	args := pgx.NamedArgs{"id": r.Task, "bucket": r.Task.Bucket(), "verb": r.Verb, "note": r.Note, "by": r.By}
	return s.transact(ctx, "resolve a task", func(ctx context.Context, tx pgx.Tx) error {
		var parked bool
		var count int
		err := tx.QueryRow(ctx, lockTaskSQL, args).Scan(&parked, &count)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return tidings.Errorf(tidings.NotFound, "there is no such task")
		case err != nil:
			return err
		case !parked:
			return tidings.Errorf(tidings.AlreadySettled, "the task is not waiting for a person")
		case count != r.AttemptCount:
			return tidings.Errorf(tidings.Conflict, "the task has %d attempts by now, not %d: look at it again", count, r.AttemptCount)
		}
		if r.Verb == VerbResend {
			var why string
			if err := tx.QueryRow(ctx, mayResendSQL, args).Scan(&why); err != nil {
				return err
			}
			if why != "" {
				return tidings.Errorf(tidings.InvalidArgument, "the task must not be sent any more: %s", why)
			}
		}
		_, err = tx.Exec(ctx, resolveSQL, args)
		return err
	})
}

// ResolveMany carries out several resolutions in the order given, each in a transaction of its own, and returns an answer for
// each: nil where it was carried out. Of two for one task the first wins.
func (s *Store) ResolveMany(ctx context.Context, all []Resolution) []error {
	answers := make([]error, len(all))
	for i, r := range all {
		if ctx.Err() != nil {
			answers[i] = &tidings.Error{Code: tidings.Unavailable, Message: "resolve a task: there was no time left for it", Err: context.Cause(ctx)}
			continue
		}
		answers[i] = s.Resolve(ctx, r)
	}
	return answers
}
