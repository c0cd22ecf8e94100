// Tests of the purge of logs.

package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// keep gives a conversation a retention.
func (b *bench) keep(conv string, retention time.Duration) {
	b.t.Helper()
	_, err := b.ChangeSettings(b.t.Context(), conv, store.SettingsChange{Retention: &retention})
	b.must(err)
}

// age makes the events of a conversation up to a seq older.
func (b *bench) age(conv string, upTo int64, by time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE tidings.event SET created_at = created_at - $3::float8 * interval '1 second' WHERE conv_id = $1 AND seq <= $2`, conv, upTo, by.Seconds())
}

// step takes one step and expects what it did.
func (b *bench) step(conv string, limit, events, tombstones int, minSeq int64, more bool) {
	b.t.Helper()
	p, err := b.PurgeLog(b.t.Context(), conv, limit)
	b.must(err)
	if p.Events != events || p.Tombstones != tombstones || p.MinSeq != minSeq || p.More != more || p.Held <= 0 {
		b.t.Errorf("purged %+v, want %d events, %d tombstones, min_seq %d, more %t", p, events, tombstones, minSeq, more)
	}
	b.whole()
}

// The front of a log goes, in steps, and everybody who reads or sends is told so.
func TestPurgeLog(t *testing.T) {
	b := newTalk(t, 2)
	ctx := t.Context()
	b.keep("c-1", time.Hour)
	_, err := b.Join(ctx, "c-1", "u-cyd", "")
	b.must(err)
	cyd := said("c-1", "cyd-1")
	cyd.Sender = "u-cyd"
	b.say(cyd, said("c-1", "m-1"), said("c-1", "m-2"), said("c-1", "m-3")) // 4, 5, 6, 7
	_, err = b.Leave(ctx, "c-1", "u-cyd", "")                              // 8
	b.must(err)
	answer, err := b.Recall(ctx, store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-1", Target: 5}, true) // 9
	b.must(err)
	if answer.Code != "" || answer.Seq != 9 {
		t.Fatalf("the recall: %+v", answer)
	}
	b.say(said("c-1", "m-4"), said("c-1", "m-5")) // 10, 11
	_, err = b.Read(ctx, "u-ben", "c-1", 0, 4)
	b.must(err)
	b.age("c-1", 9, 2*time.Hour)
	b.exec(`DELETE FROM tidings.taken_back`)

	b.step("c-1", 3, 3, 0, 4, true)
	b.step("c-1", 3, 3, 3, 7, true)
	b.step("c-1", 3, 3, 2, 10, true) // a full step: it cannot know
	b.step("c-1", 3, 0, 0, 10, false)
	b.step("c-1", 100, 0, 0, 10, false)
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', sender_user, cmid, seq), ', ' ORDER BY seq) FROM tidings.tombstone`); got != "u-cyd cyd-1 4, u-ana m-1 5, u-ana m-2 6, u-ana m-3 7, u-ana r-1 9" {
		t.Errorf("tombstones: %s", got)
	}
	if got := one[string](b, `SELECT string_agg(concat_ws(' ', what, conv_id, epoch = (SELECT generation FROM tidings.lineage), cutoff_at < clock_timestamp() - interval '2 hours'), ', ') FROM tidings.taken_back`); got != "purge c-1 t t, purge c-1 t t, purge c-1 t t" {
		t.Errorf("the journal: %s", got)
	}

	for _, m := range []tidings.Message{cyd, said("c-1", "m-1"), said("c-1", "m-3")} {
		if a := b.say(m)[0]; a.Code != tidings.OriginalExpired || a.Seq == 0 {
			t.Errorf("a late resend of %s: %+v", m.Cmid, a)
		}
	}
	p, err := b.Sync(ctx, "u-ben", "c-1", 0, 0, 100)
	b.must(err)
	if p.MinSeq != 10 || p.Head != 11 || !p.Trimmed || len(p.Events) != 2 || !slices.Equal(p.Withheld, []store.Withheld{{From: 1, To: 1, Why: store.NotMemberAt}, {From: 2, To: 9, Why: store.Trimmed}}) {
		t.Errorf("a sync from the beginning: %+v", p)
	}
	p, err = b.Sync(ctx, "u-cyd", "c-1", 0, 0, 100)
	b.must(err)
	if p.MinSeq != 9 || p.Head != 8 || !p.Trimmed || len(p.Events) != 0 || !slices.Equal(p.Withheld, []store.Withheld{{From: 1, To: 2, Why: store.NotMemberAt}, {From: 3, To: 8, Why: store.Trimmed}}) {
		t.Errorf("a sync of one who has left: %+v", p)
	}
	if p, err = b.Sync(ctx, "u-ben", "c-1", 0, 9, 100); err != nil || p.Trimmed || len(p.Withheld) != 0 || len(p.Events) != 2 {
		t.Errorf("a sync from there on: %+v, %v", p, err)
	}
	for seq, want := range map[int64]tidings.Code{5: tidings.NotFound, 9: tidings.NotFound, 10: "", 12: tidings.NotFound} {
		_, _, err := b.Fetch(ctx, "u-ben", "c-1", 0, seq)
		if tidings.ErrorCode(err) != want {
			t.Errorf("fetch %d: %v", seq, err)
		}
	}
	if o, err := b.Outcome(ctx, "c-1", "u-cyd", "cyd-1"); err != nil || o.Stored != "purged" || o.Seq != 4 {
		t.Errorf("the outcome: %+v, %v", o, err)
	}
	if r, err := b.Read(ctx, "u-ben", "c-1", 0, 5); err != nil || r.Unread != 2 || r.Seq != 5 {
		t.Errorf("reading what is gone: %+v, %v", r, err)
	}
	list, _, err := b.Conversations(ctx, "u-cyd", "", "", 10)
	b.must(err)
	if len(list) != 1 || list[0].Head != 8 || list[0].MinSeq != 9 || list[0].Last != nil || list[0].Unread != 0 {
		t.Errorf("the list of one who has left: %+v", list)
	}
	if r, err := b.Recall(ctx, store.Recall{Conv: "c-1", User: "u-ana", Cmid: "r-2", Target: 6}, true); err != nil || r.Code != tidings.NotFound {
		t.Errorf("a recall of what is gone: %+v, %v", r, err)
	}

	// All of it.
	b.age("c-1", 11, 2*time.Hour)
	b.step("c-1", 100, 2, 2, 12, false)
	b.step("c-1", 100, 0, 0, 12, false)
	if p, err = b.Sync(ctx, "u-ana", "c-1", 0, 0, 100); err != nil || p.MinSeq != 12 || p.Head != 11 || !p.Trimmed || len(p.Events) != 0 {
		t.Errorf("an empty log: %+v, %v", p, err)
	}
	if a := b.say(said("c-1", "m-6"))[0]; a.Code != "" || a.Seq != 12 {
		t.Errorf("a message after the purge: %+v", a)
	}
	b.whole()
}

