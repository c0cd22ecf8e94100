// The scene of the checks of notifications: a database and the doubles.

package lab_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/outbox"
)

const (
	push  = channeltest.ModePush
	sms   = channeltest.ModeSMS
	plain = channeltest.ModePlain

	soon = 20 * time.Second // for what happens at once on an idle machine
)

// scene is where a check of the notifications plays: a database of its own and the doubles, both in reach of this process
// and of workers in others.
type scene struct {
	*lab.T
	ctx     context.Context
	pool    *pgxpool.Pool
	doubles *channeltest.Server
}

// newScene makes a scene whose database refuses every change of state that the state machine does not have.
func newScene(t *lab.T) *scene { return stage(t, pgtest.New(t)) }

// newNaiveScene makes a scene for a control: its database has no such trigger, as one in production.
func newNaiveScene(t *lab.T) *scene { return stage(t, pgtest.NewPlain(t)) }

func stage(t *lab.T, pool *pgxpool.Pool) *scene {
	t.Helper()
	doubles, err := channeltest.Start(channeltest.Options{})
	t.Must("start the doubles", err)
	t.Cleanup(func() {
		if err := doubles.Close(); err != nil {
			t.Errorf("stop the doubles: %v", err)
		}
	})
	s := &scene{T: t, ctx: t.Context(), pool: pool, doubles: doubles}
	t.Version("postgresql", one[string](s, "SHOW server_version"))
	return s
}

// url is the database's, for other processes.
func (s *scene) url() string { return s.pool.Config().ConnString() }

// one reads one value from the database.
func one[V any](s *scene, sql string, args ...any) (v V) {
	s.Helper()
	s.Must("ask the database", s.pool.QueryRow(s.ctx, sql, args...).Scan(&v))
	return v
}

// exec changes the database and returns how many rows it changed.
func (s *scene) exec(sql string, args ...any) int {
	s.Helper()
	tag, err := s.pool.Exec(s.ctx, sql, args...)
	s.Must("change the database", err)
	return int(tag.RowsAffected())
}

