// Rows that the questions about conversations have to find.

package store_test

import (
	"time"

	"github.com/tidings-project/tidings/internal/store"
)

// talked adds a conversation in which everything has happened that verify asks about: c-1, in which the first four events were purged and
// which has since 5 join u-cem, 6 and 8 to 10 messages, 7 the recall of 6, 11 leave u-cem, 12 join u-cem, 13 leave u-cem; the recalls of 9
// by an operator and of the purged 3 as 14 and 15; and c-2, of which nothing was purged.
func (b *bench) talked() {
	b.t.Helper()
	ctx := b.t.Context()
	b.must(b.EnsureLineage(ctx))
	for _, conv := range []string{"c-1", "c-2"} {
		_, err := b.CreateConversation(ctx, store.Conversation{Conv: conv, RecallWindow: 2 * time.Minute, Members: []string{"u-ana", "u-ben"}})
		b.must(err)
	}
	member := func(change func(conv, user string) (store.Membership, error), want int64) {
		b.t.Helper()
		m, err := change("c-1", "u-cem")
		b.must(err)
		if m.Seq != want {
			b.t.Fatalf("the change of membership is %+v, want seq %d", m, want)
		}
	}
	join := func(conv, user string) (store.Membership, error) { return b.Join(ctx, conv, user, "") }
	leave := func(conv, user string) (store.Membership, error) { return b.Leave(ctx, conv, user, "") }
	b.say(said("c-1", "m-3"), said("c-1", "m-4"), said("c-2", "m-3"))
	member(join, 5)
	b.say(said("c-1", "m-6"))
	b.recallBySQL("c-1", 6, nil)
	b.say(said("c-1", "m-8"), said("c-1", "m-9"), said("c-1", "m-10"))
	member(leave, 11)
	member(join, 12)
	member(leave, 13)
	operator := "operator"
	b.recallBySQL("c-1", 9, &operator)
	b.recallBySQL("c-1", 3, nil)
	b.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq)
		SELECT e.conv_id, e.sender_user, e.cmid, e.seq FROM tidings.event e WHERE e.conv_id = 'c-1' AND e.seq <= 4 AND e.cmid IS NOT NULL`)
	b.exec(`DELETE FROM tidings.event WHERE conv_id = 'c-1' AND seq <= 4`)
	b.exec(`UPDATE tidings.conversation SET min_seq = 5 WHERE conv_id = 'c-1'`)
	h, err := b.Hello(ctx, "u-cem", "u-cem-d1", "i-1", "g1", connection(1))
	b.must(err)
	acked, err := b.Ack(ctx, []store.Ack{{Conv: "c-1", User: "u-cem", Device: "u-cem-d1", InstallNo: h.InstallNo, Seq: 13}})
	b.must(err)
	if acked[0].Code != "" || acked[0].Seq != 13 {
		b.t.Fatalf("the ack is %+v", acked[0])
	}
	_, err = b.Read(ctx, "u-cem", "c-1", 0, 13)
	b.must(err)
}

// recallBySQL is a recall of a message of u-ana as the tables show it.
func (b *bench) recallBySQL(conv string, target int64, actor *string) {
	b.t.Helper()
	seq := one[int64](b, `UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = $1 RETURNING next_seq - 1`, conv)
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user, actor_user, cmid, target_seq) VALUES ($1, $2, 'recall', 'u-ana', $3, 'r-' || $2::bigint, $4)`,
		conv, seq, actor, target)
	b.exec(`UPDATE tidings.event SET recalled_by = $3, body = NULL, data = NULL, request_hash = NULL WHERE conv_id = $1 AND seq = $2`, conv, target, seq)
}

var tablesOfTalk = []string{"conversation", "event", "member", "delivered", "read", "tombstone", "device", "route", "lineage"}

const (
	inC1    = ` WHERE conv_id = 'c-1'`
	ofEvent = inC1 + ` AND seq = `
)

