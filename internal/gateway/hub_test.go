// Tests of the hub: what it pushes to whom, in which order.

package gateway

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
	"github.com/tidings-project/tidings/outbox"
)

// Messages that two gateways write to one conversation at a time reach every device of it once and in the order of the log.
func TestHubPushesInOrder(t *testing.T) {
	st := newTown(t)
	create(t, st, "c", "ana", "ben", "eve")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	ears := []*ear{one.connect("ana", "a1"), one.connect("ben", "b1"), two.connect("ben", "b2"), two.connect("eve", "e1")}
	const each = 100
	var work sync.WaitGroup
	for i, s := range []*station{one, one, two, two} {
		work.Go(func() {
			for n := range each {
				s.say("c", []string{"ana", "ben", "ben", "eve"}[i], fmt.Sprint(n))
			}
		})
	}
	work.Wait()
	for _, e := range ears {
		t.Logf("the last event came after %v", e.awaitSeq("c", 3+4*each, caughtUpWithin))
		e.mu.Lock()
		seqs := e.seqs("c") // a wake-up about the first members may have made the feed begin with their joins
		for i, seq := range seqs {
			if seqs[0] > 4 || seq != seqs[0]+int64(i) {
				t.Errorf("%s of %s got %v", e.device, e.user, seqs)
				break
			}
		}
		e.mu.Unlock()
	}
}

// One who joins while connected is told, and gets what follows; one who leaves gets the leave and nothing after it.
func TestHubJoinAndLeave(t *testing.T) {
	st := newTown(t)
	create(t, st, "c", "ana")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2", func(c *hubConfig) { c.compareEvery = time.Second })
	ana, ben := one.connect("ana", "a1"), two.connect("ben", "b1")
	joined, err := st.Join(t.Context(), "c", "ben", "")
	if err != nil {
		t.Fatal(err)
	}
	if f := ben.awaitFrame("joined", "c", patience); f.Seq != joined.Seq || f.Epoch != joined.Epoch {
		t.Errorf("told of %d %d, joined at %d %d", f.Epoch, f.Seq, joined.Epoch, joined.Seq)
	}
	ben.awaitSeq("c", joined.Seq, patience)
	ana.awaitSeq("c", joined.Seq, patience)
	ben.awaitSeq("c", one.say("c", "ana", "hello"), patience)
	left, err := st.Leave(t.Context(), "c", "ben", "")
	if err != nil {
		t.Fatal(err)
	}
	later := one.say("c", "ana", "secret")
	ana.awaitSeq("c", later, patience)
	if f := ben.awaitFrame("left", "c", patience); f.Seq != left.Seq {
		t.Errorf("told of %d, left at %d", f.Seq, left.Seq)
	}
	eventually(t, "the feed that nobody needs is gone", func() bool {
		runtime.GC() // nothing waits in a queue
		_, ok := two.feeds.get("c")
		return !ok
	})
	ben.mu.Lock()
	defer ben.mu.Unlock()
	if got, want := ben.seqs("c"), []int64{joined.Seq, joined.Seq + 1, left.Seq}; !slices.Equal(got, want) {
		t.Errorf("the events are %v, want %v", got, want)
	}
}

// A conversation that is made while its members are connected reaches them.
func TestHubNewConversation(t *testing.T) {
	st := newTown(t)
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	ana, ben := one.connect("ana", "a1"), two.connect("ben", "b1")
	create(t, st, "c", "ana", "ben")
	for _, e := range []*ear{ana, ben} {
		e.awaitFrame("joined", "c", patience)
		e.awaitSeq("c", 2, patience)
	}
	ben.awaitSeq("c", one.say("c", "ana", "hello"), patience)
}

