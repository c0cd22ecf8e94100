// Tests of recalls: their judgement, and beside other writers.

package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

// takes is a recall by ana in c-1.
func takes(target int64, cmid string) store.Recall {
	return store.Recall{Conv: "c-1", User: "u-ana", Device: "u-ana-d2", Cmid: cmid, Target: target}
}

// recall is Recall that answers.
func (b *bench) recall(r store.Recall) store.Recalled {
	b.t.Helper()
	a, err := b.Recall(b.t.Context(), r, false)
	b.must(err)
	return a
}

// recalls fails unless the recall is answered with the code or, when there is none, at the seq.
func (b *bench) recalls(what string, r store.Recall, code tidings.Code, seq int64, dup bool) {
	b.t.Helper()
	a := b.recall(r)
	epoch, at := one[int64](b, `SELECT generation FROM tidings.lineage`), one[time.Time](b, `SELECT coalesce(max(created_at), 'epoch') FROM tidings.event WHERE conv_id = $1 AND seq = $2`, r.Conv, seq)
	want := store.Recalled{Code: code, Epoch: epoch, Seq: seq, At: at.UnixMilli(), Dup: dup}
	switch code {
	case "":
	case tidings.EpochChanged:
		want = store.Recalled{Code: code, Epoch: epoch}
	default:
		want = store.Recalled{Code: code}
	}
	if a != want {
		b.t.Errorf("%s: %+v, want %+v", what, a, want)
	}
}

// rows is everything that a recall could change, as one text.
func (b *bench) rows() string {
	b.t.Helper()
	return one[string](b, `SELECT concat_ws(' | ', (SELECT string_agg(e::text, ',' ORDER BY conv_id, seq) FROM tidings.event e), (SELECT string_agg(c::text, ',' ORDER BY conv_id) FROM tidings.conversation c),
		(SELECT string_agg(g::text, ',' ORDER BY g::text) FROM tidings.gone g), (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM tidings.taken_back t),
		(SELECT string_agg(p::text, ',' ORDER BY p::text) FROM tidings.posted p))`)
}

func TestRecall(t *testing.T) {
	b := newTalk(t, 2)
	b.exec(`DELETE FROM tidings.posted`)
	message := said("c-1", "m-1")
	message.Data = []byte(`{"k":"v"}`)
	mid := b.say(message, said("c-1", "m-2"))[0].Mid
	b.recalls("the first", takes(3, "r-1"), "", 5, false)
	if want := []string{"1 join u-ana", "2 join u-ben", "3 msg u-ana m-1", "4 msg u-ana m-2", "5 recall u-ana r-1"}; !slices.Equal(b.log("c-1"), want) {
		t.Errorf("log %q", b.log("c-1"))
	}
	if got := one[string](b, `SELECT concat_ws(' ', recalled_by, body IS NULL, data IS NULL, request_hash IS NULL, mid = $1, cmid, sender_device) FROM tidings.event WHERE seq = 3 AND conv_id = 'c-1'`, mid); got != "5 t t t t m-1 u-ana-d1" {
		t.Errorf("the message is %s", got)
	}
	if got := one[string](b, `SELECT concat_ws(' ', sender_user, sender_device, target_seq, mid, actor_user) FROM tidings.event WHERE kind = 'recall'`); got != "u-ana u-ana-d2 3" {
		t.Errorf("the recall is %s", got)
	}
	if got := one[string](b, `SELECT concat_ws(' ', conv_id, why, user_id = '', seq, marked) FROM tidings.gone`); got != "c-1 recall t 3 f" {
		t.Errorf("the intent to mark is %s", got)
	}
	if got := one[string](b, `SELECT concat_ws(' ', conv_id, what, mid = $1, user_id, cmid, cutoff_at, epoch = (SELECT generation FROM tidings.lineage), copied, at = (SELECT created_at FROM tidings.event WHERE kind = 'recall'))
		FROM tidings.taken_back`, mid); got != "c-1 recall t u-ana m-1 t f t" {
		t.Errorf("the journal has %s", got)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.posted`); n != 0 {
		t.Errorf("%d are posted of what a gateway tells", n)
	}
	a, err := b.Recall(t.Context(), takes(4, "r-2"), true)
	b.must(err)
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', conv_id, seq, user_id), ',') FROM tidings.posted`); a.Seq != 6 || got != "c-1 6" {
		t.Errorf("%+v; posted is %s", a, got)
	}
	_, event, err := b.Fetch(t.Context(), "u-ben", "c-1", 0, 3)
	b.must(err)
	if !event.Recalled || event.Body != nil || event.Data != nil || event.Cmid != "m-1" || event.Mid != mid.String() {
		t.Errorf("the message is read as %+v", event)
	}
	if again := b.say(message)[0]; again.Code != "" || !again.Dup || again.Seq != 3 {
		t.Errorf("sent again it is %+v", again)
	}
	b.whole()
}

