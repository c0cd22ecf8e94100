// Tests of the hub when wake-ups are lost.

package gateway

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

// twoStations are two stations whose hubs have heard of each other, with ana at the first and ben at the second. change is for the second
// bus and the first, by way of whose addresses they reach the database.
func twoStations(t *testing.T, st *store.Store, addr1, addr2 string, change ...func(*hubConfig)) (one, two *station, ana, ben *ear) {
	t.Helper()
	create(t, st, "c", "ana", "ben")
	start := func(id, addr string) *station {
		return stationOn(t, st, id, append([]func(*hubConfig){func(c *hubConfig) { c.bus = bus.New(busOn(t, st, id, addr)) }}, change...)...)
	}
	one, two = start("gw-1", addr1), start("gw-2", addr2)
	ana, ben = one.connect("ana", "a1"), two.connect("ben", "b1")
	ben.awaitSeq("c", one.say("c", "ana", "x"), patience)
	ana.awaitSeq("c", two.say("c", "ben", "x"), patience)
	return one, two, ana, ben
}

func TestHubLosesItsListener(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	one, _, _, ben := twoStations(t, st, "", "")
	sql(t, st, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidings listen' AND datname = current_database()`)
	t.Logf("pushed after %v", ben.awaitSeq("c", one.say("c", "ana", "x"), caughtUpWithin))
}

func TestHubListensIntoABlackHole(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	proxy := proxyTo(t, st)
	one, _, _, ben := twoStations(t, st, "", proxy.Addr())
	if receipt := proxy.Hold(tcpproxy.Both); receipt.Proof == "" {
		t.Fatal("no connection was held")
	}
	for range 3 {
		t.Logf("pushed after %v", ben.awaitSeq("c", one.say("c", "ana", "x"), caughtUpWithin))
	}
	proxy.Release(tcpproxy.Both)
	ben.awaitSeq("c", one.say("c", "ana", "x"), caughtUpWithin)
}

func TestHubTellsIntoABlackHole(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	proxy := proxyTo(t, st)
	one, _, _, ben := twoStations(t, st, proxy.Addr(), "")
	if receipt := proxy.Hold(tcpproxy.ToServer); receipt.Proof == "" {
		t.Fatal("no connection was held")
	}
	for range 3 {
		t.Logf("pushed after %v", ben.awaitSeq("c", one.say("c", "ana", "x"), caughtUpWithin))
	}
}

// A leave of which no wake-up came: what is pushed after it to others is not pushed to the one who has left.
func TestHubLosesTheLeave(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	one, two, ana, ben := twoStations(t, st, "", "", func(c *hubConfig) { c.compareEvery = time.Second })
	other := two.connect("eve", "e1")
	if _, err := st.Join(t.Context(), "c", "eve", ""); err != nil {
		t.Fatal(err)
	}
	other.awaitFrame("joined", "c", patience)
	left, err := st.Leave(t.Context(), "c", "ben", "")
	if err != nil {
		t.Fatal(err)
	}
	sql(t, st, `DELETE FROM tidings.posted`) // nobody is told, unless it was told already
	secret := two.say("c", "eve", "secret")  // at the gateway of the one who has left, and before it has read the leave
	other.awaitSeq("c", secret, caughtUpWithin)
	ana.awaitSeq("c", secret, caughtUpWithin)
	if f := ben.awaitFrame("left", "c", caughtUpWithin); f.Seq != left.Seq {
		t.Errorf("told of %d, left at %d", f.Seq, left.Seq)
	}
	_ = one.say("c", "ana", "secret")
	ben.mu.Lock()
	defer ben.mu.Unlock()
	for _, seq := range ben.seqs("c") {
		if seq > left.Seq {
			t.Errorf("event %d was pushed to one who left at %d", seq, left.Seq)
		}
	}
}

// When nobody tells anything, the comparison finds new events and new members.
func TestHubComparesEverything(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	create(t, st, "c", "ana", "ben")
	create(t, st, "d", "ana")
	s := stationOn(t, st, "gw-1", func(c *hubConfig) { c.compareEvery = 2 * time.Second })
	ben := s.connect("ben", "b1")
	if _, err := st.Send(t.Context(), []tidings.Message{{Conv: "c", Sender: "ana", Cmid: "k", Body: "x"}}, 0); err != nil {
		t.Fatal(err)
	}
	ben.awaitSeq("c", 3, caughtUpWithin)
	sql(t, st, `WITH c AS (UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = 'd'),
		e AS (INSERT INTO tidings.event (conv_id, seq, kind, sender_user) VALUES ('d', 2, 'join', 'ben'))
		INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ('d', 'ben', 2)`)
	ben.awaitFrame("joined", "d", caughtUpWithin)
	ben.awaitSeq("d", 2, caughtUpWithin)
}

// What was purged before it was read, and another history, are answered with a hint; afterwards events are pushed as before.
func TestHubRestartsAFeed(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	create(t, st, "c", "ana", "ben", "eve")
	s := stationOn(t, st, "gw-1")
	ana, eve := s.connect("ana", "a1"), s.connect("eve", "e1")
	sql(t, st, `WITH c AS (UPDATE tidings.conversation SET next_seq = 8, min_seq = 7 WHERE conv_id = 'c'),
		e AS (INSERT INTO tidings.event (conv_id, seq, kind, sender_user, mid, cmid, body) VALUES ('c', 7, 'msg', 'ana', gen_random_uuid(), 'k', 'x'))
		UPDATE tidings.member SET leave_seq = 5 WHERE user_id = 'eve'`)
	s.aim("c", 0, 7)
	if f := ana.awaitFrame("lag", "c", patience); f.Head != 7 {
		t.Errorf("the hint is of %d", f.Head)
	}
	eve.awaitFrame("left", "c", patience)
	ana.awaitSeq("c", s.say("c", "ana", "x"), patience)
	ana.forget()
	sql(t, st, `UPDATE tidings.conversation SET epoch = epoch + 1, next_seq = 5, min_seq = 1 WHERE conv_id = 'c'`)
	s.behind.give()
	if f := ana.awaitFrame("lag", "c", patience); f.Head != 4 {
		t.Errorf("the hint is of %d", f.Head)
	}
	sql(t, st, `DELETE FROM tidings.event WHERE conv_id = 'c' AND seq > 4`)
	ana.awaitSeq("c", s.say("c", "ana", "x"), patience)
	if e := eve.heard("event", "c"); e != nil {
		t.Error("one who has left got an event")
	}
}

// A recall voids what is still queued for a receiver that does not read, and only that.
func TestHubRecallVoidsWhatIsQueued(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	create(t, st, "c", "ana", "ben")
	s := stationOn(t, st, "gw-1")
	slow := s.open("ben", "b1") // nothing is written until uncork
	if err := s.subscribe(t.Context(), slow.session); err != nil {
		t.Fatal(err)
	}
	quick := s.connect("ben", "b2")
	secret := s.say("c", "ana", "to be recalled")
	kept := s.say("c", "ana", "kept")
	quick.awaitSeq("c", kept, patience)
	for range 3 {
		runtime.GC() // what waits in a queue is found all the same
	}
	sql(t, st, `WITH c AS (UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = 'c'),
		r AS (INSERT INTO tidings.event (conv_id, seq, kind, sender_user, target_seq) VALUES ('c', 5, 'recall', 'ana', $1))
		UPDATE tidings.event SET body = NULL, data = NULL, request_hash = NULL, recalled_by = 5 WHERE conv_id = 'c' AND seq = $1`, secret)
	s.aim("c", 0, 5)
	quick.awaitSeq("c", 5, patience)
	slow.uncork()
	slow.awaitSeq("c", 5, patience)
	slow.mu.Lock()
	defer slow.mu.Unlock()
	for _, f := range slow.frames {
		if f.Event != nil && f.Event.Seq == secret {
			t.Errorf("the recalled message was written: %v", f.Event)
		}
		if f.Event != nil && f.Event.Seq == kept && (f.Event.Body == nil || *f.Event.Body != "kept") {
			t.Error("another message lost its body")
		}
	}
	f, _ := s.feeds.get("c")
	eventually(t, "what nobody holds is forgotten", func() bool {
		runtime.GC()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.offered.forget()
		return len(f.offered.entries) == 0
	})
}

// A gateway that was paused past its lease writes nothing until it has looked: a device that has gone elsewhere meanwhile is
// closed, one that has not gets its route back.
func TestHubComesBackFromAPause(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	create(t, st, "c", "ana", "ben")
	one, two := stationOn(t, st, "gw-1"), stationOn(t, st, "gw-2")
	stays, moves := one.connect("ana", "a1"), one.connect("ben", "b1")
	// What a pause looks like from outside: the lease is over, and another gateway sweeps.
	one.held.until.Store(0)
	sql(t, st, `UPDATE tidings.gateway SET lease_until = statement_timestamp() - interval '1 second' WHERE gateway_id = 'gw-1'`)
	if n, err := st.SweepRoutes(t.Context()); err != nil || n > 2 {
		t.Fatalf("%d routes were swept, %v", n, err)
	}
	moved := two.connect("ben", "b1")
	eventually(t, "it holds its lease again", one.held.held)
	moves.awaitCode(wire.CloseReplaced, patience)
	eventually(t, "the device that stayed has its route again", func() bool {
		routes, err := st.RoutesOf(t.Context(), "gw-1")
		if err != nil {
			t.Fatal(err)
		}
		return len(routes) == 1 && routes[0].Connection == stays.connection
	})
	seq := one.say("c", "ana", "x")
	stays.awaitSeq("c", seq, patience)
	moved.awaitSeq("c", seq, patience)
}

// A gateway that cannot renew its lease closes everybody when it is over.
func TestHubLosesItsLease(t *testing.T) {
	t.Parallel()
	direct := newTown(t)
	create(t, direct, "c", "ana")
	proxy := proxyTo(t, direct)
	s := stationOn(t, storeThrough(t, direct, proxy), "gw-1", func(c *hubConfig) {
		c.leaseFor = 1500 * time.Millisecond
		c.bus = bus.New(busOn(t, direct, "gw-1", ""))
	})
	ana := s.connect("ana", "a1")
	if receipt := proxy.Cut(tcpproxy.Both); receipt.Proof == "" {
		t.Fatal("no connection was cut")
	}
	proxy.Refuse()
	began := time.Now()
	eventually(t, "the lease is over", func() bool { return !s.held.held() })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the lease was held for %v", took)
	}
	ana.awaitCode(wire.CloseLostLease, patience)
	ana.hangUp()
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease is held again", s.held.held)
	again := s.connect("ana", "a1")
	again.awaitSeq("c", s.say("c", "ana", "x"), patience)
}

