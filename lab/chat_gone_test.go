// The check 40-source-gone.

package lab_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-source-gone",
		Expect: "recalled, read or left between Notify and the claim: SUPPRESSED, [SOURCE_GONE], no call; about other messages or of other users: SENT; in doubt: " +
			"parked, [TIMEOUT, SOURCE_GONE_UNCERTAIN], no second call; a Notify that was committed after the first mark gets the second; each mark within 2 s",
		Run: sourceGone,
	})
}

// marksWithin is the stated bound from the commit of a recall, a leave or a read to the mark.
const marksWithin = 2 * time.Second

// goneScene is a conversation whose members are notified of its messages.
type goneScene struct {
	*chat
	n       *node
	slowest time.Duration
}

func sourceGone(t *lab.T) {
	stage := newScene(t)
	c := &goneScene{chat: chatOn(t, stage.pool)}
	c.doubles = stage.doubles
	c.n = c.node("n1")
	c.n.conversation("c-1", "ana", "ben", "cid", "dan", "eve", "fay")
	ana, cid := c.n.device("ana", "ana-1"), c.n.device("cid", "cid-1")
	for _, user := range []string{"ben", "cid", "dan", "eve", "fay"} {
		c.subscribe(user, push)
	}

	// In doubt before it is recalled: the double has it, and nobody knows.
	doubted := ana.say("c-1", "m-doubted", "doubted")
	inDoubt := c.aboutTask("eve", doubted)
	c.script(push, hang)
	c.once(c.worker("hasty", hasty(push)...))
	c.Fault(c.unanswered(inDoubt))
	c.gone("a recall while in doubt", inDoubt, func() { c.recall(doubted) })

	first, second, third := ana.say("c-1", "m-1", "one"), ana.say("c-1", "m-2", "two"), ana.say("c-1", "m-3", "three")
	suppressed := map[string]tidings.UUID{
		"recalled, to ben": c.aboutTask("ben", first), "recalled, to fay": c.aboutTask("fay", first),
		"read": c.aboutTask("cid", second), "left": c.aboutTask("dan", third),
	}
	sent := map[string]tidings.UUID{
		"read by another": c.aboutTask("ben", second), "after what was read": c.aboutTask("cid", third), "left by another": c.aboutTask("ben", third),
	}
	c.gone("a recall", suppressed["recalled, to ben"], func() { c.recall(first) })
	c.gone("a read", suppressed["read"], func() { c.Equal("the read", "read", cid.ask(frame{"t": "read", "conv": "c-1", "seq": second}).t()) })
	c.gone("a leave", suppressed["left"], func() { c.n.leave("c-1", "dan") })

	// The transaction of this Notify begins before the recall and is committed after the first mark.
	late := ana.say("c-1", "m-late", "late")
	tx, err := c.pool.Begin(c.ctx)
	c.Must("begin a transaction", err)
	answers, err := outbox.Notify(c.ctx, tx, notification("fay", "late", aboutSeq(late)))
	c.Must("submit a notification", err)
	c.recall(late)
	c.Until("the recall is marked", soon, func() bool {
		return one[bool](c.scene, `SELECT marked FROM tidings.gone WHERE why = 'recall' AND seq = $1`, late)
	})
	c.Must("commit", tx.Commit(c.ctx))
	suppressed["committed late"] = c.task(answers[0], push)
	c.Equal("committed late: marked by the first mark", false, c.knows(suppressed["committed late"]))
	c.Fault(fault.New("late commit", "the application's transaction", fmt.Sprintf("the recall of %d was marked before it was committed", late)))
	c.exec(`UPDATE tidings.gone SET at = at - interval '1 minute' WHERE why = 'recall' AND seq = $1`, late) // as if it had waited so long
	c.Until("it is marked the second time", soon, func() bool { return c.knows(suppressed["committed late"]) })

	c.hurry(inDoubt)
	w := c.worker("w", patient(push)...)
	for settled := 0; settled < len(suppressed)+len(sent)+1; {
		n := c.once(w)
		if settled += n; n == 0 {
			break
		}
	}
	for what, task := range sent {
		c.state(what, tidings.Sent, task)
		c.Equal(what+": requests", 1, c.counts(task).Requests)
	}
	for what, task := range suppressed {
		c.state(what, tidings.Suppressed, task)
		c.Equal(what+": journal", []tidings.Outcome{tidings.SourceGone}, c.journal(task))
		c.Equal(what+": requests", 0, c.counts(task).Requests)
	}
	c.parked("in doubt", inDoubt)
	c.Equal("in doubt: journal", []tidings.Outcome{tidings.Timeout, tidings.SourceGoneInDoubt}, c.journal(inDoubt))
	c.Equal("in doubt: requests", 1, c.counts(inDoubt).Requests)
	c.Examined("notifications of what is gone, beside which the same worker sent others", len(suppressed)+1)
	c.Figure("slowest of 4 marks, from before the request", float64(c.slowest.Microseconds())/1000, "ms")
	c.Equal("what is left to be marked", 0, one[int](c.scene, `SELECT count(*) FROM tidings.gone WHERE NOT marked`))
}

func aboutSeq(seq int64) func(*tidings.Notification) {
	return func(n *tidings.Notification) { n.About = &tidings.About{Conv: "c-1", Seq: seq} }
}

// aboutTask notifies a user of a message and returns the task.
func (c *goneScene) aboutTask(user string, seq int64) tidings.UUID {
	c.Helper()
	return c.task(c.notify(user, fmt.Sprint("message-", seq), aboutSeq(seq)), push)
}

func (c *goneScene) recall(seq int64) {
	c.Helper()
	a := c.n.as("ana", http.MethodPost, "/v1/conversations/c-1/recalls", frame{"target": seq, "cmid": fmt.Sprint("recall-", seq)})
	c.Equal(fmt.Sprintf("recall of %d: status", seq), http.StatusCreated, a.status)
}

// knows tells whether a task's notification knows that what it is about is gone.
func (c *goneScene) knows(task tidings.UUID) bool { return c.marked(task) != nil }

func (c *goneScene) marked(task tidings.UUID) *time.Time {
	c.Helper()
	return one[*time.Time](c.scene, `SELECT n.about_gone_at FROM tidings.task t JOIN tidings.notification n ON n.id = t.notification_id WHERE t.id = $1`, task)
}

// gone does what makes the source of a task go and measures, by the database's clock, when the notification is marked.
func (c *goneScene) gone(what string, task tidings.UUID, do func()) {
	c.Helper()
	before := one[time.Time](c.scene, `SELECT clock_timestamp()`)
	do()
	c.Until(what+" is marked", soon, func() bool { return c.knows(task) })
	took := c.marked(task).Sub(before)
	c.slowest = max(c.slowest, took)
	c.Within(what+": from before it to the mark", marksWithin, took)
}
