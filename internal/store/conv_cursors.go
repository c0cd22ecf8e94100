// Delivered and read cursors.

package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Ack says that a device has stored a conversation up to Seq without a hole.
type Ack struct {
	Conv, User, Device    string
	InstallNo, Epoch, Seq int64 // Epoch 0: the current one
}

// Acked is the answer to an Ack. Code is empty when it was taken: then Seq is the stored cursor, which is the device's greatest Ack,
// capped by the head. Otherwise it is NOT_MEMBER, EPOCH_CHANGED (Epoch), INSTALL_REPLACED or INVALID_ARGUMENT.
type Acked struct {
	Code             tidings.Code
	Epoch, Head, Seq int64
}

// installsSQL reads the current installs of devices by primary key.
const installsSQL = `SELECT d.user_id, d.device_id, d.install_no FROM tidings.device d
	  JOIN unnest(@users::text[], @devices::text[], @buckets::smallint[]) x (usr, device, bucket)
	    ON d.user_id = x.usr AND d.device_id = x.device AND d.bucket = x.bucket
	 WHERE d.user_id = ANY (@users::text[]) AND d.bucket = ANY (@buckets::smallint[])`

// ackSQL moves delivered cursors, which only grow within one install (R4). Heads, epochs and the cursors themselves are read by
// primary keys; what the stored cursor already covers is not written again. Rows are written in the order of their key. A
// row of the answer without seq is one whose install was replaced meanwhile.
const ackSQL = `WITH judged AS MATERIALIZED (
		SELECT a.n, a.conv, a.usr, a.device, a.install, a.epoch IN (0, c.epoch) AS valid, c.epoch, ` + visibleHead + ` AS head,
			least(a.seq, ` + visibleHead + `) AS seq, CASE WHEN d.install_no = a.install THEN d.seq ELSE -1 END AS old
		  FROM unnest(@convs::text[], @users::text[], @devices::text[], @installs::bigint[], @epochs::bigint[], @seqs::bigint[])
			WITH ORDINALITY a (conv, usr, device, install, epoch, seq, n)
		  JOIN tidings.conversation c ON c.conv_id = a.conv
		  JOIN tidings.member m ON m.conv_id = a.conv AND m.user_id = a.usr
		  LEFT JOIN tidings.delivered d ON d.conv_id = a.conv AND d.user_id = a.usr AND d.device_id = a.device
		 WHERE c.conv_id = ANY (@convs::text[]) AND m.conv_id = ANY (@convs::text[])
		 GROUP BY a.n, a.conv, a.usr, a.device, a.install, a.epoch, a.seq, c.epoch, c.next_seq, d.install_no, d.seq
	), stored AS (
		INSERT INTO tidings.delivered AS d (conv_id, user_id, device_id, install_no, seq)
		SELECT j.conv, j.usr, j.device, j.install, max(j.seq) FROM judged j
		 WHERE j.valid AND j.seq > j.old GROUP BY j.conv, j.usr, j.device, j.install ORDER BY j.conv, j.usr, j.device
		ON CONFLICT (conv_id, user_id, device_id) DO UPDATE SET install_no = excluded.install_no,
			seq = CASE WHEN d.install_no = excluded.install_no THEN greatest(d.seq, excluded.seq) ELSE excluded.seq END
		 WHERE d.install_no <= excluded.install_no
		RETURNING d.conv_id, d.user_id, d.device_id, d.seq
	)
	SELECT j.n, j.valid, j.epoch, j.head, CASE WHEN j.seq > j.old THEN coalesce(s.seq, -1) ELSE greatest(j.old, coalesce(s.seq, -1)) END
	  FROM judged j LEFT JOIN stored s ON j.valid AND s.conv_id = j.conv AND s.user_id = j.usr AND s.device_id = j.device`

