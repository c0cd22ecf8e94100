// The checks 33-N1, 33-tx-enqueue, 33-payload-differs.

package lab_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-N1",
		Expect: "16 submissions of one key at once, with the first committed, rolled back or invisible to a snapshot: one notification, " +
			"one created=true, two tasks for the two enabled channels of three",
		Run: submittedAtOnce,
	})
	lab.Register(lab.Check{
		ID:     "33-tx-enqueue",
		Expect: "after a rollback nothing, after a commit the notification beside the caller's own row; a duplicate does not abort the transaction",
		Run:    enqueueInTransaction,
	})
	lab.Register(lab.Check{
		ID:     "33-payload-differs",
		Expect: "a second submission with another title, body, data, category or source: not created, says that it differs; the first content stands and leaves",
		Run:    payloadDiffers,
	})
}

const submissions = 16 // as many as the pool has connections

// submitted records that there is one notification under the event with two tasks, created once.
func (s *scene) submitted(event string, created int64) {
	s.Helper()
	s.Equal(event+": notifications", 1, one[int](s, `SELECT count(*) FROM tidings.notification WHERE event_key = $1`, event))
	s.Equal(event+": submissions that were told created", 1, created)
	s.Equal(event+": channels with a task", []string{push, sms}, one[[]string](s,
		`SELECT array_agg(t.channel ORDER BY t.channel) FROM tidings.task t JOIN tidings.notification n ON n.id = t.notification_id WHERE n.event_key = $1`, event))
}

// submitBeside submits the event 15 times at once beside a transaction that has submitted it and not ended, waits until all
// 15 wait for it, ends it, and returns how many of the 15 were told created.
func (s *scene) submitBeside(user, event string, end func(pgx.Tx) error) int64 {
	s.Helper()
	first, err := s.pool.Begin(s.ctx)
	s.Must("begin the first transaction", err)
	defer first.Rollback(s.ctx)
	answers, err := outbox.Notify(s.ctx, first, notification(user, event))
	s.Must("submit first", err)
	s.True(event+": the first is told created", answers[0].Created)

	var created atomic.Int64
	ended := make(chan error, 1)
	go func() { // reads one value, received below
		ended <- s.afterWaiting(first, end)
	}()
	s.Together(event, submissions-1, func(int) {
		answers, err := outbox.Notify(s.ctx, s.pool, notification(user, event))
		if err != nil {
			s.Errorf("submit beside: %v", err)
		} else if answers[0].Created {
			created.Add(1)
		}
	})
	s.Must("end the first transaction", <-ended)
	return created.Load()
}

// afterWaiting ends tx when all other submissions wait for it.
func (s *scene) afterWaiting(tx pgx.Tx, end func(pgx.Tx) error) error {
	for {
		var waiting int
		// Through the transaction's own connection: the others take all the rest of the pool.
		if err := tx.QueryRow(s.ctx, `SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'
			AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`).Scan(&waiting); err != nil {
			return fmt.Errorf("count who waits: %w", err)
		}
		if waiting == submissions-1 {
			return end(tx)
		}
	}
}

func submittedAtOnce(t *lab.T) {
	s := newScene(t)
	s.subscribe("ana", push, sms, plain)
	s.disable("ana", plain)

	var created, tasks atomic.Int64
	s.Together("submissions", submissions, func(int) {
		answers, err := outbox.Notify(s.ctx, s.pool, notification("ana", "ord-1001-shipped"))
		if err != nil {
			s.Errorf("submit: %v", err)
			return
		}
		if answers[0].Created {
			created.Add(1)
		}
		tasks.Add(int64(answers[0].Tasks))
	})
	s.submitted("ord-1001-shipped", created.Load())
	s.Equal("tasks in all answers", 2*submissions, tasks.Load())

	s.submitted("first-commits", 1+s.submitBeside("ana", "first-commits", func(tx pgx.Tx) error { return tx.Commit(s.ctx) }))
	s.submitted("first-rolls-back", s.submitBeside("ana", "first-rolls-back", func(tx pgx.Tx) error { return tx.Rollback(s.ctx) }))

	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		s.submitInSnapshots(level)
	}
}

