// Claims and takeovers of tasks.

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Lane is what a claim has to know of the channel that it claims for and of the worker that claims.
type Lane struct {
	Channel  string
	Worker   string        // the lease's owner, as it stands in the journal
	Renderer string        // of this worker's adapter
	Lease    time.Duration // how long a claim holds
	Timeout  time.Duration // how long a call may take

	// The contract, as far as a claim judges by it. Zero values: no key, no query.
	KeyWindow     time.Duration // how long after the first call a repeat may be claimed: the provider's window less the lease
	Query         bool
	Settle        time.Duration
	Horizon       time.Duration // 0: no limit is known
	AbsenceProves bool
}

// ClaimID is the random part of the tokens of one claim, by which its rows are found when its answer was lost.
type ClaimID [7]byte

// Claimed is a task that a claim took (State is Sending) or settled.
type Claimed struct {
	ID        tidings.UUID
	Note      tidings.UUID // its notification
	Token     tidings.UUID
	State     tidings.State
	Held      tidings.Held    // what the end of the attempt depends on
	Stop      tidings.Outcome // why it must not be sent any more; "" when nothing speaks against it
	N         int             // the attempt's number
	FirstCall bool            // this claim is the first SEND that may reach the provider
	Keyed     bool            // this SEND relies on the provider's deduplication
	Lost      bool            // taken over from a holder that did not report in time
	Priority  tidings.Priority
	Due       time.Time // when it was due; of an expired lease: when that ended
	At        time.Time // when it was claimed, by the database's clock

	User, EventKey, Address, Title, Body, Category string
	AddressVersion                                 int64
	Slot                                           string
	Data                                           json.RawMessage
	CreatedAt, ExpiresAt, FirstCallAt              time.Time
	RequestHash                                    []byte

	// The message whose text is the body, of a notification with a preview; otherwise empty.
	AboutConv string
	AboutSeq  int64
}