// subscribe gives a user an address on each of the channels, enabled.
func (s *scene) subscribe(user string, channels ...string) {
	s.Helper()
	for _, c := range channels {
		s.exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (tidings.bucket_of($1), $1, $2, $2 || ':' || $1)`, user, c)
	}
}

// disable switches a user's channel off.
func (s *scene) disable(user, channel string) {
	s.Helper()
	s.Equal("preferences switched off", 1, s.exec(`UPDATE tidings.channel_pref SET enabled = false, version = version + 1
		WHERE user_id = $1 AND channel = $2 AND bucket = tidings.bucket_of($1)`, user, channel))
}

// notification is what most checks submit. options change it.
func notification(user, event string, options ...func(*tidings.Notification)) tidings.Notification {
	n := tidings.Notification{User: user, EventKey: event, Title: "Order", Body: "Your order " + event + " has been shipped.", TTL: tidings.Seconds(time.Hour)}
	for _, o := range options {
		o(&n)
	}
	return n
}

func attempts(n int) func(*tidings.Notification) {
	return func(x *tidings.Notification) { x.MaxAttempts = n }
}

func ttl(d time.Duration) func(*tidings.Notification) {
	return func(x *tidings.Notification) { x.TTL = tidings.Seconds(d) }
}

// notify submits a notification and expects that it is created.
func (s *scene) notify(user, event string, options ...func(*tidings.Notification)) tidings.Notified {
	s.Helper()
	answers, err := outbox.Notify(s.ctx, s.pool, notification(user, event, options...))
	s.Must("submit a notification", err)
	if !answers[0].Created {
		s.Fatalf("submit %s for %s: it existed already", event, user)
	}
	return answers[0]
}

// tell is notify for a new user who has the one channel; it returns the task.
func (s *scene) tell(user, channel string, options ...func(*tidings.Notification)) tidings.UUID {
	s.Helper()
	s.subscribe(user, channel)
	return s.task(s.notify(user, user+"-shipped", options...), channel)
}

// both submits a notification for a new user who has push and sms.
func (s *scene) both(user string, options ...func(*tidings.Notification)) tidings.Notified {
	s.Helper()
	s.subscribe(user, push, sms)
	return s.notify(user, user+"-shipped", options...)
}

// task finds a notification's task on a channel.
func (s *scene) task(n tidings.Notified, channel string) tidings.UUID {
	s.Helper()
	return one[tidings.UUID](s, `SELECT id FROM tidings.task WHERE notification_id = $1 AND bucket = get_byte(uuid_send($1), 0) AND channel = $2`, n.ID, channel)
}

// row is a task as far as checks look at it.
type row struct {
	State       tidings.State
	Review      bool // waits for a person
	InDoubt     bool
	Scheduled   bool // has a time for its next attempt
	Token       *tidings.UUID
	Attempts    int
	Budget      int
	Owner       string
	ProviderID  string
	FirstCallAt *time.Time
}

// where is what stands in the database about a task.
func (s *scene) where(task tidings.UUID) row {
	s.Helper()
	rows, err := s.pool.Query(s.ctx, `SELECT state, needs_review, outcome_uncertain, next_attempt_at IS NOT NULL, attempt_token, attempt_count,
		budget_left, coalesce(lease_owner, ''), coalesce(provider_msg_id, ''), first_call_at FROM tidings.task WHERE id = $1`, task)
	s.Must("read a task", err)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	s.Must("read a task", err)
	return r
}

// state records in which state a task is expected and observed.
func (s *scene) state(what string, want tidings.State, task tidings.UUID) bool {
	s.Helper()
	return s.Equal(what+": state", want, s.where(task).State)
}

// parked records that a task waits for a person and for nothing else.
func (s *scene) parked(what string, task tidings.UUID) {
	s.Helper()
	r := s.where(task)
	s.Equal(what+": state", tidings.Unknown, r.State)
	s.Equal(what+": waits for a person", true, r.Review)
	s.Equal(what+": scheduled", false, r.Scheduled)
}

// entry is a row of the journal.
type entry struct {
	Token   *tidings.UUID // nil where no call was made
	Action  tidings.Action
	Worker  string
	Outcome *tidings.Outcome
	Late    *tidings.Outcome
	Started time.Time
	Ended   *time.Time
}

// entries are the journal of a task, in order.
func (s *scene) entries(task tidings.UUID) []entry {
	s.Helper()
	rows, err := s.pool.Query(s.ctx, `SELECT token, action, worker, outcome, late_outcome, started_at, finished_at FROM tidings.attempt WHERE task_id = $1 ORDER BY n`, task)
	s.Must("read the journal", err)
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	s.Must("read the journal", err)
	return entries
}

// open stands in a journal for an attempt that has no outcome yet.
const open tidings.Outcome = "…"

// journal are the outcomes of a task's attempts, in order.
func (s *scene) journal(task tidings.UUID) []tidings.Outcome {
	s.Helper()
	var outcomes []tidings.Outcome
	for _, e := range s.entries(task) {
		if e.Outcome == nil {
			outcomes = append(outcomes, open)
		} else {
			outcomes = append(outcomes, *e.Outcome)
		}
	}
	return outcomes
}

// actions are what a task's attempts did, in order.
func (s *scene) actions(task tidings.UUID) []tidings.Action {
	s.Helper()
	var actions []tidings.Action
	for _, e := range s.entries(task) {
		actions = append(actions, e.Action)
	}
	return actions
}

// sends are the external sends of a task: how many messages the double has sent to the user.
func (s *scene) sends(task tidings.UUID) int64 { s.Helper(); return s.counts(task).Sends }

// counts are what reached the doubles about a task.
func (s *scene) counts(task tidings.UUID) channeltest.Counts {
	s.Helper()
	c, err := s.doubles.Counts("", task.Key())
	s.Must("ask the doubles", err)
	return c
}

// log are the requests that reached the doubles about a task.
func (s *scene) log(task tidings.UUID) []channeltest.Entry {
	s.Helper()
	log, err := s.doubles.Log("", task.Key(), 0)
	s.Must("ask the doubles", err)
	return log
}

// script says what a channel's double does with the next sends.
func (s *scene) script(mode string, steps ...channeltest.Step) {
	s.Helper()
	s.Must("direct the doubles", s.doubles.Next(mode, steps...))
}

// scriptQuery says what the sms double does with the next queries.
func (s *scene) scriptQuery(steps ...channeltest.Step) {
	s.Helper()
	s.Must("direct the doubles", s.doubles.NextQuery(steps...))
}

var (
	hang    = channeltest.Step{Do: channeltest.DoHang} // accepted, never answered
	late    = channeltest.Step{Do: channeltest.DoAccept, DelayMS: 1200}
	refused = func(status int) channeltest.Step {
		return channeltest.Step{Do: channeltest.DoRefuse, Status: status}
	}
)

// unanswered is the receipt of an answer that did not come in time: the double has accepted the task's message, and its
// first attempt ended without knowing.
func (s *scene) unanswered(task tidings.UUID) fault.Receipt {
	s.Helper()
	proof := ""
	log, journal := s.log(task), s.entries(task)
	if len(log) > 0 && log[0].Accepted && len(journal) > 0 && journal[0].Outcome != nil && *journal[0].Outcome == tidings.Timeout {
		proof = fmt.Sprintf("accepted as request %d of the log; the attempt ended as TIMEOUT after %v", log[0].N, journal[0].Ended.Sub(journal[0].Started))
	}
	return fault.New("answer withheld", "the double of the first attempt", proof)
}

// refusals is the receipt of statuses that a double answered before acceptance.
func (s *scene) refusals(what string, task tidings.UUID) fault.Receipt {
	s.Helper()
	n := 0
	for _, e := range s.log(task) {
		if e.Do == channeltest.DoRefuse && !e.Accepted {
			n++
		}
	}
	proof := ""
	if n > 0 {
		proof = fmt.Sprintf("%d requests of the log were refused, none of them accepted", n)
	}
	return fault.New(what, "the double", proof)
}
