// Tests of the worker.

package dispatch_test

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
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/dispatch"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

// scripted is an adapter that does what a function says.
type scripted struct {
	contract channel.Contract
	send     func(context.Context, channel.Message) channel.Outcome
	calls    atomic.Int64
}

func (s *scripted) Contract() channel.Contract { return s.contract }
func (s *scripted) Renderer() string           { return "scripted/1" }
func (s *scripted) Send(ctx context.Context, m channel.Message) channel.Outcome {
	s.calls.Add(1)
	return s.send(ctx, m)
}

func worker(t *testing.T, pool *pgxpool.Pool, c channel.Channel, change func(*dispatch.Config)) *dispatch.Worker {
	t.Helper()
	cfg := dispatch.Config{Pool: pool, PollInterval: 10 * time.Millisecond, BackoffBase: time.Millisecond,
		Channels: []dispatch.Channel{{Name: "test", Channel: c, Timeout: 300 * time.Millisecond, Lease: 2 * time.Second, Concurrency: 4}}}
	if change != nil {
		change(&cfg)
	}
	w, err := dispatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// notify submits n notifications with one task each on the channel "test".
func notify(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	var batch []tidings.Notification
	for i := range n {
		user := fmt.Sprintf("u-%d", i)
		if _, err := pool.Exec(t.Context(), `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
			VALUES (tidings.bucket_of($1), $1, 'test', 'somewhere') ON CONFLICT DO NOTHING`, user); err != nil {
			t.Fatal(err)
		}
		batch = append(batch, tidings.Notification{User: user, EventKey: "e", Body: "hi", TTL: tidings.Seconds(time.Hour)})
	}
	if _, err := outbox.Notify(t.Context(), pool, batch...); err != nil {
		t.Fatal(err)
	}
}

type row struct {
	State  string
	Review bool
	Budget int
	Late   string
	Trail  string
}

func tasks(t *testing.T, pool *pgxpool.Pool) []row {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT t.state, t.needs_review, t.budget_left, coalesce(string_agg(a.late_outcome, ' '), ''),
			coalesce(string_agg(coalesce(a.outcome, '?'), ' ' ORDER BY a.n) FILTER (WHERE a.n > 0), '')
		FROM tidings.task t LEFT JOIN tidings.attempt a ON a.task_id = t.id GROUP BY t.id, t.bucket, t.state, t.needs_review, t.budget_left, t.user_id ORDER BY t.user_id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// running runs a worker until the returned function is called, which returns what Run returned.
func running(t *testing.T, w *dispatch.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestALeaseThatACallCanOutliveIsRefused(t *testing.T) {
	pool := pgtest.New(t)
	_, err := dispatch.New(dispatch.Config{Pool: pool, Channels: []dispatch.Channel{{Name: "test", Channel: &scripted{}, Timeout: time.Second, Lease: 1500 * time.Millisecond}}})
	if err == nil || !strings.Contains(err.Error(), "lease") {
		t.Errorf("New = %v", err)
	}
	asks := &scripted{contract: channel.Contract{Query: &channel.Query{}}}
	if _, err := dispatch.New(dispatch.Config{Pool: pool, Channels: []dispatch.Channel{{Name: "test", Channel: asks}}}); err == nil {
		t.Error("a contract with a query and no way to ask was accepted")
	}
}

// TestAnAdapterThatDoesNotReturn: its attempt ends as TIMEOUT on time, its slot stays taken, the other slots go on, and what it says
// in the end stands in the journal as late.
func TestAnAdapterThatDoesNotReturn(t *testing.T) {
	pool := pgtest.New(t)
	release := make(chan struct{})
	c := &scripted{send: func(_ context.Context, m channel.Message) channel.Outcome {
		if m.User == "u-0" {
			<-release
		}
		return channel.Outcome{Code: tidings.Accepted, ProviderMsgID: "p"}
	}}
	w := worker(t, pool, c, nil)
	stop := running(t, w)
	notify(t, pool, 1)
	until(t, "the stuck attempt is ended", func() bool { return tasks(t, pool)[0] == row{"UNKNOWN", true, 4, "", "TIMEOUT"} })
	notify(t, pool, 9)
	until(t, "the others are sent", func() bool {
		sent := 0
		for _, r := range tasks(t, pool) {
			if r.State == "SENT" {
				sent++
			}
		}
		return sent == 8
	})
	close(release)
	until(t, "the late word is in the journal", func() bool { return tasks(t, pool)[0] == row{"UNKNOWN", true, 4, "ACCEPTED", "TIMEOUT"} })
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestTheCircuit: while calls cannot be started, a worker tries one now and then, spends no budget, and goes on by itself afterwards.
func TestTheCircuit(t *testing.T) {
	pool := pgtest.New(t)
	var up atomic.Bool
	c := &scripted{send: func(context.Context, channel.Message) channel.Outcome {
		if up.Load() {
			return channel.Outcome{Code: tidings.Accepted}
		}
		return channel.Outcome{Code: tidings.NotSent, Detail: "connection refused"}
	}}
	w := worker(t, pool, c, func(cfg *dispatch.Config) { cfg.BackoffCap = 5 * time.Millisecond })
	stop := running(t, w)
	notify(t, pool, 50)
	until(t, "calls fail", func() bool { return c.calls.Load() >= 5 })
	opened := time.Now()
	time.Sleep(700 * time.Millisecond) // the time that is observed: the circuit's first wait is a second
	if calls := c.calls.Load(); calls > 20 {
		t.Errorf("%d calls within %v, although none can be started", calls, time.Since(opened))
	}
	up.Store(true)
	until(t, "all are sent", func() bool {
		for _, r := range tasks(t, pool) {
			if r.State != "SENT" || r.Budget != 4 {
				return false
			}
		}
		return true
	})
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestHostileAdapters say things that cannot be stored, panic, or forget to classify.
func TestHostileAdapters(t *testing.T) {
	pool := pgtest.New(t)
	c := &scripted{send: func(_ context.Context, m channel.Message) channel.Outcome {
		switch m.User {
		case "u-0":
			return channel.Outcome{Code: tidings.Accepted, ProviderMsgID: "a\x00b\xff" + strings.Repeat("x", 5000), Detail: strings.Repeat("\xff\x00", 5000)}
		case "u-1":
			panic("no")
		case "u-2":
			return channel.Outcome{}
		case "u-3":
			return channel.Outcome{Code: tidings.LeaseExpired}
		}
		return channel.Outcome{Code: tidings.Rejected, Status: 400}
	}}
	notify(t, pool, 5)
	for range 2 { // two rounds: four slots
		if _, err := worker(t, pool, c, nil).RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []row{{"SENT", false, 4, "", "ACCEPTED"}, {"UNKNOWN", true, 4, "", "IO_ERROR"}, {"UNKNOWN", true, 4, "", "IO_ERROR"},
		{"UNKNOWN", true, 4, "", "IO_ERROR"}, {"FAILED", false, 4, "", "REJECTED"}}
	for i, got := range tasks(t, pool) {
		if got != want[i] {
			t.Errorf("task %d: %+v, want %+v", i, got, want[i])
		}
	}
}

// TestOtherChannelsAreLeftAlone: tasks of a channel that this worker does not know wait for one that does.
func TestOtherChannelsAreLeftAlone(t *testing.T) {
	pool := pgtest.New(t)
	notify(t, pool, 1)
	c := &scripted{send: func(context.Context, channel.Message) channel.Outcome { return channel.Outcome{Code: tidings.Accepted} }}
	other := worker(t, pool, c, func(cfg *dispatch.Config) { cfg.Channels[0].Name = "another" })
	if n, err := other.RunOnce(t.Context()); n != 0 || err != nil {
		t.Fatalf("RunOnce = %d, %v", n, err)
	}
	if got := tasks(t, pool)[0]; got != (row{"PENDING", false, 5, "", ""}) {
		t.Errorf("%+v", got)
	}
	if n, err := worker(t, pool, c, nil).RunOnce(t.Context()); n != 1 || err != nil {
		t.Fatalf("RunOnce = %d, %v", n, err)
	}
}

// TestWakeBeatsPolling: a worker that polls once an hour sends at once after Wake.
func TestWakeBeatsPolling(t *testing.T) {
	pool := pgtest.New(t)
	c := &scripted{send: func(context.Context, channel.Message) channel.Outcome { return channel.Outcome{Code: tidings.Accepted} }}
	w := worker(t, pool, c, func(cfg *dispatch.Config) { cfg.PollInterval = time.Hour })
	stop := running(t, w)
	until(t, "somebody listens", func() bool {
		var n int
		_ = pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&n)
		return n == 1
	})
	notify(t, pool, 1)
	until(t, "sent after a wake-up", func() bool {
		if err := outbox.Wake(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		return tasks(t, pool)[0].State == "SENT"
	})
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestAnAddressThatIsGone is switched off, unless it was changed meanwhile.
func TestAnAddressThatIsGone(t *testing.T) {
	pool := pgtest.New(t)
	notify(t, pool, 2)
	c := &scripted{send: func(ctx context.Context, m channel.Message) channel.Outcome {
		if m.User == "u-1" {
			if _, err := pool.Exec(ctx, `UPDATE tidings.channel_pref SET address = 'a new one', version = version + 1 WHERE user_id = 'u-1'`); err != nil {
				t.Error(err)
			}
		}
		return channel.Outcome{Code: tidings.Rejected, Status: 410, AddressGone: true}
	}}
	if _, err := worker(t, pool, c, nil).RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	var enabled [2]bool
	for i := range enabled {
		if err := pool.QueryRow(t.Context(), `SELECT enabled FROM tidings.channel_pref WHERE user_id = $1`, fmt.Sprintf("u-%d", i)).Scan(&enabled[i]); err != nil {
			t.Fatal(err)
		}
	}
	if enabled != [2]bool{false, true} {
		t.Errorf("enabled = %v", enabled)
	}
}

// TestALateTrialDoesNotCloseTheLane: the call by which an open circuit is tried does not return in time. It could be started, so
// the lane goes on.
func TestALateTrialDoesNotCloseTheLane(t *testing.T) {
	pool := pgtest.New(t)
	var up atomic.Bool
	var late atomic.Bool
	c := &scripted{send: func(context.Context, channel.Message) channel.Outcome {
		if !up.Load() {
			return channel.Outcome{Code: tidings.NotSent}
		}
		if late.CompareAndSwap(false, true) {
			time.Sleep(800 * time.Millisecond) // longer than its timeout and the grace
		}
		return channel.Outcome{Code: tidings.Accepted}
	}}
	w := worker(t, pool, c, func(cfg *dispatch.Config) { cfg.BackoffCap = 5 * time.Millisecond })
	stop := running(t, w)
	notify(t, pool, 8)
	until(t, "the circuit opens", func() bool { return c.calls.Load() >= 5 })
	up.Store(true)
	until(t, "all but the late one are sent", func() bool {
		sent := 0
		for _, r := range tasks(t, pool) {
			if r.State == "SENT" {
				sent++
			}
		}
		return sent >= 7
	})
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestAnOpenCircuitTakesOverLeases: nothing is due with which the circuit could be tried but a task whose holder is gone.
func TestAnOpenCircuitTakesOverLeases(t *testing.T) {
	pool := pgtest.New(t)
	var up atomic.Bool
	c := &scripted{contract: channel.Contract{Key: &channel.Key{Window: time.Hour}}, send: func(context.Context, channel.Message) channel.Outcome {
		if up.Load() {
			return channel.Outcome{Code: tidings.AcceptedReplay}
		}
		return channel.Outcome{Code: tidings.NotSent}
	}}
	notify(t, pool, 1)
	holder := &scripted{contract: c.contract, send: func(context.Context, channel.Message) channel.Outcome { return channel.Outcome{Code: tidings.Accepted} }}
	if _, err := worker(t, pool, holder, nil).RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	// As it stands after a kill: held, and the lease is over.
	if _, err := pool.Exec(t.Context(), `ALTER TABLE tidings.task DISABLE TRIGGER USER`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `WITH a AS (UPDATE tidings.attempt SET outcome = NULL, finished_at = NULL RETURNING task_id, token)
		UPDATE tidings.task t SET state = 'SENDING', attempt_token = a.token, lease_owner = 'dead', lease_until = now() + interval '3 seconds'
		FROM a WHERE t.id = a.task_id`); err != nil {
		t.Fatal(err)
	}
	stop := running(t, worker(t, pool, c, func(cfg *dispatch.Config) { cfg.BackoffCap = 5 * time.Millisecond }))
	for i := range 6 { // these open the circuit, and then they are gone
		user := fmt.Sprintf("u-gone-%d", i)
		if _, err := pool.Exec(t.Context(), `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (tidings.bucket_of($1), $1, 'test', 'x')`, user); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.Notify(t.Context(), pool, tidings.Notification{User: user, EventKey: "e", Body: "hi", TTL: tidings.Seconds(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the circuit opens", func() bool { return c.calls.Load() >= 5 })
	if _, err := pool.Exec(t.Context(), `UPDATE tidings.notification SET cancelled_at = now() WHERE user_id LIKE 'u-gone-%'`); err != nil {
		t.Fatal(err)
	}
	up.Store(true)
	until(t, "the task of the dead holder is sent", func() bool { return tasks(t, pool)[0].State == "SENT" })
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestRunOnceEndsWhatItBegan: its context ends during the call; the outcome is written all the same, and nothing more is claimed.
func TestRunOnceEndsWhatItBegan(t *testing.T) {
	pool := pgtest.New(t)
	notify(t, pool, 1)
	ctx, cancel := context.WithCancel(t.Context())
	c := &scripted{send: func(context.Context, channel.Message) channel.Outcome {
		cancel()
		return channel.Outcome{Code: tidings.Accepted}
	}}
	w := worker(t, pool, c, nil)
	if n, err := w.RunOnce(ctx); n != 1 || err != nil {
		t.Fatalf("RunOnce = %d, %v", n, err)
	}
	if got := tasks(t, pool)[0]; got != (row{"SENT", false, 4, "", "ACCEPTED"}) {
		t.Errorf("%+v", got)
	}
	notify(t, pool, 2)
	if n, err := w.RunOnce(ctx); n != 0 || err == nil {
		t.Errorf("RunOnce with an ended context = %d, %v", n, err)
	}
	if c.calls.Load() != 1 {
		t.Errorf("%d calls", c.calls.Load())
	}
}
