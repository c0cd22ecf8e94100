// Tests of a database that may only be read.

package store

import (
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// A database that takes no writes is not available; sessions that were opened meanwhile are not used when it takes them again.
func TestReadOnlyDatabase(t *testing.T) {
	ctx := t.Context()
	url := pgtest.NewPlainURL(t)
	s := New(configured(t, url, nil))
	if err := s.EnsureLineage(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConversation(ctx, Conversation{Conv: "c-1", Members: []string{"u-ana"}}); err != nil {
		t.Fatal(err)
	}
	operator := configured(t, url, nil)
	set := func(sql string) {
		t.Helper()
		if _, err := operator.Exec(ctx, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I `+sql+`', current_database()); END $$`); err != nil {
			t.Fatal(err)
		}
	}
	send := func() error {
		_, err := s.Send(ctx, []tidings.Message{{Conv: "c-1", Sender: "u-ana", Cmid: "m-1", Body: "x"}}, 0)
		return err
	}
	set("SET default_transaction_read_only = on")
	s.Pool().Reset()
	if err := send(); tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("a send to a database that is read-only: %v", err)
	}
	if _, err := s.Join(ctx, "c-1", "u-ben", ""); tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("a join in a database that is read-only: %v", err)
	}
	if _, err := operator.Exec(ctx, "SET default_transaction_read_only = off"); err != nil {
		t.Fatal(err)
	}
	set("RESET default_transaction_read_only")
	if err := send(); err != nil {
		t.Errorf("a send afterwards: %v", err)
	}
}
