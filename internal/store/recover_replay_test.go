// Tests of the replay of the journal.

package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

// copied makes a copy of the database as it is, as a backup and its restore would.
func (b *bench) copied() *bench {
	b.t.Helper()
	from := b.pool.Config().ConnConfig
	name := fmt.Sprintf("copy_%d", time.Now().UnixNano())
	admin := func(ctx context.Context, sql string) {
		b.t.Helper()
		config := from.Copy()
		config.Database = "postgres"
		conn, err := pgx.ConnectConfig(ctx, config)
		b.must(err)
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		b.must(err)
	}
	b.pool.Reset() // a template has no other sessions
	admin(b.t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from.Database)
	b.t.Cleanup(func() { admin(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
	config := b.pool.Config()
	config.ConnConfig.Database = name
	pool, err := pgxpool.NewWithConfig(b.t.Context(), config)
	b.must(err)
	b.t.Cleanup(pool.Close)
	return benchOn(b.t, pool)
}

// recovered makes a copy fit to be used, with the journal of a directory.
func (b *bench) recovered(dir string) store.RecoverReport {
	b.t.Helper()
	r, err := b.Recover(b.t.Context(), store.RecoverOptions{Journal: b.journal(dir), Note: appendTo(dir)})
	b.must(err)
	b.whole()
	b.kept()
	return r
}

// lines are takings as one file has them, with no recovery after them.
func lines(takings ...outside.Taking) (all []outside.Line) {
	for i, t := range takings {
		all = append(all, outside.Line{Taking: t, File: "journal", N: i + 1})
	}
	return all
}

// replayed are the counts of a replay as text: "leave 1 done, 2 done already".
func replayed(r store.Replay) string {
	var kinds []string
	for _, what := range slices.Sorted(maps.Keys(r.Kinds)) {
		text := fmt.Sprintf("%s %d", what, r.Kinds[what].Done)
		for _, why := range slices.Sorted(maps.Keys(r.Kinds[what].Skipped)) {
			text += fmt.Sprintf(", %d %s", r.Kinds[what].Skipped[why], why)
		}
		kinds = append(kinds, text)
	}
	return strings.Join(kinds, "; ")
}

func (b *bench) leave(conv, user string) {
	b.t.Helper()
	m, err := b.Leave(b.t.Context(), conv, user, "")
	b.must(err)
	if !m.Changed {
		b.t.Fatalf("%s was no member of %s", user, conv)
	}
}

func (b *bench) join(conv, user string) {
	b.t.Helper()
	m, err := b.Join(b.t.Context(), conv, user, "")
	b.must(err)
	if !m.Changed {
		b.t.Fatalf("%s was a member of %s", user, conv)
	}
}

// members are the users with an open interval.
func (b *bench) members(conv string) string {
	b.t.Helper()
	return one[string](b, `SELECT coalesce(string_agg(user_id, ' ' ORDER BY user_id), '') FROM tidings.member WHERE conv_id = $1 AND leave_seq IS NULL`, conv)
}

// content is what of a conversation's messages can be read: "3 m-1".
func (b *bench) content(conv string) (lines []string) {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `SELECT seq || ' ' || cmid FROM tidings.event WHERE conv_id = $1 AND body IS NOT NULL ORDER BY seq`, conv)
	b.must(err)
	lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
	b.must(err)
	return lines
}

// takeBack takes back, in one history, something of each kind.
func (b *bench) takeBack() {
	b.t.Helper()
	ctx := b.t.Context()
	b.say(by("u-ben", "c-1", "lost-1"), said("c-1", "lost-2")) // 6, 7: the copy has other events there
	b.recalls("of what the copy has", takes(4, "r-1"), "", 8, false)
	b.recalls("of what it has not", takes(7, "r-2"), "", 9, false)
	b.leave("c-1", "u-ben")
	b.leave("c-2", "u-ben")
	b.join("c-2", "u-ben")
	b.keep("c-3", time.Hour)
	p, err := b.PurgeLog(ctx, "c-3", 3) // in two steps
	b.must(err)
	b.step("c-3", 100, 2, 2, 6, false)
	if p.Events != 3 {
		b.t.Fatalf("purged %+v", p)
	}
	_, err = b.CreateConversation(ctx, store.Conversation{Conv: "c-new", RecallWindow: time.Hour, Members: []string{"u-ana", "u-ben"}})
	b.must(err)
	b.say(said("c-new", "m-1"))
	target := takes(3, "r-1")
	target.Conv = "c-new"
	b.recalls("in a new one", target, "", 4, false)
	b.leave("c-new", "u-ben")
	_, err = b.EraseUser(ctx, "u-cyd", "op-1")
	b.must(err)
}

// backedUp is a talk as the copy has it: c-1 with three messages, c-2, c-3 with three old messages and a young one, c-4 with one of u-cyd.
func backedUp(t *testing.T) *bench {
	b := newTalk(t, 4)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"), said("c-1", "m-3")) // 3, 4, 5
	b.say(said("c-3", "m-1"), said("c-3", "m-2"), said("c-3", "m-3"), said("c-3", "m-4"))
	b.age("c-3", 5, 2*time.Hour)
	b.join("c-4", "u-cyd")
	b.say(by("u-cyd", "c-4", "m-1"))
	b.prefer("u-cyd", "push")
	b.submit("u-cyd", "e-1", func(n *tidings.Notification) { n.About = &tidings.About{Conv: "c-1", Seq: 4} })
	return b
}

// The same backup is restored twice. Each time what was taken back in any history since is taken back again, once, and nothing else.
func TestReplay(t *testing.T) {
	history1 := backedUp(t)
	backup, dir := history1.copied(), t.TempDir()
	g0 := one[int64](history1, `SELECT generation FROM tidings.lineage`)
	history1.takeBack()
	history1.takings(dir)

	history2 := backup.copied()
	r := history2.recovered(dir)
	const first = "erase 1; leave 1, 1 not in this copy, 1 the user came back later; purge 1, 1 a later line says it again; recall 2, 2 not in this copy"
	if got := replayed(r.Replay); got != first || r.Replay.Older != 0 || r.Conversations != 4 || r.Generation <= g0 {
		t.Errorf("the first: %s; %+v", got, r)
	}
	right := func(b *bench, restored string) {
		t.Helper()
		if got := b.content("c-1"); !slices.Equal(got, []string{"3 m-1", "5 m-3"}) {
			t.Errorf("%s: readable in c-1 are %q", restored, got)
		}
		if got := b.content("c-3"); !slices.Equal(got, []string{"6 m-4"}) || one[int64](b, `SELECT min_seq FROM tidings.conversation WHERE conv_id = 'c-3'`) != 6 {
			t.Errorf("%s: readable in c-3 are %q", restored, got)
		}
		if n := one[int](b, `SELECT count(*) FROM tidings.tombstone WHERE conv_id = 'c-3'`); n != 3 {
			t.Errorf("%s: %d tombstones", restored, n)
		}
		if got := b.members("c-1") + ", " + b.members("c-2") + ", " + b.members("c-4"); got != "u-ana, u-ana u-ben, u-ana u-ben u-cyd" {
			t.Errorf("%s: the members are %s", restored, got)
		}
		if len(b.content("c-4")) != 0 || one[int](b, `SELECT count(*) FROM tidings.notification WHERE erased_at IS NOT NULL`) != 1 || one[int](b, `SELECT count(*) FROM tidings.channel_pref`) != 0 {
			t.Errorf("%s: something of u-cyd is left: %q", restored, b.content("c-4"))
		}
	}
	right(history2, "restored once")
	if want := []string{"1 join u-ana", "2 join u-ben", "3 msg u-ana m-1", "4 msg u-ana m-2", "5 msg u-ana m-3", "6 recall u-ana", "7 leave u-ben"}; !slices.Equal(history2.log("c-1"), want) {
		t.Errorf("log %q", history2.log("c-1"))
	}
	if got := one[string](history2, `SELECT string_agg(concat_ws(' ', conv_id, seq), ', ' ORDER BY conv_id, seq) FROM tidings.posted WHERE seq > 5`); got != "c-1 6, c-1 7" {
		t.Errorf("posted are %s", got)
	}
	if n := one[int](history2, `SELECT count(*) FROM tidings.taken_back`); n != 0 {
		t.Errorf("a replay wrote %d rows of the journal", n)
	}
	if n := one[int](history2, `SELECT count(*) FROM tidings.gone WHERE NOT marked AND why IN ('recall', 'leave')`); n != 3 {
		t.Errorf("notifications will be told of %d things that are gone", n)
	}
	if n := one[int](history2, `SELECT count(*) FROM tidings.event WHERE kind = 'recall' AND (actor_user IS NOT NULL OR cmid IS NOT NULL)`); n != 0 {
		t.Errorf("%d recalls name somebody", n)
	}

	// The second history takes other things back, and gives some of the first back.
	if r := history2.recovered(dir); r.Replay.Older != r.Replay.Lines-1 || len(r.Replay.Kinds) != 0 {
		t.Errorf("a second recovery of the same history replays %+v", r.Replay)
	}
	history2.join("c-1", "u-ben")
	history2.leave("c-2", "u-ben")
	history2.recalls("in the second", takes(5, "r-5"), "", 9, false)
	_, err := history2.CreateConversation(t.Context(), store.Conversation{Conv: "c-new", RecallWindow: time.Hour, Members: []string{"u-ana", "u-ben"}})
	history2.must(err)
	history2.say(said("c-new", "m-1"))
	history2.takings(dir)
	later := history2.copied()

	// Its clock was behind: whatever it took back was taken back before the backup was made. It still counts as later.
	journal := history2.journal(dir)
	for i := range journal {
		if journal[i].Epoch > g0 {
			journal[i].At = journal[i].At.Add(-24 * time.Hour)
		}
	}
	slices.SortStableFunc(journal, func(a, b outside.Line) int { return outside.Compare(a.Taking, b.Taking) })
	history3 := backup.copied()
	r, err = history3.Recover(t.Context(), store.RecoverOptions{Journal: journal})
	history3.must(err)
	if got, want := replayed(r.Replay), "erase 1; leave 1, 1 a later line says it again, 1 not in this copy, 1 the user came back later; "+
		"purge 1, 1 a later line says it again; recall 3, 2 not in this copy"; got != want {
		t.Errorf("the second time: %s", got)
	}
	if got := history3.content("c-1"); !slices.Equal(got, []string{"3 m-1"}) {
		t.Errorf("restored twice: readable in c-1 are %q", got)
	}
	if got := history3.members("c-1") + ", " + history3.members("c-2"); got != "u-ana u-ben, u-ana" {
		t.Errorf("restored twice: the members are %s", got)
	}
	history3.whole()
	history3.kept()

	// A backup of the second history: nothing of it is taken back by the lines of the first.
	r = later.recovered(dir)
	if got := replayed(r.Replay); got != "leave 0, 1 done already; recall 0, 1 done already" || r.Replay.Older == 0 {
		t.Errorf("of the second history: %s", got)
	}
	if got := later.content("c-new"); !slices.Equal(got, []string{"3 m-1"}) || later.members("c-new") != "u-ana u-ben" {
		t.Errorf("the conversation that was made again: %q, %s", got, later.members("c-new"))
	}
}

// A recovery that is interrupted anywhere is run again and does nothing twice; each has a greater generation than all before.
func TestReplayInterrupted(t *testing.T) {
	b := backedUp(t)
	backup, dir := b.copied(), t.TempDir()
	b.takeBack()
	b.takings(dir)
	refused := errors.New("the disk is full")
	var before store.RecoverReport
	for i := range 3 {
		r, err := backup.Recover(t.Context(), store.RecoverOptions{Journal: backup.journal(dir), Note: func([]outside.Taking) error { return refused }})
		if !errors.Is(err, refused) || tidings.ErrorCode(err) != tidings.Unavailable {
			t.Fatalf("it ended with %v", err)
		}
		if r.Generation <= before.Generation || r.Conversations != 4 {
			t.Errorf("interrupted for the time %d: %+v", i+1, r)
		}
		if i > 0 && replayed(r.Replay) != "erase 0, 1 done already; leave 0, 1 done already, 1 not in this copy, 1 the user came back later; "+
			"purge 0, 1 a later line says it again, 1 done already; recall 0, 2 done already, 2 not in this copy" {
			t.Errorf("again: %s", replayed(r.Replay))
		}
		before = r
	}
	log, want := backup.log("c-1"), one[int64](b, `SELECT generation FROM tidings.lineage`)
	if got := one[int64](backup, `SELECT generation FROM tidings.lineage`); got != want {
		t.Errorf("an interrupted recovery recorded the generation %d", got)
	}
	r := backup.recovered(dir)
	if r.Generation <= before.Generation || !slices.Equal(backup.log("c-1"), log) || one[int64](backup, `SELECT generation FROM tidings.lineage`) != r.Generation {
		t.Errorf("at last %+v, log %q", r, backup.log("c-1"))
	}
	all := backup.journal(dir)
	if last := all[len(all)-1]; last.What != outside.TookRecover || last.Epoch != r.Generation {
		t.Errorf("the journal ends with %+v", last)
	}
	// The next recovery knows of it, even if the lineage was never recorded and the clock is behind.
	ahead := r.Generation + 1<<40
	appendTo(dir)([]outside.Taking{{ID: tidings.UUID{1}, At: time.Now(), What: outside.TookRecover, Epoch: ahead}})
	if r := backup.recovered(dir); r.Generation != ahead+1 {
		t.Errorf("generation %d after %d", r.Generation, ahead)
	}
	appendTo(dir)([]outside.Taking{{ID: tidings.UUID{2}, At: time.Now(), What: outside.TookRecover, Epoch: tidings.MaxNumber - 1}})
	_, err := backup.Recover(t.Context(), store.RecoverOptions{Journal: backup.journal(dir)})
	backup.want(tidings.InvalidArgument, err)
}

// A long journal is replayed in steps; an erasure and a leave bind what was before them in their own history only.
func TestReplayMany(t *testing.T) {
	b := newTalk(t, 2)
	const many = 2300
	var batch []tidings.Message
	for i := range many {
		batch = append(batch, said("c-1", fmt.Sprint("m-", i)))
	}
	b.say(batch...)
	epoch, now := one[int64](b, `SELECT generation FROM tidings.lineage`), one[time.Time](b, `SELECT clock_timestamp()`)
	mids := one[[]string](b, `SELECT array_agg(mid::text) FROM tidings.event WHERE kind = 'msg'`)
	b.leave("c-2", "u-ben")
	b.join("c-2", "u-ben")
	b.join("c-2", "u-eve")
	b.say(by("u-ben", "c-2", "after"), by("u-eve", "c-2", "e-1"))
	b.prefer("u-ben", "push")
	b.exec(`INSERT INTO tidings.gateway (gateway_id, lease_until) VALUES ('g-1', now())`)
	_, err := b.Hello(t.Context(), "u-ana", "d-1", "i-1", "g-1", tidings.UUID{1})
	b.must(err)

	var journal []outside.Taking
	for i, mid := range mids {
		t := outside.Taking{At: now, What: outside.TookRecall, Conv: "c-1", Mid: mid, Epoch: epoch}
		t.ID[0], t.ID[1] = byte(i>>8), byte(i)
		journal = append(journal, t)
	}
	old := now.Add(-time.Hour)
	journal = append(journal, // by times before ben came back and wrote
		outside.Taking{ID: tidings.UUID{15: 1}, At: now, What: outside.TookLeave, Conv: "c-2", User: "u-ben", Epoch: epoch},
		outside.Taking{ID: tidings.UUID{15: 2}, At: now, What: outside.TookErase, User: "u-ben", Cutoff: &now, Epoch: epoch},
		outside.Taking{ID: tidings.UUID{15: 3}, At: now, What: outside.TookErase, User: "u-ben", Cutoff: &old, Epoch: epoch},
		outside.Taking{ID: tidings.UUID{15: 5}, At: old, What: outside.TookErase, User: "u-eve", Cutoff: &old, Epoch: epoch + 1},
		outside.Taking{ID: tidings.UUID{15: 4}, At: now, What: outside.TookPurge, Conv: "c-2", Cutoff: &old, Epoch: epoch})
	r, err := b.Recover(t.Context(), store.RecoverOptions{Journal: lines(journal...)})
	b.must(err)
	if got := replayed(r.Replay); got != "erase 1, 1 a later line says it again, 1 done already; leave 0, 1 the user came back later; purge 0, 1 done already; recall 2300" || r.Routes != 1 {
		t.Errorf("%s; %d routes", got, r.Routes)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.route`) + one[int](b, `SELECT count(*) FROM tidings.gateway`); n != 0 || len(b.content("c-2")) != 1 || len(b.content("c-1")) != 0 {
		t.Errorf("%d routes and gateways are left, %q of c-2", n, b.content("c-2"))
	}
	b.whole()
	b.kept()
	if r, err := b.Recover(t.Context(), store.RecoverOptions{Lossless: true, Journal: lines(journal...)}); err != nil || r.Replay.Lines != 0 {
		t.Errorf("nothing was lost: %+v, %v", r, err)
	}
}