func TestPurgeLogOf(t *testing.T) {
	b := newTalk(t, 1)
	ctx := t.Context()
	for i := range 8 {
		b.say(said("c-1", fmt.Sprint("m-", i)))
	}
	b.age("c-1", 10, 50*time.Hour)
	b.step("c-1", 100, 0, 0, 1, false) // it is kept for ever
	b.keep("c-1", 24*time.Hour)
	_, err := b.PurgeLog(ctx, "c-2", 100)
	b.want(tidings.NotFound, err)
	_, err = b.PurgeLog(ctx, "c-1", 0)
	b.want(tidings.InvalidArgument, err)

	// A clock that was set back made 3 and 4 look younger than they are: up to the last old one of a step everything goes.
	b.exec(`UPDATE tidings.event SET created_at = clock_timestamp() WHERE seq IN (3, 4, 6, 7, 8, 9, 10)`)
	if p, err := b.PurgeLog(ctx, "c-1", 4); err != nil || p.Events != 2 || p.MinSeq != 3 || p.More {
		t.Errorf("2 old ones and 2 that look young: %+v, %v", p, err)
	}
	if p, err := b.PurgeLog(ctx, "c-1", 3); err != nil || p.Events != 3 || p.MinSeq != 6 || !p.More {
		t.Errorf("2 that look young and an old one: %+v, %v", p, err)
	}
	if p, err := b.PurgeLog(ctx, "c-1", 3); err != nil || p.Events != 0 || p.MinSeq != 6 || p.More {
		t.Errorf("young ones: %+v, %v", p, err)
	}
}

