// Tests of the committer with random messages.

package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// trial is one run of random connections through a committer whose store fails at random.
type trial struct {
	*desk
	prefix string
	sends  [][]*trialSend // by connection, in the order sent
}

// trialSend is a message and what became of it.
type trialSend struct {
	msg      tidings.Message
	alone    bool // nobody else uses its key
	answers  atomic.Int32
	answer   tidings.Answer
	err      error
	told     bool // committed had heard of it when it was answered
	accepted bool
}

// disturbance is what happens to one call of the store.
type disturbance string

const (
	undisturbed  disturbance = "undisturbed"
	lostBefore   disturbance = "its answer is lost, it was not executed"
	lostAfter    disturbance = "its answer is lost, it was committed"
	failed       disturbance = "it fails and is rolled back"
	disconnected disturbance = "the database cannot be reached"
)

// Whatever the store does, each message is answered once and truly, and a connection's messages keep their order.
func TestCommitterProperties(t *testing.T) {
	pool := pgtest.New(t)
	var trials atomic.Int32
	var disturbed, overlapped, dups, refusals atomic.Int32
	rapid.Check(t, func(rt *rapid.T) {
		x := &trial{prefix: fmt.Sprintf("t%d-", trials.Add(1))}
		x.desk = newDesk(t, pool, committerOptions{Committers: rapid.IntRange(1, 3).Draw(rt, "committers"), SideWorkers: rapid.IntRange(1, 2).Draw(rt, "side workers"),
			BatchSize: rapid.IntRange(1, 12).Draw(rt, "batch size"), LockTimeout: 200 * time.Millisecond, Patience: patience})
		x.converse(x.prefix, 3, "ana", "ben")
		x.draw(rt)
		plan := rapid.SliceOfN(rapid.SampledFrom([]disturbance{undisturbed, undisturbed, undisturbed, lostBefore, lostAfter, failed, disconnected}), 0, 30).Draw(rt, "plan")
		var calls, atOnce atomic.Int32
		x.disturb(func(send sendFunc, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
			if atOnce.Add(1) > 1 {
				overlapped.Add(1)
			}
			defer atOnce.Add(-1)
			what := undisturbed
			if n := int(calls.Add(1)); n <= len(plan) {
				what = plan[n-1]
			}
			if what != undisturbed {
				disturbed.Add(1)
			}
			switch what {
			case lostBefore:
				return nil, lost
			case failed:
				return nil, tidings.Errorf(tidings.InvalidArgument, "refused by the test")
			case disconnected:
				return nil, refused
			}
			answers, err := send(context.Background(), batch, wait)
			if what == lostAfter {
				return nil, lost
			}
			return answers, err
		})
		stop := x.start()
		x.play(rapid.SliceOfN(rapid.IntRange(1, 3), 0, 3).Draw(rt, "held"), rapid.IntRange(0, 40).Draw(rt, "held for ms"))
		stop()
		x.check(rt, &dups, &refusals)
	})
	if disturbed.Load() == 0 || overlapped.Load() == 0 || dups.Load() == 0 || refusals.Load() == 0 {
		t.Errorf("%d calls were disturbed, %d overlapped, %d duplicates and %d refusals were answered: something was not tried",
			disturbed.Load(), overlapped.Load(), dups.Load(), refusals.Load())
	}
}

// draw draws what the connections send.
func (x *trial) draw(rt *rapid.T) {
	for n := range rapid.IntRange(1, 5).Draw(rt, "connections") {
		sender := rapid.SampledFrom([]string{"ana", "ana", "ben", "eve"}).Draw(rt, "sender") // eve is no member
		var all []*trialSend
		for i := range rapid.IntRange(1, 15).Draw(rt, "messages") {
			s := &trialSend{alone: rapid.IntRange(0, 3).Draw(rt, "alone") > 0}
			cmid := fmt.Sprintf("shared-%d", rapid.IntRange(0, 3).Draw(rt, "cmid"))
			if s.alone {
				cmid = fmt.Sprintf("k-%d-%d", n, i)
			}
			s.msg = msg(x.prefix+fmt.Sprint(rapid.IntRange(1, 3).Draw(rt, "conversation")), sender, cmid, rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "body"))
			all = append(all, s)
		}
		x.sends = append(x.sends, all)
	}
}