// An orphaned route is removed, and a route that was stolen without a word is noticed by the keep-alive.
func TestHubChecksItsRoutes(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	s := stationOn(t, st, "gw-1", func(c *hubConfig) { c.leaseFor = 1500 * time.Millisecond })
	ana := s.connect("ana", "a1")
	if _, err := st.Hello(t.Context(), "ben", "b1", "install-1", "gw-1", newConnection()); err != nil { // its session never begins
		t.Fatal(err)
	}
	owned := func() int {
		routes, err := st.RoutesOf(t.Context(), "gw-1")
		if err != nil {
			t.Fatal(err)
		}
		return len(routes)
	}
	eventually(t, "the orphan is gone", func() bool { return owned() == 1 })
	if _, err := st.Hello(t.Context(), "ana", "a1", "install-1", "gw-2", newConnection()); err != nil { // and nobody tells
		t.Fatal(err)
	}
	ana.awaitCode(wire.CloseReplaced, caughtUpWithin)
	ana.hangUp()
	ben := s.connect("ben", "b1")
	ben.hangUp()
	eventually(t, "the route of a closed connection is gone", func() bool { return owned() == 0 })
}

// Of two connections of one device the newer stays, in whatever order they are subscribed.
func TestHubKeepsTheNewerConnection(t *testing.T) {
	t.Parallel()
	s := stationOn(t, newTown(t), "gw-1")
	older, newer := s.open("ana", "a1"), s.open("ana", "a1")
	for _, e := range []*ear{newer, older} {
		if err := s.subscribe(t.Context(), e.session); err != nil {
			t.Fatal(err)
		}
		e.uncork()
	}
	older.awaitCode(wire.CloseReplaced, patience)
	if all := s.sessionsOf("ana"); len(all) != 1 || all[0] != newer.session {
		t.Errorf("%d sessions are left", len(all))
	}
}