// Whatever is posted by applications reaches those who are connected, also when an earlier transaction commits last.
func TestHubPostedLateCommit(t *testing.T) {
	st := newTown(t)
	create(t, st, "early", "ana", "ben")
	create(t, st, "late", "ana", "ben")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	ears := []*ear{one.connect("ana", "a1"), two.connect("ben", "b1")}
	message := func(conv, cmid string) tidings.Message {
		return tidings.Message{Conv: conv, Sender: "ana", Cmid: cmid, Body: "x"}
	}
	tx, err := st.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := outbox.Post(t.Context(), tx, message("late", "m1")); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := outbox.Post(t.Context(), st.Pool(), message("early", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range ears {
		e.awaitSeq("early", 22, patience)
		if e.heard("event", "late") != nil {
			t.Error("an event was pushed before its commit")
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range ears {
		t.Logf("pushed %v after the commit", e.awaitSeq("late", 3, caughtUpWithin))
	}
	eventually(t, "nothing is left to be told", func() bool {
		var n int
		if err := st.Pool().QueryRow(t.Context(), `SELECT count(*) FROM tidings.posted`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// While members come and go and two gateways write, no device gets an event from outside its user's intervals, and in the end each
// gets what is new.
func TestHubJoinLeaveRaces(t *testing.T) {
	st := newTown(t)
	create(t, st, "c", "ana", "eve")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	users := []string{"u1", "u2", "u3"}
	var ears []*ear
	for _, u := range users {
		ears = append(ears, one.connect(u, u+"-1"), two.connect(u, u+"-2"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i, s := range []*station{one, two} {
		work.Go(func() {
			for ctx.Err() == nil {
				s.say("c", []string{"ana", "eve"}[i], "x")
			}
		})
	}
	for _, u := range users {
		work.Go(func() {
			for range 15 {
				if _, err := st.Join(context.Background(), "c", u, ""); err != nil {
					t.Errorf("join: %v", err)
				}
				if _, err := st.Leave(context.Background(), "c", u, ""); err != nil {
					t.Errorf("leave: %v", err)
				}
			}
		})
	}
	var more []*ear // those that connect meanwhile
	var mu sync.Mutex
	work.Go(func() {
		for i := range 10 {
			for _, s := range []*station{one, two} {
				e := s.connect(users[i%len(users)], fmt.Sprint("late-", i, s.gateway))
				mu.Lock()
				more = append(more, e)
				mu.Unlock()
			}
		}
		cancel()
	})
	work.Wait()
	for _, u := range users {
		if _, err := st.Join(context.Background(), "c", u, ""); err != nil {
			t.Fatal(err)
		}
	}
	last := one.say("c", "ana", "the last")
	intervals := map[string][][2]int64{}
	rows, err := st.Pool().Query(t.Context(), `SELECT user_id, join_seq, coalesce(leave_seq, $1) FROM tidings.member WHERE conv_id = 'c'`, last)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var u string
		var in [2]int64
		if err := rows.Scan(&u, &in[0], &in[1]); err != nil {
			t.Fatal(err)
		}
		intervals[u] = append(intervals[u], in)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	pushed := 0
	for _, e := range append(ears, more...) {
		e.awaitSeq("c", last, caughtUpWithin)
		e.mu.Lock()
		before := int64(0)
		for _, seq := range e.seqs("c") {
			pushed++
			if !slices.ContainsFunc(intervals[e.user], func(in [2]int64) bool { return in[0] <= seq && seq <= in[1] }) {
				t.Errorf("%s of %s got event %d; the intervals are %v", e.device, e.user, seq, intervals[e.user])
			}
			if seq <= before {
				t.Errorf("%s of %s got event %d after %d", e.device, e.user, seq, before)
			}
			before = seq
		}
		e.mu.Unlock()
	}
	t.Logf("%d events, %d pushes to %d devices", last, pushed, len(ears)+len(more))
}

// Whoever is subscribed gets every event that is stored afterwards, however feeds come and go at the same time.
func TestHubConnectRaces(t *testing.T) {
	st := newTown(t)
	create(t, st, "c", "ana", "ben")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			one.say("c", "ana", "x")
		}
	})
	for i := range 30 {
		s := []*station{one, two}[i%2]
		e := s.connect("ben", fmt.Sprint("b", i))
		heads, err := st.Heads(t.Context(), []string{"c"})
		if err != nil {
			t.Fatal(err)
		}
		e.awaitSeq("c", heads[0].Head+3, patience)
		e.mu.Lock()
		seqs := e.seqs("c")
		for j := 1; j < len(seqs); j++ {
			if seqs[j] != seqs[j-1]+1 {
				t.Errorf("event %d follows %d", seqs[j], seqs[j-1])
			}
		}
		if seqs[0] > heads[0].Head+1 {
			t.Errorf("event %d is the first, %d was stored after the subscription", seqs[0], heads[0].Head+1)
		}
		e.mu.Unlock()
		e.hangUp()
	}
	cancel()
	work.Wait()
	eventually(t, "nothing is kept of those who have gone", func() bool {
		return len(one.users.all())+len(two.users.all())+len(one.feeds.all())+len(two.feeds.all()) == 0
	})
}

// A device that does not acknowledge what was pushed is told that it is behind, ever more rarely; one that does is not.
func TestHubHintsLag(t *testing.T) {
	st := newTown(t)
	create(t, st, "c", "ana", "ben", "eve")
	s := stationOn(t, st, "gw-1", func(c *hubConfig) { c.lagAfter = 200 * time.Millisecond })
	behind, upToDate := s.connect("ben", "b1"), s.connect("eve", "e1")
	seq := s.say("c", "ana", "hello")
	upToDate.awaitSeq("c", seq, patience)
	s.acked(upToDate.session, "c", seq)
	for n := range 3 {
		behind.await("one more hint", patience, func() bool { return count(behind, wire.TypeLag) > n })
	}
	if f := behind.awaitFrame("lag", "c", patience); f.Head != seq {
		t.Errorf("the hint is of %d, want %d", f.Head, seq)
	}
	s.acked(behind.session, "c", seq)
	time.Sleep(2 * time.Second) // the fourth hint would have come
	behind.mu.Lock()
	if n := count(behind, wire.TypeLag); n > 4 {
		t.Errorf("%d hints came to a device that is up to date", n)
	}
	behind.mu.Unlock()
	upToDate.mu.Lock()
	defer upToDate.mu.Unlock()
	if n := count(upToDate, wire.TypeLag); n > 0 {
		t.Errorf("%d hints came to a device that was never behind", n)
	}
}

func count(e *ear, t string) (n int) {
	for _, f := range e.frames {
		if f.T == t {
			n++
		}
	}
	return n
}

func TestMarkBacksOff(t *testing.T) {
	now := time.Now()
	var m mark
	var hints []time.Duration
	for at := time.Duration(0); at < 30*time.Minute; at += time.Second {
		if m.look(7, now.Add(at), 5*time.Second) {
			hints = append(hints, at)
		}
	}
	m = mark{}
	if len(hints) < 3 {
		t.Fatalf("hints came at %v", hints)
	}
	for i := 1; i < len(hints); i++ {
		if hints[i]-hints[i-1] < 5*time.Second || i > 1 && hints[i]-hints[i-1] > maxHintPause+time.Second {
			t.Errorf("hints came at %v", hints)
		}
	}
	if last := hints[len(hints)-1] - hints[len(hints)-2]; last != maxHintPause {
		t.Errorf("at last they come every %v, want %v", last, maxHintPause)
	}
	// One that makes progress is left alone, one that stands still while the head moves is not.
	for head := int64(1); head < 100; head++ {
		m.acked = head - 1
		if m.look(head, now.Add(time.Duration(head)*time.Second), 5*time.Second) {
			t.Fatalf("a hint for one that is on its way, at %d", head)
		}
	}
	m = mark{}
	got := 0
	for head := int64(1); head < 100; head++ {
		if m.look(head, now.Add(time.Duration(head)*time.Second), 5*time.Second) {
			got++
		}
	}
	if got < 15 || got > 20 {
		t.Errorf("%d hints in 99 s for one that stands still while the head moves", got)
	}
}
