// Tests of the queue of what gateways have to hear of.

package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestTakePosted(t *testing.T) {
	b := newTalk(t, 1)
	_, err := b.Join(t.Context(), "c-1", "u-cyd", "")
	b.must(err)
	_, err = b.Leave(t.Context(), "c-1", "u-cyd", "")
	b.must(err)
	b.say(said("c-1", "m-1")) // a gateway's own send is not posted
	all := []store.Posted{{"c-1", 1, "u-ana"}, {"c-1", 2, "u-ben"}, {"c-1", 3, "u-cyd"}, {"c-1", 4, ""}}

	n, err := b.TakePosted(t.Context(), 10, func(got []store.Posted) error {
		if !slices.Equal(got, all) {
			t.Errorf("posted are %v", got)
		}
		return errors.New("the bus is away")
	})
	b.want(tidings.Unavailable, err)
	if n != 0 {
		t.Errorf("%d were taken in spite of the error", n)
	}
	for _, part := range [][]store.Posted{all[:3], all[3:], nil} {
		n, err := b.TakePosted(t.Context(), 3, func(got []store.Posted) error {
			if !slices.Equal(got, part) {
				t.Errorf("posted are %v, want %v", got, part)
			}
			// Meanwhile nobody else takes any, and nobody waits.
			n, err := b.TakePosted(t.Context(), 3, func([]store.Posted) error { return errors.New("called at the same time") })
			if n != 0 || err != nil {
				t.Errorf("another took %d, %v", n, err)
			}
			return nil
		})
		b.must(err)
		if n != len(part) {
			t.Errorf("%d were taken, want %d", n, len(part))
		}
	}
}

// Whatever order they commit in, each posted event is handed out.
func TestTakePostedMissesNothing(t *testing.T) {
	const writers, each = 6, 10
	b := newTalk(t, writers)
	b.exec(`DELETE FROM tidings.posted`)
	var mu sync.Mutex
	seen := map[store.Posted]int{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			last := false
			select {
			case <-stop:
				last = true
			default:
			}
			n, err := b.TakePosted(t.Context(), 7, func(got []store.Posted) error {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range got {
					seen[p]++
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			if last && n == 0 {
				return
			}
		}
	}()
	atOnce(writers, func(w int) {
		for r := range each {
			if _, err := b.pool.Exec(t.Context(), `SELECT tidings.post_v1(json_build_object('conv', $1::text, 'sender', 'u-ana', 'cmid', $2::text, 'body', 'b'))`,
				fmt.Sprintf("c-%d", w+1), fmt.Sprintf("m-%d", r)); err != nil {
				t.Error(err)
			}
		}
	})
	close(stop)
	<-stopped
	for w := range writers {
		for r := range each {
			if n := seen[store.Posted{Conv: fmt.Sprintf("c-%d", w+1), Seq: int64(r + 3)}]; n != 1 {
				t.Errorf("c-%d %d was handed out %d times", w+1, r+3, n)
			}
		}
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.posted`); n != 0 {
		t.Errorf("%d are left", n)
	}
}
