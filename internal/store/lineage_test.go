// Tests of the judgement on real clusters: files put back, promotions, restores.

package store_test

import (
	"context"
	"log/slog"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/schema"
)

// soonEnough is for what happens at once on an idle machine.
const soonEnough = 30 * time.Second

// cluster starts a PostgreSQL with the schema, which a test may restore and replace.
func cluster(t *testing.T, o localpg.Options) *localpg.Server {
	t.Helper()
	s, err := localpg.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, s)
	if err := schema.Migrate(t.Context(), s.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	return s
}

func stopLater(t *testing.T, s *localpg.Server) {
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
}

// process is what a process has of the store: a memory, a pool that is judged by it.
type process struct {
	*bench
	memory *store.LineageMemory
}

// serving starts a process on a database, as a server does. The witness is in dir, if there is one.
func serving(t *testing.T, url, dir string) *process {
	t.Helper()
	p, err := tryServing(t, url, dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryServing(t *testing.T, url, dir string) (*process, error) {
	t.Helper()
	m, err := store.NewLineageMemory(dir, slog.New(slog.NewTextHandler(testLog{t}, nil)))
	if err != nil {
		return nil, err
	}
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 4
	m.Configure(c)
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p := &process{benchOn(t, pool), m}
	return p, p.EnsureLineage(t.Context())
}

// watched has the process watch its database until stop is called or the test ends.
func (p *process) watched() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.memory.Watch(ctx, p.pool)
	}()
	stop = func() { cancel(); <-done }
	p.t.Cleanup(stop)
	return stop
}

// testLog writes a process's log to the test's.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	if l.t.Context().Err() == nil { // the test goes on
		l.t.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// say sends a message and returns where it is.
func (p *process) say(conv, cmid string) (tidings.Answer, error) {
	answers, err := p.Send(p.t.Context(), []tidings.Message{{Conv: conv, Sender: "ana", Cmid: cmid, Body: cmid}}, 0)
	if err != nil {
		return tidings.Answer{}, err
	}
	return answers[0], nil
}

// said expects that it is stored.
func (p *process) said(conv, cmid string) tidings.Answer {
	p.t.Helper()
	a, err := p.say(conv, cmid)
	if err != nil || a.Code != "" {
		p.t.Fatalf("send %s: %q %v", cmid, a.Code, err)
	}
	return a
}

// conversation makes one with ana in it.
func (p *process) conversation(conv string) {
	p.t.Helper()
	if _, err := p.CreateConversation(p.t.Context(), store.Conversation{Conv: conv, RecallWindow: time.Minute, Members: []string{"ana"}}); err != nil {
		p.t.Fatal(err)
	}
}

// witnessed waits until a witness tells of a position.
func witnessed(t *testing.T, dir, position string) {
	t.Helper()
	for deadline := time.Now().Add(soonEnough); ; time.Sleep(20 * time.Millisecond) {
		w, err := outside.ReadWitness(dir)
		must(t, err)
		if w != nil && w.LSN >= position && len(w.LSN) == len(position) { // of the same length in this test
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the witness is %+v, not at %s", w, position)
		}
	}
}

// refuses expects that nothing is served, for a reason.
func (p *process) refuses(why string) {
	p.t.Helper()
	p.pool.Reset()
	_, err := p.say("c", "refused")
	if tidings.ErrorCode(err) != tidings.Unavailable || !strings.Contains(err.Error(), why) {
		p.t.Fatalf("a send was answered with %v, want UNAVAILABLE because %s", err, why)
	}
	if lost := p.memory.Lost(); lost == nil || !strings.Contains(lost.Error(), why) {
		p.t.Fatalf("the memory says %v", lost)
	}
}

// servesAgain waits until the process serves by itself.
func (p *process) servesAgain() {
	p.t.Helper()
	for deadline := time.Now().Add(soonEnough); ; time.Sleep(20 * time.Millisecond) {
		_, err := p.Outcome(p.t.Context(), "c", "ana", "any")
		if err == nil && p.memory.Lost() == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("it does not serve again: %v", err)
		}
	}
}

func onDatabase[V any](t *testing.T, url, sql string) (v V) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recovered runs a recovery as the command does: on a pool without a memory.
func recovered(t *testing.T, url string, o store.RecoverOptions) int64 {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	defer pool.Close()
	report, err := store.New(pool).Recover(t.Context(), o)
	must(t, err)
	return report.Generation
}

func TestFilesPutBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := cluster(t, localpg.Options{})
	url, dir := server.URL("postgres"), t.TempDir()
	p, idle := serving(t, url, dir), serving(t, url, "")
	stop := p.watched()
	p.conversation("c")
	epoch := p.said("c", "before").Epoch

	must(t, server.Copy(ctx, "copy")) // an orderly restart, too
	p.servesAgain()
	if a := p.said("c", "after a restart"); a.Epoch != epoch || a.Seq != 3 || p.memory.Breaks() != 0 {
		t.Errorf("after a restart %+v, %d breaks", a, p.memory.Breaks())
	}
	lastSeq := p.said("c", "lost").Seq
	witnessed(t, dir, onDatabase[string](t, url, `SELECT pg_catalog.pg_current_wal_flush_lsn()::text`))

	must(t, server.PutBack(ctx, "copy"))
	p.refuses("its position is lower than it was")
	// One that has acknowledged nothing of what was lost hears of it.
	idle.pool.Reset()
	if _, err := idle.say("c", "idle"); tidings.ErrorCode(err) != tidings.Unavailable || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the idle process sends: %v", err)
	}
	stop()
	// The witness tells a process that begins, also when the position has grown beyond the lost one.
	onDatabase[string](t, url, `SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000))::text`)
	onDatabase[int64](t, url, `WITH d AS (DELETE FROM tidings.lineage WHERE node <> 'main' RETURNING 1) SELECT count(*) FROM d`)
	if _, err := tryServing(t, url, dir); tidings.ErrorCode(err) != tidings.Unavailable || !strings.Contains(err.Error(), "does not have event") {
		t.Errorf("a process begins with the witness: %v", err)
	}
	if n := onDatabase[int64](t, url, `SELECT count(*) FROM tidings.event WHERE seq > 2`); n != 0 {
		t.Errorf("%d events were appended", n)
	}
	p.watched()
	p.refuses("")
	pool, err := pgxpool.New(ctx, url)
	must(t, err)
	defer pool.Close()
	if lost, compared, err := store.New(pool).Lost(ctx, dir, nil); err != nil || !compared || !strings.Contains(strings.Join(lost, "; "), "which was acknowledged") {
		t.Errorf("that nothing was lost is believed: %q, %t, %v", lost, compared, err)
	}

	generation := recovered(t, url, store.RecoverOptions{})
	p.servesAgain()
	if generation <= epoch || p.memory.Breaks() != 1 {
		t.Errorf("generation %d after epoch %d, %d breaks", generation, epoch, p.memory.Breaks())
	}
	if a := p.said("c", "again"); a.Seq >= lastSeq {
		t.Errorf("after the recovery %+v", a)
	}
	idle.servesAgain()
	serving(t, url, dir)

	// The older copy once more, with a generation that was left behind.
	must(t, server.PutBack(ctx, "copy"))
	onDatabase[string](t, url, `SELECT pg_logical_emit_message(false, 'test', repeat('x', 5000000))::text`)
	p.refuses("recorded before the one that was served")
	recovered(t, url, store.RecoverOptions{Lossless: true})
	p.refuses("recorded before the one that was served")
	if again := recovered(t, url, store.RecoverOptions{}); again <= generation {
		t.Errorf("generation %d after %d", again, generation)
	}
	p.servesAgain()
}

// failover makes two servers, a primary and its standby, and the URL that leads to whichever takes writes, as an ordinary role.
func failover(t *testing.T) (primary, standby *localpg.Server, super, plain string) {
	t.Helper()
	primary = cluster(t, localpg.Options{})
	conn, err := pgx.Connect(t.Context(), primary.URL("postgres"))
	must(t, err)
	_, err = conn.Exec(t.Context(), `CREATE ROLE ordinary LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA tidings TO ordinary;
		GRANT ALL ON ALL TABLES IN SCHEMA tidings TO ordinary; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidings TO ordinary`)
	must(t, err)
	must(t, conn.Close(t.Context()))
	standby, err = localpg.Standby(t.Context(), primary, localpg.Options{})
	must(t, err)
	stopLater(t, standby)
	u, err := url.Parse(primary.URL("postgres"))
	must(t, err)
	u.Host = primary.Addr() + "," + standby.Addr()
	u.RawQuery = "sslmode=disable&target_session_attrs=read-write"
	super = u.String()
	u.User = url.UserPassword("ordinary", "secret")
	return primary, standby, super, u.String()
}

