// Tests of what verify finds.

package store_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// played is a database, without the trigger, in which everything has happened that verify asks about. The event keys say what.
func played(t *testing.T) *bench {
	t.Helper()
	b := benchOn(t, pgtest.NewPlain(t))
	b.task(push, "u-ana", "purged")
	b.finish(b.claimOne(push), tidings.Rejected, "")
	b.purge(0, 100, 1, false)
	b.task(push, "u-ana", "sent")
	b.finish(b.claimOne(push), tidings.Timeout, "")
	b.finish(b.claimOne(push), tidings.AcceptedReplay, "p-1")
	b.task(push, "u-ana", "failed")
	b.finish(b.claimOne(push), tidings.Rejected, "")
	b.task(sms, "u-ana", "cleared")
	b.finish(b.claimOne(sms), tidings.Timeout, "")
	b.finish(b.claimOne(sms), tidings.QueryNotFound, "")
	b.finish(b.claimOne(sms), tidings.Rejected, "")
	cancelled := b.detail(b.task(push, "u-ana", "suppressed"))
	_, err := b.CancelNotification(t.Context(), cancelled.Notification)
	b.must(err)
	b.claimOne(push)
	b.must(b.Resolve(t.Context(), b.resolution(b.parked("u-ana", "by-hand"), store.VerbFailed)))
	b.must(b.Resolve(t.Context(), b.resolution(b.parked("u-ana", "resent"), store.VerbResend)))
	b.finish(b.claimOne(plain), tidings.Accepted, "p-2")
	doubtful := b.detail(b.task(push, "u-ana", "doubtful"))
	b.finish(b.claimOne(push), tidings.Timeout, "")
	_, err = b.CancelNotification(t.Context(), doubtful.Notification)
	b.must(err)
	b.claimOne(push) // parks it
	receipt := b.task(push, "u-ana", "receipt")
	b.claimOne(push)
	b.record("push", receipts("p-3", receipt.Key(), "delivered"), store.ReceiptResult{Matched: 1, Settled: 1})
	b.task(push, "u-ana", "held")
	b.claimOne(push)
	b.task(push, "u-ana", "pending")
	b.talked()
	return b
}

func TestVerify(t *testing.T) {
	b := played(t)
	for _, f := range b.kept() {
		if f.Examined == 0 || f.Violations != 0 || f.Sample != "" || f.Title == "" {
			t.Errorf("%s examined %d rows and found %d violations, %q", f.Name, f.Examined, f.Violations, f.Sample)
		}
	}
}