// submitInSnapshots submits one key from transactions whose snapshots are older than all of the submissions. Under SERIALIZABLE
// PostgreSQL may abort any transaction for what others have read: such a one is repeated, as its application would have to.
func (s *scene) submitInSnapshots(level pgx.TxIsoLevel) {
	s.Helper()
	event := map[pgx.TxIsoLevel]string{pgx.RepeatableRead: "repeatable-read", pgx.Serializable: "serializable"}[level]
	begin := func() (pgx.Tx, error) {
		tx, err := s.pool.BeginTx(s.ctx, pgx.TxOptions{IsoLevel: level})
		if err == nil {
			_, err = tx.Exec(s.ctx, `SELECT FROM tidings.installation`)
		}
		return tx, err
	}
	txs := make([]pgx.Tx, submissions)
	for i := range txs {
		tx, err := begin()
		s.Must("take a snapshot", err)
		defer tx.Rollback(s.ctx)
		txs[i] = tx
	}
	var created, unseen, seen, committed atomic.Int64
	submit := func(tx pgx.Tx) error {
		answers, err := outbox.Notify(s.ctx, tx, notification("ana", event))
		if err == nil {
			err = tx.Commit(s.ctx)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(s.ctx))
		}
		switch {
		case answers[0].Created:
			created.Add(1)
		case answers[0].ID.IsZero():
			unseen.Add(1)
		default:
			seen.Add(1)
		}
		committed.Add(1)
		return nil
	}
	s.Together(event, len(txs), func(i int) {
		err := submit(txs[i])
		for tries := 0; level == pgx.Serializable && aborted(err) && tries < submissions; tries++ {
			var again pgx.Tx
			if again, err = begin(); err == nil {
				err = submit(again)
			}
		}
		if err != nil {
			s.Errorf("submit in a snapshot: %v", err)
		}
	})
	s.submitted(event, created.Load())
	if level == pgx.RepeatableRead {
		s.Equal(event+": duplicates of an original that the snapshot cannot see", submissions-1, unseen.Load())
	} else {
		s.Equal(event+": duplicates, of an original that the snapshot cannot see or that it can", submissions-1, unseen.Load()+seen.Load())
	}
	s.Equal(event+": transactions that could commit", submissions, committed.Load())
}

// aborted tells whether PostgreSQL has aborted a transaction that could not be serialized.
func aborted(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "40001"
}

func enqueueInTransaction(t *lab.T) {
	s := newScene(t)
	s.subscribe("ana", push, sms)
	s.exec(`CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL)`)
	ship := func(order string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			if _, err := tx.Exec(s.ctx, `INSERT INTO orders VALUES ($1, 'shipped')`, order); err != nil {
				return err
			}
			answers, err := outbox.Notify(s.ctx, tx, notification("ana", order))
			if err == nil && !answers[0].Created {
				err = errors.New("it existed already")
			}
			return err
		}
	}
	stored := func(order string) []int {
		return []int{one[int](s, `SELECT count(*) FROM orders WHERE id = $1`, order),
			one[int](s, `SELECT count(*) FROM tidings.notification WHERE event_key = $1`, order),
			one[int](s, `SELECT count(*) FROM tidings.task t JOIN tidings.notification n ON n.id = t.notification_id WHERE n.event_key = $1`, order)}
	}
	cancelled := errors.New("the order was cancelled")
	err := pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error { return errors.Join(ship("ord-1")(tx), cancelled) })
	s.Equal("why the first transaction rolled back", cancelled.Error(), err.Error())
	s.Must("commit the second", pgx.BeginFunc(s.ctx, s.pool, ship("ord-2")))

	s.Equal("rolled back: orders, notifications, tasks", []int{0, 0, 0}, stored("ord-1"))
	s.Equal("committed: orders, notifications, tasks", []int{1, 1, 2}, stored("ord-2"))
	s.Examined("notifications that could have been left behind", one[int](s, `SELECT count(*) FROM tidings.notification`))

	w := s.worker("w", patient(push, sms)...)
	s.Equal("tasks that a worker finds", 2, s.once(w))
	total, err := s.doubles.Counts("", "")
	s.Must("ask the doubles", err)
	s.Equal("external sends, all of the committed one", 2, total.Sends)

	s.Must("commit a duplicate", pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
		answers, err := outbox.Notify(s.ctx, tx, notification("ana", "ord-2"))
		if err == nil {
			s.Equal("a duplicate is created", false, answers[0].Created)
			_, err = tx.Exec(s.ctx, `INSERT INTO orders VALUES ('ord-3', 'shipped')`)
		}
		return err
	}))
	s.Equal("the caller's row beside a duplicate", []int{1, 0, 0}, stored("ord-3"))

	// The same rule from any other language.
	s.Equal("notify_v1 creates", true, one[bool](s, `SELECT (tidings.notify_v1('{"user":"ana","event_key":"ord-4","body":"x","ttl_s":60}') -> 0 ->> 'created')::bool`))
	s.Equal("notify_v1: orders, notifications, tasks", []int{0, 1, 2}, stored("ord-4"))
}

