// The command recover.

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

type recoverCmd struct {
	database
	asJSON
	StoppedAt  time.Time `format:"2006-01-02T15:04:05Z07:00" help:"When the last worker stopped. Default: now."`
	LostSince  time.Time `format:"2006-01-02T15:04:05Z07:00" help:"The newest instant that the restored copy holds. Default: unknown."`
	Lossless   bool      `help:"Nothing was lost: only record the database as it is, after a planned switch or an upgrade."`
	OutsideDir string    `env:"TIDINGS_OUTSIDE_DIR" placeholder:"DIRECTORY" help:"The servers' setting: its journal is replayed, and told of this recovery."`
	Journal    []string  `sep:"none" placeholder:"FILE" help:"Another journal to be replayed, of another host; repeat it for more."`
}

// recovered is what recover prints.
type recovered struct {
	store.RecoverReport
	Verified *bool           `json:"verified,omitempty"` // no promise is violated; absent when nothing was lost, and nothing asked
	Findings []store.Finding `json:"findings,omitempty"`
}

// Run makes a restored database fit to be used. Nothing else may run meanwhile.
func (c *recoverCmd) Run(e *env) error {
	options, err := c.options(e)
	if err != nil {
		return err
	}
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	others, err := s.Others(e.ctx)
	if err != nil {
		return err
	}
	if others.Sessions+others.Leases > 0 {
		fmt.Fprintf(e.stderr, "warning: no worker may run during a recovery; connected to this database: %s of tidings; held under a lease that is not over: %s\n",
			count(others.Sessions, "other session"), count(others.Leases, "task"))
	}
	var r recovered
	if r.RecoverReport, err = s.Recover(e.ctx, options); err != nil {
		return err
	}
	if !c.Lossless {
		if r.Findings, err = s.Verify(e.ctx); err != nil {
			return fmt.Errorf("the recovery is done, but it was not verified: %w", err)
		}
		kept := violations(r.Findings) == 0
		r.Verified = &kept
	}
	if err := c.print(e, r, func() { tellRecovered(e, &r) }); err != nil {
		return err
	}
	if r.Verified != nil && !*r.Verified {
		return errNo
	}
	return nil
}

// options reads the journals.
func (c *recoverCmd) options(e *env) (o store.RecoverOptions, err error) {
	o.Lossless = c.Lossless
	if !c.StoppedAt.IsZero() {
		o.StoppedAt = &c.StoppedAt
	}
	if !c.LostSince.IsZero() {
		o.LostSince = &c.LostSince
	}
	if c.Lossless {
		return o, nil
	}
	paths := c.Journal
	if c.OutsideDir != "" {
		own := outside.JournalPath(c.OutsideDir)
		if _, err := os.Stat(own); err == nil {
			paths = append(paths, own)
		} else if !errors.Is(err, os.ErrNotExist) {
			return o, fmt.Errorf("look for the journal: %w", err)
		} else {
			fmt.Fprintf(e.stderr, "warning: there is no journal in %s yet\n", c.OutsideDir)
		}
		o.Note = func(line []outside.Taking) error {
			j, err := outside.OpenJournal(c.OutsideDir)
			if err != nil {
				return err
			}
			return errors.Join(j.Append(line), j.Close())
		}
	} else {
		fmt.Fprintln(e.stderr, "warning: without --outside-dir no journal is told of this recovery: a later one on a clock that is behind could give the same epochs again")
	}
	if len(paths) == 0 {
		fmt.Fprintln(e.stderr, "warning: no journal is replayed: what was recalled, purged or erased since this copy was made is in it and stays, "+
			"and whoever was removed from a conversation is a member again")
	}
	o.Journal, err = outside.ReadJournal(paths...)
	return o, err
}

func tellRecovered(e *env, r *recovered) {
	if r.Verified != nil {
		fmt.Fprintf(e.stdout, "in doubt now: %s that a worker held, %d that were scheduled, %d of which had been in doubt before\n",
			count(r.Sending, "task"), r.Pending+r.Unknown, r.Unknown)
		tellReplay(e, &r.Replay)
		fmt.Fprintf(e.stdout, "%s with a new epoch, %s cleared\n", count(r.Conversations, "conversation"), count(r.Routes, "route"))
	}
	fmt.Fprintf(e.stdout, "generation %d on system %s, timeline %d\n", r.Generation, r.Lineage.SystemIdentifier, r.Lineage.Timeline)
	switch {
	case r.Verified == nil:
	case *r.Verified:
		fmt.Fprintln(e.stdout, "invariants verified: "+verified(r.Findings))
	default:
		showFindings(e, r.Findings)
		fmt.Fprintln(e.stdout, "\nTHE INVARIANTS DO NOT HOLD: "+verified(r.Findings))
	}
}

// tellReplay writes a line for each kind of what the journal told of.
func tellReplay(e *env, r *store.Replay) {
	fmt.Fprintf(e.stdout, "journal: %s, %d of them of histories that earlier recoveries have replayed\n", count(r.Lines, "line"), r.Older)
	names := map[string]string{outside.TookRecall: "recalls", outside.TookPurge: "purges", outside.TookLeave: "leaves", outside.TookErase: "erasures"}
	for _, what := range slices.Sorted(maps.Keys(r.Kinds)) {
		kind := r.Kinds[what]
		var skipped []string
		for _, why := range slices.Sorted(maps.Keys(kind.Skipped)) {
			skipped = append(skipped, fmt.Sprintf("%d %s", kind.Skipped[why], why))
		}
		line := fmt.Sprintf("  %s: %d replayed", names[what], kind.Done)
		if len(skipped) > 0 {
			line += "; skipped: " + strings.Join(skipped, ", ")
		}
		fmt.Fprintln(e.stdout, line)
	}
}
