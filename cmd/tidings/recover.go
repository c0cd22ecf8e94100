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

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

type recoverCmd struct {
	database
	asJSON
	StoppedAt  instant  `placeholder:"TIME" help:"When the last process stopped that served what was lost, such as 2026-11-30T03:20:00Z. Default: now."`
	LostSince  instant  `placeholder:"TIME" help:"The newest instant that the restored copy holds: restore prints it. Default: unknown."`
	Lossless   bool     `help:"You know that nothing was lost: only record the database as it is, after a planned switch or an upgrade. Refused if --outside-dir knows better."`
	OutsideDir string   `env:"TIDINGS_OUTSIDE_DIR" placeholder:"DIRECTORY" help:"The servers' setting: its journal is replayed, and told of this recovery."`
	Journal    []string `sep:"none" placeholder:"FILE" help:"Another journal to be replayed, of another host; repeat it for more."`

	WithoutJournal    bool `help:"There is no journal, or it is lost: what was recalled, purged, left or erased since the copy was made comes back."`
	DespiteViolations bool `help:"Let the copy be served although it violates a promise."`
}

// recovered is what recover prints.
type recovered struct {
	store.RecoverReport
	Verified *bool `json:"verified,omitempty"` // no promise is violated; absent when nothing was lost, and nothing asked
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
		fmt.Fprintf(e.stderr, "warning: stop every process, gateways and API, too: no worker may run during a recovery; connected to this database: %s of tidings; held under a lease that is not over: %s\n",
			count(others.Sessions, "other session"), count(others.Leases, "task"))
	}
	if c.Lossless {
		if err := c.losesNothing(e, s); err != nil {
			return err
		}
	}
	var r recovered
	if r.RecoverReport, err = s.Recover(e.ctx, *options); err != nil {
		return err
	}
	if !c.Lossless {
		kept := store.Violations(r.Findings) == 0
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

// losesNothing compares a copy that is said to have lost nothing with what the servers' directory knows.
func (c *recoverCmd) losesNothing(e *env, s *store.Store) error {
	paths := c.Journal
	if c.OutsideDir != "" {
		own := outside.JournalPath(c.OutsideDir)
		if _, err := os.Stat(own); err == nil {
			paths = append(paths, own)
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("look for the journal: %w", err)
		}
	}
	journal, err := outside.ReadJournal(paths...)
	if err != nil {
		return err
	}
	lost, compared, err := s.Lost(e.ctx, c.OutsideDir, journal)
	switch {
	case err != nil:
		return err
	case len(lost) > 0:
		return tidings.Errorf(tidings.Conflict, "something was lost, so nothing is recorded. This database does not have %s. Run `tidings recover` without --lossless", strings.Join(lost, "; nor "))
	case !compared:
		fmt.Fprintln(e.stderr, "warning: that nothing was lost is believed: there is no witness and no journal of this history to compare with. Name the servers' --outside-dir")
	}
	return nil
}

// instant is a flag that holds one.
type instant struct{ time.Time }

// UnmarshalText reads RFC 3339.
func (i *instant) UnmarshalText(text []byte) (err error) {
	if i.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%.40q is no instant of RFC 3339, such as 2026-11-30T03:11:59Z or 2026-11-30T04:11:59+01:00", text)
	}
	return nil
}

// options reads the journals.
func (c *recoverCmd) options(e *env) (o *store.RecoverOptions, err error) {
	o = &store.RecoverOptions{Lossless: c.Lossless, DespiteViolations: c.DespiteViolations}
	if !c.StoppedAt.IsZero() {
		o.StoppedAt = &c.StoppedAt.Time
	}
	if !c.LostSince.IsZero() {
		o.LostSince = &c.LostSince.Time
	}
	switch {
	case o.LostSince == nil:
	case o.StoppedAt != nil && o.LostSince.After(*o.StoppedAt):
		return o, usageError{fmt.Errorf("recover: --lost-since %s is later than --stopped-at %s: the copy would have all that was done", when(*o.LostSince), when(*o.StoppedAt))}
	case time.Until(*o.LostSince) > time.Minute: // clocks differ
		return o, usageError{fmt.Errorf("recover: --lost-since %s is in the future", when(*o.LostSince))}
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
		}
		o.Note = func(recovery []outside.Taking) error { return outside.NoteRecovery(c.OutsideDir, o.Journal, recovery) }
	} else {
		fmt.Fprintln(e.stderr, "warning: without --outside-dir no journal is told of this recovery: a later one on a clock that is behind could give the same epochs again")
	}
	const comesBack = "what was recalled, purged or erased since this copy was made is in it and is served again, and whoever was removed from a conversation is a member again"
	switch {
	case len(paths) > 0 && c.WithoutJournal:
		return o, usageError{fmt.Errorf("recover: there is a journal, %s: leave --without-journal out", paths[0])}
	case len(paths) == 0 && !c.WithoutJournal && c.OutsideDir != "":
		return o, usageError{fmt.Errorf("recover: there is no journal in %s: is it the servers' directory, and mounted? Without the journal %s. If nothing was ever taken back, or the journal is lost: --without-journal", c.OutsideDir, comesBack)}
	case len(paths) == 0 && !c.WithoutJournal:
		return o, usageError{errors.New("recover: name the servers' --outside-dir, or a --journal. Without the journal " + comesBack + ". If there is none: --without-journal")}
	case len(paths) == 0:
		fmt.Fprintln(e.stderr, "warning: no journal is replayed: "+comesBack)
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
	if r.Recorded {
		fmt.Fprintf(e.stdout, "generation %d on system %s, timeline %d\n", r.Generation, r.Lineage.SystemIdentifier, r.Lineage.Timeline)
	} else {
		fmt.Fprintf(e.stdout, "generation %d, not recorded\n", r.Generation)
	}
	switch {
	case r.Verified == nil:
	case *r.Verified:
		fmt.Fprintln(e.stdout, "invariants verified: "+verified(r.Findings))
	default:
		showFindings(e, r.Findings)
		fmt.Fprintln(e.stdout, "\nTHE INVARIANTS DO NOT HOLD: "+verified(r.Findings))
		if !r.Recorded {
			fmt.Fprintln(e.stdout, "The recovery is not finished, so this copy must not be served. Take another, or recover again with --despite-violations.")
		}
	}
}

// tellReplay writes a line for each kind of what the journal told of.
func tellReplay(e *env, r *store.Replay) {
	fmt.Fprintf(e.stdout, "journal: %s, %d skipped: of earlier histories, and the recovery that began this copy's had them\n", count(r.Lines, "line"), r.Older)
	if r.Unproven > 0 {
		fmt.Fprintf(e.stdout, "  %d are of earlier histories, and by this journal that recovery did not have them: replayed now, purges, leaves and erasures by their times. "+
			"If a clock was behind since, too much may have been taken back\n", r.Unproven)
	}
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
