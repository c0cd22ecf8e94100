// Tests of sending.

package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
)

func TestSend(t *testing.T) {
	b := newTalk(t, 2)
	other := said("c-1", "m-3")
	other.Sender, other.Device, other.Data = "u-ben", "", []byte(`{ "reply_to": 3 }`)
	answers := b.say(said("c-2", "m-1"), said("c-1", "m-1"), other, said("c-1", "m-2"))
	for i, seq := range []int64{3, 3, 4, 5} {
		a := answers[i]
		if a.Code != "" || a.Seq != seq || a.Dup || a.Mid.IsZero() || a.Epoch != one[int64](b, `SELECT generation FROM tidings.lineage`) ||
			time.Since(time.UnixMilli(a.At)).Abs() > time.Minute {
			t.Errorf("answer %d: %+v, want seq %d", i, a, seq)
		}
	}
	if want := []string{"1 join u-ana", "2 join u-ben", "3 msg u-ana m-1", "4 msg u-ben m-3", "5 msg u-ana m-2"}; !slices.Equal(b.log("c-1"), want) {
		t.Errorf("log %q", b.log("c-1"))
	}
	if got := one[string](b, `SELECT concat_ws('|', sender_device, body, data) FROM tidings.event WHERE mid = $1`, answers[2].Mid); got != `hello m-3|{ "reply_to": 3 }` {
		t.Errorf("stored is %q", got)
	}
	again := b.say(said("c-1", "m-2"), said("c-1", "m-4"))
	first := answers[3]
	first.Dup = true
	if again[0] != first || again[1].Seq != 6 {
		t.Errorf("a repeat is answered with %+v, want %+v; then %+v", again[0], first, again[1])
	}
	b.whole()
}

