// Tests of cursors.

package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// long fills a conversation with n messages of ben behind the joins of ana and ben.
func (b *bench) long(conv string, n int64) {
	b.t.Helper()
	b.fill(conv, "join ana", "join ben")
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
		SELECT $1, n, 'msg', gen_random_uuid(), 'ben', 'c' || n, 'x' FROM generate_series(3, $2::bigint) n`, conv, n)
	b.exec(`UPDATE tidings.conversation SET next_seq = $2 WHERE conv_id = $1`, conv, n+1)
}

func TestReadRefuses(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fill("c", "join ana", "join ben", "msg ana", "leave ben", "msg ana")
	for _, refused := range []struct {
		user, conv string
		epoch, seq int64
		want       tidings.Code
		head       int64
	}{
		{"ana", "absent", 0, 1, tidings.NotMember, 0},
		{"eve", "c", 5, 1, tidings.NotMember, 0},
		{"ana", "c", 5, 99, tidings.EpochChanged, 0},
		{"ana", "c", 5, 3, tidings.EpochChanged, 0},
		{"ana", "c", epoch, 0, tidings.InvalidArgument, 0},
		{"ana", "c", epoch, -1, tidings.InvalidArgument, 0},
		{"ana", "c", epoch, 6, tidings.CursorAhead, 5},
		{"ben", "c", 0, 5, tidings.CursorAhead, 4},
	} {
		_, err := b.Read(ctx, refused.user, refused.conv, refused.epoch, refused.seq)
		b.want(refused.want, err)
		var e *tidings.Error
		if errors.As(err, &e) && e.Head != refused.head {
			t.Errorf("%+v: the head is %d", refused, e.Head)
		}
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.read`); n != 0 {
		t.Errorf("%d cursors are stored", n)
	}
	r, err := b.Read(ctx, "ben", "c", epoch, 4)
	b.must(err)
	if r.Seq != 4 || r.Unread != 0 || !r.Moved {
		t.Errorf("who has left reads %+v", r)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.delivered`); n != 0 {
		t.Errorf("reading has delivered %d times", n)
	}
}

// 1 000 reads in random order from several devices at once: the stored value never drops and ends at the greatest, and each
// answer is a value that was stored when it was given.
func TestReadOnlyGrows(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	const head, readers = 1000, 8
	b.long("c", head)
	order := rand.Perm(head)
	var stored, running, overlapped atomic.Int64 // stored: the greatest answer so far
	failed := make([]error, readers)
	atOnce(readers, func(i int) {
		for k := i; k < head && failed[i] == nil; k += readers {
			seq, before := int64(order[k]+1), stored.Load()
			if running.Add(1) > 1 {
				overlapped.Add(1)
			}
			r, err := b.Read(ctx, "ana", "c", epoch, seq)
			running.Add(-1)
			switch {
			case err != nil:
				failed[i] = err
			case r.Seq < seq || r.Seq < before:
				failed[i] = fmt.Errorf("the answer to %d is %d, stored was %d before", seq, r.Seq, before)
			case r.Unread != min(head-r.Seq, 1000):
				failed[i] = fmt.Errorf("at %d there are %d unread", r.Seq, r.Unread)
			}
			for old := stored.Load(); old < r.Seq && !stored.CompareAndSwap(old, r.Seq); old = stored.Load() {
			}
		}
	})
	b.must(errors.Join(failed...))
	if got := one[int64](b, `SELECT seq FROM tidings.read WHERE conv_id = 'c' AND user_id = 'ana'`); got != head || stored.Load() != head {
		t.Errorf("the cursor ends at %d", got)
	}
	if overlapped.Load() == 0 {
		t.Error("no two reads overlapped")
	}
}

// Each ack of a batch is answered in its place, whatever else is in it.
func TestAcksOfABatch(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fill("c", "join ana", "join ben", "msg ana", "leave ben", "msg ana")
	b.fill("d", "join ana", "msg ana")
	hello := func(user, install string) int64 {
		h, err := b.Hello(ctx, user, user+"-d", install, "g", connection(1))
		b.must(err)
		return h.InstallNo
	}
	ana, ben := hello("ana", "i1"), hello("ben", "i1")
	eve := hello("eve", "i1")
	old := hello("cat", "i1")
	hello("cat", "i2")
	ack := func(conv, user string, install, epoch, seq int64) store.Ack {
		return store.Ack{Conv: conv, User: user, Device: user + "-d", InstallNo: install, Epoch: epoch, Seq: seq}
	}
	type pair struct {
		ack  store.Ack
		want store.Acked
	}
	check := func(pairs ...pair) {
		t.Helper()
		var acks []store.Ack
		for _, p := range pairs {
			acks = append(acks, p.ack)
		}
		got, err := b.Ack(ctx, acks)
		b.must(err)
		for i, p := range pairs {
			if got[i] != p.want {
				t.Errorf("%+v is answered by %+v, want %+v", p.ack, got[i], p.want)
			}
		}
	}
	stored := func(head, seq int64) store.Acked { return store.Acked{Epoch: epoch, Head: head, Seq: seq} }
	check(
		pair{ack("d", "ana", ana, epoch, 1), stored(2, 2)}, // folded with the next
		pair{ack("d", "ana", ana, 0, 2), stored(2, 2)},
		pair{ack("c", "ana", ana, epoch, 3), stored(5, 3)},
		pair{ack("c", "ana", ana, epoch, 3), stored(5, 3)},
		pair{ack("c", "ana", ana, epoch, 2), stored(5, 3)},
		pair{ack("c", "ana", ana, 5, 4), store.Acked{Code: tidings.EpochChanged, Epoch: epoch}},
		pair{ack("c", "ben", ben, epoch, 99), stored(4, 4)}, // capped by the leave
		pair{ack("c", "eve", eve, epoch, 1), store.Acked{Code: tidings.NotMember}},
		pair{ack("absent", "ana", ana, 5, 1), store.Acked{Code: tidings.NotMember}},
		pair{ack("c", "cat", old, epoch, 1), store.Acked{Code: tidings.InstallReplaced}},
		pair{ack("c", "ana", ana, epoch, 0), store.Acked{Code: tidings.InvalidArgument}},
		pair{ack("c", "ana", ana, epoch, -5), store.Acked{Code: tidings.InvalidArgument}},
	)
	// A lower one changes nothing and says so; one beyond the head is capped.
	check(pair{ack("c", "ana", ana, epoch, 1), stored(5, 3)}, pair{ack("d", "ana", ana, epoch, 1), stored(2, 2)})
	check(pair{ack("c", "ana", ana, epoch, 1<<52), stored(5, 5)})
	// The device is installed anew: it starts from its own cursor, and the old install is refused.
	again := hello("ana", "i2")
	check(pair{ack("c", "ana", again, epoch, 2), stored(5, 2)}, pair{ack("c", "ana", ana, epoch, 5), store.Acked{Code: tidings.InstallReplaced}})
	check(pair{ack("c", "ana", ana, epoch, 5), store.Acked{Code: tidings.InstallReplaced}})
	if got := one[int64](b, `SELECT seq FROM tidings.delivered WHERE conv_id = 'c' AND user_id = 'ana'`); got != 2 {
		t.Errorf("the new install's cursor is %d", got)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.read`); n != 0 {
		t.Errorf("delivery has read %d times", n)
	}
	if got, err := b.Ack(ctx, nil); err != nil || len(got) != 0 {
		t.Errorf("no acks: %v, %v", got, err)
	}
}