// A step that takes too long is taken back and tried again with less.
func TestSlowPurge(t *testing.T) {
	b := newTalk(t, 1)
	b.keep("c-1", time.Hour)
	batch := make([]tidings.Message, 126)
	for i := range batch {
		batch[i] = said("c-1", fmt.Sprint("m-", i))
	}
	b.say(batch...)
	b.age("c-1", 128, 2*time.Hour)
	b.exec(`CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END $$`)
	b.exec(`CREATE TRIGGER slowly BEFORE DELETE ON tidings.event FOR EACH ROW EXECUTE FUNCTION slowly()`)
	p, err := b.PurgeLog(t.Context(), "c-1", 128)
	b.must(err)
	if p.Events != 32 && p.Events != 16 || !p.More || p.MinSeq != int64(p.Events)+1 {
		t.Errorf("purged %+v", p)
	}
	b.whole()
	b.exec(`DROP TRIGGER slowly ON tidings.event`)
	all, err := b.PurgeLogs(t.Context())
	b.must(err)
	if all.Events != 128-p.Events || all.Conversations != 1 || all.Tombstones != all.Events || all.Longest <= 0 {
		t.Errorf("the rest: %+v", all)
	}
}

func TestExpired(t *testing.T) {
	b := newTalk(t, 9)
	for i := 1; i <= 9; i++ {
		conv := fmt.Sprint("c-", i)
		switch {
		case i%3 > 0:
			b.keep(conv, time.Hour)
			fallthrough
		case i == 3:
			b.age(conv, int64(1+i%2), 2*time.Hour)
		}
	}
	b.exec(`UPDATE tidings.event SET created_at = statement_timestamp() WHERE conv_id IN ('c-4', 'c-5')`)
	b.exec(`DELETE FROM tidings.event WHERE conv_id = 'c-8'`)
	b.exec(`UPDATE tidings.conversation SET min_seq = next_seq WHERE conv_id = 'c-8'`)
	var found []string
	pages := 0
	for after, more := "", true; more; pages++ {
		convs, next, again, err := b.Expired(t.Context(), after, 2)
		b.must(err)
		found, after, more = append(found, convs...), next, again
	}
	if !slices.Equal(found, []string{"c-1", "c-2", "c-7"}) || pages != 4 {
		t.Errorf("%q on %d pages", found, pages)
	}
	if convs, next, more, err := b.Expired(t.Context(), "c-8", 2); len(convs) != 0 || next != "c-8" || more || err != nil {
		t.Errorf("behind the last: %q, %q, %t, %v", convs, next, more, err)
	}
	all, err := b.PurgeLogs(t.Context())
	b.must(err)
	if all.Conversations != 3 || all.Events != 2+1+2 || all.Tombstones != 0 {
		t.Errorf("purged %+v", all)
	}
	b.whole()
}

// A clock that was ahead and was set back makes the front of a log look young: what is behind it goes all the same, and takes it with it.
func TestPurgeBehindAYoungFront(t *testing.T) {
	b := newTalk(t, 2)
	for _, conv := range []string{"c-1", "c-2"} {
		b.keep(conv, time.Hour)
		b.say(said(conv, "m-1"), said(conv, "m-2"), said(conv, "m-3")) // 3, 4, 5
	}
	b.age("c-1", 4, 2*time.Hour)
	b.exec(`UPDATE tidings.event SET created_at = statement_timestamp() + interval '1000 days' WHERE conv_id = 'c-1' AND seq <= 2`)
	if convs, _, _, err := b.Expired(t.Context(), "", 10); err != nil || !slices.Equal(convs, []string{"c-1"}) {
		t.Errorf("expired are %q, %v", convs, err)
	}
	all, err := b.PurgeLogs(t.Context())
	b.must(err)
	if all.Conversations != 1 || all.Events != 4 || all.Tombstones != 2 || one[int](b, `SELECT min_seq FROM tidings.conversation WHERE conv_id = 'c-1'`) != 5 {
		t.Errorf("purged %+v", all)
	}
	b.whole()
}

