// Tests of the committer: what it stores, tells and answers.

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// When a message is answered it is committed, and committed was told before.
func TestCommitterStoresTellsAnswers(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{})
	d.converse("c", 1, "ana")
	d.start()
	m := msg("c1", "ana", "k1", "hello")
	m.Data = []byte(`{"reply_to":1}`)
	got := d.wait(d.post(m)[0])
	if got.err != nil || got.Code != "" || got.Seq != 2 || got.Epoch != 7 || got.Dup || got.Mid.IsZero() || got.At == 0 {
		t.Fatalf("the answer is %+v", got)
	}
	d.wantLog("c1", "k1=hello")
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.told) != 1 {
		t.Fatalf("%d events were told, want 1", len(d.told))
	}
	e := d.told[0]
	if e.Conv != "c1" || e.Seq != 2 || e.Kind != tidings.KindMsg || e.Mid != got.Mid.String() || e.Sender != "ana" || e.SDev != "ana-1" || e.Cmid != "k1" ||
		*e.Body != "hello" || string(e.Data) != `{"reply_to":1}` || e.At != got.At {
		t.Errorf("the event is %+v", e)
	}
}

// Whatever goes through at once, a connection's messages to a conversation keep their order, and so do the answers and the events.
func TestCommitterKeepsOrder(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 3, BatchSize: 16})
	d.converse("c", 3, "ana")
	d.start()
	const connections, each = 8, 60
	var order sync.Map // conversation → seqs in the order of the answers
	for i := range 3 {
		order.Store(fmt.Sprintf("c%d", i+1), &[]int64{})
	}
	var all, senders sync.WaitGroup
	all.Add(connections * each)
	for n := range connections {
		senders.Go(func() {
			last := map[string]int64{} // used in the conversation's order of answers
			var mu sync.Mutex
			for i := range each {
				conv := fmt.Sprintf("c%d", i%3+1)
				err := d.submit(&outgoing{msg: msg(conv, "ana", fmt.Sprintf("k-%d-%d", n, i), "x"), done: func(a tidings.Answer, err error) {
					defer all.Done()
					if err != nil || a.Code != "" || a.Dup {
						t.Errorf("the answer is %+v, %v", a, err)
						return
					}
					mu.Lock()
					if a.Seq <= last[conv] {
						t.Errorf("seq %d of %s came after %d", a.Seq, conv, last[conv])
					}
					last[conv] = a.Seq
					mu.Unlock()
					seqs, _ := order.Load(conv)
					*seqs.(*[]int64) = append(*seqs.(*[]int64), a.Seq) // one at a time: by the promise that is tested, and -race looks
				}})
				if err != nil {
					t.Errorf("submit: %v", err)
					all.Done()
				}
			}
		})
	}
	senders.Wait()
	all.Wait()
	order.Range(func(conv, seqs any) bool {
		answered := *seqs.(*[]int64)
		if len(answered) != connections*each/3 || !slices.IsSorted(answered) {
			t.Errorf("the answers of %s came in the order %v", conv, answered)
		}
		if told := d.toldOf(conv.(string)); !slices.Equal(told, answered) {
			t.Errorf("of %s were told %v, answered %v", conv, told, answered)
		}
		d.log(conv.(string))
		return true
	})
}

func TestCommitterFoldsRepeats(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 1})
	d.converse("c", 2, "ana", "ben")
	d.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c1', 'ana', 'old', 1)`)
	open := d.blocked()
	d.start()
	first := d.post(msg("c1", "ana", "k0", "zero"))
	d.awaitFlight()
	got := d.post(
		msg("c1", "ana", "k1", "one"), msg("c1", "ben", "k1", "his"), msg("c1", "ana", "k1", "one"), msg("c1", "ana", "k1", "two"), msg("c1", "ana", "k2", "after"),
		msg("c1", "ana", "old", "x"), msg("c1", "ana", "old", "y"), msg("c1", "ana", "old", "x"),
		msg("c1", "ana", "k0", "zero"), msg("c1", "ana", "k0", "other"),
		msg("c1", "eve", "e", "x"), msg("c1", "eve", "e", "x"), msg("c1", "eve", "e", "y"),
		msg("c2", "ana", "k1", "elsewhere"), msg("absent", "ana", "k1", "x"))
	open()
	d.want("3", first...)
	d.want("4, 5, 4 dup, IDEMPOTENCY_MISMATCH, 6, ORIGINAL_EXPIRED, ORIGINAL_EXPIRED, ORIGINAL_EXPIRED, 3 dup, IDEMPOTENCY_MISMATCH, "+
		"NOT_MEMBER, NOT_MEMBER, NOT_MEMBER, 3, NOT_MEMBER", got...)
	d.wantLog("c1", "k0=zero", "k1=one", "k1=his", "k2=after")
	d.wantTold("c1", 3, 4, 5, 6)
}

