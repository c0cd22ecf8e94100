// Tests of the codes of database errors.

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
)

// A defect of ours is no database that cannot be reached; and what may have been committed stays unknown, whatever the reason.
func TestCodesOfErrors(t *testing.T) {
	scan := pgx.ScanArgError{ColumnIndex: 1, FieldName: "n", Err: errors.New("cannot scan NULL into *int64")}
	for _, x := range []struct {
		err                error
		before, afterwards tidings.Code
	}{
		{scan, tidings.Internal, tidings.OutcomeUnknown},
		{fmt.Errorf("struct doesn't have corresponding row field %s", "n"), tidings.Internal, tidings.OutcomeUnknown},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, tidings.Unavailable, tidings.OutcomeUnknown},
		{fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), tidings.Unavailable, tidings.OutcomeUnknown},
		{io.EOF, tidings.Unavailable, tidings.OutcomeUnknown},
		{context.DeadlineExceeded, tidings.Unavailable, tidings.OutcomeUnknown},
		{context.Canceled, tidings.Unavailable, tidings.OutcomeUnknown},
		{errors.New("closed pool"), tidings.Unavailable, tidings.OutcomeUnknown},
		{pgconn.ErrConnClosed, tidings.Unavailable, tidings.OutcomeUnknown},
		{&pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}, tidings.Unavailable, tidings.OutcomeUnknown},
		{&pgconn.PgError{Code: "42601"}, tidings.Internal, tidings.Internal},
		{pgx.ErrNoRows, tidings.NotFound, tidings.NotFound},
	} {
		if got := tidings.ErrorCode(unchanged("do", x.err)); got != x.before {
			t.Errorf("%v before the commit is %s, not %s", x.err, got, x.before)
		}
		if got := tidings.ErrorCode(coded("do", x.err)); got != x.afterwards {
			t.Errorf("%v at the commit is %s, not %s", x.err, got, x.afterwards)
		}
	}
	if err := unchanged("do", scan); !strings.Contains(err.Error(), "cannot scan NULL") || strings.Contains(err.Error(), "reached") {
		t.Errorf("a scan error is %v", err)
	}
}
