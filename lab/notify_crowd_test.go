// The checks 33-pause-channel, 33-priority.

package lab_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/worker"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-pause-channel",
		Expect: "with 100 000 due tasks on a paused channel none of them is claimed, and 20 notifications on another channel arrive within 1 s each; " +
			"after the resumption 2 000 of them are sent",
		Run: pauseChannel,
	})
	lab.Register(lab.Check{
		ID:     "33-priority",
		Expect: "while 100 000 newsletters are sent, no claim that begins after the commit of an urgent code passes it over: each of 20 arrives within 500 ms",
		Run:    priority,
	})
}

const crowdSize = 100_000

// newsletters submits bulk notifications on a channel to a thousand users.
func (s *scene) newsletters(channel string) {
	s.Helper()
	const users, step = 1000, 5000
	s.exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
		SELECT tidings.bucket_of('reader-' || i), 'reader-' || i, $1, 'address-' || i FROM generate_series(0, $2::int - 1) i`, channel, users)
	for from := 1; from <= crowdSize; from += step {
		s.exec(`SELECT tidings.notify_v1(json_agg(json_build_object('user', 'reader-' || i % $3::int, 'event_key', 'newsletter-' || i,
			'body', 'News.', 'priority', 2, 'ttl_s', 86400))) FROM generate_series($1::int, $2::int) i`, from, from+step-1, users)
	}
	s.Equal("newsletters that are due", crowdSize, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'PENDING'
		AND next_attempt_at <= statement_timestamp()`, channel))
}

// probe is one of several notifications that are submitted one after the other.
type probe struct {
	task      tidings.UUID
	committed time.Time     // not before its commit, by the database's clock
	took      time.Duration // from then until it arrived at the double; both run by one clock here
}

// probes submits n notifications on a channel and waits for each. The slowest is the last.
func (s *scene) probes(what, channel string, n int, options ...func(*tidings.Notification)) []probe {
	s.Helper()
	all := make([]probe, n)
	for i := range all {
		user := fmt.Sprintf("%s-%d", slug(what), i)
		s.subscribe(user, channel)
		notified := s.notify(user, "code", options...)
		p := probe{committed: one[time.Time](s, `SELECT clock_timestamp()`)}
		s.Must("wake the workers", outbox.Wake(s.ctx, s.pool))
		p.task = s.task(notified, channel)
		s.accepted(p.task)
		p.took = max(0, s.log(p.task)[0].At.Sub(p.committed))
		all[i] = p
	}
	slices.SortFunc(all, func(a, b probe) int { return cmp.Compare(a.took, b.took) })
	s.Figure(what+": median", float64(all[n/2].took.Microseconds())/1000, "ms")
	s.Figure(what+": longest", float64(all[n-1].took.Microseconds())/1000, "ms")
	return all
}

func pauseChannel(t *lab.T) {
	s := newScene(t)
	const probes, bound, resumed = 20, time.Second, 2000
	o := s.operator()
	o.key = strings.TrimSpace(s.tidings("key", "create", "operator", "--scopes", "operate"))
	order := func(what string, in any) {
		code, err := o.ask(http.MethodPost, "/v1/channels/"+sms+"/"+what, in, nil)
		t.Must(what+" a channel", err)
		t.Equal("the answer to "+what, tidings.Code(""), code)
	}
	order("pause", map[string]any{"reason": "the provider is down"})
	stop := s.run(s.worker("w", worker.Channel{Name: push, Timeout: 5 * time.Second},
		worker.Channel{Name: sms, Timeout: 5 * time.Second, Concurrency: 32}))
	s.probes("without a backlog", push, probes)
	s.newsletters(sms)
	beside := s.probes("beside the paused backlog", push, probes)
	t.Within("the slowest beside the paused backlog", bound, beside[probes-1].took)

	t.Examined("tasks of the paused channel", crowdSize)
	t.Equal("claimed of the paused channel", 0, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND (state <> 'PENDING' OR attempt_count > 0)`, sms))

	order("resume", nil)
	s.Until("the resumed channel sends", soon, func() bool {
		c, err := s.doubles.Counts(sms, "")
		t.Must("ask the doubles", err)
		return c.Sends >= resumed
	})
	stop()
	t.Equal("of the resumed channel: anything but pending or sent", 0, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1
		AND state NOT IN ('PENDING', 'SENT')`, sms))
}

func priority(t *lab.T) {
	s := newScene(t)
	const probes, bound = 20, 500 * time.Millisecond
	s.newsletters(push)
	stop := s.run(s.worker("w", worker.Channel{Name: push, Timeout: 5 * time.Second, Concurrency: 16}))
	s.Until("newsletters are under way", soon, func() bool {
		return one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'SENT'`, push) > 200
	})
	urgent := tidings.Urgent
	codes := s.probes("urgent codes", push, probes, func(n *tidings.Notification) { n.Priority = &urgent })
	left := one[int](s, `SELECT count(*) FROM tidings.task WHERE priority = 2 AND state = 'PENDING'`)
	stop()
	t.True("newsletters were waiting until the end", left > 0)
	t.Figure("newsletters that were waiting at the end", float64(left), "")
	t.Within("the slowest code", bound, codes[probes-1].took)
	// A claim sees what was committed when it took its snapshot, a moment before the time that it notes.
	passed := 0
	for _, c := range codes {
		passed = max(passed, one[int](s, `SELECT count(DISTINCT started_at) FROM tidings.attempt WHERE started_at > $1 AND started_at < $2`,
			c.committed, s.entries(c.task)[0].Started))
	}
	t.True("claims that passed a code over: none but one that was beginning", passed <= 1)
	t.Figure("most claims between a code's commit and its claim", float64(passed), "")
}
