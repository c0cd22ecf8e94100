// Verify: asks the questions in slices.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Finding is what one question to the stored rows brought.
type Finding struct {
	Name       string `json:"name"`
	Promise    string `json:"promise,omitempty"` // R1 to R7, P1 to P7; empty: no promise is broken, but an operator should look
	Title      string `json:"title"`             // what holds when there is no violation
	Violations int    `json:"violations"`
	Sample     string `json:"sample,omitempty"` // ids of one violation
	Examined   int    `json:"examined"`         // rows looked at; a question that examined nothing has shown nothing
}

// Unshown says what no stored row can show, promise by promise.
var Unshown = []string{
	"R1: whether somebody was told `sent` of a message that is not here: a copy lacks what was committed after its backup; and whether a key came again after its tombstone was forgotten.",
	"R2: whether what stands at a seq also stood there in a history that a restore has ended.",
	"R3: what was handed out to whom.",
	"R4: whether a cursor ever went back.",
	"R5: whether a device got what it asked for.",
	"R6: whether content was handed out after the recall, and what backups, WAL and devices still have of it; whether a recall was in time where the window was changed since.",
	"R7: what a gateway sent that was not a device's place any more.",
	"P2: whether a superseded holder's call reached its provider.",
	"P3: whether a call was made that has no journal row; only the channel's own log can tell.",
	"P4: whether an answer that a contract declares to be a proof of non-acceptance was one.",
	"P5: what was switched off between a claim and its call; that is sent, as stated.",
	"P6: whether a repeated SEND was inside its provider's window: the journal does not keep the contract of its time.",
	"P7: whether a worker runs that serves the channel of a due task; the age of the oldest due task tells.",
}

// slice is the part of the tables that a question is asked of at a time: the values of its @low and @high.
type slice struct{ low, high any }

// Verify asks the stored rows whether the promises R1 to R7 and P1 to P7 were kept, as far as rows can show; Unshown is the rest. Each
// question is asked slice by slice, each slice in a statement of its own, because a long snapshot would keep vacuum from the
// queue. So it can run beside gateways and workers: each slice is judged in a state of its own.
func (s *Store) Verify(ctx context.Context) (findings []Finding, err error) {
	return s.verify(ctx, nil)
}

// Violations is how many questions found a violated promise.
func Violations(findings []Finding) (n int) {
	for _, f := range findings {
		if f.Promise != "" && f.Violations > 0 {
			n++
		}
	}
	return n
}

// verify asks for a generation that is not recorded yet; nil: for the recorded one.
func (s *Store) verify(ctx context.Context, generation *int64) (findings []Finding, err error) {
	for _, part := range []struct {
		questions []question
		cut       func(context.Context) ([]slice, error)
	}{{logQuestions, s.conversationSlices}, {questions, s.bucketSlices}} {
		slices, err := part.cut(ctx)
		if err != nil {
			return nil, err
		}
		for _, q := range part.questions {
			f := Finding{Name: q.name, Promise: q.promise, Title: q.title}
			for _, part := range slices {
				if err := s.ask(ctx, q.sql, part, generation, &f); err != nil {
					return nil, err
				}
			}
			findings = append(findings, f)
		}
	}
	return findings, nil
}

func (s *Store) ask(ctx context.Context, sql string, of slice, generation *int64, f *Finding) error {
	var examined, violations int
	var sample *string
	err := s.pool.QueryRow(ctx, sql, pgx.NamedArgs{"low": of.low, "high": of.high, "generation": generation}).Scan(&examined, &violations, &sample)
	if err != nil {
		return unchanged("verify "+f.Name, err)
	}
	f.Examined += examined
	f.Violations += violations
	if f.Sample == "" && sample != nil {
		f.Sample = *sample
	}
	return nil
}

// sliceBytes is about how much of the tables of notifications one question reads at a time.
const sliceBytes = 64 << 20

// sizeSQL measures the tables that the questions about notifications read.
const sizeSQL = `SELECT pg_catalog.pg_table_size('tidings.notification') + pg_catalog.pg_table_size('tidings.task') + pg_catalog.pg_table_size('tidings.attempt')`

// bucketSlices are ranges of buckets, both ends inclusive.
func (s *Store) bucketSlices(ctx context.Context) (slices []slice, err error) {
	var size int64
	if err := s.pool.QueryRow(ctx, sizeSQL).Scan(&size); err != nil {
		return nil, unchanged("measure the tables", err)
	}
	width := 256 // buckets in a slice
	for width > 1 && size*int64(width)/256 > sliceBytes {
		width /= 2
	}
	for low := 0; low < 256; low += width {
		slices = append(slices, slice{low, low + width - 1})
	}
	return slices, nil
}

// The size of a slice of conversations. One that has more seqs than a slice is a slice of its own.
const (
	sliceConversations = 1000
	sliceSeqs          = 100_000
)

// pageSQL finds, by primary key, where a slice of conversations ends that begins after a given one, and is empty when there is none
// left. It counts all seqs that a conversation ever had: each is an event or, at most, a tombstone.
const pageSQL = `SELECT coalesce(max(p.conv_id), '')
	  FROM (SELECT x.conv_id, sum(x.next_seq) OVER (ORDER BY x.conv_id) - x.next_seq AS before
			FROM (SELECT c.conv_id, c.next_seq FROM tidings.conversation c WHERE c.conv_id > @after::text ORDER BY c.conv_id LIMIT @convs) x) p
	 WHERE p.before < @seqs`

// lastConv is not less than any text.
const lastConv = "\U0010ffff"

// conversationSlices are ranges of conversation ids, without their lower ends. The last one has no upper end, and together they
// are the whole order: rows of a conversation that does not exist lie in one of them, too.
func (s *Store) conversationSlices(ctx context.Context) ([]slice, error) {
	return s.conversationPages(ctx, sliceConversations, sliceSeqs)
}

func (s *Store) conversationPages(ctx context.Context, convs, seqs int) (slices []slice, err error) {
	for low := ""; ; {
		var high string
		if err := s.pool.QueryRow(ctx, pageSQL, pgx.NamedArgs{"after": low, "convs": convs, "seqs": seqs}).Scan(&high); err != nil {
			return nil, unchanged("page through the conversations", err)
		}
		if high == "" {
			return append(slices, slice{low, lastConv}), nil
		}
		slices = append(slices, slice{low, high})
		low = high
	}
}
