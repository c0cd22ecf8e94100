// Ends of attempts.

package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Finish is the end of one attempt.
type Finish struct {
	ID        tidings.UUID
	Note      tidings.UUID // the task's notification
	N         int          // the attempt's number
	Token     tidings.UUID
	Verdict   tidings.Verdict
	Delay     time.Duration // until the next attempt, when one is scheduled
	Doubted   bool          // this SEND may have been accepted: the settle time counts from now
	Unstarted bool          // the first SEND did not start: first_call_at is set back
	KeyLost   bool          // other bytes than the first request's were rendered

	RequestHash   []byte
	ProviderMsgID string
	Detail        string
	AwaitsReceipt bool // the provider reports by itself under ProviderMsgID
}

// finishSQL ends attempts. A task is found by its primary key and matched by its token alone: every exit from SENDING clears the
// token, so a superseded holder matches nothing, and its observation goes to its journal row as late. It returns the tokens that
// matched. On a log that is another than the connection was judged on it fails.
// edge: accept, retry, clear, fail, doubt, park
const finishSQL = `WITH f AS MATERIALIZED (
		SELECT u.id, u.n, get_byte(uuid_send(u.id), 0)::smallint AS bucket, u.token, u.state, u.outcome, u.hash, u.provider_id, u.detail,
			u.flags & 1 <> 0 AS review, u.flags & 2 <> 0 AS in_doubt, u.flags & 4 <> 0 AS reforce, u.flags >> 3 & 1 AS refund,
			u.flags & 16 <> 0 AS doubted, u.flags & 32 <> 0 AS unstarted, u.flags & 64 <> 0 AS key_lost, u.flags & 128 <> 0 AS awaits,
			statement_timestamp() AS now_at, statement_timestamp() + u.delay_ms * interval '1 millisecond' AS next_at
		  FROM unnest(@ids::uuid[], @ns::int[], @tokens::uuid[], @states::text[], @outcomes::text[], @flags::int[], @delays::float8[],
			@hashes::bytea[], @provider_ids::text[], @details::text[])
			AS u (id, n, token, state, outcome, flags, delay_ms, hash, provider_id, detail)
		 WHERE tidings.on_log(@log::oid)
	), applied AS (
		UPDATE tidings.task t SET state = f.state, attempt_token = NULL, lease_owner = NULL, lease_until = NULL,
			needs_review = f.review, outcome_uncertain = f.in_doubt, force_send = f.reforce, budget_left = t.budget_left + f.refund,
			next_attempt_at = CASE WHEN f.state IN ('PENDING', 'UNKNOWN') AND NOT f.review THEN f.next_at END,
			first_call_at = CASE WHEN NOT f.unstarted THEN t.first_call_at END,
			doubt_at = CASE WHEN f.doubted THEN f.now_at WHEN f.in_doubt THEN t.doubt_at END,
			request_hash = coalesce(t.request_hash, f.hash),
			key_lost = t.key_lost OR f.key_lost OR coalesce(t.request_hash <> f.hash, false),
			provider_msg_id = coalesce(f.provider_id, t.provider_msg_id), awaits_receipt = t.awaits_receipt OR f.awaits, last_error = CASE WHEN f.state <> 'SENT' THEN f.detail END
		  FROM f WHERE t.id = f.id AND t.bucket = f.bucket AND t.attempt_token = f.token
		RETURNING f.token
	), journal AS (
		UPDATE tidings.attempt a SET outcome = coalesce(a.outcome, e.outcome), finished_at = coalesce(a.finished_at, e.now_at),
			detail = CASE WHEN a.outcome IS NULL THEN e.detail ELSE a.detail END,
			provider_msg_id = coalesce(a.provider_msg_id, e.provider_id),
			late_outcome = CASE WHEN a.outcome IS NOT NULL AND a.late_outcome IS NULL THEN e.outcome ELSE a.late_outcome END,
			late_detail = CASE WHEN a.outcome IS NOT NULL AND a.late_outcome IS NULL THEN e.detail ELSE a.late_detail END,
			late_at = CASE WHEN a.outcome IS NOT NULL AND a.late_outcome IS NULL THEN e.now_at ELSE a.late_at END
		  FROM f e
		 WHERE a.task_id = e.id AND a.n = e.n AND a.bucket = e.bucket AND a.token = e.token
		   AND (SELECT count(*) FROM applied) >= 0 -- the tasks first, as a takeover does
	)
	SELECT token FROM applied`