const (
	// keyHolds: a repeated SEND of task t would be recognised by the provider. The window counts from the first call;
	// other bytes than the first request's, or another renderer, lose the key.
	keyHolds = `(@key_ms::float8 > 0 AND NOT t.key_lost AND (t.renderer IS NULL OR t.renderer = @renderer::text)
		AND statement_timestamp() < coalesce(t.first_call_at, statement_timestamp()) + @key_ms::float8 * interval '1 millisecond')`

	// taken are the columns of a task by which a claim judges. A held task keeps force_send until its attempt ends, so that a
	// released claim leaves the order standing; a lost lease has used it up.
	taken = `t.id, t.bucket, t.user_id, t.notification_id, t.channel, t.slot, t.priority, t.state, t.attempt_token,
		t.attempt_count, t.budget_left, t.outcome_uncertain, t.first_call_at, t.doubt_at, t.force_send AND t.state <> 'SENDING' AS force_send, t.lease_until,
		t.next_attempt_at, t.address, t.address_version, t.renderer, t.request_hash, ` + keyHolds + ` AS key_holds`

	// dueWhere finds due tasks through task_due, from the watermark on. A task whose next action is a QUERY is not due
	// before the provider's settle time is over.
	dueWhere = ` t.state IN ('PENDING', 'UNKNOWN') AND NOT t.needs_review AND t.next_attempt_at <= statement_timestamp()
		AND t.bucket = ANY (@buckets::smallint[]) AND NOT (SELECT yes FROM paused)
		AND (NOT @query::boolean OR t.doubt_at IS NULL OR t.force_send OR ` + keyHolds + `
		     OR t.doubt_at + @settle_ms::float8 * interval '1 millisecond' <= statement_timestamp())
		ORDER BY t.next_attempt_at, t.id `

	// paused is read in the claim itself, so that pausing binds every worker at once. It fails if the log is another than the connection
	// was judged on: nothing is sent from a dump that is being restored in place.
	paused = `paused AS MATERIALIZED (
		SELECT tidings.on_log(@log::oid) AND EXISTS (SELECT FROM tidings.channel_state c WHERE c.channel = @channel::text AND c.paused_until > statement_timestamp()) AS yes
	), `

	// judge decides, in the statement that takes the rows, what is to be done with each: preference, opt-out, cancel,
	// source, expiry and the contract's windows are judged by the database's clock, and nothing can change between the
	// judgement and the lease. A task that must not be sent any more is settled when it certainly was not accepted, and
	// waits for a person when it may have been.
	//
	// The steps inside one another are subqueries with OFFSET 0: each is computed once for a row, and unlike a CTE none
	// keeps a copy of the content.
	judge = `judged AS MATERIALIZED (
		SELECT r.id, r.bucket, r.notification_id, r.user_id, r.event_key, r.slot, r.priority, r.title, r.body, r.data, r.category, r.created_at, r.expires_at, r.preview_conv, r.preview_seq,
			r.attempt_token, r.force_send, r.in_doubt, r.doubted, r.first_call_at, r.to_address, r.to_version, r.renderer, r.request_hash,
			r.key_holds, r.fallback, r.stop, r.action, r.now_at, r.until, coalesce(r.next_attempt_at, r.lease_until) AS due,
			CASE WHEN r.action <> 'NONE' THEN 'SENDING' WHEN r.in_doubt THEN 'UNKNOWN'
				WHEN r.stop = 'TTL_EXPIRED' THEN 'FAILED' ELSE 'SUPPRESSED' END AS to_state,
			r.budget_left - (r.action <> 'NONE')::int AS budget,
			r.action <> 'NONE' OR r.stop IS NOT NULL AS noted,
			r.attempt_count + (r.action <> 'NONE' OR r.stop IS NOT NULL)::int AS n,
			r.action = 'SEND' AND r.first_call_at IS NULL AS first_call,
			CASE WHEN r.action <> 'NONE' THEN encode(overlay(uuid_send(r.id) PLACING @claim::bytea FROM 2), 'hex')::uuid END AS token
		  FROM (SELECT f.*, CASE WHEN f.stop IS NOT NULL OR f.budget_left = 0 THEN 'NONE'
			WHEN NOT f.in_doubt OR f.force_send THEN 'SEND' ELSE f.fallback END AS action
		  FROM (SELECT d.*, n.event_key, n.title, n.body, n.data, n.category, n.created_at, n.expires_at,
			CASE WHEN n.preview THEN n.about_conv END AS preview_conv, CASE WHEN n.preview THEN n.about_seq END AS preview_seq,
			d.state <> 'PENDING' AS in_doubt,
			coalesce(d.address, p.address) AS to_address, coalesce(d.address_version, p.version) AS to_version,
			CASE WHEN n.cancelled_at IS NOT NULL THEN 'CANCELLED'
				WHEN p.enabled IS NOT TRUE OR n.category IS NOT NULL AND EXISTS (SELECT FROM tidings.optout o WHERE o.user_id = d.user_id AND o.bucket = d.bucket
					AND o.category = n.category AND o.channel IN ('', d.channel)) THEN 'PREF_DISABLED'
				WHEN n.about_gone_at IS NOT NULL THEN 'SOURCE_GONE'
				WHEN n.expires_at <= statement_timestamp() THEN 'TTL_EXPIRED' END AS stop,
			CASE WHEN d.key_holds THEN 'SEND' WHEN @query::boolean THEN 'QUERY' WHEN n.duplicates = 'allow' THEN 'SEND' ELSE 'NONE' END AS fallback,
			CASE WHEN d.state = 'SENDING' THEN d.lease_until + @timeout_ms::float8 * interval '1 millisecond' ELSE d.doubt_at END AS doubted,
			statement_timestamp() AS now_at, statement_timestamp() + @lease_ms::float8 * interval '1 millisecond' AS until
		  FROM due d
		  JOIN tidings.notification n ON n.id = d.notification_id AND n.bucket = d.bucket
		  LEFT JOIN tidings.channel_pref p ON p.user_id = d.user_id AND p.channel = d.channel AND p.slot = d.slot AND p.bucket = d.bucket
		  OFFSET 0) f OFFSET 0) r
	)`

	// lost notes in the journal that the former holder of a taken-over task did not report.
	lost = `, lost AS (
		UPDATE tidings.attempt a SET outcome = 'LEASE_EXPIRED', finished_at = j.now_at
		  FROM judged j WHERE a.task_id = j.id AND a.bucket = j.bucket AND a.token = j.attempt_token AND a.outcome IS NULL
	)`

	// take writes leases and journal rows. The UPDATE reads the few columns that it needs: PostgreSQL copies what stands
	// in its FROM for every row, and the content is large.
	take = `, taking AS (
		UPDATE tidings.task t SET state = j.to_state, attempt_token = j.token,
			lease_owner = CASE WHEN j.to_state = 'SENDING' THEN @worker::text END, lease_until = j.lease_until,
			attempt_count = j.n, budget_left = j.budget,
			outcome_uncertain = j.in_doubt, next_attempt_at = NULL, needs_review = j.to_state = 'UNKNOWN', force_send = j.force_send,
			first_call_at = j.first_call_at, doubt_at = j.doubted,
			address = j.to_address, address_version = j.to_version, renderer = coalesce(j.renderer, @renderer::text)
		  FROM (SELECT r.id, r.bucket, r.to_state, r.token, CASE WHEN r.to_state = 'SENDING' THEN r.until END AS lease_until, r.n, r.budget, r.in_doubt,
				r.force_send AND r.to_state = 'SENDING' AS force_send, CASE WHEN r.first_call THEN r.now_at ELSE r.first_call_at END AS first_call_at,
				r.doubted, r.to_address, r.to_version, r.renderer
			FROM judged r OFFSET 0) j WHERE t.id = j.id AND t.bucket = j.bucket
	), journal AS (
		INSERT INTO tidings.attempt (bucket, task_id, n, token, action, worker, started_at, finished_at, outcome)
		SELECT j.bucket, j.id, j.n, j.token, j.action, @worker::text, j.now_at,
			CASE WHEN j.action = 'NONE' THEN j.now_at END,
			CASE WHEN j.action = 'NONE' THEN j.stop || CASE WHEN j.in_doubt THEN '_UNCERTAIN' ELSE '' END END
		  FROM judged j WHERE j.noted
	)
	SELECT j.id, j.notification_id, j.token, j.to_state, j.action, j.in_doubt, j.force_send, j.budget, j.fallback,
		@absence::boolean AND coalesce(j.doubted + @settle_ms::float8 * interval '1 millisecond' <= j.now_at, true)
			AND (@horizon_ms::float8 = 0 OR coalesce(j.first_call_at + @horizon_ms::float8 * interval '1 millisecond' > j.until, false)) AS conclusive,
		coalesce(j.stop, '') AS stop, j.n, j.first_call, j.in_doubt AND j.key_holds AND NOT j.force_send AS keyed, j.priority,
		j.due, j.user_id, j.event_key, coalesce(j.to_address, '') AS address, coalesce(j.title, '') AS title,
		coalesce(j.body, '') AS body, coalesce(j.category, '') AS category, coalesce(j.to_version, 0) AS address_version, j.slot,
		j.data, j.created_at, j.expires_at, coalesce(j.first_call_at, j.now_at) AS first_call_at, j.request_hash, j.now_at, j.attempt_token IS NOT NULL AS lost,
		coalesce(j.preview_conv, '') AS preview_conv, coalesce(j.preview_seq, 0) AS preview_seq
	  FROM judged j`
)

