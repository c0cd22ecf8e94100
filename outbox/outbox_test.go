// Tests of notifications in the caller's transaction.

package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/outbox"
)

func prefer(t *testing.T, pool *pgxpool.Pool, user string, channels ...string) {
	t.Helper()
	for _, c := range channels {
		if _, err := pool.Exec(t.Context(), `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
			VALUES (tidings.bucket_of($1), $1, $2, 'somewhere')`, user, c); err != nil {
			t.Fatal(err)
		}
	}
}

func shipped(user, key string) tidings.Notification {
	return tidings.Notification{User: user, EventKey: key, Body: "order shipped", TTL: tidings.Seconds(time.Hour)}
}

func count(t *testing.T, pool *pgxpool.Pool, what string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM tidings."+what).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNotifyInTheCallersTransaction(t *testing.T) {
	pool := pgtest.New(t)
	prefer(t, pool, "u-ana", "push", "sms")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := outbox.Notify(t.Context(), tx, shipped("u-ana", "e1"))
	if err != nil || !got[0].Created || got[0].Tasks != 2 {
		t.Fatalf("Notify = %+v, %v", got, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, "notification") + count(t, pool, "task"); n != 0 {
		t.Fatalf("%d rows are left after the rollback", n)
	}
	again, err := outbox.Notify(t.Context(), pool, shipped("u-ana", "e1"))
	if err != nil || !again[0].Created {
		t.Fatalf("Notify after the rollback = %+v, %v", again, err)
	}
	if n := count(t, pool, "task"); n != 2 {
		t.Fatalf("%d tasks, want 2", n)
	}
}

func TestDuplicatesAreAnswers(t *testing.T) {
	pool := pgtest.New(t)
	prefer(t, pool, "u-ana", "push")
	first, err := outbox.Notify(t.Context(), pool, shipped("u-ana", "e1"), shipped("u-ben", "e1"))
	if err != nil {
		t.Fatal(err)
	}
	other := shipped("u-ana", "e1")
	other.Body = "something else"
	got, err := outbox.Notify(t.Context(), pool, shipped("u-cyd", "e1"), other, shipped("u-ana", "e1"), shipped("u-cyd", "e1"))
	if err != nil {
		t.Fatal(err)
	}
	want := []tidings.Notified{
		{ID: got[0].ID, Created: true},
		{ID: first[0].ID, Tasks: 1, PayloadDiffers: true},
		{ID: first[0].ID, Tasks: 1},
		{ID: got[0].ID},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("answer %d = %+v, want %+v", i, got[i], want[i])
		}
	}
	if _, err := pool.Exec(t.Context(), `DELETE FROM tidings.task`); err == nil {
		t.Error("the transition trigger let a pending task be deleted")
	}
}

// TestConcurrentDuplicates has one winner commit or roll back while others wait for it, under both isolation levels.
func TestConcurrentDuplicates(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s commit %v", level, commit), func(t *testing.T) {
				pool := pgtest.New(t)
				prefer(t, pool, "u-ana", "push", "sms")
				winner, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = winner.Rollback(context.WithoutCancel(t.Context())) }()
				if _, err := outbox.Notify(t.Context(), winner, shipped("u-ana", "e1")); err != nil {
					t.Fatal(err)
				}
				const losers = 4
				var wg sync.WaitGroup
				answers := make([]tidings.Notified, losers)
				for i := range losers {
					wg.Go(func() {
						err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
							if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil { // the snapshot is older than the winner's commit
								return err
							}
							got, err := outbox.Notify(t.Context(), tx, shipped("u-ana", "e1"), shipped("u-ana", fmt.Sprintf("own-%d", i)))
							if err != nil {
								return err
							}
							answers[i] = got[0]
							if !got[1].Created {
								t.Errorf("the loser's other notification was not created: %+v", got[1])
							}
							_, err = tx.Exec(t.Context(), "SELECT 1") // the transaction is alive
							return err
						})
						if err != nil && level != pgx.Serializable {
							t.Errorf("loser %d: %v", i, err)
						}
					})
				}
				waiting := func() (n int) {
					_ = pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
					return n
				}
				for deadline := time.Now().Add(10 * time.Second); waiting() < losers; time.Sleep(2 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("the losers do not wait for the winner")
					}
				}
				end := winner.Commit
				if !commit {
					end = winner.Rollback
				}
				if err := end(t.Context()); err != nil {
					t.Fatal(err)
				}
				wg.Wait()
				created := 0
				for _, a := range answers {
					if a.Created {
						created++
					}
				}
				var rows, tasks int
				if err := pool.QueryRow(t.Context(), `SELECT count(DISTINCT n.id), count(t.id) FROM tidings.notification n
					LEFT JOIN tidings.task t ON t.notification_id = n.id WHERE n.event_key = 'e1'`).Scan(&rows, &tasks); err != nil {
					t.Fatal(err)
				}
				wantCreated := 1
				if commit {
					wantCreated = 0
				}
				if rows != 1 || tasks != 2 || (created != wantCreated && level != pgx.Serializable) {
					t.Errorf("%d notifications, %d tasks, %d losers created it", rows, tasks, created)
				}
				for i, a := range answers {
					if level == pgx.ReadCommitted && a.ID.IsZero() {
						t.Errorf("loser %d got no id under READ COMMITTED", i)
					}
				}
			})
		}
	}
}

