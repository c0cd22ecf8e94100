// Recovery after a restore: the replay of recalls, purges and leaves in the logs.

package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/outside"
)

// replayRecallsSQL recalls messages by what they are, never by their seqs, which may be those of others in this history. It walks
// through the log by event's primary key.
const replayRecallsSQL = recallHead + `, found AS MATERIALIZED (
		SELECT e.conv_id, e.seq, e.mid, e.sender_user, e.recalled_by FROM tidings.event e WHERE e.conv_id = @conv AND e.mid = ANY (@mids::uuid[]) AND e.kind = 'msg'
	), mine AS MATERIALIZED (SELECT f.* FROM found f WHERE f.recalled_by IS NULL)` + recallMine + `
	SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM mine)`

func (s *Store) replayRecalls(ctx context.Context, conv string, mids []string, report *Replayed) error {
	var found, done int
	_, err := s.inConversation(ctx, "replay recalls", conv, replayRecallsSQL, pgx.NamedArgs{"conv": conv, "mids": mids, "actor": nil, "journal": false}, &found, &done)
	report.Done += done
	report.skip(SkippedDone, found-done)
	report.skip(SkippedAbsent, len(mids)-found)
	return err
}

// replayPurgeSQL purges from the front of a log as purgeLogSQL does, up to the last event among the first @limit that is not younger than
// the newest one that went.
const replayPurgeSQL = `WITH front AS MATERIALIZED (
		SELECT e.conv_id, e.seq, e.sender_user, e.cmid, e.created_at <= @cutoff::timestamptz AS over FROM tidings.event e
		 WHERE e.conv_id = @conv ORDER BY e.seq LIMIT @limit::bigint
	), cut AS MATERIALIZED (SELECT max(f.seq) FILTER (WHERE f.over) AS seq FROM front f
	), kept AS (
		INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq)
		SELECT f.conv_id, f.sender_user, f.cmid, f.seq FROM front f JOIN cut k ON f.seq <= k.seq WHERE f.cmid IS NOT NULL
		ON CONFLICT (conv_id, sender_user, cmid) DO NOTHING
	), deleted AS (
		DELETE FROM tidings.event e USING cut k WHERE e.conv_id = @conv AND e.seq <= k.seq RETURNING e.seq
	), advanced AS (
		UPDATE tidings.conversation c SET min_seq = greatest(c.min_seq, k.seq + 1) FROM cut k WHERE c.conv_id = @conv AND k.seq IS NOT NULL
	)
	SELECT count(*) FROM deleted`

func (s *Store) replayPurge(ctx context.Context, conv string, cutoff time.Time, report *Replayed) error {
	some := false
	for n := 1; n > 0; {
		there, err := s.inConversation(ctx, "replay a purge", conv, replayPurgeSQL, pgx.NamedArgs{"conv": conv, "cutoff": cutoff, "limit": recoverBatch}, &n)
		switch {
		case err != nil:
			return err
		case !there:
			report.skip(SkippedAbsent, 1)
			return nil
		}
		some = some || n > 0
	}
	if some {
		report.Done++
	} else {
		report.skip(SkippedDone, 1)
	}
	return nil
}

// openSQL tells which of several users are members, through member_open, and which conversations there are, by primary key.
const openSQL = `SELECT k.ord, c.conv_id IS NOT NULL, m.join_seq IS NOT NULL
	  FROM unnest(@convs::text[], @users::text[]) WITH ORDINALITY k (conv, usr, ord)
	  LEFT JOIN tidings.conversation c ON c.conv_id = k.conv
	  LEFT JOIN tidings.member m ON m.conv_id = k.conv AND m.user_id = k.usr AND m.leave_seq IS NULL ORDER BY k.ord`

// replayLeaveSQL appends a leave and closes the open interval with it, as leaveSQL does. With @at an interval that began later stays: in
// the history of the line the user had come back.
const replayLeaveSQL = `WITH head AS MATERIALIZED (
		SELECT c.conv_id, c.next_seq, clock_timestamp() AS now_at, m.join_seq
		  FROM tidings.conversation c JOIN tidings.member m ON m.conv_id = c.conv_id AND m.user_id = @user AND m.leave_seq IS NULL
		 WHERE c.conv_id = @conv AND (@at::timestamptz IS NULL OR NOT EXISTS (
			SELECT FROM tidings.event e WHERE e.conv_id = @conv AND e.seq = m.join_seq AND e.created_at > @at::timestamptz))
	), appended AS (
		INSERT INTO tidings.event (conv_id, seq, kind, sender_user, created_at) SELECT h.conv_id, h.next_seq, 'leave', @user, h.now_at FROM head h
	), closed AS (
		UPDATE tidings.member m SET leave_seq = h.next_seq FROM head h WHERE m.conv_id = @conv AND m.user_id = @user AND m.join_seq = h.join_seq
	), posted AS (
		INSERT INTO tidings.posted (conv_id, seq) SELECT h.conv_id, h.next_seq FROM head h
	), gone AS (
		INSERT INTO tidings.gone (conv_id, why, user_id, seq, at) SELECT h.conv_id, 'leave', @user, h.next_seq, h.now_at FROM head h
	), advanced AS (
		UPDATE tidings.conversation c SET next_seq = h.next_seq + 1 FROM head h WHERE c.conv_id = @conv AND c.conv_id = h.conv_id
	)
	SELECT count(*) FROM head`

func (s *Store) replayLeaves(ctx context.Context, last map[memberOf]outside.Taking, before int64, report *Replay) error {
	keys := slices.SortedFunc(maps.Keys(last), func(a, b memberOf) int {
		return strings.Compare(a.conv+"/"+a.user, b.conv+"/"+b.user)
	})
	for some := range slices.Chunk(keys, recoverBatch) {
		r := report.of(outside.TookLeave)
		convs, users := make([]string, len(some)), make([]string, len(some))
		for i, k := range some {
			convs[i], users[i] = k.conv, k.user
		}
		var members []memberOf
		err := s.eachByKey(ctx, openSQL, pgx.NamedArgs{"convs": convs, "users": users}, func(row pgx.Rows) error {
			var i int
			var there, open bool
			if err := row.Scan(&i, &there, &open); err != nil {
				return err
			}
			switch {
			case open:
				members = append(members, some[i-1])
			case there:
				r.skip(SkippedDone, 1)
			default:
				r.skip(SkippedAbsent, 1)
			}
			return nil
		})
		if err != nil {
			return unchanged("look for members who have left", err)
		}
		for _, k := range members {
			var at *time.Time
			if line := last[k]; line.Epoch <= before {
				at = &line.At
			}
			var n int
			if _, err := s.inConversation(ctx, "replay a leave", k.conv, replayLeaveSQL, pgx.NamedArgs{"conv": k.conv, "user": k.user, "at": at}, &n); err != nil {
				return err
			}
			r.Done += n
			r.skip(SkippedBack, 1-n)
		}
	}
	return nil
}