func payloadDiffers(t *lab.T) {
	s := newScene(t)
	s.subscribe("ana", push)
	s.subscribe("ben", push)
	first := notification("ana", "ord-1001-shipped")
	first.Data, first.Category = []byte(`{"order":1001}`), "orders"
	submit := func(n tidings.Notification) tidings.Notified {
		s.Helper()
		answers, err := outbox.Notify(s.ctx, s.pool, n)
		s.Must("submit", err)
		return answers[0]
	}
	original := submit(first)
	s.True("the first is created", original.Created)
	s.Equal("the same again", tidings.Notified{ID: original.ID, Tasks: 1}, submit(first))
	spaced := first
	spaced.Data = []byte(`{ "order" : 1001 }`)
	s.Equal("the same data in other bytes", tidings.Notified{ID: original.ID, Tasks: 1}, submit(spaced))

	differs := tidings.Notified{ID: original.ID, Tasks: 1, PayloadDiffers: true}
	for what, change := range map[string]func(*tidings.Notification){
		"title":    func(n *tidings.Notification) { n.Title = "Parcel" },
		"body":     func(n *tidings.Notification) { n.Body += "!" },
		"moved":    func(n *tidings.Notification) { n.Title, n.Body = n.Title+n.Body[:1], n.Body[1:] },
		"data":     func(n *tidings.Notification) { n.Data = []byte(`{"order":1002}`) },
		"no data":  func(n *tidings.Notification) { n.Data = nil },
		"category": func(n *tidings.Notification) { n.Category = "parcels" },
		"source":   func(n *tidings.Notification) { n.About = &tidings.About{Conv: "c-1", Seq: 7} },
	} {
		other := first
		change(&other)
		s.Equal("another "+what, differs, submit(other))
	}
	s.Equal("notifications", 1, one[int](s, `SELECT count(*) FROM tidings.notification`))

	// Two contents for one key at once: one stands, the other is told.
	var created, differ atomic.Int64
	s.Together("submissions with two contents", submissions, func(i int) {
		n := notification("ben", "ord-2002-shipped")
		n.Body = []string{"left the house", "is on its way"}[i%2]
		answers, err := outbox.Notify(s.ctx, s.pool, n)
		switch {
		case err != nil:
			s.Errorf("submit: %v", err)
		case answers[0].Created:
			created.Add(1)
		case answers[0].PayloadDiffers:
			differ.Add(1)
		}
	})
	s.Equal("created", 1, created.Load())
	s.Equal("told that theirs differs", submissions/2, differ.Load())

	// What leaves is the first content.
	task := s.task(original, push)
	var sent []string // of the one task, so written once
	s.once(s.worker("w", s.tap(func(m channel.Message) {
		if m.Key == task.Key() {
			sent = append(sent, m.Title, m.Body)
		}
	}, nil)))
	s.Equal("what leaves is the first content", true, slices.Equal(sent, []string{first.Title, first.Body}))
	s.Equal("external sends", 1, s.sends(task))
}
