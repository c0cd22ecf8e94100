// Verify: asks the questions in slices.

package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Finding is what one question to the stored rows brought.
type Finding struct {
	Name       string `json:"name"`
	Promise    string `json:"promise,omitempty"` // P1 to P7; empty: no promise is broken, but an operator should look
	Title      string `json:"title"`             // what holds when there is no violation
	Violations int    `json:"violations"`
	Sample     string `json:"sample,omitempty"` // ids of one violation
	Examined   int    `json:"examined"`         // rows looked at; a question that examined nothing has shown nothing
}

// Unshown says what no stored row can show, promise by promise.
var Unshown = []string{
	"P2: whether a superseded holder's call reached its provider.",
	"P3: whether a call was made that has no journal row; only the channel's own log can tell.",
	"P4: whether an answer that a contract declares to be a proof of non-acceptance was one.",
	"P5: what was switched off between a claim and its call; that is sent, as stated.",
	"P6: whether a repeated SEND was inside its provider's window: the journal does not keep the contract of its time.",
	"P7: whether a worker runs that serves the channel of a due task; the age of the oldest due task tells.",
}

// sliceBytes is about how much of the tables one question reads at a time.
const sliceBytes = 64 << 20

// sizeSQL measures the tables that the questions read.
const sizeSQL = `SELECT pg_catalog.pg_table_size('tidings.notification') + pg_catalog.pg_table_size('tidings.task') + pg_catalog.pg_table_size('tidings.attempt')`

// Verify asks the stored rows whether the promises P1 to P7 were kept, as far as rows can show; Unshown is the rest. Each
// question is asked slice by slice, a slice being a range of buckets and a statement of its own, because a long snapshot
// would keep vacuum from the queue. So it can run beside the workers: each slice is judged in a state of its own.
func (s *Store) Verify(ctx context.Context) ([]Finding, error) {
	var size int64
	if err := s.pool.QueryRow(ctx, sizeSQL).Scan(&size); err != nil {
		return nil, unchanged("measure the tables", err)
	}
	width := 256 // buckets in a slice
	for width > 1 && size*int64(width)/256 > sliceBytes {
		width /= 2
	}
	findings := make([]Finding, len(questions))
	for i, q := range questions {
		findings[i] = Finding{Name: q.name, Promise: q.promise, Title: q.title}
		for low := 0; low < 256; low += width {
			if err := s.ask(ctx, q.sql, low, low+width-1, &findings[i]); err != nil {
				return nil, err
			}
		}
	}
	return findings, nil
}

func (s *Store) ask(ctx context.Context, sql string, low, high int, f *Finding) error {
	var examined, violations int
	var sample *string
	err := s.pool.QueryRow(ctx, sql, pgx.NamedArgs{"low": low, "high": high}).Scan(&examined, &violations, &sample)
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
