// What applications were told around a restore: the oracle of the check 32-epoch-after-restore.

package lab_test

import (
	"fmt"
	"slices"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

// sightings are what applications were told of logs.
type sightings struct {
	seen   map[string]tidings.Event // by conversation, epoch and seq
	faults []string
}

// of takes what one application was told, in the order in which it was.
func (s *sightings) of(told []client.Update) {
	if s.seen == nil {
		s.seen = map[string]tidings.Event{}
	}
	fault := func(format string, args ...any) { s.faults = append(s.faults, fmt.Sprintf(format, args...)) }
	epochs, next := map[string]int64{}, map[string]int64{}
	for _, u := range told {
		var epoch int64
		var e tidings.Event
		switch u := u.(type) {
		case client.Dropped:
			if u.Epoch == epochs[u.Conv] {
				fault("%s: dropped for the same epoch", u.Conv)
			}
			epochs[u.Conv], next[u.Conv] = u.Epoch, 1
			continue
		case client.Withheld:
			if u.From == next[u.Conv] || epochs[u.Conv] == 0 {
				epochs[u.Conv], next[u.Conv] = u.Epoch, u.To+1
			}
			continue
		case client.Recalled:
			epoch, e = u.Epoch, u.Event
		case client.Arrived:
			epoch, e = u.Epoch, u.Event
			if epochs[e.Conv] == 0 {
				epochs[e.Conv], next[e.Conv] = epoch, 1
			}
			if e.Seq != next[e.Conv] {
				fault("%s: %d arrived, not %d", e.Conv, e.Seq, next[e.Conv])
			}
			next[e.Conv] = e.Seq + 1
		default:
			continue
		}
		if epoch != epochs[e.Conv] {
			fault("%s: %d of another epoch", e.Conv, e.Seq)
		}
		where := fmt.Sprintf("%s, %d, %d", e.Conv, epoch, e.Seq)
		was, known := s.seen[where]
		if known && (was.Mid != e.Mid || was.Kind != e.Kind || was.Sender != e.Sender || was.Cmid != e.Cmid || was.Target != e.Target ||
			was.Body != nil && e.Body != nil && *was.Body != *e.Body) {
			fault("%s: two contents", where)
		}
		if !known || was.Body == nil {
			s.seen[where] = e
		}
	}
}

// doctored records that the oracle finds what must not be in what an application was told.
func doctored(c *chat, told []client.Update, first int64) {
	c.Helper()
	var old, new int // the places of an event of each history with the same conversation and seq, and other contents
	for i, u := range told {
		was, ok := u.(client.Arrived)
		if !ok || was.Epoch != first {
			continue
		}
		if j := slices.IndexFunc(told, func(u client.Update) bool {
			is, ok := u.(client.Arrived)
			return ok && is.Epoch != first && is.Event.Conv == was.Event.Conv && is.Event.Seq == was.Event.Seq && is.Event.Cmid != was.Event.Cmid
		}); j > 0 {
			old, new = i, j
		}
	}
	if new == 0 {
		c.Fatalf("nobody was told of two contents at one place in two histories: there is nothing to doctor")
	}
	for what, change := range map[string]func([]client.Update){
		"an old event in the new history": func(told []client.Update) { told[new] = told[old] },
		"an old event under the new epoch": func(told []client.Update) {
			told[new] = client.Arrived{Epoch: told[new].(client.Arrived).Epoch, Event: told[old].(client.Arrived).Event}
		},
		"a new event before the old log's drop": func(told []client.Update) { told[old] = told[new] },
	} {
		s := sightings{}
		s.of(told)
		wrong := slices.Clone(told)
		change(wrong)
		s.of(wrong)
		c.True("seen: "+what, len(s.faults) > 0)
	}
}

// accounted records that every message which was answered with sent in the first history is in the log, once, or was reported as lost, once, by
// the device that sent it, and that what was answered later is in the log. A device is its client, and the one that came after it.
func (c *chat) accounted(first int64, devices ...[]*app) {
	c.Helper()
	rows, twice := map[string]bool{}, 0
	for _, conv := range []string{"c-1", "c-2"} {
		for _, e := range c.log(conv) {
			if e.kind == "msg" && rows[e.cmid] {
				twice++
			}
			rows[e.cmid] = true
		}
	}
	var gone, silent, wrongly, elsewhere int
	count := func() {
		gone, silent, wrongly, elsewhere = 0, 0, 0, 0
		for _, device := range devices {
			var told []client.Update
			for _, a := range device {
				told = append(told, a.told()...)
			}
			lost := map[string]int{}
			for _, u := range told {
				if x, ok := u.(client.Lost); ok {
					lost[x.Cmid]++
				}
			}
			for _, u := range told {
				x, ok := u.(client.Ended)
				switch {
				case !ok || x.Cmid == "recall":
				case x.Err != nil, x.Sent.Epoch != first && !rows[x.Cmid]:
					elsewhere++
				case rows[x.Cmid] && lost[x.Cmid] > 0:
					wrongly++
				case !rows[x.Cmid]:
					if gone++; lost[x.Cmid] != 1 {
						silent++
					}
				}
			}
		}
	}
	c.Until("every message that is gone was reported", 2*soon, func() bool { count(); return silent == 0 })
	c.Equal("messages that are there twice", 0, twice)
	c.Equal("messages that are gone and were not reported once by their device", 0, silent)
	c.Equal("messages that were reported as lost and are there", 0, wrongly)
	c.Equal("messages that failed, or were answered in the new history and are not in it", 0, elsewhere)
	c.Examined("sent messages that are gone", gone)
}
