// Tests of the marks on notifications whose message is gone.

package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// about submits a notification on push about a message and returns its id.
func (b *bench) about(user, conv string, seq int64) tidings.UUID {
	b.t.Helper()
	b.prefer(user, push.Channel)
	return b.submit(user, fmt.Sprintf("%s-%s-%d", user, conv, seq), func(n *tidings.Notification) { n.About = &tidings.About{Conv: conv, Seq: seq} })
}

// mark handles what is gone and expects how much it was.
func (b *bench) mark(limit, want int, wantMore bool) {
	b.t.Helper()
	if done, err := b.MarkGone(b.t.Context(), limit); done.Rows != want || done.More != wantMore || done.Busy || err != nil {
		b.t.Errorf("MarkGone = %+v, %v, want %d, %t", done, err, want, wantMore)
	}
}

// marked are the keys of the notifications that know that what they are about is gone.
func (b *bench) marked() string {
	b.t.Helper()
	return one[string](b, `SELECT coalesce(string_agg(event_key, ' ' ORDER BY event_key), '') FROM tidings.notification WHERE about_gone_at IS NOT NULL`)
}

// waits are the gone rows.
func (b *bench) waits() string {
	b.t.Helper()
	return one[string](b, `SELECT coalesce(string_agg(concat_ws(' ', conv_id, why, nullif(user_id, ''), seq, CASE WHEN marked THEN 'marked' END), ', ' ORDER BY conv_id, why, user_id, seq), '') FROM tidings.gone`)
}