func TestBadInputIsRefusedBeforeTheDatabase(t *testing.T) {
	pool := pgtest.New(t)
	bad := map[string]func(*tidings.Notification){
		"no user":         func(n *tidings.Notification) { n.User = "" },
		"a space":         func(n *tidings.Notification) { n.User = "u ana" },
		"a slash":         func(n *tidings.Notification) { n.EventKey = "a/b" },
		"not ASCII":       func(n *tidings.Notification) { n.EventKey = "größe" },
		"a long key":      func(n *tidings.Notification) { n.EventKey = strings.Repeat("k", 129) },
		"no ttl":          func(n *tidings.Notification) { n.TTL = 0 },
		"U+0000":          func(n *tidings.Notification) { n.Body = "a\x00b" },
		"invalid UTF-8":   func(n *tidings.Notification) { n.Title = "a\xffb" },
		"a long body":     func(n *tidings.Notification) { n.Body = strings.Repeat("b", tidings.MaxBody+1) },
		"an array":        func(n *tidings.Notification) { n.Data = json.RawMessage(`[1]`) },
		"no JSON":         func(n *tidings.Notification) { n.Data = json.RawMessage(`{"a"`) },
		"escaped U+0000":  func(n *tidings.Notification) { n.Data = json.RawMessage(`{"a":"\u0000"}`) },
		"half a pair":     func(n *tidings.Notification) { n.Data = json.RawMessage(`{"a":"\ud800"}`) },
		"the other half":  func(n *tidings.Notification) { n.Data = json.RawMessage(`{"\udc00":1}`) },
		"two high halves": func(n *tidings.Notification) { n.Data = json.RawMessage(`{"a":"\ud800\ud800"}`) },
		"deep nesting": func(n *tidings.Notification) {
			n.Data = json.RawMessage(`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`)
		},
		"a large number": func(n *tidings.Notification) { n.Data = json.RawMessage(`{"a":1e200000}`) },
		"large numbers":  func(n *tidings.Notification) { n.Data = json.RawMessage(`{"a":[1E4000,true,-1.5e-97]}`) },
		"in three years": func(n *tidings.Notification) { at := time.Now().AddDate(3, 0, 0); n.NotBefore = &at },
		"priority 3":     func(n *tidings.Notification) { p := tidings.Priority(3); n.Priority = &p },
		"no such policy": func(n *tidings.Notification) { n.Duplicates = "perhaps" },
		"seq 0":          func(n *tidings.Notification) { n.About = &tidings.About{Conv: "c"} },
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for name, spoil := range bad {
		n := shipped("u-ana", "e1")
		spoil(&n)
		_, err := outbox.Notify(t.Context(), tx, n)
		if code := tidings.ErrorCode(err); code != tidings.InvalidArgument && code != tidings.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := shipped("u-ana", "e1")
	good.Data = json.RawMessage(`{"smile":"\ud83d\ude00","a":[{"b":"\\u0000"}],"e":[true,false,1e3,"9e9999"]}`)
	if got, err := outbox.Notify(t.Context(), tx, good); err != nil || !got[0].Created {
		t.Errorf("the transaction did not survive the bad input: %+v, %v", got, err)
	}
	if err := outbox.Wake(t.Context(), tx); tidings.ErrorCode(err) != tidings.InvalidArgument {
		t.Errorf("Wake inside a transaction: %v", err)
	}
}

// TestSQLForOtherLanguages is what an application in another language sees.
func TestSQLForOtherLanguages(t *testing.T) {
	pool := pgtest.New(t)
	prefer(t, pool, "u-ana", "push", "sms")
	var answer string
	if err := pool.QueryRow(t.Context(), `SELECT tidings.notify_v1('{"user":"u-ana","event_key":"e1","body":"hi","ttl_s":60,"channels":["sms"]}')`).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(answer, `"created" : true, "tasks" : 1`) {
		t.Errorf("answer: %s", answer)
	}
	for input, state := range map[string]string{
		`{"user":"u ana","event_key":"e1","body":"hi","ttl_s":60}`:  "23514",
		`{"event_key":"e1","body":"hi","ttl_s":60}`:                 "23502",
		`{"user":"u-ana","event_key":"e2","body":"hi"}`:             "23502",
		`{"user":"u-ana","event_key":"e2","body":"hi","ttl_s":-1}`:  "23514",
		`{"user":"u-ana","event_key":"e2","body":"hi","ttl_s":"x"}`: "22P02",
		`nonsense`: "22P02",
	} {
		_, err := pool.Exec(t.Context(), `SELECT tidings.notify_v1($1::text::json)`, input)
		if err == nil || !strings.Contains(err.Error(), state) {
			t.Errorf("%s: %v, want SQLSTATE %s", input, err, state)
		}
	}
}
