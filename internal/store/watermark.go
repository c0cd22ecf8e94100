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
	// A priority that gave nothing was read to its end: what is due there later lies behind this claim's time.
	next := [3]time.Time{rows[0].At, rows[0].At, rows[0].At}
	for _, c := range rows {
		if c.Due.Before(next[c.Priority]) {
			next[c.Priority] = c.Due
		}
	}
	// A priority behind the one that filled the claim was not read at all.
	for p := int(rows[len(rows)-1].Priority) + 1; p < len(next); p++ {
		next[p] = used[p]
	}
	w.floor = next
}