// claimSQL takes due tasks of a channel, urgent ones first. Each priority has its own scan, because one scan over all of them
// would read every due newsletter to find a code.
// edge: claim, claim-unknown, suppress, expire, park-unknown
const claimSQL = `WITH ` + paused + `
	urgent AS MATERIALIZED (SELECT ` + taken + ` FROM tidings.task t
		WHERE t.channel = @channel::text AND t.priority = 0 AND t.next_attempt_at >= @floor0::timestamptz AND` + dueWhere + `LIMIT @slots::bigint FOR UPDATE SKIP LOCKED),
	normal AS MATERIALIZED (SELECT ` + taken + ` FROM tidings.task t
		WHERE t.channel = @channel::text AND t.priority = 1 AND t.next_attempt_at >= @floor1::timestamptz AND` + dueWhere + `
		LIMIT @slots::bigint - (SELECT count(*) FROM urgent) FOR UPDATE SKIP LOCKED),
	bulk AS MATERIALIZED (SELECT ` + taken + ` FROM tidings.task t
		WHERE t.channel = @channel::text AND t.priority = 2 AND t.next_attempt_at >= @floor2::timestamptz AND` + dueWhere + `
		LIMIT @slots::bigint - (SELECT count(*) FROM urgent) - (SELECT count(*) FROM normal) FOR UPDATE SKIP LOCKED),
	due AS (SELECT * FROM urgent UNION ALL SELECT * FROM normal UNION ALL SELECT * FROM bulk),
	` + judge + take

