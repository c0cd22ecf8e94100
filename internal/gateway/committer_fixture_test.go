// A committer with a database, for tests.

package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// desk is a committer on a database of its own. Its sends may be disturbed on their way to the store.
type desk struct {
	*committer
	t    testing.TB
	pool *pgxpool.Pool

	mu   sync.Mutex
	told []tidings.Event // in the order of committed
}

// sent is what became of a submitted message.
type sent struct {
	tidings.Answer
	err error
}

const patience = 30 * time.Second // of the tests, for what should take no time

// newDesk makes a desk, which the caller starts.
func newDesk(t testing.TB, pool *pgxpool.Pool, opts committerOptions) *desk {
	d := &desk{t: t, pool: pool}
	d.committer = newCommitter(store.New(pool), func(events []tidings.Event, _ *late) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.told = append(d.told, events...)
	}, opts)
	return d
}

// start runs the committer until stop is called or the test ends.
func (d *desk) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			d.t.Errorf("the committer has not stopped within %v", patience)
		}
	})
	d.t.Cleanup(stop)
	return stop
}

// disturb puts f between the committer and the store. It must be called before start.
func (d *desk) disturb(f func(send sendFunc, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error)) {
	send := d.send
	d.send = func(ctx context.Context, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
		return f(func(_ context.Context, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
			return send(ctx, batch, wait)
		}, batch, wait)
	}
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(context.Background(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

func value[V any](d *desk, sql string, args ...any) (v V) {
	d.t.Helper()
	if err := d.pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		d.t.Fatal(err)
	}
	return v
}

// converse makes n conversations prefix1 … prefixN whose members are the users.
func (d *desk) converse(prefix string, n int, users ...string) {
	d.t.Helper()
	d.exec(`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) SELECT $1 || i, 7, $3 + 1 FROM generate_series(1, $2) i`, prefix, n, len(users))
	d.exec(`INSERT INTO tidings.event (conv_id, seq, kind, sender_user)
		SELECT $1 || i, u.seq, 'join', u.name FROM generate_series(1, $2) i, unnest($3::text[]) WITH ORDINALITY u (name, seq)`, prefix, n, users)
	d.exec(`INSERT INTO tidings.member (conv_id, user_id, join_seq)
		SELECT $1 || i, u.name, u.seq FROM generate_series(1, $2) i, unnest($3::text[]) WITH ORDINALITY u (name, seq)`, prefix, n, users)
}

func msg(conv, sender, cmid, body string) tidings.Message {
	return tidings.Message{Conv: conv, Sender: sender, Device: sender + "-1", Cmid: cmid, Body: body}
}

// post submits messages and returns what will become of them, each once it is known; a message that is refused at once ends the
// test.
func (d *desk) post(msgs ...tidings.Message) []<-chan sent {
	d.t.Helper()
	var outcomes []<-chan sent
	for _, m := range msgs {
		outcome := make(chan sent, 1)
		var calls atomic.Int32
		if err := d.submit(&outgoing{msg: m, done: func(a tidings.Answer, err error) {
			if calls.Add(1) > 1 {
				d.t.Errorf("%s of %s was answered twice", m.Cmid, m.Conv)
				return
			}
			outcome <- sent{a, err}
		}}); err != nil {
			d.t.Fatalf("submit %s: %v", m.Cmid, err)
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes
}

func (d *desk) wait(outcome <-chan sent) sent {
	d.t.Helper()
	select {
	case s := <-outcome:
		return s
	case <-time.After(patience):
		d.t.Fatalf("a message was not answered within %v", patience)
		return sent{}
	}
}

// say renders outcomes briefly: "3", "3 dup", "NOT_MEMBER" or, of an error, "!UNAVAILABLE".
func (d *desk) say(outcomes ...<-chan sent) string {
	d.t.Helper()
	var all []string
	for _, o := range outcomes {
		s := d.wait(o)
		switch {
		case s.err != nil:
			all = append(all, "!"+string(tidings.ErrorCode(s.err)))
		case s.Code != "":
			all = append(all, string(s.Code))
		case s.Dup:
			all = append(all, fmt.Sprintf("%d dup", s.Seq))
		default:
			all = append(all, fmt.Sprint(s.Seq))
		}
	}
	return strings.Join(all, ", ")
}

func (d *desk) want(want string, outcomes ...<-chan sent) {
	d.t.Helper()
	if got := d.say(outcomes...); got != want {
		d.t.Errorf("the answers are %s; want %s", got, want)
	}
}

// wantTold compares the seqs that committed has heard of a conversation so far.
func (d *desk) wantTold(conv string, want ...int64) {
	d.t.Helper()
	if got := d.toldOf(conv); !slices.Equal(got, want) {
		d.t.Errorf("of %s were told %v, want %v", conv, got, want)
	}
}

func (d *desk) toldOf(conv string) (seqs []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.told {
		if e.Conv == conv {
			seqs = append(seqs, e.Seq)
		}
	}
	return seqs
}

// log is a conversation's messages, "cmid=body" each, and fails unless its seqs are contiguous.
func (d *desk) log(conv string) (all []string) {
	d.t.Helper()
	rows, err := d.pool.Query(context.Background(), `SELECT seq, kind, coalesce(cmid, ''), coalesce(body, '') FROM tidings.event WHERE conv_id = $1 ORDER BY seq`, conv)
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	next := int64(1)
	for ; rows.Next(); next++ {
		var seq int64
		var kind, cmid, body string
		if err := rows.Scan(&seq, &kind, &cmid, &body); err != nil {
			d.t.Fatal(err)
		}
		if seq != next {
			d.t.Errorf("%s has seq %d where %d was due", conv, seq, next)
		}
		if kind == "msg" {
			all = append(all, cmid+"="+body)
		}
	}
	if stored := value[int64](d, `SELECT next_seq FROM tidings.conversation WHERE conv_id = $1`, conv); stored != next {
		d.t.Errorf("%s has next_seq %d, want %d", conv, stored, next)
	}
	return all
}

func (d *desk) wantLog(conv string, want ...string) {
	d.t.Helper()
	if got := d.log(conv); !slices.Equal(got, want) {
		d.t.Errorf("the log of %s is %q, want %q", conv, got, want)
	}
}

// hold locks a conversation as an application's transaction does, until free is called.
func (d *desk) hold(conv string) (free func()) {
	d.t.Helper()
	tx, err := d.pool.Begin(context.Background())
	if err == nil {
		_, err = tx.Exec(context.Background(), `SELECT FROM tidings.conversation WHERE conv_id = $1 FOR NO KEY UPDATE`, conv)
	}
	if err != nil {
		d.t.Fatalf("hold %s: %v", conv, err)
	}
	free = sync.OnceFunc(func() {
		if err := tx.Rollback(context.Background()); err != nil {
			d.t.Errorf("let %s go: %v", conv, err)
		}
	})
	d.t.Cleanup(free)
	return free
}

// blocked makes sends wait in batches behind a first one, until open is called.
func (d *desk) blocked() (open func()) {
	gate := make(chan struct{})
	d.disturb(func(send sendFunc, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
		<-gate
		return send(context.Background(), batch, wait)
	})
	open = sync.OnceFunc(func() { close(gate) })
	d.t.Cleanup(open)
	return open
}

// awaitFlight waits until nothing waits for a committer: what was submitted is in flight.
func (d *desk) awaitFlight() {
	d.t.Helper()
	d.await("the messages were not taken", func() bool {
		d.committer.mu.Lock()
		defer d.committer.mu.Unlock()
		return len(d.ready.queue) == 0
	})
}

func (d *desk) await(otherwise string, met func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("%s within %v", otherwise, patience)
		}
	}
}
