// Where a claim may start.

package store

import "time"

// Watermark lets a claim start where the last one found work. Claimed tasks leave dead entries at the front of task_due; while
// an old snapshot is held open vacuum cannot remove them, and each claim would walk over all of them.
//
// A floor hides a task that commits late below it, so a floor never lasts: it is given up after an error, when a claim
// returned fewer than asked, when the database's clock is below it, and when the last scan without it is longer ago than
// max(1 s, 20 × that scan's duration). That is the bound within which such a task is seen. A Watermark belongs to one claim
// loop and lives in memory only; takeovers, verify and metrics never use one.
type Watermark struct {
	floor   [3]time.Time // per priority; the zero time is no floor
	full    time.Time    // when the last scan without a floor began
	took    time.Duration
	Rescans int // scans without a floor since the start
}

// commitSlack is how far a floor stays behind the time of a claim in a priority of which the claim took all: longer than
// most transactions take between submitting a task and their commit.
const commitSlack = time.Second

// rescanAfter is the bound: how long after a scan without a floor the next one comes at the latest.
func (w *Watermark) rescanAfter() time.Duration { return max(time.Second, 20*w.took) }

// floors are the floors of the next claim.
func (w *Watermark) floors(now time.Time) [3]time.Time {
	if w == nil {
		return [3]time.Time{}
	}
	if now.Sub(w.full) >= w.rescanAfter() {
		w.floor = [3]time.Time{}
	}
	return w.floor
}

// advance takes over what a claim found.
func (w *Watermark) advance(began time.Time, used [3]time.Time, slots int, rows []Claimed, err error) {
	if w == nil {
		return
	}
	if used == ([3]time.Time{}) {
		w.full, w.took = began, time.Since(began)
		w.Rescans++
	}
	if err != nil || len(rows) < slots {
		w.floor = [3]time.Time{}
		return
	}
	// The priorities before the one that filled the claim were read to their ends. What is due there later lies behind this
	// claim's time, but for transactions that are committing right now: an urgent task must not wait for the next rescan
	// because a claim crossed its commit.
	filled := rows[0].Priority
	for _, c := range rows {
		filled = max(filled, c.Priority)
	}
	crossed := rows[0].At.Add(-commitSlack)
	next := [3]time.Time{crossed, crossed, crossed}
	next[filled] = rows[0].At
	for _, c := range rows {
		if c.Due.Before(next[c.Priority]) {
			next[c.Priority] = c.Due
		}
	}
	// The priorities behind it were not read at all.
	for p := int(filled) + 1; p < len(next); p++ {
		next[p] = used[p]
	}
	w.floor = next
}