// One row comes of 32 sends at once of the same message, and all get its seq.
func TestConcurrentRepeats(t *testing.T) {
	b := newTalk(t, 1)
	const n = 32
	var first atomic.Int32
	answers := make([]tidings.Answer, n)
	atOnce(n, func(i int) {
		got, err := b.Send(t.Context(), []tidings.Message{said("c-1", "m-1")}, time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		if answers[i] = got[0]; !got[0].Dup {
			first.Add(1)
		}
	})
	for _, a := range answers {
		if a.Code != "" || a.Seq != 3 || a.Mid != answers[0].Mid || a.At != answers[0].At {
			t.Errorf("%+v, another %+v", a, answers[0])
		}
	}
	if first.Load() != 1 || len(b.log("c-1")) != 3 {
		t.Errorf("%d stored it; log %q", first.Load(), b.log("c-1"))
	}
	b.whole()
}

// Batches that overlap in their conversations, in opposite orders and with repeats, leave no hole, store each message once and end.
func TestConcurrentBatches(t *testing.T) {
	const convs, writers, rounds = 4, 6, 15
	b := newTalk(t, convs)
	var busy atomic.Int32
	atOnce(writers, func(w int) {
		for r := range rounds {
			var batch []tidings.Message
			for c := range convs {
				batch = append(batch, said(fmt.Sprintf("c-%d", (c*(1+2*(w%2))+w)%convs+1), fmt.Sprintf("r-%d-w-%d", r, w/2))) // two writers each send the same
			}
			for wait := time.Duration(0); len(batch) > 0; wait = time.Minute {
				answers, err := b.Send(t.Context(), batch, wait)
				if err != nil {
					t.Error(err)
					return
				}
				var left []tidings.Message
				for i, a := range answers {
					switch {
					case string(a.Code) == "BUSY" && wait == 0:
						busy.Add(1)
						left = append(left, batch[i])
					case a.Code != "" || a.Seq < 3:
						t.Errorf("%+v", a)
					}
				}
				batch = left
			}
		}
	})
	if n := one[int](b, `SELECT count(*) FROM tidings.event WHERE kind = 'msg'`); n != convs*rounds*writers/2 {
		t.Errorf("%d messages are stored, want %d", n, convs*rounds*writers/2)
	}
	b.whole()
	t.Logf("%d were busy", busy.Load())
}

func TestRefusedSends(t *testing.T) {
	b := newTalk(t, 1)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	_, err := b.Join(t.Context(), "c-1", "u-cyd", "")
	b.must(err)
	mine := func(sender, conv, cmid string) tidings.Message {
		m := said(conv, cmid)
		m.Sender = sender
		return m
	}
	b.say(mine("u-cyd", "c-1", "purged"), mine("u-cyd", "c-1", "kept"))
	_, err = b.Leave(t.Context(), "c-1", "u-cyd", "")
	b.must(err)
	b.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-1', 'u-ana', 'purged', 77), ('c-1', 'u-cyd', 'purged', 78)`)
	b.exec(`DELETE FROM tidings.event WHERE conv_id = 'c-1' AND cmid = 'purged'`)
	b.exec(`UPDATE tidings.event SET recalled_by = 9, body = NULL, data = NULL, request_hash = NULL WHERE conv_id = 'c-1' AND cmid = 'm-2'`)
	b.exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user, cmid, target_seq) VALUES ('c-1', 9, 'recall', 'u-ana', 'recalls', 4)`)
	b.exec(`UPDATE tidings.conversation SET next_seq = 10`)
	epoch := one[int64](b, `SELECT generation FROM tidings.lineage`)

	changed := said("c-1", "m-1")
	changed.Body = "something else"
	data := said("c-1", "m-1")
	data.Data = []byte(`{}`)
	recalled := said("c-1", "m-2")
	recalled.Body = "whatever"
	tests := []struct {
		name string
		m    tidings.Message
		want tidings.Answer
	}{
		{"other content", changed, tidings.Answer{Code: tidings.IdempotencyMismatch}},
		{"other data", data, tidings.Answer{Code: tidings.IdempotencyMismatch}},
		{"the cmid of a recall", said("c-1", "recalls"), tidings.Answer{Code: tidings.IdempotencyMismatch}},
		{"recalled", recalled, tidings.Answer{Seq: 4, Epoch: epoch, Dup: true}},
		{"purged", said("c-1", "purged"), tidings.Answer{Code: tidings.OriginalExpired, Seq: 77, Epoch: epoch}},
		{"purged, and the sender has left", mine("u-cyd", "c-1", "purged"), tidings.Answer{Code: tidings.OriginalExpired, Seq: 78, Epoch: epoch}},
		{"a repeat, and the sender has left", mine("u-cyd", "c-1", "kept"), tidings.Answer{Seq: 7, Epoch: epoch, Dup: true}},
		{"the sender has left", mine("u-cyd", "c-1", "new"), tidings.Answer{Code: tidings.NotMember}},
		{"no member", mine("u-eve", "c-1", "m-1"), tidings.Answer{Code: tidings.NotMember}},
		{"no conversation", said("c-none", "m-1"), tidings.Answer{Code: tidings.NotMember}},
		{"last, and good", said("c-1", "good"), tidings.Answer{Seq: 10, Epoch: epoch}},
	}
	var batch []tidings.Message
	for _, test := range tests {
		if test.name != "other data" {
			batch = append(batch, test.m)
		}
	}
	check := func(name string, got, want tidings.Answer) {
		t.Helper()
		if got.Mid.IsZero() != (want.Code != "") || (got.At == 0) != (want.Code != "") {
			t.Errorf("%s: %+v", name, got)
		}
		got.Mid, got.At = tidings.UUID{}, 0
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	// All in one batch, without a wait and with one; then each alone.
	for i, a := range b.say(batch...) {
		at := slices.IndexFunc(tests, func(x struct {
			name string
			m    tidings.Message
			want tidings.Answer
		}) bool {
			return x.m.Cmid == batch[i].Cmid && x.m.Sender == batch[i].Sender && x.m.Conv == batch[i].Conv && x.m.Body == batch[i].Body
		})
		check("in a batch: "+tests[at].name, a, tests[at].want)
	}
	tests[len(tests)-1].want.Dup = true
	for _, test := range tests {
		got, err := b.Send(t.Context(), []tidings.Message{test.m}, time.Second)
		b.must(err)
		check("alone: "+test.name, got[0], test.want)
	}
	if n := one[int64](b, `SELECT next_seq FROM tidings.conversation`); n != 11 {
		t.Errorf("next_seq is %d", n)
	}
}

// A conversation that is held delays only itself, and only as long as one wants to wait.
func TestBusy(t *testing.T) {
	b := newTalk(t, 2)
	release := b.hold("c-1")
	answers := b.say(said("c-1", "m-1"), said("c-2", "m-1"), said("c-none", "m-1"), said("c-1", "m-2"))
	for i, want := range []tidings.Answer{{Code: "BUSY"}, {Seq: 3}, {Code: tidings.NotMember}, {Code: "BUSY"}} {
		if answers[i].Code != want.Code || answers[i].Seq != want.Seq {
			t.Errorf("answer %d: %+v", i, answers[i])
		}
	}
	_, err := b.Send(t.Context(), []tidings.Message{said("c-1", "m-1"), said("c-2", "m-2")}, 20*time.Millisecond)
	b.want(tidings.Unavailable, err)
	if len(b.log("c-1")) != 2 || len(b.log("c-2")) != 3 {
		t.Errorf("logs %q, %q", b.log("c-1"), b.log("c-2"))
	}
	done := make(chan []tidings.Answer)
	go func() {
		got, err := b.Send(t.Context(), []tidings.Message{said("c-1", "m-1"), said("c-1", "m-2")}, time.Minute)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	b.waiting(1)
	release()
	if got := <-done; len(got) != 2 || got[0].Seq != 3 || got[1].Seq != 4 {
		t.Errorf("after the wait: %+v", got)
	}
	b.whole()
}

// The setting of one Send does not stay in its connection.
func TestLockTimeoutEnds(t *testing.T) {
	b := newTalk(t, 1)
	for range 3 {
		_, err := b.Send(t.Context(), []tidings.Message{said("c-1", "m-1")}, time.Second)
		b.must(err)
		if got := one[string](b, `SHOW lock_timeout`); got != "5s" { // what Configure has set
			t.Errorf("lock_timeout is %s", got)
		}
	}
}

// Sessions that are ended while they write leave no hole; what they had not committed is stored by a repeat.
func TestTerminatedSends(t *testing.T) {
	b := newTalk(t, 1)
	const kills = 20
	stop, killed := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		for n < kills {
			select {
			case <-stop:
				killed <- n
				return
			default:
			}
			var hit int
			if err := b.pool.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid, 5000)) FROM (SELECT pid FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'active' AND query LIKE '%send_rows(%' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) x`).Scan(&hit); err == nil {
				n += hit
			}
		}
		killed <- n
	}()
	const writers, rounds = 4, 25
	var unknown atomic.Int32
	atOnce(writers, func(w int) {
		for r := range rounds {
			cmid := fmt.Sprintf("w-%d-r-%d", w, r)
			for {
				answers, err := b.Send(t.Context(), []tidings.Message{said("c-1", cmid+"-a"), said("c-1", cmid+"-b")}, time.Minute)
				if err == nil {
					if answers[0].Code != "" || answers[0].Seq >= answers[1].Seq {
						t.Errorf("%+v", answers)
					}
					break
				}
				switch code := tidings.ErrorCode(err); code {
				case tidings.OutcomeUnknown:
					unknown.Add(1)
				case tidings.Unavailable:
				default:
					t.Errorf("%s: %v", code, err)
				}
			}
		}
	})
	close(stop)
	n := <-killed
	if n == 0 {
		t.Error("no session was ended")
	}
	if got := one[int](b, `SELECT count(*) FROM tidings.event WHERE kind = 'msg'`); got != writers*rounds*2 {
		t.Errorf("%d messages are stored, want %d", got, writers*rounds*2)
	}
	b.whole()
	t.Logf("%d sessions were ended, %d sends were unknown", n, unknown.Load())
}

// A message that the database cannot take aborts its batch and leaves nothing; the code says so.
func TestBatchIsAllOrNothing(t *testing.T) {
	b := newTalk(t, 1)
	bad := said("c-1", "m-2")
	bad.Body = "a\x00b"
	_, err := b.Send(t.Context(), []tidings.Message{said("c-1", "m-1"), bad}, 0)
	b.want(tidings.InvalidArgument, err)
	// Equal keys in one batch are the caller's defect: the unique index ends it.
	_, err = b.Send(t.Context(), []tidings.Message{said("c-1", "m-1"), said("c-1", "m-1")}, 0)
	b.want(tidings.Internal, err)
	if strings.Contains(err.Error(), "hello") {
		t.Errorf("the error holds the message: %v", err)
	}
	if len(b.log("c-1")) != 2 {
		t.Errorf("log %q", b.log("c-1"))
	}
	b.whole()
}
