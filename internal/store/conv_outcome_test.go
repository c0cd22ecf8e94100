// Tests of what became of a send.

package store_test

import (
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestOutcome(t *testing.T) {
	b := newTalk(t, 1)
	epoch := one[int64](b, `SELECT generation FROM tidings.lineage`)
	b.say(said("c-1", "m-1"))
	b.exec(`INSERT INTO tidings.tombstone (conv_id, sender_user, cmid, seq) VALUES ('c-1', 'u-ana', 'purged', 77), ('c-1', 'u-eve', 'purged', 78)`)
	_, err := b.Leave(t.Context(), "c-1", "u-ben", "")
	b.must(err)
	for _, test := range []struct {
		conv, user, cmid string
		want             store.Outcome
		code             tidings.Code
	}{
		{"c-1", "u-ana", "m-1", store.Outcome{Epoch: epoch, Stored: "yes", Seq: 3}, ""},
		{"c-1", "u-ana", "m-2", store.Outcome{Epoch: epoch, Stored: "no"}, ""},
		{"c-1", "u-ana", "purged", store.Outcome{Epoch: epoch, Stored: "purged", Seq: 77}, ""},
		{"c-1", "u-ben", "m-1", store.Outcome{Epoch: epoch, Stored: "no"}, ""}, // another's cmid is not one's own
		{"c-1", "u-eve", "purged", store.Outcome{Epoch: epoch, Stored: "purged", Seq: 78}, ""},
		{"c-1", "u-eve", "m-1", store.Outcome{}, tidings.NotMember},
		{"c-none", "u-ana", "m-1", store.Outcome{}, tidings.NotMember},
	} {
		got, err := b.Outcome(t.Context(), test.conv, test.user, test.cmid)
		if got != test.want || tidings.ErrorCode(err) != test.code {
			t.Errorf("%s %s %s: %+v, %v", test.conv, test.user, test.cmid, got, err)
		}
	}
}

// The question waits for a commit that is under way, and sees it.
func TestOutcomeWaits(t *testing.T) {
	b := newTalk(t, 1)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	_, err = tx.Exec(t.Context(), `SELECT tidings.post_v1('{"conv":"c-1","sender":"u-ana","cmid":"m-1","body":"b"}')`)
	b.must(err)
	type result struct {
		o   store.Outcome
		err error
	}
	done := make(chan result)
	go func() {
		o, err := b.Outcome(t.Context(), "c-1", "u-ana", "m-1")
		done <- result{o, err}
	}()
	b.waiting(1)
	b.must(tx.Commit(t.Context()))
	if r := <-done; r.err != nil || r.o.Stored != "yes" || r.o.Seq != 3 {
		t.Errorf("%+v, %v", r.o, r.err)
	}
}