// An install that was replaced after the device's row was read is refused by the row of its cursor.
func TestAckOfAReplacedInstall(t *testing.T) {
	b := newBench(t)
	b.fill("c", "join ana", "msg ana")
	b.exec(`INSERT INTO tidings.delivered (conv_id, user_id, device_id, install_no, seq) VALUES ('c', 'ana', 'd', 2, 1)`)
	got, err := b.Ack(t.Context(), []store.Ack{{Conv: "c", User: "ana", Device: "d", InstallNo: 1, Seq: 2}})
	b.must(err)
	if got[0].Code != tidings.InstallReplaced || one[int64](b, `SELECT seq FROM tidings.delivered`) != 1 {
		t.Errorf("the answer is %+v", got[0])
	}
}

// Batches that share devices and conversations in any order neither deadlock nor set a cursor back, and each answer is at least its
// ack.
func TestAcksAtOnce(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	const convs, devices, head, writers = 2, 3, 1000, 6
	for c := range convs {
		b.long(fmt.Sprintf("c%d", c), head)
	}
	failed := make([]error, writers)
	var greatest [convs][devices]atomic.Int64 // the greatest answer so far
	at := func(a store.Ack) *atomic.Int64 { return &greatest[a.Conv[1]-'0'][a.Device[1]-'0'] }
	atOnce(writers, func(w int) {
		for range 40 {
			var acks []store.Ack
			var before []int64
			for range 5 {
				acks = append(acks, store.Ack{Conv: fmt.Sprintf("c%d", rand.IntN(convs)), User: "ana", Device: fmt.Sprintf("d%d", rand.IntN(devices)),
					InstallNo: 1, Epoch: []int64{0, epoch}[rand.IntN(2)], Seq: rand.Int64N(head) + 1})
				before = append(before, at(acks[len(acks)-1]).Load())
			}
			got, err := b.Ack(ctx, acks)
			if err != nil {
				failed[w] = err
				return
			}
			for i, a := range got {
				if a.Code != "" || a.Seq < max(acks[i].Seq, before[i]) || a.Seq > head {
					failed[w] = fmt.Errorf("%+v is answered by %+v, stored was %d before", acks[i], a, before[i])
				}
				for top, old := at(acks[i]), at(acks[i]).Load(); old < a.Seq && !top.CompareAndSwap(old, a.Seq); old = top.Load() {
				}
			}
		}
	})
	b.must(errors.Join(failed...))
	final := []store.Ack{}
	for c := range convs {
		for d := range devices {
			final = append(final, store.Ack{Conv: fmt.Sprintf("c%d", c), User: "ana", Device: fmt.Sprintf("d%d", d), InstallNo: 1, Seq: head + 50})
		}
	}
	got, err := b.Ack(ctx, final)
	b.must(err)
	if slices.ContainsFunc(got, func(a store.Acked) bool { return a.Seq != head }) || one[int](b, `SELECT count(*) FROM tidings.delivered WHERE seq = 1000`) != convs*devices {
		t.Errorf("the cursors end at %+v", got)
	}
}