// A read reaches the user's other devices, wherever they are, and not the one that said it.
func TestHubTellsCursors(t *testing.T) {
	t.Parallel()
	st := newTown(t)
	one, two, ana, _ := twoStations(t, st, "", "")
	here, there := one.connect("ana", "a2"), two.connect("ana", "a3")
	one.cursorMoved("ana", "c", 7, 3, 1, true, ana.session)
	for _, e := range []*ear{here, there} {
		if f := e.awaitFrame("cursor", "c", patience); f.Read != 3 || f.Unread != 1 || !f.UnreadMore || f.Epoch != 7 {
			t.Errorf("told %+v", f)
		}
	}
	ana.mu.Lock()
	defer ana.mu.Unlock()
	if ana.heard("cursor", "c") != nil {
		t.Error("the device was told of its own read")
	}
}

// Sweeping after another gateway may wait for a lock. It must not cost the gateway that does it its own lease.
func TestASweepThatWaitsCostsNoLease(t *testing.T) {
	st := newTown(t)
	s := stationOn(t, st, "gw-1", func(c *hubConfig) { c.leaseFor = 2 * time.Second })
	if err := st.RenewLease(t.Context(), "gw-2", time.Second, false); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Hello(t.Context(), "ana", "a1", "i", "gw-2", newConnection()); err != nil {
		t.Fatal(err)
	}
	lock, err := st.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), `SELECT FROM tidings.route FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(20 * time.Millisecond) {
		if !s.held.held() {
			t.Fatalf("the lease is lost after %v", time.Since(began))
		}
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the route is swept", func() bool {
		routes, err := st.RoutesOf(t.Context(), "gw-2")
		return err == nil && len(routes) == 0
	})
}