// One process looks at the conversations; another leaves them to it, and so does not look at all of them again.
func TestPurgeInTurn(t *testing.T) {
	b := newTalk(t, 2)
	ctx := t.Context()
	for _, conv := range []string{"c-1", "c-2"} {
		b.keep(conv, time.Hour)
		b.age(conv, 2, 2*time.Hour)
	}
	release := b.hold("c-1") // the first one is at it until then
	type done struct {
		all  store.PurgedLogs
		mine bool
		err  error
	}
	first := make(chan done, 1)
	go func() {
		all, mine, err := b.PurgeLogsInTurn(ctx)
		first <- done{all, mine, err}
	}()
	b.waiting(1)
	if all, mine, err := b.PurgeLogsInTurn(ctx); mine || err != nil || all != (store.PurgedLogs{}) {
		t.Errorf("the second: %+v, %t, %v", all, mine, err)
	}
	release()
	if d := <-first; !d.mine || d.err != nil || d.all.Conversations != 2 || d.all.Events != 4 {
		t.Errorf("the first: %+v", d)
	}
	if all, mine, err := b.PurgeLogsInTurn(ctx); !mine || err != nil || all != (store.PurgedLogs{}) {
		t.Errorf("afterwards: %+v, %t, %v", all, mine, err)
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := b.PurgeLogsInTurn(stopped); err == nil {
		t.Error("one that was stopped has done something")
	}
}

func TestForgetMessages(t *testing.T) {
	b := newTalk(t, 1)
	b.keep("c-1", time.Hour)
	b.say(said("c-1", "m-1"), said("c-1", "m-2"), said("c-1", "m-3"))
	b.age("c-1", 5, 2*time.Hour)
	b.step("c-1", 10, 5, 3, 6, false)
	b.exec(`UPDATE tidings.tombstone SET purged_at = purged_at - interval '49 hours' WHERE seq < 5`)
	forget := func(limit, want int, wantMore bool) {
		t.Helper()
		if n, more, err := b.ForgetMessages(t.Context(), 48*time.Hour, limit); n != want || more != wantMore || err != nil {
			t.Errorf("forgotten %d, %t, %v, want %d, %t", n, more, err, want, wantMore)
		}
	}
	forget(1, 1, true)
	forget(10, 1, false)
	forget(10, 0, false)
	if a := b.say(said("c-1", "m-3"))[0]; a.Code != tidings.OriginalExpired {
		t.Errorf("one that is kept: %+v", a)
	}
	if a := b.say(said("c-1", "m-1"))[0]; a.Code != "" || a.Dup || a.Seq != 6 {
		t.Errorf("one that is forgotten is a new message: %+v", a)
	}
	b.whole()
}

// What somebody holds is left to the next time; the others are purged.
func TestPurgeOfWhatIsHeld(t *testing.T) {
	b := newTalk(t, 3)
	for _, conv := range []string{"c-1", "c-2", "c-3"} {
		b.keep(conv, time.Hour)
		b.age(conv, 2, 2*time.Hour)
	}
	release := b.hold("c-2")
	all, err := b.PurgeLogs(t.Context())
	b.want(tidings.Unavailable, err)
	if all.Conversations != 2 || all.Events != 4 {
		t.Errorf("purged %+v", all)
	}
	release()
	all, err = b.PurgeLogs(t.Context())
	b.must(err)
	if all.Conversations != 1 || all.Events != 2 {
		t.Errorf("purged %+v", all)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.PurgeLogs(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// Two purge while others send, send again, sync, recall, join and leave: no page has a hole that is not explained, no cmid becomes two
// messages, and each step leaves the log whole.
func TestConcurrentPurge(t *testing.T) {
	b := newTalk(t, 2)
	ctx := t.Context()
	const retention = 25 * time.Millisecond
	for _, conv := range []string{"c-1", "c-2"} {
		b.keep(conv, retention)
	}
	const senders, each = 4, 60
	stop := make(chan struct{})
	var beside, sending sync.WaitGroup
	loop := func(f func(conv string)) {
		beside.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(fmt.Sprint("c-", 1+i%2))
				}
			}
		})
	}
	var events, passes, trimmed, expired, dups, recalled atomic.Int64
	for range 2 {
		loop(func(conv string) {
			p, err := b.PurgeLog(ctx, conv, 7)
			if err != nil {
				t.Error(err)
			}
			events.Add(int64(p.Events))
			passes.Add(1)
		})
	}
	loop(func(conv string) {
		for after, more := int64(0), true; more; { // from the beginning, in pages: the store refuses a page with a hole
			p, err := b.Sync(ctx, "u-ben", conv, 0, after, 5)
			if err != nil {
				t.Error(err)
				return
			}
			if p.Trimmed {
				trimmed.Add(1)
			}
			if more = p.More; more {
				after = p.Events[len(p.Events)-1].Seq
			}
		}
		if _, _, err := b.Conversations(ctx, "u-ben", "", "", 10); err != nil {
			t.Error(err)
		}
	})
	loop(func(conv string) {
		if _, err := b.Join(ctx, conv, "u-cyd", ""); err != nil {
			t.Error(err)
		}
		if _, err := b.Leave(ctx, conv, "u-cyd", ""); err != nil {
			t.Error(err)
		}
	})
	for s := range senders {
		sending.Go(func() {
			conv := fmt.Sprint("c-", 1+s%2)
			for i := range each {
				m := said(conv, fmt.Sprintf("s-%d-%d", s, i))
				first, err := b.Send(ctx, []tidings.Message{m}, time.Minute)
				if err != nil || first[0].Code != "" || first[0].Dup {
					t.Errorf("%+v, %v", first, err)
					return
				}
				for _, late := range []int{i, i / 2, 0} {
					again, err := b.Send(ctx, []tidings.Message{said(conv, fmt.Sprintf("s-%d-%d", s, late))}, time.Minute)
					switch {
					case err == nil && again[0].Code == tidings.OriginalExpired:
						expired.Add(1)
					case err == nil && again[0].Code == "" && again[0].Dup:
						dups.Add(1)
					default:
						t.Errorf("sent again: %+v, %v", again, err)
					}
				}
				r, err := b.Recall(ctx, store.Recall{Conv: conv, User: "u-ana", Cmid: fmt.Sprintf("r-%d-%d", s, i), Target: first[0].Seq}, true)
				switch {
				case err == nil && r.Code == "":
					recalled.Add(1)
				case err != nil || r.Code != tidings.NotFound:
					t.Errorf("recalled: %+v, %v", r, err)
				}
			}
		})
	}
	watched := make(chan struct{})
	go func() { sending.Wait(); close(watched) }()
	for looking := true; looking; {
		select {
		case <-watched:
			looking = false
		default:
			b.whole()
		}
	}
	close(stop)
	beside.Wait()
	time.Sleep(2 * retention)
	for _, conv := range []string{"c-1", "c-2"} {
		for more := true; more; {
			p, err := b.PurgeLog(ctx, conv, 100)
			b.must(err)
			events.Add(int64(p.Events))
			more = p.More
		}
	}
	b.whole()
	if left, gone := one[int64](b, `SELECT count(*) FROM tidings.event`), one[int64](b, `SELECT sum(min_seq - 1) FROM tidings.conversation`); left != 0 || gone != events.Load() {
		t.Errorf("%d events are left; %d are gone, and the steps say %d", left, gone, events.Load())
	}
	if keys := one[int64](b, `SELECT count(*) FROM tidings.tombstone`); keys != senders*each+recalled.Load() {
		t.Errorf("%d tombstones of %d messages and %d recalls", keys, senders*each, recalled.Load())
	}
	if n := one[int64](b, `SELECT count(*) FROM tidings.taken_back WHERE what = 'recall'`); n != recalled.Load() {
		t.Errorf("the journal has %d of %d recalls", n, recalled.Load())
	}
	for what, n := range map[string]int64{"pages with purged events": trimmed.Load(), "resends of purged messages": expired.Load(), "repeats": dups.Load(), "recalls": recalled.Load()} {
		if n == 0 {
			t.Errorf("there were no %s", what)
		}
	}
	t.Logf("%d steps, %d trimmed pages, %d expired, %d dups, %d recalls", passes.Load(), trimmed.Load(), expired.Load(), dups.Load(), recalled.Load())
}
