// Tests of the taking of journal rows.

package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

// takings copies everything that was not copied yet to the journal of a directory.
func (b *bench) takings(dir string) (n int) {
	b.t.Helper()
	n, err := b.TakeTakings(b.t.Context(), 1000, appendTo(dir))
	b.must(err)
	return n
}

func appendTo(dir string) func([]outside.Taking) error {
	return func(takings []outside.Taking) error {
		j, err := outside.OpenJournal(dir)
		if err != nil {
			return err
		}
		return errors.Join(j.Append(takings), j.Close())
	}
}

func (b *bench) journal(dir string) []outside.Line {
	b.t.Helper()
	all, err := outside.ReadJournal(outside.JournalPath(dir))
	b.must(err)
	return all
}

// lag is what the gauge of the journal says.
func (b *bench) lag() float64 {
	b.t.Helper()
	g, err := b.Gauges(b.t.Context(), nil)
	b.must(err)
	return g.JournalLag
}

func TestTakeTakings(t *testing.T) {
	b := newTalk(t, 1)
	ctx, dir := t.Context(), t.TempDir()
	if n := b.takings(dir); n != 0 || b.lag() != 0 {
		t.Errorf("%d takings of a log of joins, lag %v", n, b.lag())
	}
	b.say(said("c-1", "m-1"), said("c-1", "m-2"))
	b.recalls("one", takes(3, "r-1"), "", 5, false)
	_, err := b.Leave(ctx, "c-1", "u-ben", "")
	b.must(err)
	_, err = b.Join(ctx, "c-1", "u-ben", "")
	b.must(err)
	_, err = b.Join(ctx, "c-1", "u-new", "") // was never there: nothing is taken back
	b.must(err)
	b.exec(`UPDATE tidings.taken_back SET at = at - interval '1 hour' WHERE what = 'recall'`)
	if lag := b.lag(); lag < 3600 || lag > 3700 {
		t.Errorf("lag %v", lag)
	}

	// What cannot be written stays as it is.
	_, err = b.TakeTakings(ctx, 10, func([]outside.Taking) error { return errors.New("the disk is full") })
	b.want(tidings.Unavailable, err)
	if !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("the cause is lost: %v", err)
	}
	n, err := b.TakeTakings(ctx, 2, func(got []outside.Taking) error {
		other, err := b.TakeTakings(ctx, 2, func([]outside.Taking) error { return errors.New("two at the same time") })
		if other != 0 || err != nil {
			t.Errorf("meanwhile %d, %v", other, err)
		}
		return appendTo(dir)(got)
	})
	b.must(err)
	if n != 2 || b.takings(dir) != 1 || b.takings(dir) != 0 || b.lag() != 0 {
		t.Errorf("%d were taken first, lag %v", n, b.lag())
	}
	epoch := one[int64](b, `SELECT generation FROM tidings.lineage`)
	mid := one[string](b, `SELECT mid::text FROM tidings.event WHERE seq = 3`)
	all := b.journal(dir)
	if len(all) != 3 {
		t.Fatalf("the journal is %+v", all)
	}
	for i, want := range []outside.Taking{
		{What: outside.TookRecall, Conv: "c-1", Mid: mid, User: "u-ana", Cmid: "m-1", Epoch: epoch},
		{What: outside.TookLeave, Conv: "c-1", User: "u-ben", Epoch: epoch},
		{What: outside.TookJoin, Conv: "c-1", User: "u-ben", Epoch: epoch},
	} {
		got := all[i].Taking
		at := one[time.Time](b, `SELECT at FROM tidings.taken_back WHERE id = $1 AND copied`, got.ID)
		if got.At.Equal(at) {
			got.ID, got.At = tidings.UUID{}, time.Time{}
		}
		want.Installation = one[tidings.UUID](b, `SELECT id FROM tidings.installation`)
		if got != want {
			t.Errorf("line %d is %+v, want %+v", i+1, got, want)
		}
	}

	// What was copied is forgotten by age; what was not, only where nobody copies.
	b.exec(`UPDATE tidings.taken_back SET at = at - interval '36 days', copied = what <> 'leave'`)
	forget := func(uncopied bool, limit, want int, wantMore bool) {
		t.Helper()
		n, more, err := b.ForgetTakings(ctx, 35*24*time.Hour, uncopied, limit)
		b.must(err)
		if n != want || more != wantMore {
			t.Errorf("forgotten %d, more %t; want %d, %t", n, more, want, wantMore)
		}
	}
	forget(false, 1, 1, true)
	forget(false, 10, 1, false)
	forget(false, 10, 0, false)
	forget(true, 10, 1, false)
	if n := one[int](b, `SELECT count(*) FROM tidings.taken_back`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// Whatever order they commit in, and however late, each taking reaches the journal once.
func TestTakeTakingsMissesNothing(t *testing.T) {
	const writers, each = 4, 10
	b := newTalk(t, writers)
	ctx, dir := t.Context(), t.TempDir()
	for w := range writers {
		for r := range each {
			b.say(said(fmt.Sprintf("c-%d", w+1), fmt.Sprintf("m-%d", r)))
		}
	}
	// Written first and committed last, by hand: its time is before that of all others.
	late, err := b.pool.Begin(ctx)
	b.must(err)
	_, err = late.Exec(ctx, `INSERT INTO tidings.taken_back (conv_id, what, user_id, epoch) VALUES ('c-1', 'leave', 'u-late', 2000)`)
	b.must(err)

	stop := make(chan struct{})
	var takers sync.WaitGroup
	for range 2 {
		takers.Go(func() {
			for last := false; ; {
				n, err := b.TakeTakings(ctx, 7, appendTo(dir))
				if err != nil {
					t.Error(err)
					return
				}
				if last && n == 0 {
					return
				}
				select {
				case <-stop:
					last = true
				default:
				}
			}
		})
	}
	atOnce(writers, func(w int) {
		for r := range each {
			a, err := b.Recall(ctx, store.Recall{Conv: fmt.Sprintf("c-%d", w+1), User: "u-ana", Cmid: fmt.Sprintf("r-%d", r), Target: int64(3 + r)}, false)
			if err != nil || a.Code != "" {
				t.Errorf("%+v %v", a, err)
			}
		}
	})
	for deadline := time.Now().Add(30 * time.Second); one[int](b, `SELECT count(*) FROM tidings.taken_back WHERE NOT copied`) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("not everything is copied")
		}
	}
	b.must(late.Commit(ctx))
	close(stop)
	takers.Wait()
	b.takings(dir) // if the last of both met the other
	if all := b.journal(dir); len(all) != writers*each+1 {
		t.Errorf("%d lines", len(all))
	}
	text, err := os.ReadFile(outside.JournalPath(dir))
	b.must(err)
	if n := strings.Count(string(text), "\n"); n != writers*each+1 || !strings.Contains(string(text), "u-late") {
		t.Errorf("%d lines, some of them twice", n)
	}
}