func TestPromotions(t *testing.T) {
	t.Parallel()
	for _, lossy := range []bool{true, false} {
		t.Run(map[bool]string{true: "lossy", false: "lossless"}[lossy], func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			primary, standby, super, plain := failover(t)
			// One may read the timeline's history, the other has to look up what it remembers.
			p, q := serving(t, super, ""), serving(t, plain, "")
			for _, x := range []*process{p, q} {
				x.watched()
			}
			p.conversation("c")
			p.conversation("d")
			q.conversation("e")
			must(t, standby.CatchUp(ctx, primary))
			must(t, standby.StopReceiving(ctx))
			if lossy { // in the last moment, of which no look at the position knows
				p.said("c", "lost")
				q.said("d", "lost")
			}
			must(t, primary.StopImmediate(ctx))
			must(t, standby.Promote(ctx))
			epoch := onDatabase[int64](t, standby.URL("postgres"), `SELECT generation FROM tidings.lineage WHERE node = 'main'`)
			if lossy {
				p.refuses("")
				q.refuses("")
				recovered(t, standby.URL("postgres"), store.RecoverOptions{})
			}
			p.servesAgain()
			q.servesAgain()
			if a, b := p.said("c", "after"), q.said("d", "after"); a.Seq != 2 || b.Seq != 2 || a.Epoch != b.Epoch || (a.Epoch == epoch) == lossy {
				t.Errorf("after the promotion %+v, %+v; the epoch was %d", a, b, epoch)
			}
			if got := onDatabase[int64](t, standby.URL("postgres"), `SELECT timeline FROM tidings.lineage WHERE node = 'main'`); got != 2 {
				t.Errorf("timeline %d is recorded", got)
			}
			if p.memory.Breaks() > 1 {
				t.Errorf("%d breaks", p.memory.Breaks())
			}
			t.Logf("breaks: %d, %d", p.memory.Breaks(), q.memory.Breaks())
		})
	}
}

func TestRestoreToAPointInTime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := cluster(t, localpg.Options{Archive: true})
	url := server.URL("postgres")
	p := serving(t, url, "")
	p.watched()
	p.conversation("c")
	must(t, server.Backup(ctx, "backup"))
	p.said("c", "kept")
	onDatabase[string](t, url, `SELECT pg_catalog.pg_create_restore_point('here')::text`)
	p.said("c", "lost")
	for range 2 {
		must(t, server.RestoreTo(ctx, "backup", map[string]string{"recovery_target_name": "here", "recovery_target_timeline": "1"}))
		p.refuses("")
		generation := recovered(t, url, store.RecoverOptions{})
		p.servesAgain()
		if a := p.said("c", "again"); a.Epoch != generation || a.Seq != 3 {
			t.Errorf("after the recovery %+v, generation %d", a, generation)
		}
	}
}

// A dump is restored in place while sessions live on: between that and the next look nothing is appended.
func TestRestoredInPlace(t *testing.T) {
	t.Parallel()
	server := cluster(t, localpg.Options{})
	url := server.URL("postgres")
	p := serving(t, url, "") // it does not watch, so that the sessions are all there is
	p.conversation("c")
	epoch := p.said("c", "dumped").Epoch
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(filepath.Join(server.Binaries().Dir, name), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	file := filepath.Join(t.TempDir(), "dump")
	run("pg_dump", "--format=custom", "--file="+file, "--dbname="+url)
	p.said("c", "lost")
	// Sessions that have prepared everything.
	live := make([]*pgxpool.Conn, 3)
	for i := range live {
		var err error
		live[i], err = p.pool.Acquire(t.Context())
		must(t, err)
	}
	for _, c := range live {
		c.Release()
	}
	for i := range 6 {
		p.said("c", []string{"l0", "l1", "l2", "l3", "l4", "l5"}[i])
	}
	for name, do := range map[string]func() error{
		"send":   func() error { _, err := p.say("c", "n"); return err },
		"create": func() error { _, err := p.CreateConversation(t.Context(), store.Conversation{Conv: "d"}); return err },
		"join":   func() error { _, err := p.Join(t.Context(), "c", "ben", ""); return err },
		"leave":  func() error { _, err := p.Leave(t.Context(), "c", "ana", ""); return err },
		"outcome": func() error {
			_, err := p.Outcome(t.Context(), "absent", "ana", "l5")
			return err
		},
		"claim":  func() error { _, err := p.Claim(t.Context(), push, 1, claimID(), nil); return err },
		"finish": func() error { _, err := p.Finish(t.Context(), []store.Finish{{}}); return err },
	} {
		run("pg_restore", "--clean", "--if-exists", "--exit-on-error", "--dbname="+url, file)
		if err := do(); tidings.ErrorCode(err) != tidings.Unavailable {
			t.Errorf("%s on the restored log: %v", name, err)
		}
		p.refuses("object ids")
		if n := onDatabase[int64](t, url, `SELECT count(*) + (SELECT count(*) FROM tidings.conversation) FROM tidings.event`); n != 3 {
			t.Errorf("after %s there are %d rows", name, n)
		}
		if g := recovered(t, url, store.RecoverOptions{}); g <= epoch {
			t.Errorf("generation %d", g)
		}
		p.servesAgain()
		p.said("c", "served")
	}
}
