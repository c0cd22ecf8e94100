// A store on a database of its own, for tests.

package store_test

import (
	"crypto/rand"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

// bench is a store on a database of its own, whose trigger refuses what is not an edge of the state machine.
type bench struct {
	*store.Store
	t    *testing.T
	pool *pgxpool.Pool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return benchOn(t, pgtest.New(t))
}

func benchOn(t *testing.T, pool *pgxpool.Pool) *bench {
	return &bench{Store: store.New(pool), t: t, pool: pool}
}

// The lanes of three channels: one deduplicates, one can be asked, one is neither.
var (
	push  = store.Lane{Channel: "push", Worker: "w", Renderer: "r/1", Lease: time.Minute, Timeout: time.Second, KeyWindow: time.Hour}
	sms   = store.Lane{Channel: "sms", Worker: "w", Renderer: "r/1", Lease: time.Minute, Timeout: time.Second, Query: true, AbsenceProves: true}
	plain = store.Lane{Channel: "plain", Worker: "w", Renderer: "r/1", Lease: time.Minute, Timeout: time.Second}
)

// must ends the test on an error.
func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// want ends the test if err does not have the code.
func (b *bench) want(code tidings.Code, err error) {
	b.t.Helper()
	if got := tidings.ErrorCode(err); got != code {
		b.t.Fatalf("the error is %q (%v), want %q", got, err, code)
	}
}

func (b *bench) exec(sql string, args ...any) int {
	b.t.Helper()
	tag, err := b.pool.Exec(b.t.Context(), sql, args...)
	b.must(err)
	return int(tag.RowsAffected())
}

// one reads one value.
func one[V any](b *bench, sql string, args ...any) (v V) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&v))
	return v
}

// prefer enables channels for a user.
func (b *bench) prefer(user string, channels ...string) {
	b.t.Helper()
	for _, c := range channels {
		_, err := b.PutPref(b.t.Context(), user, store.Pref{Channel: c, Address: "at-" + user, Enabled: true}, nil)
		b.must(err)
	}
}

// submit stores a notification of an hour to live and returns its id.
func (b *bench) submit(user, key string, change ...func(*tidings.Notification)) tidings.UUID {
	b.t.Helper()
	n := tidings.Notification{User: user, EventKey: key, Title: "title", Body: "body", TTL: tidings.Seconds(time.Hour)}
	for _, c := range change {
		c(&n)
	}
	input, err := json.Marshal(n)
	b.must(err)
	return one[tidings.UUID](b, `SELECT (tidings.notify_v1($1::json) -> 0 ->> 'id')::uuid`, string(input))
}

// task submits a notification on one channel and returns the task.
func (b *bench) task(lane store.Lane, user, key string, change ...func(*tidings.Notification)) tidings.UUID {
	b.t.Helper()
	b.prefer(user, lane.Channel)
	id := b.submit(user, key, append([]func(*tidings.Notification){func(n *tidings.Notification) { n.Channels = []string{lane.Channel} }}, change...)...)
	return one[tidings.UUID](b, `SELECT id FROM tidings.task WHERE notification_id = $1`, id)
}

func claimID() (id store.ClaimID) {
	_, _ = rand.Read(id[:])
	return id
}

// claim takes up to n due tasks.
func (b *bench) claim(lane store.Lane, n int) []store.Claimed {
	b.t.Helper()
	claimed, err := b.Claim(b.t.Context(), lane, n, claimID(), nil)
	b.must(err)
	return claimed
}

// claimOne takes the one due task.
func (b *bench) claimOne(lane store.Lane) store.Claimed {
	b.t.Helper()
	claimed := b.claim(lane, 2)
	if len(claimed) != 1 {
		b.t.Fatalf("%d tasks are due, want 1", len(claimed))
	}
	return claimed[0]
}

// ended is the end of a claimed attempt with an outcome, as the worker makes it, without a delay.
func ended(c store.Claimed, o tidings.Outcome, providerID string) store.Finish {
	v := tidings.Finish(c.Held, tidings.Observation{Outcome: o})
	return store.Finish{ID: c.ID, Note: c.Note, N: c.N, Token: c.Token, Verdict: v, ProviderMsgID: providerID, AwaitsReceipt: true,
		Doubted:   c.Held.Action == tidings.ActionSend && (v.Outcome == tidings.Timeout || v.Outcome == tidings.IOError),
		Unstarted: v.Outcome == tidings.NotSent && c.FirstCall && !v.InDoubt}
}

func (b *bench) finish(c store.Claimed, o tidings.Outcome, providerID string) {
	b.t.Helper()
	stale, err := b.Finish(b.t.Context(), []store.Finish{ended(c, o, providerID)})
	b.must(err)
	if len(stale) > 0 {
		b.t.Fatalf("the attempt was superseded")
	}
}

// parked makes a task that waits for a person: sent on a channel that neither deduplicates nor can be asked, without an answer.
func (b *bench) parked(user, key string, change ...func(*tidings.Notification)) store.TaskDetail {
	b.t.Helper()
	id := b.task(plain, user, key, change...)
	b.finish(b.claimOne(plain), tidings.Timeout, "")
	d := b.detail(id)
	if d.State != tidings.Unknown || !d.Review {
		b.t.Fatalf("the task is %s, review %t", d.State, d.Review)
	}
	return d
}

func (b *bench) detail(id tidings.UUID) store.TaskDetail {
	b.t.Helper()
	d, err := b.TaskDetail(b.t.Context(), id)
	b.must(err)
	return d
}

// outcomes are the outcomes in the journal of a task.
func (b *bench) outcomes(id tidings.UUID) (all []tidings.Outcome) {
	b.t.Helper()
	for i, a := range b.detail(id).Attempts {
		if a.N != i+1 {
			b.t.Fatalf("row %d of the journal has the number %d", i+1, a.N)
		}
		all = append(all, a.Outcome)
	}
	return all
}

// kept fails if the stored rows show a broken promise. It returns the findings.
func (b *bench) kept() []store.Finding {
	b.t.Helper()
	findings, err := b.Verify(b.t.Context())
	b.must(err)
	for _, f := range findings {
		if f.Violations > 0 && f.Promise != "" {
			b.t.Errorf("%s %s: %d violations, one is %s", f.Promise, f.Name, f.Violations, f.Sample)
		}
	}
	return findings
}

// atOnce runs f n times, all from one barrier.
func atOnce(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			f(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}