// Claim takes up to slots due tasks of the lane's channel, writes their leases, tokens and journal rows under claimID, and
// settles those that must not be sent any more. mark narrows the scan and is advanced; nil scans from the beginning.
//
// An error with the code OUTCOME_UNKNOWN may have taken tasks: Release gives them back by claimID.
func (s *Store) Claim(ctx context.Context, l Lane, slots int, claimID ClaimID, mark *Watermark) ([]Claimed, error) {
	args := s.laneArgs(l, slots, claimID)
	began := time.Now()
	floors := mark.floors(began)
	for p, floor := range floors {
		args["floor"+string(rune('0'+p))] = floor
	}
	rows, err := s.claim(ctx, "claim due tasks", claimSQL, args)
	mark.advance(began, floors, slots, rows, err)
	return rows, err
}

// reclaimSQL takes over tasks whose lease is over, through task_lease. Their former attempts may have been accepted, so they are in
// doubt, and the journal says LEASE_EXPIRED unless the former holder has reported meanwhile. Where the contract leaves a QUERY
// it waits until the lost call has certainly ended and settled.
// edge: reclaim, park-lease
const reclaimSQL = `WITH ` + paused + `
	due AS MATERIALIZED (SELECT ` + taken + ` FROM tidings.task t
		WHERE t.channel = @channel::text AND t.state = 'SENDING' AND t.lease_until < statement_timestamp() AND t.bucket = ANY (@buckets::smallint[])
		  AND NOT (SELECT yes FROM paused)
		  AND (NOT @query::boolean OR ` + keyHolds + `
		       OR t.lease_until + (@timeout_ms::float8 + @settle_ms::float8) * interval '1 millisecond' <= statement_timestamp())
		ORDER BY t.lease_until LIMIT @slots::bigint FOR UPDATE SKIP LOCKED),
	` + judge + lost + take

// Reclaim takes over up to slots tasks of the lane's channel whose lease is over. Errors are those of Claim.
func (s *Store) Reclaim(ctx context.Context, l Lane, slots int, claimID ClaimID) ([]Claimed, error) {
	return s.claim(ctx, "take over expired leases", reclaimSQL, s.laneArgs(l, slots, claimID))
}

func (s *Store) laneArgs(l Lane, slots int, claimID ClaimID) pgx.NamedArgs {
	return pgx.NamedArgs{
		"channel": l.Channel, "worker": l.Worker, "renderer": l.Renderer, "claim": claimID[:], "slots": slots, "buckets": s.buckets,
		"lease_ms": l.Lease.Milliseconds(), "timeout_ms": l.Timeout.Milliseconds(), "key_ms": l.KeyWindow.Milliseconds(),
		"query": l.Query, "settle_ms": l.Settle.Milliseconds(), "horizon_ms": l.Horizon.Milliseconds(), "absence": l.AbsenceProves,
	}
}

