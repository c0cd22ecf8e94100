// Tests of the committer when locks are held and answers are lost.

package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

// A conversation that an application holds delays itself alone; when it is free its messages are stored in order.
func TestCommitterSetsABusyConversationAside(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{LockTimeout: patience})
	d.converse("c", 2, "ana")
	d.start()
	free := d.hold("c1")
	held := d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k2", "x"), msg("c1", "ana", "k1", "x"))
	d.want("2", d.post(msg("c2", "ana", "k1", "x"))...)
	held = append(held, d.post(msg("c1", "ana", "k3", "x"))...)
	d.want("3", d.post(msg("c2", "ana", "k2", "x"))...)
	d.wantTold("c1")
	free()
	d.want("2, 3, 2 dup, 4", held...)
	d.wantTold("c1", 2, 3, 4)
	d.wantLog("c1", "k1=x", "k2=x", "k3=x")
}

// What could not get the lock was not stored, and the conversation goes on when it is free.
func TestCommitterGivesUpALock(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{LockTimeout: 100 * time.Millisecond})
	d.converse("c", 1, "ana")
	d.start()
	free := d.hold("c1")
	d.want("!UNAVAILABLE, !UNAVAILABLE", d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k2", "x"))...)
	free()
	d.want("2", d.post(msg("c1", "ana", "k1", "x"))...)
}

// However many conversations are held, one that is held for a moment only has its turn after about LockTimeout: those before it
// share that time.
func TestCommitterSharesTheWaiting(t *testing.T) {
	const lockTimeout, n = time.Second, 7
	d := newDesk(t, pgtest.New(t), committerOptions{SideWorkers: 1, LockTimeout: lockTimeout})
	d.converse("c", n, "ana")
	gate := make(chan struct{})
	turns := map[string]time.Duration{} // of the one side worker
	d.disturb(func(send sendFunc, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
		if wait > 0 {
			<-gate
			turns[batch[0].Conv] = wait
		}
		return send(context.Background(), batch, wait)
	})
	stop := d.start()
	var got []<-chan sent
	var free func()
	for i := range n {
		conv := fmt.Sprintf("c%d", i+1)
		free = d.hold(conv)
		got = append(got, d.post(msg(conv, "ana", "k", "x"))...)
		d.await("the conversation was not set aside", func() bool {
			d.committer.mu.Lock()
			defer d.committer.mu.Unlock()
			return len(d.busy.queue) == i && d.backlogs[conv].aside != time.Time{}
		})
	}
	free()
	close(gate)
	d.want(strings.Repeat("!UNAVAILABLE, ", n-1)+"2", got...)
	stop()
	var together time.Duration
	for conv, wait := range turns {
		if wait < lockTimeout/shortTurn {
			t.Errorf("%s had a turn of %v", conv, wait)
		}
		if conv != "c1" { // which had its turn before the others came
			together += wait
		}
	}
	if len(turns) != n || together > lockTimeout+n*lockTimeout/shortTurn {
		t.Errorf("%d turns took %v together: %v", len(turns), together, turns)
	}
}

// A message that the database refuses gets its own code, and the rest of its batch what is theirs.
func TestCommitterIsolatesARefusal(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 1})
	d.converse("c", 3, "ana")
	free := d.hold("c3")
	open := d.blocked()
	d.start()
	d.post(msg("c1", "ana", "k0", "x"))
	d.awaitFlight()
	got := d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "bad", "\x00"), msg("c1", "ana", "bad", "good"), msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k2", "x"),
		msg("c2", "ana", "bad", "\x00"), msg("c2", "ana", "k1", "x"), msg("c2", "eve", "k1", "x"))
	held := d.post(msg("c3", "ana", "k1", "x"), msg("c3", "ana", "bad", "\x00"), msg("c3", "ana", "k2", "x"))
	open()
	d.want("3, !INVALID_ARGUMENT, 4, 3 dup, 5, !INVALID_ARGUMENT, 2, NOT_MEMBER", got...)
	free()
	d.want("2, !INVALID_ARGUMENT, 3", held...)
	d.wantTold("c1", 2, 3, 4, 5)
	d.wantTold("c3", 2, 3)
	d.wantLog("c1", "k0=x", "k1=x", "bad=good", "k2=x")
}

