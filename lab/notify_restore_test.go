// The checks 33-restore-key-unique, 33-control-key-by-number, 33-restore-uncertain.

package lab_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-restore-key-unique",
		Expect: "after a restore the notifications of the lost time, submitted again, use their old keys and push replays them: [ACCEPTED_REPLAY], 1 external send; " +
			"others use none of the old keys, and a query for one does not find another's message",
		Run: keysAfterRestore,
	})
	lab.Register(lab.Check{
		ID:     "33-control-key-by-number",
		Expect: "with task numbers as keys a new notification is answered as a replay, or found by query, and is never sent",
		Run:    keysByNumber,
	})
	lab.Register(lab.Check{
		ID:    "33-restore-uncertain",
		Level: lab.ChannelDouble,
		Expect: "after restore and recover what was SENDING, or due as PENDING or UNKNOWN, is UNKNOWN and in doubt; what was not due, parked or final is as it was; " +
			"workers then ask or replay or park, and nothing is sent twice; a connected chat client beside has the log of the restored database and was told of its lost message",
		Run: recovered,
	})
}

// backup dumps the scene's database and returns the file.
func (s *scene) backup() string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "backup")
	s.postgres("pg_dump", "--format=custom", "--file="+file, "--dbname="+s.url())
	return file
}

// restore plays the backup into another database and returns the scene after the disaster: that database, and the same
// doubles, which remember everything.
func (s *scene) restore(file string) *scene {
	s.Helper()
	url := pgtest.NewEmptyURL(s)
	s.postgres("pg_restore", "--exit-on-error", "--dbname="+url, file)
	pool, err := pgxpool.New(context.WithoutCancel(s.ctx), url)
	s.Must("open the restored database", err)
	s.Cleanup(pool.Close)
	after := *s
	after.pool = pool
	return &after
}

// postgres runs a program of the PostgreSQL installation.
func (s *scene) postgres(name string, args ...string) {
	s.Helper()
	bin, err := localpg.Find()
	s.Must("find PostgreSQL", err)
	if out, err := exec.Command(filepath.Join(bin.Dir, name), args...).CombinedOutput(); err != nil {
		s.Fatalf("run %s: %v: %s", name, err, out)
	}
}

// keys are the keys of all requests that reached a double.
func (s *scene) keys(mode string) map[string]bool {
	s.Helper()
	log, err := s.doubles.Log(mode, "", 0)
	s.Must("ask the doubles", err)
	keys := map[string]bool{}
	for _, e := range log {
		keys[e.Ref] = true
	}
	return keys
}

