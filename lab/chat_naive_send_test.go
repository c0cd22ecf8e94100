// The checks 04-control-sequence-gaps, 04-control-no-unique-key, 06-control-sent-before-commit.

package lab_test

import (
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/pgproxy"
	"github.com/tidings-project/tidings/outbox"
)

// Each control sends without one protection of the product and shows what it is there for. What is naive stands here.

func init() {
	lab.Register(lab.Check{
		ID:     "04-control-sequence-gaps",
		Expect: "with a sequence of PostgreSQL as seq, a message that is rolled back leaves a hole before the next one; with the row's counter there is none",
		Run:    numberBySequence,
	})
	lab.Register(lab.Check{
		ID:     "04-control-no-unique-key",
		Expect: "two senders that look before they lock: without the unique index both store the message, 2 rows under one cmid; with it the second is aborted, 1 row",
		Run:    lookBeforeLock,
	})
	lab.Register(lab.Check{
		ID:     "06-control-sent-before-commit",
		Expect: "a reply before COMMIT, whose connection is cut before the database sees it: one confirmed message, no row",
		Run:    replyBeforeCommit,
	})
}

var errRolledBack = errors.New("rolled back")

// three sends three messages by send, each in a transaction, of which the second is rolled back, and returns where the others are.
func (c *chat) three(conv string, send func(tx pgx.Tx, cmid string) error) (seqs []int64) {
	c.Helper()
	for _, cmid := range []string{"m-1", "m-2", "m-3"} {
		err := pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) error {
			err := send(tx, cmid)
			if err == nil && cmid == "m-2" {
				err = errRolledBack
			}
			return err
		})
		if err != nil && !errors.Is(err, errRolledBack) {
			c.Fatalf("send %s: %v", cmid, err)
		}
	}
	for _, e := range c.log(conv) {
		seqs = append(seqs, e.seq)
	}
	return seqs
}

func numberBySequence(t *lab.T) {
	c := newChat(t)
	c.bare("c-product", "ana")
	c.bare("c-naive", "ana")
	c.exec(`CREATE SEQUENCE naive_seq START 2`)
	product := c.three("c-product", func(tx pgx.Tx, cmid string) error {
		_, err := outbox.Post(c.ctx, tx, tidings.Message{Conv: "c-product", Sender: "ana", Cmid: cmid, Body: "hello"})
		return err
	})
	naive := c.three("c-naive", func(tx pgx.Tx, cmid string) error {
		_, err := tx.Exec(c.ctx, `WITH n AS (UPDATE tidings.conversation SET next_seq = nextval('naive_seq') + 1 WHERE conv_id = $1 RETURNING next_seq - 1 AS seq)
			INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body) SELECT $1, n.seq, 'msg', gen_random_uuid(), 'ana', $2, 'hello' FROM n`, "c-naive", cmid)
		return err
	})
	c.Equal("seqs by the row's counter", []int64{1, 2, 3}, product)
	c.Exposed("seqs by a sequence", product, naive)
	_, broken := c.contiguous()
	c.Exposed("logs that break R2", 0, broken)
}

// sendNaively looks whether the message is there, waits until everybody has looked, then locks, numbers and writes it.
func (c *chat) sendNaively(conv, cmid string, looked *sync.WaitGroup) error {
	return pgx.BeginFunc(c.ctx, c.pool, func(tx pgx.Tx) error {
		var known bool
		err := tx.QueryRow(c.ctx, `SELECT EXISTS (SELECT FROM tidings.event WHERE conv_id = $1 AND sender_user = 'ana' AND cmid = $2)`, conv, cmid).Scan(&known)
		looked.Done()
		if err != nil || known {
			return err
		}
		looked.Wait()
		var seq int64
		err = tx.QueryRow(c.ctx, `UPDATE tidings.conversation SET next_seq = next_seq + 1 WHERE conv_id = $1 RETURNING next_seq - 1`, conv).Scan(&seq)
		if err == nil {
			_, err = tx.Exec(c.ctx, `INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
				VALUES ($1, $2, 'msg', gen_random_uuid(), 'ana', $3, 'hello')`, conv, seq, cmid)
		}
		return err
	})
}

func lookBeforeLock(t *lab.T) {
	c := newChat(t)
	c.bare("c-1", "ana")
	replay := func(cmid string) (aborted int) {
		c.Helper()
		var looked sync.WaitGroup
		looked.Add(2)
		ends := make([]error, 2)
		c.Together("replays of "+cmid, len(ends), func(i int) { ends[i] = c.sendNaively("c-1", cmid, &looked) })
		for _, err := range ends {
			var pg *pgconn.PgError
			if errors.As(err, &pg) && pg.ConstraintName == "event_cmid" {
				aborted++
			} else {
				c.Must("send", err)
			}
		}
		return aborted
	}
	c.Equal("with the index: replays that were aborted", 1, replay("m-1"))
	guarded := len(c.seqs("c-1", "ana", "m-1"))
	c.Equal("with the index: rows", 1, guarded)
	c.exec(`DROP INDEX tidings.event_cmid`)
	c.Equal("without it: replays that were aborted", 0, replay("m-2"))
	c.Exposed("without it: rows under one cmid", guarded, len(c.seqs("c-1", "ana", "m-2")))
}

func replyBeforeCommit(t *lab.T) {
	c := newChat(t)
	c.bare("c-1", "ana")
	way := c.proxy()
	conn, err := pgx.Connect(c.ctx, way.URL())
	c.Must("connect", err)
	defer conn.Close(c.ctx)
	cut := way.Arm(pgproxy.Rule{What: "COMMIT", Match: pgproxy.Commit, When: pgproxy.Before, Do: pgproxy.Cut})

	tx, err := conn.Begin(c.ctx)
	c.Must("begin", err)
	answers, err := outbox.Post(c.ctx, tx, tidings.Message{Conv: "c-1", Sender: "ana", Cmid: "m-1", Body: "hello"})
	c.Must("append", err)
	confirmed := []int64{answers[0].Seq} // the naive gateway replies here
	var known []int64                    // and the careful one below
	if err := tx.Commit(c.ctx); err == nil {
		known = append(known, answers[0].Seq)
	}
	c.Fault(cut.Wait(soon))
	stored := c.seqs("c-1", "ana", "m-1")
	c.Equal("confirmed by who waits for the answer to COMMIT, and stored", [][]int64{nil, nil}, [][]int64{known, stored})
	c.Exposed("confirmed before COMMIT, against what is stored", stored, confirmed)
}