func TestMarkGone(t *testing.T) {
	b := newTalk(t, 2)
	ctx := t.Context()
	b.say(said("c-1", "m-1"), said("c-1", "m-2"), said("c-1", "m-3"), said("c-2", "m-1")) // c-1: 3, 4, 5
	for _, user := range []string{"u-ana", "u-ben"} {
		for _, seq := range []int64{3, 4, 5} {
			b.about(user, "c-1", seq)
		}
		b.about(user, "c-2", 3)
	}
	b.about("u-cyd", "c-1", 4)
	b.mark(10, 0, false)

	// Read: this user's, up to there.
	if r, err := b.Read(ctx, "u-ben", "c-1", 0, 4); err != nil || !r.Moved {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := b.Read(ctx, "u-ben", "c-1", 0, 3); err != nil || r.Moved {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := b.waits(); got != "c-1 read u-ben 4" {
		t.Errorf("a read leaves %q", got)
	}
	b.mark(10, 1, false)
	if got := b.marked(); got != "u-ben-c-1-3 u-ben-c-1-4" {
		t.Errorf("after a read %s are marked", got)
	}
	if got := b.waits(); got != "" {
		t.Errorf("a read that is marked leaves %q", got)
	}

	// Recalled: everybody's, of that message.
	if r, err := b.Recall(ctx, store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-1", Target: 4}, true); err != nil || r.Code != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	b.mark(10, 1, false)
	if got := b.marked(); got != "u-ana-c-1-4 u-ben-c-1-3 u-ben-c-1-4 u-cyd-c-1-4" {
		t.Errorf("after a recall %s are marked", got)
	}
	// Left: this user's, up to the leave.
	m, err := b.Leave(ctx, "c-1", "u-ben", "")
	b.must(err)
	again, err := b.Leave(ctx, "c-1", "u-ben", "")
	b.must(err)
	if again.Changed || m.Seq != 7 {
		t.Errorf("%+v, %+v", m, again)
	}
	b.mark(10, 1, false)
	if got := b.marked(); got != "u-ana-c-1-4 u-ben-c-1-3 u-ben-c-1-4 u-ben-c-1-5 u-cyd-c-1-4" {
		t.Errorf("after a leave %s are marked", got)
	}
	if got := b.waits(); got != "c-1 leave u-ben 7 marked, c-1 recall 4 marked" {
		t.Errorf("what is marked once: %q", got)
	}
	b.mark(10, 0, false)

	// One that was committed after that is marked the second time.
	b.about("u-dee", "c-1", 4)
	if strings.Contains(b.marked(), "u-dee") {
		t.Error("one that came later is marked at once")
	}
	b.exec(`UPDATE tidings.gone SET at = at - interval '61 seconds'`)
	b.mark(1, 1, true)
	b.mark(10, 1, false)
	if got := b.marked(); !strings.HasSuffix(got, "u-cyd-c-1-4 u-dee-c-1-4") || b.waits() != "" {
		t.Errorf("the second time: %s; left are %q", got, b.waits())
	}
	// The claim heeds it.
	claimed := b.claim(push, 20)
	var stopped []string
	for _, c := range claimed {
		if c.Stop == tidings.SourceGone {
			stopped = append(stopped, c.EventKey)
		}
	}
	slices.Sort(stopped)
	if len(claimed) != 10 || strings.Join(stopped, " ") != b.marked() {
		t.Errorf("of %d the claim stopped %q", len(claimed), stopped)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', what, user_id, epoch = (SELECT generation FROM tidings.lineage)), ', ' ORDER BY at) FROM tidings.taken_back`); got != "recall u-ana t, leave u-ben t" {
		t.Errorf("the journal: %s", got)
	}
}

// Who comes back is in the journal, so that a recovery does not remove them again; who comes is not.
func TestJoinsInTheJournal(t *testing.T) {
	b := newTalk(t, 1)
	for _, change := range []func(string) error{
		func(user string) error { _, err := b.Join(t.Context(), "c-1", user, ""); return err },
		func(user string) error { _, err := b.Leave(t.Context(), "c-1", user, ""); return err },
	} {
		for range 2 {
			b.must(change("u-cyd"))
		}
	}
	for range 2 {
		_, err := b.Join(t.Context(), "c-1", "u-cyd", "")
		b.must(err)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', what, conv_id, user_id, epoch = (SELECT generation FROM tidings.lineage)), ', ' ORDER BY at) FROM tidings.taken_back`); got != "leave c-1 u-cyd t, join c-1 u-cyd t" {
		t.Errorf("the journal: %s", got)
	}
}

// What fails between the mark and its end is done again; what a notification was about before it was purged is not touched.
func TestMarkGoneAgain(t *testing.T) {
	b := newTalk(t, 1)
	ctx := t.Context()
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	b.about("u-ben", "c-1", 3)
	b.submit("u-nobody", "purged", func(n *tidings.Notification) { n.About = &tidings.About{Conv: "c-1", Seq: 3} })
	if n, _, err := b.Purge(ctx, 0, 10); n != 1 || err != nil {
		t.Fatalf("%d purged, %v", n, err)
	}
	_, err := b.Recall(ctx, store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-1", Target: 3}, true)
	b.must(err)
	_, err = b.Read(ctx, "u-ben", "c-1", 0, 2)
	b.must(err)
	b.exec(`CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cut'; END $$`)
	b.exec(`CREATE TRIGGER fails BEFORE UPDATE OR DELETE ON tidings.gone FOR EACH STATEMENT EXECUTE FUNCTION fails()`)
	if done, err := b.MarkGone(ctx, 10); !done.More || tidings.ErrorCode(err) != tidings.Internal {
		t.Errorf("%+v, %v", done, err)
	}
	if got := b.marked(); got != "u-ben-c-1-3" || b.waits() != "c-1 read u-ben 2, c-1 recall 3" {
		t.Errorf("cut between: %s are marked, %q is left", got, b.waits())
	}
	at := one[string](b, `SELECT max(about_gone_at)::text FROM tidings.notification`)
	b.exec(`DROP TRIGGER fails ON tidings.gone`)
	b.mark(10, 2, false)
	if got := b.marked(); got != "u-ben-c-1-3" || b.waits() != "c-1 recall 3 marked" || one[string](b, `SELECT max(about_gone_at)::text FROM tidings.notification`) != at {
		t.Errorf("done again: %s are marked, %q is left", got, b.waits())
	}
}

// One process is at it; another is told so and leaves it alone.
func TestMarkGoneByOne(t *testing.T) {
	b := newTalk(t, 1)
	b.say(said("c-1", "m-1"))
	_, err := b.Read(t.Context(), "u-ben", "c-1", 0, 3)
	b.must(err)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, 0x676f6e65)
	b.must(err)
	if done, err := b.MarkGone(t.Context(), 10); done != (store.MarkedGone{Busy: true}) || err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	b.must(tx.Rollback(t.Context()))
	b.mark(10, 1, false)
}

// Many mark while many recall, read, leave and purge: in the end everything is marked and nothing is left.
func TestMarkGoneConcurrently(t *testing.T) {
	const convs, messages = 4, 12
	b := newTalk(t, convs)
	ctx := t.Context()
	for c := 1; c <= convs; c++ {
		conv := fmt.Sprint("c-", c)
		for i := range messages {
			b.say(said(conv, fmt.Sprint("m-", i)))
			b.about("u-ben", conv, int64(3+i))
		}
	}
	var done atomic.Int32
	atOnce(convs+3, func(i int) {
		if i >= convs { // mark
			for done.Load() < convs {
				if _, err := b.MarkGone(ctx, 5); err != nil {
					t.Error(err)
				}
				if _, _, err := b.Purge(ctx, 0, 100); err != nil {
					t.Error(err)
				}
			}
			return
		}
		defer done.Add(1)
		conv := fmt.Sprint("c-", i+1)
		for seq := int64(3); seq < 3+messages/2; seq++ {
			if _, err := b.Recall(ctx, store.Recall{Conv: conv, User: "u-ana", Cmid: fmt.Sprint("r-", seq), Target: seq}, true); err != nil {
				t.Error(err)
			}
			if _, err := b.Read(ctx, "u-ben", conv, 0, seq+1); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Leave(ctx, conv, "u-ben", ""); err != nil {
			t.Error(err)
		}
	})
	for more := true; more; {
		done, err := b.MarkGone(ctx, 5)
		b.must(err)
		more = done.More || done.Rows > 0
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.notification WHERE about_gone_at IS NULL`); n != 0 {
		t.Errorf("%d are not marked", n)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.gone WHERE NOT marked OR why = 'read'`); n != 0 {
		t.Errorf("%d are left", n)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.gone`); n != convs*(messages/2+1) {
		t.Errorf("%d wait for the second time", n)
	}
}

// One recall that very many notifications are about is marked in pages, and others are not held up by it; nor by a notification that somebody has locked.
func TestMarkGoneInTurns(t *testing.T) {
	const many = 30_000
	b := newTalk(t, 1)
	ctx := t.Context()
	b.exec(`INSERT INTO tidings.notification (id, bucket, user_id, event_key, title, payload_hash, priority, max_attempts, duplicates, about_conv, about_seq, expires_at, created_at)
		SELECT tidings.new_id(tidings.bucket_of(u)), tidings.bucket_of(u), u, 'e' || n, '', '\x', 1, 1, 'forbid', 'c-1', CASE WHEN n > $1 THEN 6 ELSE 5 END, now() + interval '1 hour', now()
		  FROM (SELECT n, 'u-' || n % 1000 AS u FROM generate_series(1, $1 + 2) n) x`, many)
	b.exec(`INSERT INTO tidings.gone (conv_id, why, user_id, seq) VALUES ('c-1', 'recall', '', 5), ('c-1', 'recall', '', 6)`)
	// The transactions are seen by how much each marks.
	b.exec(`CREATE TABLE turn (nth bigserial, large bigint, small bigint)`)
	b.exec(`CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO turn (large, small) SELECT count(*) FILTER (WHERE about_seq = 5), count(*) FILTER (WHERE about_seq = 6) FROM news; RETURN NULL; END $$`)
	b.exec(`CREATE TRIGGER noted AFTER UPDATE ON tidings.notification REFERENCING NEW TABLE AS news FOR EACH STATEMENT EXECUTE FUNCTION noted()`)
	locked, err := b.pool.Begin(ctx)
	b.must(err)
	defer locked.Rollback(context.Background())
	for _, seq := range []int{5, 6} {
		_, err = locked.Exec(ctx, `SELECT FROM tidings.notification WHERE about_conv = 'c-1' AND about_seq = $1 LIMIT 1 FOR UPDATE`, seq)
		b.must(err)
	}
	pass := func() (all store.MarkedGone) {
		t.Helper()
		for on := true; on; {
			done, err := b.MarkGone(ctx, 10)
			b.must(err)
			all.Rows, all.Notifications, all.More = all.Rows+done.Rows, all.Notifications+done.Notifications, done.More
			on = done.More && done.Rows+done.Notifications > 0
		}
		return all
	}
	if all := pass(); all.Rows != 0 || all.Notifications != many || !all.More {
		t.Errorf("beside two that are locked: %+v", all)
	}
	if most, early := one[int](b, `SELECT max(large) FROM turn`), one[bool](b, `SELECT min(nth) FILTER (WHERE small > 0) <= 2 FROM turn`); most > 1000 || !early {
		t.Errorf("a page has %d notifications, and the small one had its turn with the large one: %t", most, early)
	}
	b.must(locked.Rollback(ctx))
	if all := pass(); all.Rows != 2 || all.Notifications != 2 || all.More {
		t.Errorf("afterwards: %+v", all)
	}
	if got := b.waits(); got != "c-1 recall 5 marked, c-1 recall 6 marked" || one[int](b, `SELECT count(*) FROM tidings.notification WHERE about_gone_at IS NULL`) != 0 {
		t.Errorf("left are %q", got)
	}
}

// The second time of a leave does not mark what was made for a user who has come back since, about a message that this one may see.
func TestMarkGoneOfOneWhoCameBack(t *testing.T) {
	b := newTalk(t, 1)
	ctx := t.Context()
	b.say(said("c-1", "m-1")) // 3
	b.about("u-ben", "c-1", 3)
	_, err := b.Leave(ctx, "c-1", "u-ben", "")
	b.must(err)
	b.mark(10, 1, false)
	_, err = b.Join(ctx, "c-1", "u-ben", "")
	b.must(err)
	b.about("u-ben", "c-1", 2)
	b.exec(`UPDATE tidings.gone SET at = at - interval '61 seconds'`)
	b.exec(`UPDATE tidings.notification SET created_at = created_at - interval '61 seconds'`)
	b.mark(10, 1, false)
	if got := b.marked(); got != "u-ben-c-1-3" || b.waits() != "" {
		t.Errorf("%s are marked, %q is left", got, b.waits())
	}
}

// However many notifications and gone rows there are, marking goes by their keys.
func TestMarkGonePlans(t *testing.T) {
	b := newTalk(t, 0)
	ctx := t.Context()
	conn, err := b.pool.Acquire(ctx)
	b.must(err)
	defer conn.Release()
	b.exec(`INSERT INTO tidings.notification (id, bucket, user_id, event_key, title, payload_hash, priority, max_attempts, duplicates, about_conv, about_seq, expires_at, created_at)
		SELECT tidings.new_id(tidings.bucket_of(u)), tidings.bucket_of(u), u, 'e' || n, '', '\x', 1, 1, 'forbid', 'c-' || n % 100, n, now() + interval '1 hour', now()
		  FROM (SELECT n, 'u-' || n % 1000 AS u FROM generate_series(1, 20000) n) x`)
	b.exec(`INSERT INTO tidings.gone (conv_id, why, user_id, seq, marked) SELECT 'c-' || n, 'read', 'u-' || n, n, n % 100 > 0 FROM generate_series(1, 20000) n`)
	for _, statistics := range []string{"young", "misleading", "fresh"} {
		switch statistics {
		case "misleading": // each conversation, user and message had one of them
			b.exec(`CREATE TABLE many AS SELECT * FROM tidings.notification`)
			b.exec(`DELETE FROM tidings.notification n USING (SELECT m.id, row_number() OVER (PARTITION BY m.about_conv) AS nth FROM many m) m WHERE m.id = n.id AND m.nth > 1`)
			b.exec(`ANALYZE tidings.notification, tidings.gone`)
			b.exec(`INSERT INTO tidings.notification SELECT * FROM many ON CONFLICT DO NOTHING`)
		case "fresh":
			b.exec(`ANALYZE tidings.notification, tidings.gone`)
		}
		for name, c := range map[string]struct {
			args pgx.NamedArgs
			by   string
		}{
			"markRecalledSQL": {pgx.NamedArgs{"conv": "c-1", "seq": 101, "buckets": buckets(), "limit": 20}, "notification_about"},
			"markReadSQL":     {pgx.NamedArgs{"conv": "c-1", "user": "u-101", "seq": 20000, "bucket": tidings.Bucket("u-101"), "limit": 20}, "notification_about_user"},
			"markLeftSQL":     {pgx.NamedArgs{"conv": "c-1", "user": "u-101", "seq": 20000, "bucket": tidings.Bucket("u-101"), "limit": 20, "at": "2030-01-01"}, "notification_about_user"},
			"goneSQL":         {pgx.NamedArgs{"limit": 10, "again_ms": 60000.0}, "gone_unmarked"},
			"deleteGoneSQL":   {pgx.NamedArgs{"conv": "c-1", "why": "read", "user": "u-1", "seq": 1, "at": time.Now()}, "gone_pkey"},
			"keepGoneSQL":     {pgx.NamedArgs{"conv": "c-1", "why": "read", "user": "u-1", "seq": 1, "at": time.Now()}, "gone_pkey"},
		} {
			found := false
			for _, s := range allStatements(t) {
				if s.name != name {
					continue
				}
				found = true
				plan := b.plan(conn.Conn(), s.sql, c.args)
				paged := strings.Contains(plan, "Index Cond: (id = ANY ($") || strings.Contains(plan, "Index Cond: (id = ANY ((InitPlan ") // until PostgreSQL 16, from 17 on
				if !strings.Contains(plan, c.by+" ") || strings.Contains(plan, "Seq Scan") || strings.HasPrefix(name, "mark") &&
					(strings.Count(plan, c.by+" ") != 2 || !paged) {
					t.Errorf("%s statistics, %s does not go by %s:\n%s", statistics, name, c.by, plan)
				}
			}
			if !found {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

func buckets() []int16 {
	all := make([]int16, 256)
	for i := range all {
		all[i] = int16(i)
	}
	return all
}

// plan is how a statement would be carried out under the settings of the store for keys.
func (b *bench) plan(conn *pgx.Conn, sql string, args pgx.NamedArgs) string {
	b.t.Helper()
	tx, err := conn.Begin(b.t.Context())
	b.must(err)
	defer tx.Rollback(b.t.Context())
	for _, s := range allStatements(b.t) {
		if s.name == "byKeySQL" {
			_, err := tx.Exec(b.t.Context(), s.sql)
			b.must(err)
		}
	}
	rows, err := tx.Query(b.t.Context(), `EXPLAIN `+sql, args)
	b.must(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.must(err)
	return strings.Join(lines, "\n")
}
