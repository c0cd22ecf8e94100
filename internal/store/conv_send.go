// Sends in batches.

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
)

// Busy is the answer to a message that Send has not looked at, because another transaction holds its conversation: send it again,
// with a wait. It is never shown to a client.
const Busy tidings.Code = "BUSY"

// sendSQL appends messages. The rule, the invariants R1 and R2 and the indexes it relies on stand at tidings.send_rows. It runs for
// every batch, so its parameters have numbers, which pgx need not look for, and its columns are never null.
//
// Nothing is appended to a log that has been replaced: the event table is named so that it is locked before on_log is asked, and stays
// the one that it names.
const sendSQL = `SELECT s.position, s.code, coalesce(s.seq, 0), coalesce(s.mid, '00000000-0000-0000-0000-000000000000'), coalesce(s.epoch, 0),
		coalesce(s.at, 'epoch'), s.dup
	FROM tidings.send_rows(convs => $1, places => $2, senders => $3, devices => $4, cmids => $5, bodies => $6, datas => $7, wait => $8) s
	LEFT JOIN tidings.event e ON e.conv_id = ANY ($1) AND false
	WHERE tidings.on_log($9)`

// lockTimeoutSQL bounds each wait for a lock in its transaction.
const lockTimeoutSQL = `SELECT set_config('lock_timeout', @wait_ms::text, true)`

// Send appends messages that have passed Check and answers for each, in their order. They are distinct by (Conv, Sender, Cmid);
// those of one conversation get rising seqs in the order that they have here.
//
// It is one statement in a transaction of its own, in one round trip, under its own deadline. With wait 0 it waits for nobody:
// each message of a conversation that another transaction holds is answered with the code Busy, while the others are stored. With a
// wait it waits that long for a conversation, then nothing is stored and the error is UNAVAILABLE.
//
// After an error with the code OUTCOME_UNKNOWN the messages may be stored: the answer to the commit was lost, or came with a
// warning (see Configure). After any other error nothing is stored. Nothing is repeated here but a deadlock, which has certainly
// been rolled back.
func (s *Store) Send(ctx context.Context, batch []tidings.Message, wait time.Duration) (answers []tidings.Answer, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	const doing = "send messages"
	args := sendArgs(batch, wait > 0)
	err = s.writeWithin(ctx, wait+commitTimeout, doing, func(ctx context.Context) error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return unchanged(doing, err)
		}
		defer conn.Release()
		warned := warnings(conn.Conn())
		args[len(args)-1] = logOf(conn.Conn())
		if answers, err = sendOn(ctx, conn, args, len(batch), wait); err != nil {
			return err
		}
		if err := waited(doing, warnings(conn.Conn())-warned); err != nil {
			return err
		}
		memoryOf(conn.Conn()).appended(batch, answers)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// sendOn runs sendSQL. An error of the commit shows when everything has been read.
func sendOn(ctx context.Context, conn *pgxpool.Conn, args []any, n int, wait time.Duration) ([]tidings.Answer, error) {
	if wait == 0 {
		rows, err := conn.Query(ctx, sendSQL, args...)
		if err != nil {
			return nil, err
		}
		return readAnswers(rows, n)
	}
	// Both statements travel together and end with one implicit transaction.
	both := &pgx.Batch{}
	both.Queue(lockTimeoutSQL, pgx.NamedArgs{"wait_ms": milliseconds(wait)})
	both.Queue(sendSQL, args...)
	results := conn.SendBatch(ctx, both)
	if _, err := results.Exec(); err != nil {
		return nil, errors.Join(err, results.Close())
	}
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	answers, err := readAnswers(rows, n)
	return answers, errors.Join(err, results.Close())
}

// milliseconds is a time to wait as a setting of PostgreSQL, where 0 would mean for ever.
func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// sendArgs are the messages as the parameters of sendSQL: the conversations once each, in the order of their bytes, in which they are
// locked, and for each message its place among them, from 1. The last parameter, the log, is the connection's to say.
func sendArgs(batch []tidings.Message, wait bool) []any {
	n := len(batch)
	var (
		convs          = make([]string, n)
		places         = make([]int32, n)
		senders, cmids = make([]string, n), make([]string, n)
		bodies         = make([]string, n)
		devices, datas = make([]*string, n), make([]*string, n)
	)
	for i := range batch {
		convs[i] = batch[i].Conv
	}
	slices.Sort(convs)
	convs = slices.Compact(convs)
	for i := range batch {
		m := &batch[i]
		place, _ := slices.BinarySearch(convs, m.Conv)
		places[i] = int32(place + 1)
		senders[i], devices[i], cmids[i], bodies[i] = m.Sender, orNull(&m.Device), m.Cmid, m.Body
		if len(m.Data) > 0 {
			data := string(m.Data)
			datas[i] = &data
		}
	}
	return []any{convs, places, senders, devices, cmids, bodies, datas, wait, nil}
}

func readAnswers(rows pgx.Rows, n int) ([]tidings.Answer, error) {
	answers := make([]tidings.Answer, n)
	var (
		a                  tidings.Answer
		position, answered int
		code               string
		at                 time.Time
	)
	_, err := pgx.ForEachRow(rows, []any{&position, &code, &a.Seq, (*[16]byte)(&a.Mid), &a.Epoch, &at, &a.Dup}, func() error {
		a.Code, a.At = tidings.Code(code), at.UnixMilli()
		answers[position-1] = a
		answered++
		return nil
	})
	if err == nil && answered != n {
		// The transaction is committed.
		err = &tidings.Error{Code: tidings.OutcomeUnknown, Message: fmt.Sprintf("the database answered %d of %d messages", answered, n)}
	}
	return answers, err
}