// behindProxy makes a desk whose store talks to PostgreSQL by way of a proxy, on connections of its own.
func behindProxy(t *testing.T, opts committerOptions) (*desk, *pgproxy.Proxy) {
	t.Helper()
	url := pgtest.NewURL(t)
	proxy := pgproxy.Start(t, url)
	open := func(url string) *pgxpool.Pool {
		pool, err := pgxpool.New(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	d := newDesk(t, open(proxy.URL()), opts)
	d.pool = open(url)
	return d, proxy
}

// sends matches the statement of Store.Send.
var sends = pgproxy.Runs("tidings.send_rows")

// One lost answer is nothing that anyone hears of, whether the transaction was committed or not.
func TestCommitterSendsOnceMore(t *testing.T) {
	for _, when := range []pgproxy.Moment{pgproxy.Before, pgproxy.After} {
		t.Run(string(when), func(t *testing.T) {
			d, proxy := behindProxy(t, committerOptions{})
			d.converse("c", 1, "ana")
			d.start()
			d.want("2", d.post(msg("c1", "ana", "k0", "x"))...)
			trap := proxy.Arm(pgproxy.Rule{What: "a send", Match: sends, When: when, Do: pgproxy.Cut})
			got := d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k2", "x"))
			trap.Wait(patience)
			if said := strings.ReplaceAll(d.say(got...), " dup", ""); said != "3, 4" {
				t.Errorf("the answers are %s", said)
			}
			d.wantTold("c1", 2, 3, 4) // also of a commit whose answer was lost
			d.wantLog("c1", "k0=x", "k1=x", "k2=x")
		})
	}
}

// Two lost answers are an unknown outcome, until the client sends the same once more.
func TestCommitterOutcomeUnknown(t *testing.T) {
	d, proxy := behindProxy(t, committerOptions{})
	d.converse("c", 1, "ana")
	d.start()
	free := d.hold("c1")
	first := d.post(msg("c1", "ana", "k0", "x"))
	d.await("the lock was not waited for", func() bool {
		return value[int](d, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	got := d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k2", "x")) // they are a batch, after the first
	for range 2 {
		proxy.Arm(pgproxy.Rule{What: "a send", Match: sends, When: pgproxy.After, Do: pgproxy.Cut})
	}
	free()
	d.want("2", first...)
	d.want("!OUTCOME_UNKNOWN, !OUTCOME_UNKNOWN", got...)
	d.want("3 dup, 5, 4 dup", d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k3", "x"), msg("c1", "ana", "k2", "x"))...)
}

// When all connections of the pool have ended at once, which each of them tells only when it is used, nobody hears of it.
func TestCommitterOutlivesItsConnections(t *testing.T) {
	url := pgtest.NewURL(t)
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d := newDesk(t, pool, committerOptions{})
	d.converse("c", 8, "ana")
	d.start()
	other, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	for round := range 5 {
		var conns []*pgxpool.Conn
		for range 4 {
			conn, err := pool.Acquire(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Release()
		}
		var ended int
		if err := other.QueryRow(context.Background(), `SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&ended); err != nil || ended < len(conns) {
			t.Fatalf("%d connections were ended: %v", ended, err)
		}
		d.want(fmt.Sprint(round+2), d.post(msg("c1", "ana", fmt.Sprint(round), "x"))...)
	}
}

// lost and refused are what the store may say without having reached the database.
var (
	lost    = tidings.Errorf(tidings.OutcomeUnknown, "the answer was lost")
	refused = tidings.Errorf(tidings.Unavailable, "the database cannot be reached")
)

// Of a message that an earlier transaction may have stored nobody says that it was not.
func TestCommitterKeepsItsDoubt(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{LockTimeout: 100 * time.Millisecond})
	d.converse("c", 1, "ana")
	var calls atomic.Int32
	d.disturb(func(send sendFunc, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
		switch n := calls.Add(1); {
		case n == 1 && wait == 0:
			return nil, lost
		default: // the backend of the first is still at work: the second finds the conversation locked, and so does the third
			return send(context.Background(), batch, wait)
		}
	})
	d.start()
	free := d.hold("c1")
	d.want("!OUTCOME_UNKNOWN", d.post(msg("c1", "ana", "k1", "x"))...)
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls were made, want 3", n)
	}
	free()
	d.want("2", d.post(msg("c1", "ana", "k1", "x"))...)
}

// A database that is away costs a batch two calls, and what comes later is accepted again.
func TestCommitterFailsFast(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 1})
	d.converse("c", 100, "ana")
	var calls atomic.Int32
	gate := make(chan struct{})
	d.disturb(func(send sendFunc, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
		n := calls.Add(1)
		if n == 1 {
			<-gate
		}
		if n <= 4 { // two for the first message, two for the batch
			return nil, refused
		}
		return send(context.Background(), batch, wait)
	})
	d.start()
	got := d.post(msg("c1", "ana", "k0", "x"))
	d.awaitFlight()
	for i := range 100 {
		got = append(got, d.post(msg(fmt.Sprintf("c%d", i+1), "ana", "k1", "x"))...)
	}
	close(gate)
	d.want(strings.Repeat("!UNAVAILABLE, ", 100)+"!UNAVAILABLE", got...)
	d.want("2", d.post(msg("c1", "ana", "k1", "x"))...)
	if n := calls.Load(); n != 5 {
		t.Errorf("%d calls were made, want 5", n)
	}
}

// What has waited too long behind a database that does not answer is given up unsent.
func TestCommitterLosesPatience(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 1, Patience: 50 * time.Millisecond})
	d.converse("c", 2, "ana")
	open := d.blocked()
	d.start()
	first := d.post(msg("c1", "ana", "k1", "x"))
	d.awaitFlight()
	got := d.post(msg("c1", "ana", "k2", "x"), msg("c2", "ana", "k2", "x"))
	d.await("time does not pass", func() bool {
		d.committer.mu.Lock()
		defer d.committer.mu.Unlock()
		return time.Since(d.backlogs["c2"].sends[0].since) > d.opts.Patience
	})
	open()
	d.want("2", first...)
	d.want("!UNAVAILABLE, !UNAVAILABLE", got...)
	d.wantLog("c1", "k1=x")
}

// The hook hears of committed transactions and of no others.
func TestCommitterObserves(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	d := newDesk(t, pgtest.New(t), committerOptions{Committers: 1, Observe: func(messages int, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, messages)
		if took <= 0 {
			t.Errorf("a transaction took %v", took)
		}
	}})
	d.converse("c", 1, "ana")
	open := d.blocked()
	stop := d.start()
	d.post(msg("c1", "ana", "k0", "x"))
	d.awaitFlight()
	got := d.post(msg("c1", "ana", "k1", "x"), msg("c1", "ana", "k2", "x"), msg("c1", "ana", "k2", "x"))
	open()
	d.want("3, 4, 4 dup", got...)
	d.want("!INVALID_ARGUMENT", d.post(msg("c1", "ana", "bad", "\x00"))...)
	stop()
	if fmt.Sprint(sizes) != "[1 2]" {
		t.Errorf("the transactions had %v messages, want [1 2]", sizes)
	}
}