// A question that cannot fail asks nothing: each finds what was spoilt for it.
func TestVerifyFindsEachViolation(t *testing.T) {
	b := played(t)
	b.exec(`DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS rel, conname FROM pg_constraint WHERE connamespace = 'tidings'::regnamespace AND contype <> 'n' LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.rel, c.conname);
		END LOOP; END $$`)
	b.exec(`DROP INDEX tidings.event_cmid, tidings.member_open`)
	tables := append([]string{"notification", "task", "attempt"}, tablesOfTalk...)
	for _, table := range tables {
		b.exec(`CREATE TABLE saved_` + table + ` AS TABLE tidings.` + table)
	}
	const of = ` IN (SELECT t.id FROM saved_task t JOIN saved_notification n ON n.id = t.notification_id WHERE n.event_key = `
	spoilt := map[string][]string{
		"one-notification-per-key":   {`UPDATE tidings.notification SET event_key = 'sent' WHERE event_key = 'failed'`},
		"notification-in-its-bucket": {`UPDATE tidings.notification SET user_id = 'u-ben' WHERE event_key = 'sent'`, `UPDATE tidings.notification SET bucket = bucket + 1`},
		"one-task-per-address":       {`UPDATE tidings.task SET notification_id = (SELECT id FROM saved_notification WHERE event_key = 'sent') WHERE id` + of + `'failed')`},
		"task-is-its-key": {`UPDATE tidings.task SET slot = 'x' WHERE id` + of + `'sent')`, `UPDATE tidings.installation SET id = gen_random_uuid()`,
			`UPDATE tidings.notification SET payload_hash = sha256('x') WHERE event_key = 'sent'`},
		"one-open-attempt":     {`UPDATE tidings.attempt SET outcome = NULL WHERE task_id` + of + `'sent')`},
		"holder-in-journal":    {`UPDATE tidings.attempt SET outcome = 'TIMEOUT' WHERE task_id` + of + `'held')`, `UPDATE tidings.task SET attempt_token = gen_random_uuid() WHERE state = 'SENDING'`},
		"journal-complete":     {`DELETE FROM tidings.attempt WHERE n = 2`, `UPDATE tidings.attempt SET n = n + 1`, `UPDATE tidings.task SET attempt_count = 0 WHERE state = 'SENT'`},
		"no-lost-end":          {`UPDATE tidings.attempt SET outcome = NULL WHERE task_id` + of + `'failed')`},
		"sent-has-evidence":    {`UPDATE tidings.attempt SET outcome = 'TIMEOUT' WHERE task_id` + of + `'sent')`},
		"not-sent-is-certain":  {`UPDATE tidings.attempt SET outcome = 'TIMEOUT' WHERE task_id` + of + `'failed')`, `UPDATE tidings.attempt SET outcome = 'QUERY_FAILED' WHERE task_id` + of + `'cleared') AND n = 2`, `UPDATE tidings.task SET settled_by = NULL WHERE settled_by IS NOT NULL`},
		"no-call-after-expiry": {`UPDATE tidings.notification SET expires_at = created_at + interval '1 microsecond'`},
		"no-call-after-stop": {`UPDATE tidings.notification SET cancelled_at = created_at - interval '1 hour' WHERE event_key = 'sent'`,
			`UPDATE tidings.notification SET about_gone_at = created_at - interval '1 hour' WHERE event_key = 'sent'`},
		"no-call-after-parking": {`UPDATE tidings.attempt SET outcome = 'TTL_EXPIRED_UNCERTAIN' WHERE task_id` + of + `'sent') AND n = 1`},
		"one-acceptance":        {`UPDATE tidings.attempt SET outcome = 'ACCEPTED', provider_msg_id = n WHERE task_id` + of + `'sent')`},
		"nothing-stuck":         {`UPDATE tidings.task SET next_attempt_at = NULL WHERE state = 'PENDING'`, `UPDATE tidings.task SET lease_until = NULL WHERE state = 'SENDING'`, `UPDATE tidings.task SET needs_review = false WHERE needs_review`},
		"task-has-notification": {`DELETE FROM tidings.notification WHERE event_key = 'sent'`, `UPDATE tidings.notification SET purged_at = now() WHERE event_key = 'sent'`},
		"attempt-has-task":      {`DELETE FROM tidings.task WHERE id` + of + `'sent')`},
		"no-contradiction":      {`UPDATE tidings.attempt SET late_outcome = 'ACCEPTED' WHERE task_id` + of + `'failed')`},
	}
	maps.Copy(spoilt, spoiltTalk)
	for _, f := range b.kept() {
		if len(spoilt[f.Name]) == 0 {
			t.Errorf("nothing is spoilt for %s", f.Name)
		}
	}
	installation := one[string](b, `SELECT id::text FROM tidings.installation`)
	for name, statements := range spoilt {
		for _, spoil := range statements {
			b.exec(spoil)
			findings, err := b.Verify(t.Context())
			b.must(err)
			i := slices.IndexFunc(findings, func(f store.Finding) bool { return f.Name == name })
			if i < 0 || findings[i].Violations == 0 || findings[i].Sample == "" {
				t.Errorf("%s does not see %s", name, spoil)
			}
			for _, table := range tables {
				b.exec(`TRUNCATE tidings.` + table)
				b.exec(`INSERT INTO tidings.` + table + ` SELECT * FROM saved_` + table)
			}
			b.exec(`UPDATE tidings.installation SET id = $1::uuid`, installation)
		}
	}
	b.kept()
}
