// Recovery after a restore: what the journal says was taken back in the lost time is taken back again.

package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

// Why a line of the journal changed nothing.
const (
	SkippedAbsent = "not in this copy"           // the message or the conversation
	SkippedDone   = "done already"               // in the copy, or by a recovery before
	SkippedBack   = "the user came back later"   // so the leave is over
	SkippedAgain  = "a later line says it again" // and is counted
)

// Replay says what the journal said, by kind of its lines, and what became of it.
type Replay struct {
	Lines    int                  `json:"lines"`           // of the journal
	Older    int                  `json:"older"`           // of histories before the copy's, skipped: the recovery that began the copy's had replayed them
	Unproven int                  `json:"unproven"`        // of such histories, too, but the journal does not prove that; they are in Kinds
	Kinds    map[string]*Replayed `json:"kinds,omitempty"` // of all but the older, by what was taken back
}

// Replayed counts the lines of one kind.
type Replayed struct {
	Done    int            `json:"done"` // something was taken back
	Skipped map[string]int `json:"skipped,omitempty"`
}

func (r *Replay) of(what string) *Replayed {
	if r.Kinds == nil {
		r.Kinds = map[string]*Replayed{}
	}
	if r.Kinds[what] == nil {
		r.Kinds[what] = &Replayed{Skipped: map[string]int{}}
	}
	return r.Kinds[what]
}

func (r *Replayed) skip(why string, n int) {
	if n > 0 {
		r.Skipped[why] += n
	}
}

// wanted is what a journal asks for, each thing once.
type wanted struct {
	recalls  map[string][]outside.Taking // by conversation
	purges   map[string]time.Time        // the latest cutoff, by conversation
	last     map[memberOf]outside.Taking // the last leave or return
	erasures map[string]*time.Time       // the latest cutoff, by user; nil: all
}

type memberOf struct{ conv, user string }

// want reads a journal. Lines of histories before the one that the copy is of are left out if the recovery that gave the copy its generation
// had replayed them: they speak of logs that this history has not taken over. Only the journal proves that. A recovery that
// had another journal, or none, is made good by the next one: what it missed is replayed. Then recalls go by what a message is, and purges,
// leaves and erasures by their times, which is wrong where the clock of the copy's history was behind.
//
// Of histories after the copy's times do not count: their clocks may have been behind, and whatever the copy has was before them.
func want(journal []outside.Line, before int64, report *Replay) wanted {
	w := wanted{map[string][]outside.Taking{}, map[string]time.Time{}, map[memberOf]outside.Taking{}, map[string]*time.Time{}}
	mids := map[string]bool{}
	leaves := map[memberOf]int{}
	for i := range journal {
		t := journal[i].Taking
		report.Lines++
		if t.Epoch < before {
			if t.What == outside.TookRecover || slices.Contains(journal[i].Recoveries, before) {
				report.Older++
				continue
			}
			report.Unproven++
		}
		repeated := false
		switch t.What {
		case outside.TookRecall:
			if repeated = mids[t.Conv+"/"+t.Mid]; !repeated {
				mids[t.Conv+"/"+t.Mid] = true
				w.recalls[t.Conv] = append(w.recalls[t.Conv], t)
			}
		case outside.TookPurge:
			var cutoff time.Time
			if cutoff, repeated = w.purges[t.Conv]; !repeated || cutoff.Before(*t.Cutoff) {
				w.purges[t.Conv] = *t.Cutoff
			}
		case outside.TookLeave, outside.TookJoin:
			key := memberOf{t.Conv, t.User}
			if t.What == outside.TookLeave {
				leaves[key]++
			}
			if last, ok := w.last[key]; !ok || outside.Compare(last, t) <= 0 {
				w.last[key] = t
			}
		case outside.TookErase:
			var cutoff *time.Time
			if cutoff, repeated = w.erasures[t.User]; t.Epoch > before {
				w.erasures[t.User] = nil
			} else if !repeated || cutoff != nil && cutoff.Before(*t.Cutoff) {
				w.erasures[t.User] = t.Cutoff
			}
		}
		if repeated {
			report.of(t.What).skip(SkippedAgain, 1)
		}
	}
	for key, n := range leaves {
		if w.last[key].What == outside.TookJoin {
			report.of(outside.TookLeave).skip(SkippedBack, n)
		} else {
			report.of(outside.TookLeave).skip(SkippedAgain, n-1)
		}
	}
	maps.DeleteFunc(w.last, func(_ memberOf, t outside.Taking) bool { return t.What == outside.TookJoin })
	return w
}

// replay takes back again what the journal tells of, in bounded steps. before is the copy's generation. Done twice it changes nothing the
// second time.
func (s *Store) replay(ctx context.Context, journal []outside.Line, before int64, report *Replay) error {
	w := want(journal, before, report)
	for _, conv := range slices.Sorted(maps.Keys(w.purges)) {
		if err := s.replayPurge(ctx, conv, w.purges[conv], report.of(outside.TookPurge)); err != nil {
			return err
		}
	}
	for _, conv := range slices.Sorted(maps.Keys(w.recalls)) {
		for some := range slices.Chunk(w.recalls[conv], recoverBatch) {
			if err := s.replayRecalls(ctx, conv, some, report.of(outside.TookRecall)); err != nil {
				return err
			}
		}
	}
	if err := s.replayLeaves(ctx, w.last, before, report); err != nil {
		return err
	}
	for _, user := range slices.Sorted(maps.Keys(w.erasures)) {
		var did EraseReport
		if err := s.erase(ctx, erasure{user: user, until: w.erasures[user], convs: map[string]bool{}}, &did); err != nil {
			return err
		}
		if r := report.of(outside.TookErase); did.Messages+did.Preferences+did.Notifications+did.Tasks > 0 {
			r.Done++
		} else {
			r.skip(SkippedDone, 1)
		}
	}
	return nil
}

// inConversation runs a statement of a replay in a locked conversation, and tells whether there is one.
func (s *Store) inConversation(ctx context.Context, doing, conv, sql string, args pgx.NamedArgs, into ...any) (there bool, err error) {
	return s.lockedForReplay(ctx, doing, conv, func(ctx context.Context, tx pgx.Tx) error { return s.oneByKey(ctx, tx, sql, args, into...) })
}

// lockedForReplay runs a step of a replay in a locked conversation, and tells whether there is one.
func (s *Store) lockedForReplay(ctx context.Context, doing, conv string, step func(context.Context, pgx.Tx) error) (there bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	// A log is looked through for mids, which no index has.
	err = s.writeWithin(ctx, replayTimeout, doing, func(ctx context.Context) error {
		return s.inTx(ctx, doing, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(ctx context.Context, tx pgx.Tx) error {
			if err := lockConversation(ctx, tx, lockConversationSQL, conv); err != nil {
				return err
			}
			return step(ctx, tx)
		})
	})
	if tidings.ErrorCode(err) == tidings.NotFound {
		return false, nil
	}
	return err == nil, err
}

// replayTimeout bounds a transaction of a replay.
const replayTimeout = 5 * time.Minute