// Finish ends a batch of attempts and returns the tokens of those that were superseded: their tasks are unchanged and their
// observations stand in the journal as late.
//
// An error with the code OUTCOME_UNKNOWN may have ended them: ask Recorded before trying again.
func (s *Store) Finish(ctx context.Context, batch []Finish) (stale []tidings.UUID, err error) {
	slices.SortFunc(batch, func(a, b Finish) int { return slices.Compare(a.ID[:], b.ID[:]) })
	n := len(batch)
	var (
		ids, tokens          = make([]tidings.UUID, n), make([]tidings.UUID, n)
		ns, flags            = make([]int32, n), make([]int32, n)
		states, outcomes     = make([]string, n), make([]string, n)
		delays               = make([]float64, n)
		hashes               = make([][]byte, n)
		providerIDs, details = make([]*string, n), make([]*string, n)
	)
	for i := range batch {
		f := &batch[i]
		ids[i], tokens[i], ns[i], flags[i] = f.ID, f.Token, int32(f.N), f.flags()
		states[i], outcomes[i] = string(f.Verdict.To), string(f.Verdict.Outcome)
		delays[i] = float64(f.Delay) / float64(time.Millisecond)
		hashes[i], providerIDs[i], details[i] = f.RequestHash, orNull(&f.ProviderMsgID), orNull(&f.Detail)
	}
	args := pgx.NamedArgs{
		"ids": ids, "ns": ns, "tokens": tokens, "states": states, "outcomes": outcomes, "flags": flags, "delays": delays,
		"hashes": hashes, "provider_ids": providerIDs, "details": details,
	}
	applied := make(map[tidings.UUID]bool, n)
	err = s.write(ctx, "finish attempts", func(ctx context.Context) error {
		return s.byIndex(ctx, finishSQL, args, func(rows pgx.Rows) error {
			clear(applied)
			var token tidings.UUID
			_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&token)}, func() error {
				applied[token] = true
				return nil
			})
			return err
		}, func(m *LineageMemory) { m.finished(batch, applied) })
	})
	if err != nil {
		return nil, err
	}
	for _, token := range tokens {
		if !applied[token] {
			stale = append(stale, token)
		}
	}
	return stale, nil
}

// flags are the booleans of a Finish in one number, as finishSQL reads them: a function of many arrays costs for each of them.
func (f *Finish) flags() (n int32) {
	for i, set := range [...]bool{f.Verdict.Review, f.Verdict.InDoubt, f.Verdict.Reforce, f.Verdict.Refund,
		f.Doubted, f.Unstarted, f.KeyLost, f.AwaitsReceipt && f.ProviderMsgID != ""} {
		if set {
			n |= 1 << i
		}
	}
	return n
}

func orNull(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}

// recordedSQL reads by primary key which attempts have an end.
const recordedSQL = `SELECT a.token FROM tidings.attempt a JOIN unnest(@ids::uuid[], @ns::int[], @buckets::smallint[]) AS u (id, n, bucket)
		ON a.task_id = u.id AND a.n = u.n AND a.bucket = u.bucket
	WHERE a.task_id = ANY (@ids::uuid[]) AND a.bucket = ANY (@buckets::smallint[])
	  AND a.token IS NOT NULL AND (a.outcome <> 'LEASE_EXPIRED' OR a.late_outcome IS NOT NULL)`

// Recorded returns the tokens of those attempts in the batch whose holders' observation is in the journal.
func (s *Store) Recorded(ctx context.Context, batch []Finish) ([]tidings.UUID, error) {
	ids, ns, buckets := make([]tidings.UUID, len(batch)), make([]int32, len(batch)), make([]int16, len(batch))
	for i, f := range batch {
		ids[i], ns[i], buckets[i] = f.ID, int32(f.N), f.ID.Bucket()
	}
	rows, err := s.pool.Query(ctx, recordedSQL, pgx.NamedArgs{"ids": ids, "ns": ns, "buckets": buckets})
	if err != nil {
		return nil, coded("read which attempts were recorded", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[tidings.UUID])
	return found, coded("read which attempts were recorded", err)
}