// A process that is killed between the journal and the mark appends the same again, which is read once.
func TestTakingsAfterAKill(t *testing.T) {
	const hold = "TIDINGS_TEST_TAKES_FROM"
	if url := os.Getenv(hold); url != "" {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.New(pool).TakeTakings(t.Context(), 10, func(got []outside.Taking) error {
			if err := appendTo(os.Getenv(hold + "_TO"))(got); err != nil {
				return err
			}
			fmt.Println("appended")
			select {} // until it is killed
		})
		t.Fatal(err)
	}
	b := newTalk(t, 1)
	dir := t.TempDir()
	b.say(said("c-1", "m-1"))
	b.recalls("one", takes(3, "r-1"), "", 4, false)
	cmd := exec.Command(os.Args[0], "-test.run=^TestTakingsAfterAKill$")
	cmd.Env = append(os.Environ(), hold+"="+b.pool.Config().ConnString(), hold+"_TO="+dir)
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "appended\n" {
		t.Errorf("the process says %q, %v", line, err)
	}
	b.must(cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	if got := b.journal(dir); len(got) != 1 || one[int](b, `SELECT count(*) FROM tidings.taken_back WHERE NOT copied`) != 1 {
		t.Fatalf("after the kill %+v", got)
	}
	for deadline := time.Now().Add(30 * time.Second); b.takings(dir) == 0; { // the server has to notice first
		if time.Now().After(deadline) {
			t.Fatal("the lock of the killed process stays")
		}
	}
	text, err := os.ReadFile(outside.JournalPath(dir))
	b.must(err)
	if got := b.journal(dir); len(got) != 1 || strings.Count(string(text), "\n") != 2 {
		t.Errorf("the journal is %s, read as %+v", text, got)
	}
}
