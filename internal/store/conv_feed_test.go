// Tests of what gateways read of logs.

package store_test

import (
	"testing"

	"github.com/tidings-project/tidings"
)

// A feed reads the whole log, whoever may see it, but never a recalled body.
func TestLog(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	h := b.fill("c", "join ana", "msg ana", "join ben", "leave ana", "msg ben", "recall ben 5", "msg ben")
	now, head, events, err := b.Log(ctx, "c", epoch, 0, 4)
	b.must(err)
	if now != epoch || head != 7 || len(events) != 4 {
		t.Fatalf("the log is at %d of %d with %d events", head, now, len(events))
	}
	_, _, rest, err := b.Log(ctx, "c", 0, 4, 100)
	b.must(err)
	for i, e := range append(events, rest...) {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has the seq %d", i+1, e.Seq)
		}
		h.check(b, e)
	}
	now, head, events, err = b.Log(ctx, "c", 5, 0, 4)
	b.must(err)
	if now != epoch || head != 7 || events != nil {
		t.Errorf("another epoch: %d, %d, %v", now, head, events)
	}
	if _, _, events, err = b.Log(ctx, "c", epoch, 7, 4); err != nil || len(events) != 0 {
		t.Errorf("beyond the head: %v, %v", events, err)
	}
	_, _, _, err = b.Log(ctx, "absent", 0, 0, 4)
	b.want(tidings.NotFound, err)
}

// What a feed starts from: the open intervals and the position of the log.
func TestMembershipsAndHeads(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fill("c", "join ana", "leave ana", "join ben", "join ana", "msg ana")
	b.fill("d", "join ana", "leave ana")
	b.fill("e", "join ben", "join ana")
	all, err := b.MembershipsOf(ctx, "ana")
	b.must(err)
	if len(all) != 2 || all[0].Conv != "c" || all[0].User != "ana" || all[0].Epoch != epoch || all[0].Head != 5 || all[0].JoinSeq != 4 || all[0].LeaveSeq != nil ||
		all[1].Conv != "e" || all[1].JoinSeq != 2 {
		t.Errorf("ana is in %+v", all)
	}
	if all, err = b.MembershipsOf(ctx, "eve"); err != nil || len(all) != 0 {
		t.Errorf("eve is in %+v, %v", all, err)
	}
	head, now, in, err := b.MembersAmong(ctx, "c", []string{"eve", "ben", "ana"})
	b.must(err)
	if head != 5 || now != epoch || len(in) != 2 {
		t.Errorf("of c at %d, %d there are %+v", head, now, in)
	}
	for _, i := range in {
		if want := map[string]int64{"ana": 4, "ben": 3}[i.User]; i.JoinSeq != want || i.LeaveSeq != nil {
			t.Errorf("a member of c is %+v", i)
		}
	}
	head, now, in, err = b.MembersAmong(ctx, "d", []string{"ana"})
	b.must(err)
	if head != 2 || now != epoch || in != nil {
		t.Errorf("of d at %d, %d there are %+v", head, now, in)
	}
	_, _, _, err = b.MembersAmong(ctx, "absent", []string{"ana"})
	b.want(tidings.NotFound, err)
	heads, err := b.Heads(ctx, []string{"d", "absent", "c"})
	b.must(err)
	found := map[string]int64{}
	for _, h := range heads {
		found[h.Conv] = h.Head
	}
	if len(found) != 2 || found["c"] != 5 || found["d"] != 2 {
		t.Errorf("the heads are %+v", heads)
	}
}
