package lab_test

import (
	"fmt"
	"slices"
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
		ID: "33-priority",
		Expect: "while 100 000 newsletters are sent, each of 20 urgent codes is in the first claim that begins after its commit, and arrives within 1 s",
		Run:    priority,
	})
}

const crowdSize = 100_000

// newsletters submits a bulk notification to each of so many users of a channel.
func (s *scene) newsletters(channel string) {
	s.Helper()
	s.exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address)
		SELECT tidings.bucket_of('reader-' || i), 'reader-' || i, $1, 'address-' || i FROM generate_series(1, $2::int) i`, channel, crowdSize)
	const step = 5000
	for from := 1; from <= crowdSize; from += step {
		s.exec(`SELECT tidings.notify_v1(json_agg(json_build_object('user', 'reader-' || i, 'event_key', 'newsletter', 'body', 'News.',
			'priority', 2, 'ttl_s', 86400))) FROM generate_series($1::int, $2::int) i`, from, from+step-1)
	}
	s.Equal("newsletters that are due", crowdSize, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'PENDING'
		AND next_attempt_at <= statement_timestamp()`, channel))
}

// promptly submits notifications on a channel one after the other, wakes the workers and returns how long after its commit
// each arrived at the double, by one clock.
func (s *scene) promptly(what, channel string, n int, options ...func(*tidings.Notification)) (took []time.Duration, tasks []tidings.UUID) {
	s.Helper()
	for i := range n {
		user := fmt.Sprintf("%s-%d", slug(what), i)
		s.subscribe(user, channel)
		notified := s.notify(user, "code", options...)
		committed := time.Now()
		s.Must("wake the workers", outbox.Wake(s.ctx, s.pool))
		task := s.task(notified, channel)
		s.accepted(task)
		took = append(took, max(0, s.log(task)[0].At.Sub(committed)))
		tasks = append(tasks, task)
	}
	slices.Sort(took)
	s.Figure(what+": median", float64(took[n/2].Microseconds())/1000, "ms")
	s.Figure(what+": longest", float64(took[n-1].Microseconds())/1000, "ms")
	return took, tasks
}

func pauseChannel(t *lab.T) {
	s := newScene(t)
	const probes, bound, resumed = 20, time.Second, 2000
	s.exec(`INSERT INTO tidings.channel_state (channel, paused_until, reason, by, at)
		VALUES ('news', 'infinity', 'the provider is down', 'operator', statement_timestamp())`)
	stop := s.run(s.worker("w", worker.Channel{Name: push, Timeout: 5 * time.Second},
		worker.Channel{Name: "news", Mode: plain, Timeout: 5 * time.Second, Concurrency: 32}))
	s.promptly("without a backlog", push, probes)
	s.newsletters("news")
	took, _ := s.promptly("beside the paused backlog", push, probes)
	t.Within("the slowest beside the paused backlog", bound, took[probes-1])

	t.Examined("tasks of the paused channel", crowdSize)
	t.Equal("claimed of the paused channel", 0, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = 'news' AND (state <> 'PENDING' OR attempt_count > 0)`))

	t.Equal("channels resumed", 1, s.exec(`DELETE FROM tidings.channel_state WHERE channel = 'news'`))
	s.Until("the resumed channel sends", soon, func() bool {
		c, err := s.doubles.Counts(plain, "")
		t.Must("ask the doubles", err)
		return c.Sends >= resumed
	})
	stop()
	t.Equal("of the resumed channel: anything but pending or sent", 0, one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = 'news'
		AND state NOT IN ('PENDING', 'SENT')`))
}

func priority(t *lab.T) {
	s := newScene(t)
	const probes, bound = 20, time.Second
	s.newsletters(push)
	stop := s.run(s.worker("w", worker.Channel{Name: push, Timeout: 5 * time.Second, Concurrency: 16}))
	s.Until("newsletters are under way", soon, func() bool {
		return one[int](s, `SELECT count(*) FROM tidings.task WHERE channel = $1 AND state = 'SENT'`, push) > 200
	})
	urgent := tidings.Urgent
	took, codes := s.promptly("urgent codes", push, probes, func(n *tidings.Notification) { n.Priority = &urgent })
	left := one[int](s, `SELECT count(*) FROM tidings.task WHERE priority = 2 AND state = 'PENDING'`)
	stop()
	t.True("newsletters were waiting until the end", left > 0)
	t.Figure("newsletters that were waiting at the end", float64(left), "")
	t.Within("the slowest code", bound, took[probes-1])
	// A claim that begins after a code's creation was committed sees it. The task's own time is its transaction's, so the
	// one claim that began while that was being committed may have missed it.
	passed := one[int](s, `SELECT coalesce(max(passed), 0) FROM (SELECT count(DISTINCT b.started_at) AS passed
		FROM tidings.attempt u JOIN tidings.task t ON t.id = u.task_id JOIN tidings.notification n ON n.id = t.notification_id
		JOIN tidings.attempt b ON b.started_at > n.created_at AND b.started_at < u.started_at
		WHERE u.task_id = ANY ($1) GROUP BY u.task_id) p`, codes)
	t.True("claims of newsletters between a code's creation and its claim: at most the ones that its commit crossed", passed <= 2)
}
