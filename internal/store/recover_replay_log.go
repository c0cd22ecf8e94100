// Recovery after a restore: the replay of recalls, purges and leaves in the logs.

package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/outside"
)

// replayRecallsSQL finds messages by their keys, through event_cmid, never by their seqs, which may be those of others in this history. One that
// was lost and sent again has another mid.
const replayRecallsSQL = `SELECT e.seq, e.mid, e.sender_user, e.cmid, e.recalled_by IS NOT NULL
	  FROM unnest(@senders::text[], @cmids::text[]) k (sender_user, cmid) CROSS JOIN LATERAL (
		SELECT e.* FROM tidings.event e WHERE e.conv_id = @conv AND e.sender_user = k.sender_user AND e.cmid = k.cmid AND e.kind = 'msg' OFFSET 0) e`

// replayMidsSQL finds those of lines that know no key. It walks through the log by event's primary key.
const replayMidsSQL = `SELECT e.seq, e.mid, e.sender_user, e.cmid, e.recalled_by IS NOT NULL
	  FROM tidings.event e WHERE e.conv_id = @conv AND e.mid = ANY (@mids::uuid[]) AND e.kind = 'msg'`

// keepKeysSQL keeps the keys of messages that the copy does not have as if those had been purged: a sender who repeats one, because a history
// has lost it, must not publish it again. They have no seq. It reads by event_cmid.
const keepKeysSQL = `INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq)
	SELECT @conv::text, k.sender_user, k.cmid, 0
	  FROM unnest(@senders::text[], @cmids::text[]) k (sender_user, cmid) LEFT JOIN LATERAL (
		SELECT e.seq FROM tidings.event e WHERE e.conv_id = @conv AND e.sender_user = k.sender_user AND e.cmid = k.cmid OFFSET 0) e ON true
	 WHERE e.seq IS NULL
	ON CONFLICT (conv_id, sender_user, cmid) DO NOTHING`

func (s *Store) replayRecalls(ctx context.Context, conv string, lines []outside.Taking, report *Replayed) error {
	var mids, senders, cmids []string
	for _, t := range lines {
		if t.Cmid == "" {
			mids = append(mids, t.Mid)
		} else {
			senders, cmids = append(senders, t.User), append(cmids, t.Cmid)
		}
	}
	var found int
	var left []message
	_, err := s.lockedForReplay(ctx, "replay recalls", conv, func(ctx context.Context, tx pgx.Tx) error {
		found, left = 0, nil
		known := map[int64]bool{}
		read := func(rows pgx.Rows) error {
			for rows.Next() {
				var m message
				var recalled bool
				if err := rows.Scan(&m.Seq, &m.Mid, &m.Sender, &m.Cmid, &recalled); err != nil {
					return err
				}
				if found++; !recalled && !known[m.Seq] {
					left = append(left, m)
				}
				known[m.Seq] = true
			}
			return rows.Err()
		}
		look := &pgx.Batch{}
		look.Queue(byKeySQL)
		look.Queue(replayRecallsSQL, pgx.NamedArgs{"conv": conv, "senders": senders, "cmids": cmids}).Query(read)
		if len(mids) > 0 {
			look.Queue(replayMidsSQL, pgx.NamedArgs{"conv": conv, "mids": mids}).Query(read)
		}
		if err := tx.SendBatch(ctx, look).Close(); err != nil {
			return err
		}
		slices.SortFunc(left, func(a, b message) int { return cmp.Compare(a.Seq, b.Seq) })
		if err := recallMany(ctx, tx, conv, left, nil, false); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, keepKeysSQL, pgx.NamedArgs{"conv": conv, "senders": senders, "cmids": cmids})
		return err
	})
	if err != nil {
		return err
	}
	report.Done += len(left)
	report.skip(SkippedDone, found-len(left))
	report.skip(SkippedAbsent, len(lines)-found)
	return nil
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
	  LEFT JOIN tidings.conversation c ON c.conv_id = k.conv AND c.conv_id = ANY (@convs::text[])
	  LEFT JOIN tidings.member m ON m.conv_id = k.conv AND m.conv_id = ANY (@convs::text[]) AND m.user_id = k.usr AND m.leave_seq IS NULL ORDER BY k.ord`

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
	), mute AS (
		DELETE FROM tidings.mute u USING head h WHERE u.conv_id = @conv AND u.conv_id = h.conv_id AND u.user_id = @user
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
