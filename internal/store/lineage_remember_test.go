// Tests of the look-up of what was acknowledged.

package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// What was acknowledged is looked up when the log may be another: here, because its file is. What was recalled or purged was there.
func TestRememberedIsLookedUp(t *testing.T) {
	t.Parallel()
	const anew = `VACUUM (FULL) tidings.event`
	for name, c := range map[string]struct {
		lost string // by what the loss is told; "": there is none
		do   func(*process)
	}{
		"nothing happens": {"", func(p *process) {}},
		"a recall": {"", func(p *process) {
			r, err := p.Recall(p.t.Context(), store.Recall{Conv: "c", User: "ana", Cmid: "r", Target: 2}, false)
			p.must(err)
			if r.Code != "" {
				p.t.Fatalf("the recall is answered with %s", r.Code)
			}
		}},
		"a purge": {"", func(p *process) {
			p.exec(`UPDATE tidings.conversation SET retention_ms = 1`)
			p.exec(`UPDATE tidings.event SET created_at = created_at - interval '1 hour'`)
			_, err := p.PurgeLog(p.t.Context(), "c", 100)
			p.must(err)
		}},
		"the message is gone":      {"event 2 of conversation c", func(p *process) { p.exec(`DELETE FROM tidings.event WHERE seq = 2`) }},
		"another message is there": {"event 2 of conversation c", func(p *process) { p.exec(`UPDATE tidings.event SET mid = gen_random_uuid() WHERE seq = 2`) }},
		"the conversation is gone": {"event", func(p *process) {
			p.exec(`DELETE FROM tidings.event`)
			p.exec(`DELETE FROM tidings.member`)
			p.exec(`DELETE FROM tidings.conversation`)
		}},
		"the end of an attempt": {"", func(p *process) { p.done("u-1") }},
		"the end of an attempt is gone": {"the end of attempt 1 of task", func(p *process) {
			p.done("u-1")
			p.exec(`UPDATE tidings.attempt SET outcome = NULL, finished_at = NULL`)
		}},
		"it has another end": {"the end of attempt 1 of task", func(p *process) {
			p.done("u-1")
			p.exec(`UPDATE tidings.attempt SET outcome = 'LEASE_EXPIRED'`)
		}},
		"the task and all of it are gone": {"the end of attempt 1 of task", func(p *process) {
			p.done("u-1")
			p.exec(`DELETE FROM tidings.attempt`)
			p.exec(`DELETE FROM tidings.task`)
			p.exec(`DELETE FROM tidings.notification`)
		}},
		"its notification was purged": {"", func(p *process) {
			p.done("u-1")
			time.Sleep(2 * time.Millisecond) // ids tell whole milliseconds
			if n, _, err := p.Purge(p.t.Context(), time.Nanosecond, 10); err != nil || n != 1 {
				p.t.Fatalf("%d were purged, %v", n, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serving(t, pgtest.NewPlainURL(t), "")
			p.conversation("c")
			p.said("c", "m")
			c.do(p)
			p.exec(anew)
			p.memory.Look(t.Context(), p.pool)
			switch lost := p.memory.Lost(); {
			case c.lost == "" && lost != nil:
				t.Error(lost)
			case c.lost != "" && (lost == nil || !strings.Contains(lost.Error(), c.lost)):
				t.Errorf("the loss of %s is told as %v", c.lost, lost)
			}
		})
	}
}

// done submits a notification for the user and delivers it.
func (p *process) done(user string) {
	p.t.Helper()
	p.task(push, user, "e")
	p.finish(p.claimOne(push), tidings.Accepted, "p")
}

// Joins, leaves, recalls and creations are known by their time.
func TestEventsWithoutAMidAreLookedUp(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(p *process) (seq int64){
		"creation": func(p *process) int64 { return 1 },
		"join": func(p *process) int64 {
			m, err := p.Join(p.t.Context(), "c", "ben", "")
			p.must(err)
			return m.Seq
		},
		"leave": func(p *process) int64 {
			m, err := p.Leave(p.t.Context(), "c", "ana", "")
			p.must(err)
			return m.Seq
		},
		"recall": func(p *process) int64 {
			r, err := p.Recall(p.t.Context(), store.Recall{Conv: "c", User: "ana", Cmid: "r", Target: p.said("c", "m").Seq}, false)
			p.must(err)
			return r.Seq
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serving(t, pgtest.NewPlainURL(t), "")
			p.conversation("c")
			seq := do(p)
			p.exec(`VACUUM (FULL) tidings.event`)
			p.memory.Look(t.Context(), p.pool)
			if err := p.memory.Lost(); err != nil {
				t.Fatal(err)
			}
			p.exec(`UPDATE tidings.event SET created_at = created_at + interval '1 microsecond' WHERE seq = $1`, seq)
			p.exec(`VACUUM (FULL) tidings.event`)
			p.memory.Look(t.Context(), p.pool)
			if p.memory.Lost() == nil {
				t.Errorf("event %d is another, which was not noticed", seq)
			}
		})
	}
}
