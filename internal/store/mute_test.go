// Tests of mutes.

package store_test

import (
	"testing"
	"time"

	"github.com/tidings-project/tidings"
)

// mute mutes c-1 and expects whether it is muted then.
func (b *bench) mute(user string, until *time.Time, want bool) {
	b.t.Helper()
	if muted, err := b.Mute(b.t.Context(), "c-1", user, until); muted != want || err != nil {
		b.t.Errorf("Mute = %t, %v", muted, err)
	}
}

func TestMute(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	b.mute("u-ben", nil, true)
	b.say(said("c-1", "m-1"))
	b.later(61 * time.Second)
	b.look(1, 0)
	at := time.Now().Add(time.Hour)
	b.mute("u-ben", &at, true)
	b.say(said("c-1", "m-2"))
	b.later(61 * time.Second)
	b.look(1, 0)
	b.exec(`UPDATE tidings.mute SET until = statement_timestamp()`)
	b.say(said("c-1", "m-3"))
	b.later(61 * time.Second)
	b.look(1, 1)
	past := time.Now().Add(-time.Hour)
	b.mute("u-ben", &past, false)
	b.must(b.Unmute(ctx, "c-1", "u-ben"))
	b.must(b.Unmute(ctx, "c-1", "u-ben"))
	b.mute("u-ben", nil, true)
	_, err := b.Leave(ctx, "c-1", "u-ben", "")
	b.must(err)
	if n := one[int](b, `SELECT count(*) FROM tidings.mute`); n != 0 {
		t.Error("a leave does not end the mute")
	}
	for _, user := range []string{"u-ben", "u-cyd"} {
		_, err := b.Mute(ctx, "c-1", user, nil)
		b.want(tidings.NotMember, err)
		b.want(tidings.NotMember, b.Unmute(ctx, "c-1", user))
	}
	_, err = b.Mute(ctx, "c-none", "u-ben", nil)
	b.want(tidings.NotMember, err)
	_, err = b.Mute(ctx, "c-1", "a b", nil)
	b.want(tidings.InvalidArgument, err)
}

// Mutes and leaves at once: no mute outlives its membership.
func TestMuteBesideLeave(t *testing.T) {
	b := newWatched(t, 1)
	ctx := t.Context()
	for range 20 {
		_, err := b.Join(ctx, "c-1", "u-cyd", "")
		b.must(err)
		atOnce(2, func(i int) {
			if i == 0 {
				if _, err := b.Mute(ctx, "c-1", "u-cyd", nil); err != nil && tidings.ErrorCode(err) != tidings.NotMember {
					t.Error(err)
				}
			} else if _, err := b.Leave(ctx, "c-1", "u-cyd", ""); err != nil {
				t.Error(err)
			}
		})
		if n := one[int](b, `SELECT count(*) FROM tidings.mute`); n != 0 {
			t.Fatal("a mute outlives the membership")
		}
	}
}