// Ack moves delivered cursors and answers each ack in its place. Acks of one device and conversation are folded into one write. An
// error is of all of them; it may have stored them when its code is OUTCOME_UNKNOWN, and repeating is harmless.
func (s *Store) Ack(ctx context.Context, acks []Ack) ([]Acked, error) {
	answers := make([]Acked, len(acks))
	if len(acks) == 0 {
		return answers, nil
	}
	current, err := s.installs(ctx, acks)
	if err != nil {
		return nil, err
	}
	folded := foldAcks(acks, current, answers)
	if len(folded) == 0 {
		return answers, nil
	}
	var convs, users, devices []string
	var installs, epochs, seqs []int64
	for _, f := range folded {
		convs, users, devices = append(convs, f.Conv), append(users, f.User), append(devices, f.Device)
		installs, epochs, seqs = append(installs, f.InstallNo), append(epochs, f.Epoch), append(seqs, f.Seq)
	}
	args := pgx.NamedArgs{"convs": convs, "users": users, "devices": devices, "installs": installs, "epochs": epochs, "seqs": seqs}
	err = s.write(ctx, "store delivered cursors", func(ctx context.Context) error {
		return s.eachByKey(ctx, ackSQL, args, func(row pgx.Rows) error {
			var n int
			var valid bool
			var a Acked
			if err := row.Scan(&n, &valid, &a.Epoch, &a.Head, &a.Seq); err != nil {
				return err
			}
			switch {
			case !valid:
				a = Acked{Code: tidings.EpochChanged, Epoch: a.Epoch}
			case a.Seq < 0:
				a = Acked{Code: tidings.InstallReplaced}
			}
			for _, i := range folded[n-1].places {
				answers[i] = a
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// foldedAck stands for the acks at some places of a batch that differ in their seq only; its Seq is the greatest of them.
type foldedAck struct {
	Ack
	places []int
}

// foldAcks folds a batch and sorts it by key. It answers those that are refused without a look at the conversation, and the others
// with NOT_MEMBER, which is how it stays when the statement finds nothing for them.
func foldAcks(acks []Ack, current map[deviceKey]int64, answers []Acked) (folded []*foldedAck) {
	newest := map[Ack]int64{} // the install by conversation, user and device: the statement writes one row of each
	for _, a := range acks {
		key := Ack{Conv: a.Conv, User: a.User, Device: a.Device}
		newest[key] = max(newest[key], a.InstallNo, current[deviceKey{a.User, a.Device}])
	}
	known := map[Ack]*foldedAck{}
	for i, a := range acks {
		key := a
		key.Seq = 0
		f := known[key]
		switch {
		case a.Seq < 1:
			answers[i].Code = tidings.InvalidArgument
			continue
		case a.InstallNo < newest[Ack{Conv: a.Conv, User: a.User, Device: a.Device}]:
			answers[i].Code = tidings.InstallReplaced
			continue
		case f == nil:
			f = &foldedAck{Ack: key}
			known[key], folded = f, append(folded, f)
		}
		answers[i].Code = tidings.NotMember
		f.Seq, f.places = max(f.Seq, a.Seq), append(f.places, i)
	}
	slices.SortFunc(folded, func(a, b *foldedAck) int {
		return cmp.Or(cmp.Compare(a.Conv, b.Conv), cmp.Compare(a.User, b.User), cmp.Compare(a.Device, b.Device))
	})
	return folded
}

type deviceKey struct{ user, device string }

// installs reads the current installs of the devices that ack. A device that never said hello has none.
func (s *Store) installs(ctx context.Context, acks []Ack) (map[deviceKey]int64, error) {
	current := map[deviceKey]int64{}
	var users, devices []string
	var buckets []int16
	for _, a := range acks {
		key := deviceKey{a.User, a.Device}
		if _, known := current[key]; !known {
			current[key] = 0
			users, devices, buckets = append(users, a.User), append(devices, a.Device), append(buckets, tidings.Bucket(a.User))
		}
	}
	args := pgx.NamedArgs{"users": users, "devices": devices, "buckets": buckets}
	err := s.eachByKey(ctx, installsSQL, args, func(row pgx.Rows) error {
		var key deviceKey
		var no int64
		err := row.Scan(&key.user, &key.device, &no)
		current[key] = no
		return err
	})
	return current, unchanged("read the current installs", err)
}

// ReadState is how far a user has read a conversation.
type ReadState struct {
	Epoch      int64 `json:"epoch"`
	Seq        int64 `json:"seq"` // the stored cursor
	Unread     int64 `json:"unread"`
	UnreadMore bool  `json:"unread_more"` // there are more than Unread
	Moved      bool  `json:"-"`           // this call moved the cursor
}

// readSQL moves a user's read cursor, which only grows (R4), within the head and the epoch, and counts what is unread after it. A cursor
// that is already there is not written again.
const readSQL = `WITH state AS MATERIALIZED (
		SELECT c.conv_id, c.epoch, c.next_seq, c.min_seq, ` + visibleHead + ` AS head, coalesce(r.seq, 0) AS old,
			@epoch::bigint IN (0, c.epoch) AND @seq::bigint <= ` + visibleHead + ` AS valid
		  FROM tidings.conversation c JOIN tidings.member m ON m.conv_id = c.conv_id
		  LEFT JOIN tidings.read r ON r.conv_id = @conv::text AND r.user_id = @user::text
		 WHERE c.conv_id = @conv::text AND m.user_id = @user::text GROUP BY c.conv_id, r.seq
	), stored AS (
		INSERT INTO tidings.read AS r (conv_id, user_id, seq)
		SELECT s.conv_id, @user::text, @seq::bigint FROM state s WHERE s.valid AND @seq::bigint > s.old
		ON CONFLICT (conv_id, user_id) DO UPDATE SET seq = greatest(r.seq, excluded.seq)
		RETURNING r.seq
	), gone AS (
		INSERT INTO tidings.gone (conv_id, why, user_id, seq)
		SELECT s.conv_id, 'read', @user::text, w.seq FROM state s CROSS JOIN stored w WHERE w.seq = @seq::bigint
		ON CONFLICT (conv_id, why, user_id, seq) DO NOTHING
	)
	SELECT c.epoch, c.head, c.valid, c.read, c.moved, CASE WHEN c.valid THEN ` + unread + ` ELSE 0 END
	  FROM (SELECT s.*, coalesce(w.seq, s.old) AS read, coalesce(w.seq = @seq::bigint, false) AS moved FROM state s LEFT JOIN stored w ON true) c`

// Read moves a user's read cursor to seq, unless it is there or beyond already, and returns the stored one. epoch 0 is the current one.
//
// Errors: NOT_MEMBER (never a member, or no such conversation), EPOCH_CHANGED, INVALID_ARGUMENT (seq < 1), CURSOR_AHEAD; judged in
// this order.
func (s *Store) Read(ctx context.Context, user, conv string, epoch, seq int64) (ReadState, error) {
	type answer struct {
		ReadState
		head  int64
		valid bool
	}
	args := pgx.NamedArgs{"user": user, "conv": conv, "epoch": epoch, "seq": seq}
	var found []answer
	err := s.write(ctx, "store a read cursor", func(ctx context.Context) (err error) {
		found, err = rowsByKey(ctx, s, readSQL, args, func(row pgx.CollectableRow) (a answer, err error) {
			err = row.Scan(&a.Epoch, &a.head, &a.valid, &a.Seq, &a.Moved, &a.Unread)
			return a, err
		})
		return err
	})
	switch {
	case err != nil:
		return ReadState{}, err
	case len(found) == 0:
		return ReadState{}, notMember(conv)
	}
	a := found[0]
	switch {
	case epoch != 0 && epoch != a.Epoch:
		return ReadState{}, epochChanged(a.Epoch)
	case seq < 1:
		return ReadState{}, tidings.Errorf(tidings.InvalidArgument, "seq is %d", seq)
	case !a.valid:
		return ReadState{}, cursorAhead(a.Epoch, a.head, seq)
	}
	a.Unread, a.UnreadMore = capUnread(a.Unread)
	return a.ReadState, nil
}