func keysAfterRestore(t *lab.T) {
	const n = 20
	s := newScene(t)
	s.subscribe("ana", push, sms)
	submit := func(s *scene, name string, options ...func(*tidings.Notification)) (all []tidings.Notified) {
		s.Helper()
		for i := range n {
			all = append(all, s.notify("ana", fmt.Sprintf("%s-%d", name, i), options...))
		}
		return all
	}
	drain := func(s *scene) {
		s.Helper()
		w := s.worker("w", patient(push, sms)...)
		s.Until("everything is sent", soon, func() bool {
			s.once(w)
			return one[int](s, `SELECT count(*) FROM tidings.task WHERE state <> 'SENT'`) == 0
		})
	}
	submit(s, "before")
	drain(s)
	backup := s.backup()
	var lost []tidings.UUID // on push
	for _, x := range submit(s, "lost") {
		lost = append(lost, s.task(x, push))
	}
	drain(s)
	old := map[string]map[string]bool{push: s.keys(push), sms: s.keys(sms)}
	s.Equal("keys before the restore", []int{2 * n, 2 * n}, []int{len(old[push]), len(old[sms])})

	r := s.restore(backup)
	r.tidings("recover", "--without-journal")
	r.Equal("notifications after the restore", n, one[int](r, `SELECT count(*) FROM tidings.notification`))
	others := append(submit(r, "new"), r.notify("ana", "lost-0-again"))
	r.subscribe("ben", push, sms)
	others = append(others, r.notify("ben", "lost-0")) // the same event for another user
	for i, x := range others {
		for _, channel := range []string{push, sms} {
			if old[channel][r.task(x, channel).Key()] {
				r.Errorf("another task has an old key on %s: %d", channel, i)
			}
		}
	}
	r.Examined("new tasks whose keys were looked for among the old ones", 2*len(others))
	drain(r)

	// What the provider never got is not found under the reference of a new task.
	r.script(sms, channeltest.Step{Do: channeltest.DoLose})
	r.subscribe("cleo", sms)
	unheard := r.task(r.notify("cleo", "lost-1"), sms)
	r.rounds(r.worker("hasty", hasty(sms)...), 1)
	r.rounds(r.worker("w", patient(sms)...), 2)
	r.Equal("never received: attempts", []tidings.Outcome{tidings.Timeout, tidings.QueryNotFound, tidings.Accepted}, r.journal(unheard))
	r.Equal("never received: external sends", 1, r.sends(unheard))

	// The notifications of the lost time, submitted again; the last one with another text.
	var again []tidings.UUID
	for i := range n - 1 {
		again = append(again, r.task(r.notify("ana", fmt.Sprintf("lost-%d", i)), push))
	}
	other := r.task(r.notify("ana", fmt.Sprintf("lost-%d", n-1), func(x *tidings.Notification) { x.Body = "Your order is late." }), push)
	r.True("the same notifications have the same keys", slices.Equal(again, lost[:n-1]))
	r.True("another text has another key", other != lost[n-1])
	drain(r)
	replayed := 0
	for _, task := range again {
		if journal := r.journal(task); len(journal) == 1 && journal[0] == tidings.AcceptedReplay && r.sends(task) == 1 {
			replayed++
		}
	}
	r.Equal("same notifications: [ACCEPTED_REPLAY] and 1 external send", n-1, replayed)
	r.Equal("another text: attempts", []tidings.Outcome{tidings.Accepted}, r.journal(other))
	for i, x := range others {
		task := r.task(x, push)
		if journal := r.journal(task); len(journal) != 1 || journal[0] != tidings.Accepted || r.sends(task) != 1 {
			r.Errorf("other notification %d: %v, %d external sends", i, journal, r.sends(task))
		}
	}
	r.Examined("other notifications that were sent once", len(others))
}

// keysByNumber keeps its tasks in a table of its own, numbered as it is usual, and takes the number for key and reference.
func keysByNumber(t *lab.T) {
	s := newNaiveScene(t)
	s.exec(`CREATE TABLE public.numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event text NOT NULL)`)
	number := func(s *scene, event string) channel.Message {
		s.Helper()
		id := one[int64](s, `INSERT INTO public.numbered (event) VALUES ($1) RETURNING id`, event)
		return channel.Message{Key: fmt.Sprintf("ntf-task-%d", id), Address: "ana", Body: event}
	}
	pushing, texting := channeltest.Push(s.doubles.URL(), channeltest.ChannelOptions{}), channeltest.SMS(s.doubles.URL(), channeltest.ChannelOptions{})
	t.Cleanup(pushing.Close)
	t.Cleanup(texting.Close)
	sent := func() int64 {
		c, err := s.doubles.Counts("", "")
		s.Must("ask the doubles", err)
		return c.Sends
	}

	backup := s.backup()
	s.Equal("lost-1 on push", tidings.Accepted, pushing.Send(s.ctx, number(s, "lost-1")).Code)
	s.Equal("lost-2 on sms", tidings.Accepted, texting.Send(s.ctx, number(s, "lost-2")).Code)
	s.Equal("external sends before the restore", 2, sent())

	r := s.restore(backup)
	s.Equal("tasks after the restore", 0, one[int](r, `SELECT count(*) FROM public.numbered`))
	answer := pushing.Send(r.ctx, number(r, "new-1"))
	s.Exposed("new-1 on push is answered", tidings.Accepted, answer.Code)
	// On sms the request is lost, so the next attempt asks.
	s.script(sms, channeltest.Step{Do: channeltest.DoDrop})
	second := number(r, "new-2")
	s.Equal("new-2 on sms", tidings.IOError, texting.Send(r.ctx, second).Code)
	s.Exposed("new-2 on sms, asked for", tidings.QueryNotFound, texting.Query(r.ctx, channel.Ref{Key: second.Key}).Code)
	s.Exposed("external sends of new-1 and new-2, which count as sent", 2, sent()-2)
}

