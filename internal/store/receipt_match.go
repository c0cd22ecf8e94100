// Matches a receipt with its task.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// receiptKey is a receipt's primary key.
type receiptKey struct{ Channel, ProviderMsgID, Status string }

// matchReceiptsSQL finds the task of each receipt and locks it: by our reference, which is its primary key; otherwise by the
// provider's id through task_provider_msg, if exactly one task has it. The tasks are locked in the order of their ids,
// so that two calls cannot deadlock, and read only in the next statement, which sees what the lock waited for.
const matchReceiptsSQL = `WITH given AS MATERIALIZED (
		SELECT r.channel, r.provider_msg_id, r.status,
			CASE WHEN r.reference ~ '^[0-9a-f]{32}$' THEN r.reference::uuid END AS reference
		  FROM unnest(@channels::text[], @ids::text[], @statuses::text[]) AS u (channel, id, status)
		  JOIN tidings.receipt r ON r.channel = u.channel AND r.provider_msg_id = u.id AND r.status = u.status
	), by_reference AS MATERIALIZED (
		SELECT g.channel, g.provider_msg_id, g.status, t.id
		  FROM given g JOIN tidings.task t ON t.id = g.reference AND t.channel = g.channel AND t.bucket = get_byte(uuid_send(g.reference), 0)
		 WHERE t.bucket = ANY (@buckets::smallint[])
	), by_id AS MATERIALIZED (
		SELECT g.channel, g.provider_msg_id, g.status, (array_agg(t.id))[1] AS id
		  FROM given g JOIN tidings.task t ON hashtextextended(t.provider_msg_id, 0) = hashtextextended(g.provider_msg_id, 0)
		   AND t.provider_msg_id = g.provider_msg_id AND t.channel = g.channel AND t.awaits_receipt
		 WHERE t.bucket = ANY (@buckets::smallint[])
		 GROUP BY g.channel, g.provider_msg_id, g.status HAVING count(*) = 1
	), found AS MATERIALIZED (
		SELECT b.channel, b.provider_msg_id, b.status, b.id FROM by_reference b
		 UNION ALL
		SELECT b.channel, b.provider_msg_id, b.status, b.id FROM by_id b
		 WHERE NOT EXISTS (SELECT FROM by_reference a WHERE a.channel = b.channel AND a.provider_msg_id = b.provider_msg_id AND a.status = b.status)
	)
	SELECT f.channel, f.provider_msg_id, f.status, t.id
	  FROM found f JOIN tidings.task t ON t.id = f.id AND t.bucket = get_byte(uuid_send(f.id), 0)
	 WHERE t.bucket = ANY (@buckets::smallint[])
	 ORDER BY t.id FOR UPDATE OF t`

// settleReceiptsSQL writes the receipts of locked tasks, by primary keys: the journal rows, the settlement and whose receipt each
// is. It returns what the tasks were before, with the receipts of each.
//
// A held task loses its token here, so its holder's finish matches nothing and goes to the journal. The budget stays.
// edge: receipt-pending, receipt-unknown, receipt-review, receipt-sending
const settleReceiptsSQL = `WITH seen AS MATERIALIZED (
		SELECT r.channel, r.provider_msg_id, r.status, r.detail, t.id, t.bucket, t.state,
			CASE WHEN r.provider_msg_id <> '` + refPrefix + `' || coalesce(r.reference, '') THEN r.provider_msg_id END AS real_id,
			t.attempt_count + row_number() OVER (PARTITION BY t.id ORDER BY r.received_at, r.at, r.provider_msg_id, r.status) AS n,
			statement_timestamp() AS now_at
		  FROM unnest(@channels::text[], @ids::text[], @statuses::text[], @tasks::uuid[]) AS u (channel, id, status, task)
		  JOIN tidings.receipt r ON r.channel = u.channel AND r.provider_msg_id = u.id AND r.status = u.status
		  JOIN tidings.task t ON t.id = u.task AND t.bucket = get_byte(uuid_send(u.task), 0)
		 WHERE t.bucket = ANY (@buckets::smallint[])
	), per_task AS MATERIALIZED (
		SELECT s.id, s.bucket, s.state, s.state IN ('PENDING', 'SENDING', 'UNKNOWN') AS open, max(s.n) AS n, min(s.real_id) AS real_id, count(*) AS receipts
		  FROM seen s GROUP BY s.id, s.bucket, s.state
	), settled AS (
		UPDATE tidings.task t SET state = CASE WHEN p.open THEN 'SENT' ELSE t.state END, attempt_count = p.n,
			attempt_token = NULL, lease_owner = NULL, lease_until = NULL, next_attempt_at = NULL, needs_review = false, force_send = false,
			outcome_uncertain = t.outcome_uncertain AND NOT p.open, provider_msg_id = coalesce(t.provider_msg_id, p.real_id),
			awaits_receipt = t.awaits_receipt OR p.real_id IS NOT NULL
		  FROM per_task p WHERE t.id = p.id AND t.bucket = p.bucket AND t.bucket = ANY (@buckets::smallint[])
	), journal AS (
		INSERT INTO tidings.attempt (bucket, task_id, n, action, worker, started_at, finished_at, outcome, detail, provider_msg_id)
		SELECT s.bucket, s.id, s.n, 'NONE', 'receipt', s.now_at, s.now_at, 'RECEIPT', concat_ws(': ', s.status, s.detail), s.real_id
		  FROM seen s
	), matched AS (
		UPDATE tidings.receipt r SET matched_task = s.id
		  FROM seen s WHERE r.channel = s.channel AND r.provider_msg_id = s.provider_msg_id AND r.status = s.status
	)
	SELECT p.state, p.receipts FROM per_task p`

// settleByReceipts matches stored receipts, which this transaction has inserted or locked, with their tasks, and returns those
// that have none.
func (s *Store) settleByReceipts(ctx context.Context, tx pgx.Tx, keys []receiptKey) (result ReceiptResult, left []receiptKey, err error) {
	rows, err := tx.Query(ctx, matchReceiptsSQL, s.receiptArgs(keys))
	if err != nil {
		return result, nil, err
	}
	found := make(map[receiptKey]bool, len(keys))
	var matched []receiptKey
	var tasks []tidings.UUID
	var k receiptKey
	var id tidings.UUID
	if _, err = pgx.ForEachRow(rows, []any{&k.Channel, &k.ProviderMsgID, &k.Status, &id}, func() error {
		found[k], matched, tasks = true, append(matched, k), append(tasks, id)
		return nil
	}); err != nil {
		return result, nil, err
	}
	result.Matched = len(matched)
	for _, k := range keys {
		if !found[k] {
			left = append(left, k)
		}
	}
	result.Unmatched = len(left)
	if len(matched) == 0 {
		return result, left, nil
	}
	args := s.receiptArgs(matched)
	args["tasks"] = tasks
	if rows, err = tx.Query(ctx, settleReceiptsSQL, args); err != nil {
		return result, nil, err
	}
	var state tidings.State
	var receipts int
	_, err = pgx.ForEachRow(rows, []any{&state, &receipts}, func() error {
		switch {
		case !state.Final():
			result.Settled++
		case state != tidings.Sent:
			result.Contradictions += receipts
		}
		return nil
	})
	return result, left, err
}

func (s *Store) receiptArgs(keys []receiptKey) pgx.NamedArgs {
	channels, ids, statuses := make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		channels[i], ids[i], statuses[i] = k.Channel, k.ProviderMsgID, k.Status
	}
	return pgx.NamedArgs{"channels": channels, "ids": ids, "statuses": statuses, "buckets": s.buckets}
}
