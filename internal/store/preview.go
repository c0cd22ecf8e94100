// Reads what notifications with a preview show.

package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// previewSQL reads messages that users may see, each by event's primary key and member's: the one rule of visibility, and not recalled.
const previewSQL = `SELECT p.n, e.body FROM unnest(@convs::text[], @seqs::bigint[], @users::text[]) WITH ORDINALITY p (conv, seq, usr, n)
	  JOIN tidings.conversation c ON c.conv_id = p.conv AND c.conv_id = ANY (@convs::text[])
	  JOIN tidings.event e ON e.conv_id = p.conv AND e.conv_id = ANY (@convs::text[]) AND e.seq = p.seq
	 WHERE e.kind = 'msg' AND e.recalled_by IS NULL AND e.body IS NOT NULL
	   AND EXISTS (SELECT FROM tidings.member m WHERE m.conv_id = p.conv AND m.user_id = p.usr AND ` + inside + `)`

// Previews reads the bodies of the messages that claimed tasks are about, as their users may see them now. nil stands for one that is
// recalled, purged or not visible to the user.
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

// SourceGone notes that what notifications are about is gone, so that the next claim does not send them.
func (s *Store) SourceGone(ctx context.Context, notes []tidings.UUID) error {
	slices.SortFunc(notes, func(a, b tidings.UUID) int { return slices.Compare(a[:], b[:]) })
	notes = slices.Compact(notes)
	buckets := make([]int16, len(notes))
	for i, id := range notes {
		buckets[i] = id.Bucket()
	}
	_, err := s.changed(ctx, "note that a message is gone", sourceGoneSQL, pgx.NamedArgs{"ids": notes, "buckets": buckets})
	return err
}
