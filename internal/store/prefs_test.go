// Tests of preferences and opt-outs.

package store_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestPrefVersions(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	pref := store.Pref{Channel: "push", Slot: "phone", Address: "a", Enabled: true}
	zero, wrong := int64(0), int64(1)

	_, err := b.PutPref(ctx, "u-ana", pref, &wrong)
	b.want(tidings.Conflict, err)
	made, err := b.PutPref(ctx, "u-ana", pref, &zero)
	b.must(err)
	_, err = b.PutPref(ctx, "u-ana", pref, &zero)
	b.want(tidings.Conflict, err)

	same, err := b.PutPref(ctx, "u-ana", pref, &made.Version)
	b.must(err)
	pref.Address = "b"
	changed, err := b.PutPref(ctx, "u-ana", pref, nil)
	b.must(err)
	if same.Version != made.Version || !same.UpdatedAt.Equal(made.UpdatedAt) || changed.Version != made.Version+1 || !changed.UpdatedAt.After(made.UpdatedAt) {
		t.Errorf("made %+v, put again %+v, changed %+v", made, same, changed)
	}
	pref.Enabled = false
	_, err = b.PutPref(ctx, "u-ana", pref, &made.Version)
	b.want(tidings.Conflict, err)
	all, err := b.GetPrefs(ctx, "u-ana")
	b.must(err)
	if len(all) != 1 || all[0].Address != "b" || !all[0].Enabled || all[0].Version != changed.Version || all[0].Slot != "phone" {
		t.Errorf("GetPrefs = %+v", all)
	}
}

func TestPrefRefusesBadInput(t *testing.T) {
	b := newBench(t)
	for _, p := range []store.Pref{{Channel: "", Address: "a"}, {Channel: "a/b", Address: "a"}, {Channel: "a", Slot: "ü", Address: "a"},
		{Channel: "a", Address: ""}, {Channel: "a", Address: strings.Repeat("x", 4097)}, {Channel: "a", Address: "a\x00b"}, {Channel: "a", Address: "\xff"}} {
		_, err := b.PutPref(t.Context(), "u-ana", p, nil)
		b.want(tidings.InvalidArgument, err)
		if err != nil && p.Address != "" && len(p.Address) > 1 && strings.Contains(err.Error(), p.Address) {
			t.Errorf("the error repeats the address")
		}
	}
	_, err := b.PutPref(t.Context(), "u ana", store.Pref{Channel: "a", Address: "a"}, nil)
	b.want(tidings.InvalidArgument, err)
	if n := one[int](b, `SELECT count(*) FROM tidings.channel_pref`); n != 0 {
		t.Errorf("%d preferences were stored", n)
	}
}

// A preference that is made again never has a version that an address before it had, so that the provider's late word on that
// one does not switch it off.
func TestDisableAddress(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	put := func(address string) store.Pref {
		p, err := b.PutPref(ctx, "u-ana", store.Pref{Channel: "push", Address: address, Enabled: true}, nil)
		b.must(err)
		return p
	}
	disable := func(version int64, want bool) {
		t.Helper()
		if got, err := b.DisableAddress(ctx, "u-ana", "push", "", version); got != want || err != nil {
			t.Errorf("DisableAddress(%d) = %t, %v", version, got, err)
		}
	}
	old := put("old")
	if gone, err := b.DeletePref(ctx, "u-ana", "push", ""); !gone || err != nil {
		t.Fatalf("DeletePref = %t, %v", gone, err)
	}
	if gone, err := b.DeletePref(ctx, "u-ana", "push", ""); gone || err != nil {
		t.Fatalf("a second DeletePref = %t, %v", gone, err)
	}
	b.exec(`SELECT pg_sleep(0.002)`) // versions begin with the milliseconds
	made := put("new")
	disable(old.Version, false)
	changed := put("newer")
	disable(made.Version, false)
	disable(changed.Version, true)
	disable(changed.Version, false)
	all, err := b.GetPrefs(ctx, "u-ana")
	b.must(err)
	if all[0].Enabled || all[0].Version != changed.Version+1 || all[0].Address != "newer" {
		t.Errorf("in the end %+v", all[0])
	}
}

// Of many writers who saw one version, one writes; a first version too is made once.
func TestPutPrefAtOnce(t *testing.T) {
	b := newBench(t)
	for round, version := 0, int64(0); round < 5; round++ {
		var won atomic.Int32
		var next atomic.Int64
		atOnce(8, func(i int) {
			seen := version
			p, err := b.PutPref(t.Context(), "u-ana", store.Pref{Channel: "push", Address: strings.Repeat("x", round*8+i+1), Enabled: true}, &seen)
			switch tidings.ErrorCode(err) {
			case "":
				won.Add(1)
				next.Store(p.Version)
			case tidings.Conflict:
			default:
				t.Error(err)
			}
		})
		if won.Load() != 1 {
			t.Fatalf("round %d: %d wrote", round, won.Load())
		}
		version = next.Load()
	}
}

func TestOptouts(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for i, want := range []bool{true, false} {
		if got, err := b.PutOptout(ctx, "u-ana", "news", ""); got != want || err != nil {
			t.Errorf("PutOptout %d = %t, %v", i, got, err)
		}
	}
	_, err := b.PutOptout(ctx, "u-ana", "news", "push")
	b.must(err)
	all, err := b.ListOptouts(ctx, "u-ana")
	b.must(err)
	if len(all) != 2 || all[0].Category != "news" || all[0].Channel != "" || all[1].Channel != "push" {
		t.Errorf("ListOptouts = %+v", all)
	}

	optedOut := b.task(push, "u-ana", "e1", func(n *tidings.Notification) { n.Category = "news" })
	if c := b.claimOne(push); c.State != tidings.Suppressed || c.Stop != tidings.PrefDisabled {
		t.Errorf("the claim of %s found %s, %s", optedOut, c.State, c.Stop)
	}
	for _, channel := range []string{"", "push"} {
		for i, want := range []bool{true, false} {
			if got, err := b.DeleteOptout(ctx, "u-ana", "news", channel); got != want || err != nil {
				t.Errorf("DeleteOptout %d = %t, %v", i, got, err)
			}
		}
	}
	b.task(push, "u-ana", "e2", func(n *tidings.Notification) { n.Category = "news" })
	if c := b.claimOne(push); c.State != tidings.Sending {
		t.Errorf("after the opt-outs were taken back the claim found %s", c.State)
	}
	for _, bad := range [][2]string{{"", ""}, {"a b", ""}, {"news", "a/b"}} {
		_, err := b.PutOptout(ctx, "u-ana", bad[0], bad[1])
		b.want(tidings.InvalidArgument, err)
	}
}