// spoiltTalk spoils for each question about conversations what it has to find, each statement by itself.
var spoiltTalk = map[string][]string{
	"one-event-per-request-key": {`UPDATE tidings.event SET cmid = 'm-8'` + ofEvent + `10`},
	"purged-key-has-no-event":   {`UPDATE tidings.event SET cmid = 'm-3'` + ofEvent + `10`, `INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-1', 'u-ana', 'r-14', 1)`},
	"tombstone-below-its-log": {`UPDATE tidings.tombstone SET seq = 5` + ofEvent + `4`, `UPDATE tidings.conversation SET min_seq = 4` + inC1,
		`UPDATE tidings.tombstone SET conv_id = 'c-9'` + ofEvent + `4`},
	"log-without-holes": {`DELETE FROM tidings.event` + ofEvent + `9`, `DELETE FROM tidings.event` + ofEvent + `15`, `DELETE FROM tidings.event` + ofEvent + `5`,
		`DELETE FROM tidings.event` + inC1, `UPDATE tidings.conversation SET min_seq = 1` + inC1, `UPDATE tidings.conversation SET next_seq = next_seq + 1` + inC1,
		`UPDATE tidings.event SET seq = 16` + ofEvent + `10`, `UPDATE tidings.event SET seq = 4` + ofEvent + `10`, `UPDATE tidings.event SET conv_id = 'c-9'` + ofEvent + `15`,
		`DELETE FROM tidings.conversation WHERE conv_id = 'c-2'`},
	"interval-in-its-log": {`UPDATE tidings.member SET leave_seq = 16` + inC1 + ` AND join_seq = 12`, `UPDATE tidings.member SET join_seq = 0` + inC1 + ` AND user_id = 'u-ben'`,
		`UPDATE tidings.member SET join_seq = 99` + inC1 + ` AND user_id = 'u-ben'`, `UPDATE tidings.member SET leave_seq = 4` + inC1 + ` AND join_seq = 5`,
		`UPDATE tidings.member SET conv_id = 'c-9'` + inC1 + ` AND user_id = 'u-ben'`},
	"intervals-apart": {`UPDATE tidings.member SET leave_seq = 12` + inC1 + ` AND join_seq = 5`, `UPDATE tidings.member SET leave_seq = NULL` + inC1 + ` AND join_seq = 5`,
		`INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ('c-1', 'u-ana', 1)`},
	"interval-has-its-events": {`UPDATE tidings.member SET user_id = 'u-eve'` + inC1 + ` AND join_seq = 5`, `UPDATE tidings.member SET leave_seq = 10` + inC1 + ` AND join_seq = 5`,
		`UPDATE tidings.event SET kind = 'leave'` + ofEvent + `5`, `UPDATE tidings.event SET sender_user = 'u-eve'` + ofEvent + `13`,
		`INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ('c-1', 'u-eve', 8)`},
	"join-and-leave-have-intervals": {`DELETE FROM tidings.member` + inC1 + ` AND join_seq = 12`, `UPDATE tidings.member SET leave_seq = NULL` + inC1 + ` AND join_seq = 12`,
		`UPDATE tidings.event SET sender_user = 'u-eve'` + ofEvent + `5`, `UPDATE tidings.event SET kind = 'join'` + ofEvent + `8`},
	"delivered-within-the-log": {`UPDATE tidings.delivered SET seq = 14`, `UPDATE tidings.delivered SET user_id = 'u-eve'`, `UPDATE tidings.delivered SET conv_id = 'c-9'`,
		`UPDATE tidings.delivered SET user_id = 'u-ana', seq = 16`},
	"read-within-the-log": {`UPDATE tidings.read SET seq = 14`, `UPDATE tidings.read SET user_id = 'u-eve'`, `UPDATE tidings.read SET conv_id = 'c-9'`,
		`UPDATE tidings.read SET user_id = 'u-ana', seq = 16`},
	"epoch-is-the-generation": {`UPDATE tidings.conversation SET epoch = epoch + 1` + inC1, `DELETE FROM tidings.lineage`},
	"recalled-has-no-content": {`UPDATE tidings.event SET body = 'x'` + ofEvent + `6`, `UPDATE tidings.event SET data = '{}'` + ofEvent + `6`, `UPDATE tidings.event SET request_hash = 'x'` + ofEvent + `6`},
	"recalled-names-its-recall": {`UPDATE tidings.event SET recalled_by = 8` + ofEvent + `6`, `UPDATE tidings.event SET recalled_by = 14` + ofEvent + `6`,
		`UPDATE tidings.event SET recalled_by = 5, kind = 'recall', target_seq = 6` + ofEvent + `6`, `DELETE FROM tidings.event` + ofEvent + `7`},
	"recall-took-effect": {`UPDATE tidings.event SET recalled_by = NULL` + ofEvent + `6`, `UPDATE tidings.event SET target_seq = 8` + ofEvent + `7`,
		`UPDATE tidings.event SET target_seq = NULL` + ofEvent + `7`, `UPDATE tidings.event SET target_seq = 99` + ofEvent + `7`},
	"recalled-once":          {`UPDATE tidings.event SET target_seq = 3` + ofEvent + `14`},
	"recall-by-its-sender":   {`UPDATE tidings.event SET sender_user = 'u-ben'` + ofEvent + `7`},
	"recall-in-its-window":   {`UPDATE tidings.conversation SET recall_window_ms = 0` + inC1, `UPDATE tidings.event SET created_at = created_at - interval '3 minutes'` + ofEvent + `6`},
	"route-of-a-known-hello": {`UPDATE tidings.route SET version = 2`, `DELETE FROM tidings.device`},
}
