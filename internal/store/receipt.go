// Takes receipts.

package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Receipt is a provider's own report about a message. It names the message by the provider's id, by our reference, or both.
type Receipt struct {
	ProviderMsgID string
	Reference     string     // the task's id (UUID.Key), which is the reference that the provider got
	Status        string     // the provider's word, for example "delivered"
	At            *time.Time // the provider's clock
	Detail        string     // for people; cut at maxReceiptDetail bytes
}

const (
	maxReceiptID     = 512 // bytes of a provider's id and of a reference
	maxReceiptStatus = 64
	maxReceiptDetail = 2000
	// refPrefix makes a key for a receipt without a provider's id.
	refPrefix = "ref:"
)

// ReceiptResult counts what became of receipts.
type ReceiptResult struct {
	Matched        int // found their task and stand in its journal
	Settled        int // tasks that became SENT by them
	Contradictions int // of Matched: the task is FAILED or SUPPRESSED. It stays so; the provider took what it had denied
	Unmatched      int // found no task so far: SweepReceipts tries again
	Replayed       int // were known: nothing was changed
}

// recordReceiptsSQL stores the receipts that are new, under their primary key, and returns those. Keys are
// inserted in their order, so that two calls cannot deadlock; the second of two equal ones in a call is not new.
const recordReceiptsSQL = `INSERT INTO tidings.receipt AS r (channel, provider_msg_id, status, reference, at, detail, received_at, sweep_at)
	SELECT @channel::text, u.id, u.status, u.reference, u.at, u.detail, statement_timestamp(), statement_timestamp()
	  FROM unnest(@ids::text[], @statuses::text[], @references::text[], @ats::timestamptz[], @details::text[])
		AS u (id, status, reference, at, detail)
	 ORDER BY u.id, u.status
	ON CONFLICT (channel, provider_msg_id, status) DO NOTHING
	RETURNING r.channel, r.provider_msg_id, r.status`

// RecordReceipts stores what a provider reported on a channel and settles the tasks concerned: one that was PENDING, UNKNOWN or
// SENDING becomes SENT, whatever the status, because only what was accepted is reported on. Each receipt is a row of its
// task's journal. A receipt that was stored before changes nothing.
//
// Who reports must have been verified before: the channel's ParseReceipt does.
func (s *Store) RecordReceipts(ctx context.Context, channel string, receipts []Receipt) (ReceiptResult, error) {
	var result ReceiptResult
	if len(receipts) == 0 {
		return result, nil
	}
	n := len(receipts)
	ids, statuses, ats := make([]string, n), make([]string, n), make([]*time.Time, n)
	references, details := make([]*string, n), make([]*string, n)
	for i, r := range receipts {
		if err := r.check(); err != nil {
			return result, err
		}
		if r.ProviderMsgID == "" {
			r.ProviderMsgID = refPrefix + r.Reference
		}
		detail := clip(r.Detail, maxReceiptDetail)
		ids[i], statuses[i], ats[i], references[i], details[i] = r.ProviderMsgID, r.Status, r.At, orNull(&r.Reference), orNull(&detail)
	}
	args := pgx.NamedArgs{"channel": channel, "ids": ids, "statuses": statuses, "references": references, "ats": ats, "details": details}
	err := s.transact(ctx, "record receipts", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, recordReceiptsSQL, args)
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(rows, pgx.RowToStructByPos[receiptKey])
		if err != nil {
			return err
		}
		result, _, err = s.settleByReceipts(ctx, tx, fresh)
		result.Replayed = len(receipts) - len(fresh)
		return err
	})
	return result, err
}

func (r *Receipt) check() error {
	switch {
	case r.ProviderMsgID == "" && r.Reference == "":
		return tidings.Errorf(tidings.InvalidArgument, "a receipt names neither the provider's id nor our reference")
	case r.Status == "" || len(r.Status) > maxReceiptStatus:
		return tidings.Errorf(tidings.InvalidArgument, "a receipt's status has 1 to %d bytes", maxReceiptStatus)
	case len(r.ProviderMsgID) > maxReceiptID || len(r.Reference) > maxReceiptID:
		return tidings.Errorf(tidings.TooLarge, "a receipt's id has more than %d bytes", maxReceiptID)
	}
	return nil
}

// clip makes text that may come from anywhere storable: valid UTF-8 without U+0000, at most limit bytes.
func clip(text string, limit int) string {
	text = strings.ReplaceAll(text[:min(len(text), limit)], "\x00", "")
	return strings.ToValidUTF8(text, "")
}