func (s *Store) claim(ctx context.Context, doing, sql string, args pgx.NamedArgs) ([]Claimed, error) {
	var claimed []Claimed
	err := s.write(ctx, doing, func(ctx context.Context) error {
		return s.byIndex(ctx, sql, args, func(rows pgx.Rows) (err error) {
			claimed, err = pgx.CollectRows(rows, scanClaimed)
			return err
		}, nil)
	})
	return claimed, err
}

// scanClaimed reads a row of judge. The pointers are to the plain types behind the named ones: pgx reads those without reflection.
func scanClaimed(row pgx.CollectableRow) (c Claimed, err error) {
	var token *[16]byte
	err = row.Scan((*[16]byte)(&c.ID), (*[16]byte)(&c.Note), &token, (*string)(&c.State), (*string)(&c.Held.Action), &c.Held.InDoubt, &c.Held.Forced,
		&c.Held.Budget, (*string)(&c.Held.Fallback), &c.Held.Conclusive, (*string)(&c.Stop), &c.N, &c.FirstCall, &c.Keyed, (*int16)(&c.Priority), &c.Due,
		&c.User, &c.EventKey, &c.Address, &c.Title, &c.Body, &c.Category, &c.AddressVersion, &c.Slot, (*[]byte)(&c.Data), &c.CreatedAt, &c.ExpiresAt,
		&c.FirstCallAt, &c.RequestHash, &c.At, &c.Lost, &c.AboutConv, &c.AboutSeq)
	if token != nil {
		c.Token = *token
	}
	return c, err
}

// releaseSQL gives back what a claim took whose answer was lost: no call was made from it, so each attempt ends as NOT_SENT and
// nothing new is in doubt. The rows are found among the leases of the channel (task_lease), which are only as many as calls
// are in flight.
// edge: retry, doubt
const releaseSQL = `WITH mine AS MATERIALIZED (
		SELECT t.id, t.bucket, t.attempt_token, a.started_at, statement_timestamp() AS now_at
		  FROM tidings.task t JOIN tidings.attempt a ON a.task_id = t.id AND a.bucket = t.bucket AND a.token = t.attempt_token
		 WHERE t.channel = @channel::text AND t.state = 'SENDING' AND t.bucket = ANY (@buckets::smallint[]) AND substr(uuid_send(t.attempt_token), 2, 7) = @claim::bytea
		 ORDER BY t.id FOR UPDATE OF t
	), given AS (
		UPDATE tidings.task t SET state = CASE WHEN t.outcome_uncertain THEN 'UNKNOWN' ELSE 'PENDING' END, attempt_token = NULL,
			lease_owner = NULL, lease_until = NULL, next_attempt_at = m.now_at, budget_left = t.budget_left + 1,
			first_call_at = CASE WHEN t.outcome_uncertain OR t.first_call_at <> m.started_at THEN t.first_call_at END
		  FROM mine m WHERE t.id = m.id AND t.bucket = m.bucket AND t.attempt_token = m.attempt_token
	), journal AS (
		UPDATE tidings.attempt a SET outcome = 'NOT_SENT', finished_at = m.now_at, detail = 'the claim''s answer was lost; no call was made'
		  FROM mine m WHERE a.task_id = m.id AND a.bucket = m.bucket AND a.token = m.attempt_token AND a.outcome IS NULL
	)
	SELECT count(*) FROM mine`

// Release ends the attempts of a claim whose answer was lost as NOT_SENT and returns how many there were. It can be
// repeated until it succeeds; the leases end by themselves if it never does.
func (s *Store) Release(ctx context.Context, channel string, claimID ClaimID) (int, error) {
	var n int
	err := s.write(ctx, "release a claim whose answer was lost", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, releaseSQL, pgx.NamedArgs{"channel": channel, "buckets": s.buckets, "claim": claimID[:]}).Scan(&n)
	})
	return n, err
}
