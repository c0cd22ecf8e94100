// Tests of what is withheld from a user, and of the sum over routes.

package store

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// The ranges that a view withholds are what a look at each seq alone gives, in as few ranges as possible.
func TestWithheldAgreesWithEachSeq(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.Int64Range(1, 40).Draw(t, "head")
		minSeq := rapid.Int64Range(1, head+1).Draw(t, "minSeq")
		var joins []int64
		var leaves []*int64
		in := func(seq int64) bool { // independent of span and view
			for i := range joins {
				if joins[i] <= seq && (leaves[i] == nil || seq <= *leaves[i]) {
					return true
				}
			}
			return false
		}
		for at := rapid.Int64Range(1, head).Draw(t, "join"); ; {
			joins, leaves = append(joins, at), append(leaves, nil)
			if at == head || rapid.Bool().Draw(t, "stays") {
				break
			}
			leave := rapid.Int64Range(at+1, head).Draw(t, "leave")
			leaves[len(leaves)-1] = &leave
			if leave == head || rapid.Bool().Draw(t, "gone") {
				break
			}
			at = rapid.Int64Range(leave+1, head).Draw(t, "rejoin")
		}
		v := newView(7, head, minSeq, joins, leaves)
		seen := head
		if last := leaves[len(leaves)-1]; last != nil {
			seen = *last
		}
		if v.head != seen || v.minSeq != min(minSeq, seen+1) {
			t.Fatalf("head %d and min_seq %d, want %d and %d", v.head, v.minSeq, seen, min(minSeq, seen+1))
		}
		after := rapid.Int64Range(0, seen).Draw(t, "after")
		last := rapid.Int64Range(after, seen).Draw(t, "last")
		why := func(seq int64) string {
			switch {
			case !in(seq):
				return NotMemberAt
			case seq < minSeq:
				return Trimmed
			}
			return ""
		}
		ranges, n := v.withheld(after, last)
		told := map[int64]string{}
		for i, r := range ranges {
			if r.From > r.To || i > 0 && (ranges[i-1].To >= r.From || ranges[i-1].To == r.From-1 && ranges[i-1].Why == r.Why) {
				t.Fatalf("the ranges %v overlap, are out of order or in pieces", ranges)
			}
			for seq := r.From; seq <= r.To; seq++ {
				told[seq] = r.Why
			}
		}
		if int64(len(told)) != n {
			t.Fatalf("%d seqs are withheld, counted were %d", len(told), n)
		}
		for seq := int64(0); seq <= head+1; seq++ {
			want := ""
			if after < seq && seq <= last {
				want = why(seq)
			}
			if told[seq] != want {
				t.Fatalf("of (%d, %d] seq %d is %q, want %q: %v", after, last, seq, told[seq], want, ranges)
			}
			if v.member(seq) != in(seq) {
				t.Fatalf("member at %d: %t", seq, v.member(seq))
			}
		}
	})
}

func TestRouteSumIsOrderless(t *testing.T) {
	var a, b [16]byte
	for i := range a {
		a[i], b[i] = byte(rand.UintN(256)), byte(rand.UintN(256))
	}
	a[15], b[15] = 1, 2
	if RouteSum(a) == RouteSum(b) || RouteSum(a) < 0 || RouteSum(a) >= 1<<40 {
		t.Fatalf("sums %d and %d", RouteSum(a), RouteSum(b))
	}
}
