// Reads what notifications with a preview show.

package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// previewSQL reads messages that users may see, each by event's primary key, member's and read's: the one rule of visibility, not recalled, not
// read, and of a conversation that the user has not left. One that shows no texts any more shows none.
const previewSQL = `SELECT p.n, CASE WHEN c.preview THEN e.body ELSE '' END FROM unnest(@convs::text[], @seqs::bigint[], @users::text[]) WITH ORDINALITY p (conv, seq, usr, n)
	  JOIN tidings.conversation c ON c.conv_id = p.conv AND c.conv_id = ANY (@convs::text[])
	  JOIN tidings.event e ON e.conv_id = p.conv AND e.conv_id = ANY (@convs::text[]) AND e.seq = p.seq
	 WHERE e.kind = 'msg' AND e.recalled_by IS NULL AND e.body IS NOT NULL
	   AND EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = p.conv AND m.conv_id = ANY (@convs::text[]) AND m.user_id = p.usr AND m.leave_seq IS NULL AND ` + inside + `)
	   AND NOT EXISTS (SELECT FROM tidings.read r WHERE r.conv_id = p.conv AND r.conv_id = ANY (@convs::text[]) AND r.user_id = p.usr AND r.seq >= p.seq)`

// Previews reads the bodies of the messages that claimed tasks are about, as their users may see them now. nil stands for one that is
// recalled, purged, read or not visible to the user, or whose conversation the user has left. The
// body is empty when the conversation shows no texts any more.
func (s *Store) Previews(ctx context.Context, tasks []Claimed) ([]*string, error) {
	convs, seqs, users := make([]string, len(tasks)), make([]int64, len(tasks)), make([]string, len(tasks))
	for i := range tasks {
		convs[i], seqs[i], users[i] = tasks[i].AboutConv, tasks[i].AboutSeq, tasks[i].User
	}
	bodies := make([]*string, len(tasks))
	err := s.eachByKey(ctx, previewSQL, pgx.NamedArgs{"convs": convs, "seqs": seqs, "users": users}, func(row pgx.Rows) error {
		var n int
		var body string
		if err := row.Scan(&n, &body); err != nil {
			return err
		}
		bodies[n-1] = &body
		return nil
	})
	return bodies, unchanged("read the messages of previews", err)
}

// sourceGoneSQL marks notifications by primary key, in the order of their ids.
const sourceGoneSQL = `WITH mine AS MATERIALIZED (
		SELECT n.id, n.bucket, statement_timestamp() AS now_at FROM tidings.notification n
		 WHERE n.id = ANY (@ids::uuid[]) AND n.bucket = ANY (@buckets::smallint[]) AND n.about_gone_at IS NULL ORDER BY n.id FOR NO KEY UPDATE
	)
	UPDATE tidings.notification n SET about_gone_at = m.now_at FROM mine m
	 WHERE n.id = m.id AND n.bucket = m.bucket AND n.id = ANY (@ids::uuid[]) AND n.bucket = ANY (@buckets::smallint[])`

// lookAgainSQL makes conversations due, by their primary keys, in the order of unread_due's.
const lookAgainSQL = `INSERT INTO tidings.unread_due AS u (conv_id, seq, due_at, since_at, upto_seq)
	SELECT c.conv_id, 0, k.now_at, k.now_at, a.seq
	  FROM (SELECT t.conv, max(t.seq) AS seq FROM unnest(@convs::text[], @seqs::bigint[]) t (conv, seq) GROUP BY t.conv) a
	  JOIN tidings.conversation c ON c.conv_id = a.conv AND c.conv_id = ANY (@convs::text[]) CROSS JOIN (SELECT statement_timestamp() AS now_at) k
	 WHERE c.notify_after_ms IS NOT NULL ORDER BY c.conv_id
	ON CONFLICT (conv_id, seq) DO UPDATE SET due_at = least(u.due_at, excluded.due_at), since_at = greatest(u.since_at, excluded.since_at),
		upto_seq = greatest(u.upto_seq, excluded.upto_seq)`

// SourceGone notes that what the notifications of claimed tasks are about is gone, so that the next claim does not send them. Then somebody
// looks whether their users have other unread messages: of a purge nobody else tells.
func (s *Store) SourceGone(ctx context.Context, tasks []Claimed) error {
	notes, convs, seqs := make([]tidings.UUID, len(tasks)), make([]string, len(tasks)), make([]int64, len(tasks))
	for i := range tasks {
		notes[i], convs[i], seqs[i] = tasks[i].Note, tasks[i].AboutConv, tasks[i].AboutSeq
	}
	slices.SortFunc(notes, func(a, b tidings.UUID) int { return slices.Compare(a[:], b[:]) })
	notes = slices.Compact(notes)
	buckets := make([]int16, len(notes))
	for i, id := range notes {
		buckets[i] = id.Bucket()
	}
	if _, err := s.changed(ctx, "note that a message is gone", sourceGoneSQL, pgx.NamedArgs{"ids": notes, "buckets": buckets}); err != nil {
		return err
	}
	_, err := s.changed(ctx, "look again who has not read", lookAgainSQL, pgx.NamedArgs{"convs": convs, "seqs": seqs})
	return err
}
