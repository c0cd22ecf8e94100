// Tests of messages in the caller's transaction.

package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/outbox"
)

// talk is a database with the conversations c-1 to c-n, of which u-ana is a member since seq 1.
func talk(t *testing.T, n int) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	for i := range n {
		conv := fmt.Sprintf("c-%d", i+1)
		for _, sql := range []string{
			`INSERT INTO tidings.conversation (conv_id, epoch, next_seq) VALUES ($1, 99, 2)`,
			`INSERT INTO tidings.event (conv_id, seq, kind, sender_user) VALUES ($1, 1, 'join', 'u-ana')`,
			`INSERT INTO tidings.member (conv_id, user_id, join_seq) VALUES ($1, 'u-ana', 1)`,
		} {
			if _, err := pool.Exec(t.Context(), sql, conv); err != nil {
				t.Fatal(err)
			}
		}
	}
	return pool
}

func said(conv, cmid string) tidings.Message {
	return tidings.Message{Conv: conv, Sender: "u-ana", Cmid: cmid, Body: "hello <you> \"é\"\n"}
}

func TestPostInTheCallersTransaction(t *testing.T) {
	pool := talk(t, 2)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := outbox.Post(t.Context(), tx, said("c-1", "m-1")); err != nil || got[0].Seq != 2 {
		t.Fatalf("Post = %+v, %v", got, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, "event") - 2 + count(t, pool, "posted"); n != 0 {
		t.Fatalf("%d rows are left after the rollback", n)
	}
	withData := said("c-2", "m-1")
	withData.Device, withData.Data = "u-ana-d1", json.RawMessage(`{ "html": "<b>",  "reply_to": 1 }`)
	got, err := outbox.Post(t.Context(), pool, withData, said("c-1", "m-1"), said("c-2", "m-2"))
	if err != nil {
		t.Fatal(err)
	}
	for i, seq := range []int64{2, 2, 3} {
		if a := got[i]; a.Code != "" || a.Seq != seq || a.Dup || a.Epoch != 99 || a.Mid.IsZero() || a.At == 0 {
			t.Errorf("answer %d: %+v", i, a)
		}
	}
	var body, data, device, posted string
	if err := pool.QueryRow(t.Context(), `SELECT body, data, sender_device, (SELECT string_agg(concat_ws(' ', conv_id, seq, user_id), ', ' ORDER BY conv_id, seq)
		FROM tidings.posted) FROM tidings.event WHERE mid = $1`, got[0].Mid).Scan(&body, &data, &device, &posted); err != nil {
		t.Fatal(err)
	}
	if body != withData.Body || data != string(withData.Data) || device != withData.Device || posted != "c-1 2, c-2 2, c-2 3" {
		t.Errorf("stored are %q, %q, %q; posted %s", body, data, device, posted)
	}
}

// Repeats and refusals are answers, after which the caller's transaction goes on.
func TestPostAnswers(t *testing.T) {
	pool := talk(t, 1)
	first, err := outbox.Post(t.Context(), pool, said("c-1", "m-1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-1', 'u-ana', 'purged', 77)`); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	changed, stranger := said("c-1", "m-1"), said("c-1", "m-1")
	changed.Body, stranger.Sender = "something else", "u-eve"
	got, err := outbox.Post(t.Context(), tx, said("c-1", "m-1"), changed, stranger, said("c-none", "m-1"), said("c-1", "purged"), said("c-1", "m-2"), said("c-1", "m-2"))
	if err != nil {
		t.Fatal(err)
	}
	again := first[0]
	again.Dup = true
	want := []tidings.Answer{again, {Code: tidings.IdempotencyMismatch}, {Code: tidings.NotMember}, {Code: tidings.NotMember},
		{Code: tidings.OriginalExpired, Seq: 77, Epoch: 99}, {Seq: 3, Mid: got[5].Mid, Epoch: 99, At: got[5].At}, {Seq: 3, Mid: got[5].Mid, Epoch: 99, At: got[5].At, Dup: true}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("answer %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, p := count(t, pool, "event"), count(t, pool, "posted"); e != 3 || p != 2 {
		t.Errorf("%d events, %d posted", e, p)
	}
}

// Under a level whose snapshot is older than the lock, Post refuses with a reason.
func TestPostIsReadCommitted(t *testing.T) {
	pool := talk(t, 1)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := outbox.Post(t.Context(), tx, said("c-1", "m-1"))
			return err
		})
		if tidings.ErrorCode(err) != tidings.InvalidArgument || !strings.Contains(err.Error(), "READ COMMITTED") {
			t.Errorf("%s: %v", level, err)
		}
	}
	if n := count(t, pool, "event"); n != 1 {
		t.Errorf("%d events", n)
	}
}

// Calls for the same conversations in opposite orders wait for each other and do not deadlock.
func TestPostLocksInOneOrder(t *testing.T) {
	const writers, rounds = 4, 10
	pool := talk(t, 3)
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for r := range rounds {
				cmid := fmt.Sprintf("w-%d-r-%d", w, r)
				batch := []tidings.Message{said("c-1", cmid), said("c-2", cmid), said("c-3", cmid)}
				if w%2 == 1 {
					batch[0], batch[2] = batch[2], batch[0]
				}
				if _, err := outbox.Post(t.Context(), pool, batch...); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := count(t, pool, "event"); n != 3+3*writers*rounds {
		t.Errorf("%d events", n)
	}
}

func TestBadMessagesAreRefusedBeforeTheDatabase(t *testing.T) {
	pool := talk(t, 1)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for name, spoil := range map[string]func(*tidings.Message){
		"no conversation": func(m *tidings.Message) { m.Conv = "" },
		"no sender":       func(m *tidings.Message) { m.Sender = "" },
		"a bad device":    func(m *tidings.Message) { m.Device = "a b" },
		"no cmid":         func(m *tidings.Message) { m.Cmid = "" },
		"a long body":     func(m *tidings.Message) { m.Body = strings.Repeat("b", tidings.MaxBody+1) },
		"U+0000":          func(m *tidings.Message) { m.Body = "a\x00b" },
		"an array":        func(m *tidings.Message) { m.Data = json.RawMessage(`[1]`) },
	} {
		m := said("c-1", "m-1")
		spoil(&m)
		_, err := outbox.Post(t.Context(), tx, said("c-1", "m-2"), m)
		if code := tidings.ErrorCode(err); code != tidings.InvalidArgument && code != tidings.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := outbox.Post(t.Context(), tx, said("c-1", "m-1")); err != nil || got[0].Seq != 2 {
		t.Errorf("the transaction did not survive the bad input: %+v, %v", got, err)
	}
}

// TestPostForOtherLanguages is what an application in another language sees.
func TestPostForOtherLanguages(t *testing.T) {
	pool := talk(t, 1)
	var answer string
	if err := pool.QueryRow(t.Context(), `SELECT tidings.post_v1('{"conv":"c-1","sender":"u-ana","cmid":"m-1","body":"hi"}')`).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(answer, `[{"seq":2,"mid":"`) || !strings.HasSuffix(answer, `"dup":false}]`) {
		t.Errorf("answer: %s", answer)
	}
	for input, state := range map[string]string{
		`{"conv":"c/1","sender":"u-ana","cmid":"m-1","body":"hi"}`:                  "23514",
		`{"sender":"u-ana","cmid":"m-1","body":"hi"}`:                               "23514",
		`{"conv":"c-1","sender":"u-ana","cmid":"m-2"}`:                              "23514",
		`{"conv":"c-1","sender":"u-ana","device":"a b","cmid":"m-2","body":"hi"}`:   "23514",
		`{"conv":"c-1","sender":"u-ana","cmid":"m-2","body":"hi","data":[]}`:        "23514",
		`[{"conv":"c-1","sender":"u-ana","cmid":"m-2","body":"hi"},{"conv":"c-1"}]`: "23514",
		`nonsense`: "22P02",
	} {
		_, err := pool.Exec(t.Context(), `SELECT tidings.post_v1($1::text::json)`, input)
		if err == nil || !strings.Contains(err.Error(), state) {
			t.Errorf("%s: %v, want SQLSTATE %s", input, err, state)
		}
	}
	if n := count(t, pool, "event"); n != 2 {
		t.Errorf("%d events", n)
	}
}

func TestPostGivesUpAConversationThatIsHeld(t *testing.T) {
	pool := talk(t, 1)
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context())
	if _, err := holder.Exec(t.Context(), "SELECT FROM tidings.conversation FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SET lock_timeout = '50ms'"); err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.Post(t.Context(), conn, said("c-1", "m-1")); tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("a post that could not get the lock: %v", err)
	}
}
