// Tests of the trigger that refuses what is no edge of the state machine.

package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// shape is what a task can look like: its state, and whether it waits for a person.
type shape struct {
	state  tidings.State
	review bool
}

var shapes = []shape{{tidings.Pending, false}, {tidings.Sending, false}, {tidings.Sent, false}, {tidings.Failed, false}, {tidings.Unknown, false},
	{tidings.Unknown, true}, {tidings.Suppressed, false}}

const (
	tokenA = "07000000-0000-0000-0000-00000000000a"
	tokenB = "07000000-0000-0000-0000-00000000000b"
	taskID = "07000000-0000-0000-0000-000000000001"
)

// columns are the values that the CHECK constraints ask of a task of this shape.
func (s shape) columns(token string) string {
	values := map[string]string{"state": "'" + string(s.state) + "'", "needs_review": fmt.Sprint(s.review), "outcome_uncertain": fmt.Sprint(s.state == tidings.Unknown),
		"attempt_token": "NULL", "lease_owner": "NULL", "lease_until": "NULL", "next_attempt_at": "NULL", "doubt_at": "NULL"}
	switch {
	case s.state == tidings.Sending:
		values["attempt_token"], values["lease_owner"], values["lease_until"] = "'"+token+"'", "'w'", "now()"
	case s.state == tidings.Pending || s.state == tidings.Unknown && !s.review:
		values["next_attempt_at"] = "now()"
	}
	if s.state == tidings.Unknown {
		values["doubt_at"] = "now()"
	}
	var set []string
	for name, value := range values {
		set = append(set, name+" = "+value)
	}
	return strings.Join(set, ", ")
}

// The trigger of test databases lets exactly the edges of the state machine pass.
func TestTransitionTrigger(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	const insert = `INSERT INTO tidings.task (id, bucket, user_id, notification_id, channel, slot, priority, budget_left, state, next_attempt_at)
		VALUES ('` + taskID + `', 7, 'u', '` + taskID + `', 'push', '', 1, 1, 'PENDING', now())`
	// try tells whether the trigger lets a statement pass; nothing stays.
	try := func(from *shape, sql string) bool {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		setup := []string{`ALTER TABLE tidings.task DISABLE TRIGGER check_transition`}
		if from != nil {
			setup = append(setup, insert, `UPDATE tidings.task SET `+from.columns(tokenA))
		}
		for _, s := range append(setup, `ALTER TABLE tidings.task ENABLE TRIGGER check_transition`) {
			if _, err := tx.Exec(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		_, err = tx.Exec(t.Context(), sql)
		if err != nil && !strings.Contains(err.Error(), "no edge from") {
			t.Fatalf("%s: %v", sql, err)
		}
		return err == nil
	}
	edge := func(from, to shape, token tidings.Token) bool {
		return slices.ContainsFunc(tidings.Edges, func(e tidings.Edge) bool {
			return e.From == from.state && e.FromReview == from.review && e.To == to.state && e.Review == to.review && e.Token == token
		})
	}
	passed := 0
	for _, from := range shapes {
		for _, to := range shapes {
			for _, token := range []string{tokenA, tokenB} {
				same := from == to && (to.state != tidings.Sending || token == tokenA)
				change := tidings.TokenNone
				switch held, holds := from.state == tidings.Sending, to.state == tidings.Sending; {
				case held && holds:
					change = tidings.TokenNew
				case held:
					change = tidings.TokenGone
				case holds:
					change = tidings.TokenTaken
				}
				want := same || edge(from, to, change)
				if got := try(&from, `UPDATE tidings.task SET `+to.columns(token)); got != want {
					t.Errorf("from %v to %v with token %s: passed %t, want %t", from, to, change, got, want)
				}
				if want && !same {
					passed++
				}
			}
		}
		if got, want := try(&from, `DELETE FROM tidings.task`), edge(from, shape{}, tidings.TokenDelete); got != want {
			t.Errorf("deleting from %v: passed %t, want %t", from, got, want)
		}
	}
	if passed == 0 {
		t.Error("nothing passed")
	}
	for _, state := range []tidings.State{tidings.Pending, tidings.Sent, tidings.Failed} {
		sql := strings.Replace(insert, "'PENDING', now()", fmt.Sprintf("'%s', %s", state, map[bool]string{true: "now()", false: "NULL"}[state == tidings.Pending]), 1)
		if got, want := try(nil, sql), state == tidings.Pending; got != want {
			t.Errorf("creating as %s: passed %t, want %t", state, got, want)
		}
	}
}