// play lets all connections send at once, while conversations are held one after the other, and waits for the answers.
func (x *trial) play(held []int, ms int) {
	var all, connections sync.WaitGroup
	for _, sends := range x.sends {
		connections.Go(func() {
			for _, s := range sends {
				all.Add(1)
				if err := x.submit(&outgoing{msg: s.msg, done: func(a tidings.Answer, err error) {
					if s.answers.Add(1) == 1 {
						s.answer, s.err = a, err
						s.told = slices.Contains(x.toldOf(s.msg.Conv), a.Seq)
						all.Done()
					}
				}}); err != nil {
					x.t.Errorf("submit: %v", err)
					all.Done()
					continue
				}
				s.accepted = true
			}
		})
	}
	connections.Go(func() {
		for _, n := range held {
			free := x.hold(x.prefix + fmt.Sprint(n))
			time.Sleep(time.Duration(ms) * time.Millisecond) // how long an application takes, nothing waits for it
			free()
		}
	})
	connections.Wait()
	all.Wait()
}

// row is a stored message.
type row struct {
	seq             int64
	body, mid, conv string
}

// check is the oracle.
func (x *trial) check(rt *rapid.T, dups, refusals *atomic.Int32) {
	stored := map[string]row{} // by conversation, sender and cmid
	at := func(conv, sender, cmid string) string { return conv + " " + sender + " " + cmid }
	rows, err := x.pool.Query(context.Background(), `SELECT conv_id, seq, sender_user, cmid, body, mid::text FROM tidings.event WHERE conv_id LIKE $1 AND kind = 'msg'`, x.prefix+"%")
	if err != nil {
		rt.Fatal(err)
	}
	for rows.Next() {
		var r row
		var sender, cmid string
		if err := rows.Scan(&r.conv, &r.seq, &sender, &cmid, &r.body, &r.mid); err != nil {
			rt.Fatal(err)
		}
		stored[at(r.conv, sender, cmid)] = r
	}
	if err := rows.Err(); err != nil {
		rt.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		x.log(x.prefix + fmt.Sprint(n)) // contiguous
	}
	fresh := map[string]bool{}
	for n, sends := range x.sends {
		last := map[string]int64{}
		for i, s := range sends {
			key := at(s.msg.Conv, s.msg.Sender, s.msg.Cmid)
			r, there := stored[key]
			if !s.accepted || s.answers.Load() != 1 {
				rt.Fatalf("message %d of connection %d was answered %d times", i, n, s.answers.Load())
			}
			switch {
			case s.err != nil:
				if code := tidings.ErrorCode(s.err); s.alone && there && code != tidings.OutcomeUnknown {
					rt.Fatalf("%s is stored, its answer was %v", key, s.err)
				}
			case s.answer.Code == "":
				if !there || r.seq != s.answer.Seq || r.body != s.msg.Body || r.mid != s.answer.Mid.String() {
					rt.Fatalf("%s: the answer is %+v, stored is %+v", key, s.answer, r)
				}
				if s.answer.Dup {
					dups.Add(1)
				} else if fresh[key] {
					rt.Fatalf("%s was answered twice as new", key)
				}
				fresh[key] = fresh[key] || !s.answer.Dup
				if !s.told && (!s.answer.Dup || s.alone) {
					rt.Fatalf("%s was answered before it was told", key)
				}
				if s.alone {
					if s.answer.Seq <= last[s.msg.Conv] {
						rt.Fatalf("%s has seq %d, sent after %d", key, s.answer.Seq, last[s.msg.Conv])
					}
					last[s.msg.Conv] = s.answer.Seq
				}
			case s.answer.Code == tidings.IdempotencyMismatch:
				refusals.Add(1)
				if !there || r.body == s.msg.Body {
					rt.Fatalf("%s was answered with a mismatch, stored is %+v", key, r)
				}
			case s.answer.Code == tidings.NotMember:
				refusals.Add(1)
				if s.msg.Sender != "eve" || there {
					rt.Fatalf("%s was answered with NOT_MEMBER", key)
				}
			default:
				rt.Fatalf("%s was answered with %+v", key, s.answer)
			}
		}
	}
	x.desk.mu.Lock()
	defer x.desk.mu.Unlock()
	last := map[string]int64{}
	for _, e := range x.told {
		if e.Kind == "" { // the log reaches so far
			if !slices.ContainsFunc(slices.Collect(maps.Values(stored)), func(r row) bool { return r.conv == e.Conv && r.seq == e.Seq }) {
				rt.Fatalf("%s was said to reach %d", e.Conv, e.Seq)
			}
			continue
		}
		key := at(e.Conv, e.Sender, e.Cmid)
		if r := stored[key]; r.seq != e.Seq || r.mid != e.Mid || r.body != *e.Body {
			rt.Fatalf("%s was told as %+v, stored is %+v", key, e, r)
		}
		if fresh[key] { // of others the commit was perhaps never told
			fresh[key] = false // and after a lost answer the same may be told once more
			if e.Seq <= last[e.Conv] {
				rt.Fatalf("%s has seq %d and was told after %d", key, e.Seq, last[e.Conv])
			}
			last[e.Conv] = e.Seq
		}
	}
}