// A repeat with other content is judged by the log when its twin was refused: it may be the one that is stored.
func TestCommitterGivesATwinItsOwnTry(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 1})
	d.converse("c", 1, "ana")
	open := d.blocked()
	d.start()
	d.post(msg("c1", "ana", "k1", "stored"))
	d.awaitFlight()
	got := d.post(msg("c1", "ana", "k1", "other"), msg("c1", "ana", "k1", "stored"), msg("c1", "ana", "k2", "next"))
	open()
	d.want("IDEMPOTENCY_MISMATCH, 2 dup, 3", got...)
}

func TestCommitterBounds(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{QueueLen: 16, QueueBytes: 40 << 10})
	d.converse("c", 9, "ana")
	open := d.blocked()
	stop := d.start()
	refused := func(want tidings.Code, m tidings.Message) {
		t.Helper()
		err := d.submit(&outgoing{msg: m, done: func(tidings.Answer, error) { t.Error("a message that was refused was answered") }})
		if got := tidings.ErrorCode(err); got != want {
			t.Errorf("the error is %q, want %q", got, want)
		}
	}
	var got []<-chan sent
	for i := range 4 { // a quarter of 16
		got = append(got, d.post(msg("c1", "ana", fmt.Sprint(i), "x"))...)
	}
	refused(tidings.RateLimited, msg("c1", "ana", "more", "x"))
	refused(tidings.RateLimited, msg("c2", "ana", "big", strings.Repeat("x", 11<<10)))
	got = append(got, d.post(msg("c2", "ana", "big", strings.Repeat("x", 9<<10)))...)
	for i := range 11 {
		got = append(got, d.post(msg(fmt.Sprintf("c%d", 3+i%7), "ana", fmt.Sprint(i), "x"))...)
	}
	refused(tidings.Unavailable, msg("c9", "ana", "more", "x"))
	open()
	if said := d.say(got...); strings.ContainsAny(said, "!_") {
		t.Errorf("the answers are %s", said)
	}
	d.await("the queue was not freed", func() bool {
		d.committer.mu.Lock()
		defer d.committer.mu.Unlock()
		return d.count == 0 && d.bytes == 0 && len(d.backlogs) == 0
	})
	d.want("3", d.post(msg("c9", "ana", "more", "x"))...)
	stop()
	refused(tidings.Unavailable, msg("c9", "ana", "late", "x"))
}

// Stopping finishes what was accepted and leaves no goroutine.
func TestCommitterStops(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{BatchSize: 4})
	d.converse("c", 2, "ana")
	free := d.hold("c2")
	open := d.blocked()
	leaks := goleak.IgnoreCurrent()
	stop := d.start()
	var got []<-chan sent
	for i := range 40 {
		got = append(got, d.post(msg(fmt.Sprintf("c%d", i%2+1), "ana", fmt.Sprint(i), "x"))...)
	}
	var stopping sync.WaitGroup
	stopping.Go(stop)
	d.await("the committer goes on accepting", func() bool {
		return tidings.ErrorCode(d.submit(&outgoing{msg: msg("absent", "ana", "k", "x"), done: func(tidings.Answer, error) {}})) == tidings.Unavailable
	})
	open()
	free()
	stopping.Wait()
	// The pool closes connections in its own time.
	if err := goleak.Find(leaks, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck")); err != nil {
		t.Error(err)
	}
	for i, o := range got {
		select {
		case s := <-o:
			if s.err != nil || s.Seq != int64(i/2+2) {
				t.Errorf("message %d: %+v", i, s)
			}
		default:
			t.Fatalf("message %d was not answered when the committer had stopped", i)
		}
	}
}