// The order of judgement: of several reasons the first is told, and no refusal changes anything.
func TestRecallIsJudgedInOrder(t *testing.T) {
	b := newTalk(t, 1)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"), said("c-1", "m-3"), said("c-1", "old")) // 3 to 6
	_, err := b.Join(t.Context(), "c-1", "u-cyd", "")                                     // 7
	b.must(err)
	of := func(user string, r store.Recall) store.Recall {
		r.User = user
		return r
	}
	cyds := said("c-1", "m-1")
	cyds.Sender = "u-cyd"
	b.say(cyds) // 8
	b.recalls("recalls", takes(4, "r-4"), "", 9, false)
	b.recalls("recalls", of("u-cyd", takes(8, "r-8")), "", 10, false)
	_, err = b.Leave(t.Context(), "c-1", "u-cyd", "") // 11
	b.must(err)
	b.say(said("c-1", "m-12"), said("c-1", "m-13")) // 12, 13
	b.exec(`UPDATE tidings.event SET created_at = created_at - interval '2 minutes 1 second' WHERE seq < 13`)
	b.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-1', 'u-ana', 'purged', 2), ('c-1', 'u-cyd', 'purged', 2)`)
	b.exec(`DELETE FROM tidings.event WHERE seq < 3`)
	b.exec(`UPDATE tidings.conversation SET min_seq = 3`)

	before := b.rows()
	stale := func(r store.Recall) store.Recall {
		r.Epoch = 7
		return r
	}
	current := func(r store.Recall) store.Recall {
		r.Epoch = one[int64](b, `SELECT generation FROM tidings.lineage`)
		return r
	}
	nowhere := takes(3, "r")
	nowhere.Conv = "c-none"
	for _, c := range []struct {
		what string
		r    store.Recall
		code tidings.Code
		seq  int64
	}{
		{"a stranger", of("u-eve", takes(3, "r")), tidings.NotMember, 0},
		{"a stranger with an old epoch", stale(of("u-eve", takes(3, "r"))), tidings.NotMember, 0},
		{"no conversation", nowhere, tidings.NotMember, 0},
		{"no conversation, with an old epoch", stale(nowhere), tidings.NotMember, 0},

		{"again", takes(4, "r-4"), "", 9},
		{"again with an old epoch", stale(takes(4, "r-4")), "", 9},
		{"again after the leave", stale(of("u-cyd", takes(8, "r-8"))), "", 10},
		{"another target", takes(3, "r-4"), tidings.IdempotencyMismatch, 0},
		{"another target that is not there, with an old epoch", stale(takes(99, "r-4")), tidings.IdempotencyMismatch, 0},
		{"the key of a message", takes(3, "m-2"), tidings.IdempotencyMismatch, 0},
		{"the key of that very message", takes(3, "m-1"), tidings.IdempotencyMismatch, 0},
		{"a purged key", takes(3, "purged"), tidings.IdempotencyMismatch, 0},
		{"a purged key and target, with an old epoch", stale(takes(2, "purged")), tidings.NotFound, 0},
		{"a purged key and target after the leave", of("u-cyd", takes(2, "purged")), tidings.NotFound, 0},

		{"an old epoch", stale(takes(13, "r")), tidings.EpochChanged, 0},
		{"an old epoch after the leave", stale(of("u-cyd", takes(99, "r"))), tidings.EpochChanged, 0},
		{"after the leave", current(of("u-cyd", takes(99, "r"))), tidings.NotMember, 0},
		{"after the leave, one's own", of("u-cyd", takes(8, "r")), tidings.NotMember, 0},

		{"purged", takes(2, "r"), tidings.NotFound, 0},
		{"beyond the head", current(takes(14, "r")), tidings.NotFound, 0},
		{"far beyond the head", takes(tidings.MaxNumber, "r"), tidings.NotFound, 0},
		{"a join", takes(7, "r"), tidings.InvalidArgument, 0},
		{"a leave", takes(11, "r"), tidings.InvalidArgument, 0},
		{"a recall", takes(9, "r"), tidings.InvalidArgument, 0},
		{"another's", of("u-ben", takes(13, "r")), tidings.NotSender, 0},
		{"another's, recalled", takes(8, "r"), tidings.NotSender, 0},
		{"recalled, and too late", takes(4, "r"), tidings.AlreadyRecalled, 0},
		{"too late", takes(3, "r"), tidings.RecallWindowExpired, 0},
		{"too late, by its last device", current(takes(12, "r")), tidings.RecallWindowExpired, 0},
	} {
		b.recalls(c.what, c.r, c.code, c.seq, c.seq > 0)
	}
	if after := b.rows(); after != before {
		t.Errorf("a refusal or a repetition has changed something:\n%s\n%s", before, after)
	}
	// A member who came late sees nothing before, and one who came back nothing between.
	_, err = b.Join(t.Context(), "c-1", "u-cyd", "") // 14
	b.must(err)
	b.recalls("before one's time", of("u-cyd", takes(6, "r")), tidings.NotFound, 0, false)
	b.recalls("between one's times", of("u-cyd", takes(13, "r")), tidings.NotFound, 0, false)
	b.recalls("of an earlier time", of("u-cyd", takes(8, "r")), tidings.AlreadyRecalled, 0, false)
	b.recalls("under another's key, in time", current(takes(13, "r-8")), "", 15, false)
	b.exec(`UPDATE tidings.conversation SET recall_window_ms = 0`)
	b.exec(`UPDATE tidings.event SET created_at = clock_timestamp() + interval '1 hour' WHERE seq = 12`)
	b.recalls("never", takes(12, "r"), tidings.RecallWindowExpired, 0, false)
	b.exec(`UPDATE tidings.conversation SET recall_window_ms = 3153600000000`)
	b.recalls("for a hundred years", takes(3, "r"), "", 16, false)

	for what, bad := range map[string]store.Recall{"no target": takes(0, "r"), "below": takes(-1, "r"), "no cmid": takes(3, ""), "a bad device": {Conv: "c-1", User: "u-ana", Device: "a b", Cmid: "r", Target: 3},
		"a bad user": of("a b", takes(3, "r")), "no conversation": {User: "u-ana", Cmid: "r", Target: 3}} {
		if a, err := b.Recall(t.Context(), bad, false); tidings.ErrorCode(err) != tidings.InvalidArgument || a != (store.Recalled{}) {
			t.Errorf("%s: %+v, %v", what, a, err)
		}
	}
}

