// Tests of what every process does beside its roles.

package server

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// database is a connection of the test's own.
func database(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// until waits until a question to the database is answered with yes.
func until(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var yes bool
		if err := conn.QueryRow(t.Context(), sql).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to be that %s", sql)
		}
	}
}

// A process that is neither worker nor gateway purges conversations, too, with the retention that its configuration gave them.
func TestConversationsArePurged(t *testing.T) {
	url := pgtest.NewURL(t)
	cfg := config(t, url)
	cfg.Roles, cfg.HousekeepingEach, cfg.Retention, cfg.TombstonesFor = []string{RoleAPI}, 50*time.Millisecond, time.Hour, 48*time.Hour
	r := start(t, cfg)
	key := r.key(t, store.ScopeConversations, store.ScopeActUser)
	const conv = "/v1/conversations/c-1"
	if status, _, text := request(t, "PUT", r.URL()+conv, `{"members":["u-ana"]}`, key); status != 201 {
		t.Fatal(status, text)
	}
	for _, cmid := range []string{"m-1", "m-2"} {
		if status, _, text := request(t, "PUT", r.URL()+conv+"/messages/"+cmid, `{"body":"x"}`, key, "Tidings-User: u-ana"); status != 201 {
			t.Fatal(status, text)
		}
	}
	conn := database(t, url)
	run(t, conn, `UPDATE tidings.event SET created_at = created_at - interval '59 minutes'`)
	run(t, conn, `UPDATE tidings.event SET created_at = created_at - interval '2 minutes' WHERE seq < 3`)
	until(t, conn, `SELECT min_seq = 3 AND (SELECT count(*) = 1 FROM tidings.event) FROM tidings.conversation`)
	if status, _, text := request(t, "PUT", r.URL()+conv+"/messages/m-1", `{"body":"x"}`, key, "Tidings-User: u-ana"); status != 410 {
		t.Errorf("a late resend is answered %d %s", status, text)
	}
	run(t, conn, `UPDATE tidings.tombstone SET purged_at = purged_at - interval '49 hours'`)
	until(t, conn, `SELECT count(*) = 0 FROM tidings.tombstone`)
	r.stop()
	if err := r.wait(t); err != nil {
		t.Errorf("the server ends with %v", err)
	}
}

// What was read while no process ran, or while another is at it, is marked before the first claim.
func TestMarksComeBeforeTheFirstClaim(t *testing.T) {
	doubles, err := channeltest.Start(channeltest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := doubles.Close(); err != nil {
			t.Error(err)
		}
	})
	url := pgtest.NewURL(t)
	s, err := OpenStore(url, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Pool().Close)
	if err := s.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConversation(t.Context(), store.Conversation{Conv: "c-1", Members: []string{"u-ana", "u-ben"}}); err != nil {
		t.Fatal(err)
	}
	conn := database(t, url)
	run(t, conn, `INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (tidings.bucket_of('u-ana'), 'u-ana', 'push', 'a')`)
	run(t, conn, `SELECT tidings.notify_v1('{"user":"u-ana","event_key":"e","body":"b","ttl_s":60,"about":{"conv":"c-1","seq":2}}')`)
	if _, err := s.Read(t.Context(), "u-ana", "c-1", 0, 2); err != nil {
		t.Fatal(err)
	}
	run(t, conn, `SELECT pg_advisory_lock(1735356005)`) // another process is at it
	cfg := config(t, url)
	cfg.Channels = map[string]Channel{"push": {Double: &Double{URL: doubles.URL(), Mode: channeltest.ModePush}}}
	r := start(t, cfg)
	other := database(t, url)
	until(t, other, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tidings'`)
	time.Sleep(4 * cfg.Poll) // an idle worker waits for a quarter of this at most; what comes too early is seen below
	run(t, conn, `SELECT pg_advisory_unlock_all()`)
	until(t, other, `SELECT state <> 'PENDING' FROM tidings.task`)
	var state string
	if err := other.QueryRow(t.Context(), `SELECT t.state || ' ' || a.outcome FROM tidings.task t JOIN tidings.attempt a ON a.task_id = t.id`).Scan(&state); err != nil || state != "SUPPRESSED SOURCE_GONE" {
		t.Errorf("the task is %s, %v", state, err)
	}
	if c, err := doubles.Counts(channeltest.ModePush, ""); err != nil || c.Requests != 0 {
		t.Errorf("the double got %d requests, %v", c.Requests, err)
	}
	r.stop()
	if err := r.wait(t); err != nil {
		t.Errorf("the server ends with %v", err)
	}
}
