// A chat client beside the notifications of the check 33-restore-uncertain.

package lab_test

import "github.com/tidings-project/tidings/client"

// beside is a chat in a scene's database, with a client that stays connected, as far as it can, while that is replaced.
type beside struct {
	c   *chat
	n   *node
	way *relay
	ben *app
}

// chatBeside starts it, with a message that will be in the backup.
func chatBeside(s *scene) *beside {
	s.Helper()
	b := &beside{c: chatOn(s.T, s.pool)}
	b.n = b.c.node("a")
	b.n.conversation("c-1", "ben", "ana")
	b.way = b.n.relay(nil)
	b.ben = b.c.app(b.way.url, "ben", "ben-1")
	b.say("kept")
	return b
}

func (b *beside) say(cmid string) {
	b.c.Helper()
	b.ben.answered(b.ben.queue("c-1", cmid, "beside"))
}

// converges leads the client to a gateway on the restored and recovered database, and records that it has that log, in a history of
// its own, and was told which message is lost.
func (b *beside) converges(r *scene) {
	r.Helper()
	after := &chat{scene: r, key: b.c.key}
	b.way.to(after.node("b"))
	r.Note("stopped: %v", b.n.Kill())
	apps := []*app{b.ben}
	after.converged(apps, "c-1")
	b.say("new") // at the seq of the lost one
	after.converged(apps, "c-1")
	var dropped int
	var lost []string
	r.Until("the lost message was told", soon, func() bool {
		dropped, lost = 0, nil
		for _, u := range b.ben.told() {
			switch u := u.(type) {
			case client.Dropped:
				dropped++
			case client.Lost:
				lost = append(lost, u.Cmid)
			}
		}
		return len(lost) > 0
	})
	r.Equal("histories that were dropped", 1, dropped)
	r.Equal("messages that were told as lost", []string{"lost"}, lost)
}