// The window is judged by the time after the wait for the lock.
func TestRecallThatWaitsPastTheWindow(t *testing.T) {
	b := newTalk(t, 1)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	b.exec(`UPDATE tidings.event SET created_at = clock_timestamp() - interval '119 seconds' WHERE seq <= 3`) // a second is left
	release := b.hold("c-1")
	answers := make([]store.Recalled, 2)
	var done atomic.Int32
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		atOnce(2, func(i int) {
			var err error
			if answers[i], err = b.Recall(t.Context(), takes(int64(3+i), fmt.Sprint("r-", i)), false); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}()
	b.waiting(2)
	for !one[bool](b, `SELECT clock_timestamp() > created_at + interval '120 seconds' FROM tidings.event WHERE seq = 3`) {
		time.Sleep(10 * time.Millisecond)
	}
	if done.Load() > 0 {
		t.Error("a recall did not wait for the lock")
	}
	release()
	<-ended
	if answers[0].Code != tidings.RecallWindowExpired || answers[1].Code != "" {
		t.Errorf("%+v", answers)
	}
	b.whole()
}

// Of two recalls of a message under two keys one is carried out; of the same key all are answered with its seq.
func TestConcurrentRecalls(t *testing.T) {
	b := newTalk(t, 1)
	const n, rounds = 8, 5
	for round := range rounds {
		target := b.say(said("c-1", fmt.Sprint("m-", round)))[0].Seq
		answers := make([]store.Recalled, n)
		atOnce(n, func(i int) {
			var err error
			if answers[i], err = b.Recall(t.Context(), takes(target, fmt.Sprint("r-", round, "-", i%2)), false); err != nil {
				t.Error(err)
			}
		})
		first := 0
		for i, a := range answers {
			winner := answers[i%2].Code == ""
			switch {
			case winner && (a.Code != "" || a.Seq != target+1), !winner && a.Code != tidings.AlreadyRecalled, answers[0].Code == answers[1].Code:
				t.Errorf("%+v", answers)
			case winner && !a.Dup:
				first++
			}
		}
		if first != 1 {
			t.Errorf("%d of %d have recalled it: %+v", first, n, answers)
		}
	}
	if recalls, journal := one[int](b, `SELECT count(*) FROM tidings.event WHERE kind = 'recall'`), one[int](b, `SELECT count(*) FROM tidings.taken_back`); recalls != rounds || journal != rounds {
		t.Errorf("%d recalls of %d messages, %d in the journal", recalls, rounds, journal)
	}
	b.whole()
}

// Sends, repeated sends of what is being recalled, and recalls at once: each message keeps its seq, and what was recalled has no content.
func TestRecallsAndSends(t *testing.T) {
	b := newTalk(t, 1)
	const writers, each = 4, 10
	atOnce(2*writers, func(i int) {
		for k := range each {
			m := said("c-1", fmt.Sprintf("m-%d-%d", i%writers, k)) // two send the same and one of them recalls it
			got, err := b.Send(t.Context(), []tidings.Message{m}, time.Minute)
			if err != nil || got[0].Code != "" {
				t.Errorf("%+v, %v", got, err)
				return
			}
			if i >= writers {
				continue
			}
			if a, err := b.Recall(t.Context(), takes(got[0].Seq, "r-"+m.Cmid), i%2 == 0); err != nil || a.Code != "" || a.Dup || a.Seq <= got[0].Seq {
				t.Errorf("%+v, %v", a, err)
			}
		}
	})
	if n := one[int](b, `SELECT count(*) FROM tidings.event m JOIN tidings.event r ON r.conv_id = m.conv_id AND r.seq = m.recalled_by AND r.target_seq = m.seq AND r.kind = 'recall'
		WHERE m.kind = 'msg' AND m.body IS NULL AND m.request_hash IS NULL`); n != writers*each || len(b.log("c-1")) != 2+2*n {
		t.Errorf("%d are recalled; log %q", n, b.log("c-1"))
	}
	b.whole()
}

// One lost answer to a commit is asked for again; two are an unknown outcome, until the same recall is asked for once more.
func TestRecallWithLostAnswers(t *testing.T) {
	direct := newTalk(t, 1)
	direct.say(said("c-1", "m-1"), said("c-1", "m-2"), said("c-1", "m-3"))
	proxy := pgproxy.Start(t, direct.pool.Config().ConnString())
	pool, err := pgxpool.New(context.Background(), proxy.URL())
	direct.must(err)
	t.Cleanup(pool.Close)
	b := benchOn(t, pool)
	arm := func(when pgproxy.Moment) *pgproxy.Trap {
		return proxy.Arm(pgproxy.Rule{What: "COMMIT of a recall", Match: pgproxy.Commit, When: when, Do: pgproxy.Cut})
	}
	for i, c := range []struct {
		when pgproxy.Moment
		dup  bool
	}{{pgproxy.Before, false}, {pgproxy.After, true}} {
		trap := arm(c.when)
		a, err := b.Recall(t.Context(), takes(int64(3+i), fmt.Sprint("r-", i)), false)
		trap.Wait(10 * time.Second)
		if err != nil || a.Code != "" || a.Seq != int64(6+i) || a.Dup != c.dup {
			t.Errorf("cut %s: %+v, %v", c.when, a, err)
		}
	}
	for range 2 {
		arm(pgproxy.After)
	}
	_, err = b.Recall(t.Context(), takes(5, "r-5"), false)
	b.want(tidings.OutcomeUnknown, err)
	direct.recalls("again", takes(5, "r-5"), "", 8, true)
	direct.say(said("c-1", "m-4"))
	arm(pgproxy.After)
	var locks atomic.Int32
	refused := proxy.Arm(pgproxy.Rule{What: "the second lock", When: pgproxy.Before, Do: pgproxy.Cut,
		Match: func(m pgproxy.Message) bool { return pgproxy.Runs("FOR NO KEY UPDATE")(m) && locks.Add(1) == 2 }})
	_, err = b.Recall(t.Context(), takes(9, "r-9"), false) // the second ends before its commit, which says nothing of the first
	refused.Wait(10 * time.Second)
	b.want(tidings.OutcomeUnknown, err)
	direct.recalls("again", takes(9, "r-9"), "", 10, true)
	direct.whole()
}

// A lock that somebody keeps is not waited for without end, and nothing is changed then.
func TestRecallGivesUpALock(t *testing.T) {
	t.Parallel()
	b := newTalk(t, 1)
	b.say(said("c-1", "m-1"))
	before := b.rows()
	release := b.hold("c-1")
	eve := takes(3, "r-eve")
	eve.User = "u-eve"
	began := time.Now()
	b.recalls("a stranger does not wait", eve, tidings.NotMember, 0, false)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a stranger has waited for %v", took)
	}
	_, err := b.Recall(t.Context(), takes(3, "r-1"), false)
	b.want(tidings.Unavailable, err)
	release()
	if b.rows() != before {
		t.Error("something was changed")
	}
	b.recalls("afterwards", takes(3, "r-1"), "", 4, false)
}