func recovered(t *lab.T) {
	s := newScene(t)
	b := chatBeside(s)
	// Final and parked tasks first: workers that make them find nothing else.
	sent := s.tell("sent", push)
	s.rounds(s.worker("w", patient(push)...), 1)
	s.script(push, refused(400))
	failed := s.tell("failed", push)
	s.rounds(s.worker("w", patient(push)...), 1)
	parked := s.exhausted("parked", 1)[0]
	later := s.tell("later", push, func(x *tidings.Notification) {
		at := time.Now().Add(time.Hour)
		x.NotBefore, x.TTL = &at, tidings.Seconds(2*time.Hour)
	})
	held := s.tell("held", push)
	finish := s.holding(held, "holder")
	unknown := s.unsure("unknown", sms)
	due := map[string]tidings.UUID{push: s.tell("due-push", push), sms: s.tell("due-sms", sms), plain: s.tell("due-plain", plain)}
	backup := s.backup()
	b.say("lost")

	// The time that will be lost: all of it leaves.
	finish()
	w := s.worker("w", patient(push, sms, plain)...)
	s.Until("all is sent", soon, func() bool {
		s.once(w)
		return one[int](s, `SELECT count(*) FROM tidings.task WHERE state IN ('PENDING', 'SENDING') OR state = 'UNKNOWN' AND NOT needs_review`) == 1
	})
	s.state("later", tidings.Pending, later)

	r := s.restore(backup)
	r.Equal("tasks after the restore", 9, one[int](r, `SELECT count(*) FROM tidings.task`))
	r.Equal("due as PENDING, as UNKNOWN, SENDING", []int{3, 1, 1}, one[[]int](r, `SELECT array[count(*) FILTER (WHERE state = 'PENDING' AND next_attempt_at <= now()),
		count(*) FILTER (WHERE state = 'UNKNOWN' AND NOT needs_review), count(*) FILTER (WHERE state = 'SENDING')] FROM tidings.task`))
	untouched := []tidings.UUID{sent, failed, parked, later}
	rows := func() string {
		return one[string](r, `SELECT string_agg(t::text, chr(10) ORDER BY id) FROM tidings.task t WHERE id = ANY ($1)`, untouched)
	}
	before := rows()
	r.tidings("recover", "--without-journal")
	r.Examined("tasks of the restored database", 9)

	doubtful := map[tidings.UUID][]tidings.Outcome{
		held:       {tidings.LeaseExpired, tidings.RecoveredInDoubt},
		unknown:    {tidings.Timeout, tidings.RecoveredInDoubt},
		due[push]:  {tidings.RecoveredInDoubt},
		due[sms]:   {tidings.RecoveredInDoubt},
		due[plain]: {tidings.RecoveredInDoubt},
	}
	for task, journal := range doubtful {
		x := r.where(task)
		r.Equal("state, in doubt, waits for a person, scheduled", []any{tidings.Unknown, true, false, true}, []any{x.State, x.InDoubt, x.Review, x.Scheduled})
		r.True("no token and a first call", x.Token == nil && x.FirstCallAt != nil)
		r.Equal("attempts", journal, r.journal(task))
	}
	r.True("tasks that were not due, parked or final have not changed", rows() == before)
	b.converges(r)

	w = r.worker("w", patient(push, sms, plain)...)
	r.Until("nothing is scheduled but for later", soon, func() bool {
		r.once(w)
		return one[int](r, `SELECT count(*) FROM tidings.task WHERE state IN ('PENDING', 'SENDING') OR state = 'UNKNOWN' AND NOT needs_review`) == 1
	})
	for task, outcome := range map[tidings.UUID]tidings.Outcome{
		held: tidings.AcceptedReplay, unknown: tidings.QueryFound, due[push]: tidings.AcceptedReplay, due[sms]: tidings.QueryFound,
	} {
		r.state("recovered", tidings.Sent, task)
		r.Equal("attempts in the end", append(doubtful[task], outcome), r.journal(task))
		r.Equal("external sends", 1, r.sends(task))
	}
	r.parked("neither key nor query", due[plain])
	r.Equal("neither key nor query: external sends", 1, r.sends(due[plain]))
	r.state("later", tidings.Pending, later)
	r.Equal("later: requests", 0, r.counts(later).Requests)
}
