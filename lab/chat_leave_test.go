// The check 08-no-push-after-leave.

package lab_test

import (
	"fmt"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "08-no-push-after-leave",
		Expect: "a connected member is removed while nobody hears of it, and others send at its gateway and at another: it is pushed the leave and nothing after it; the same in 8 " +
			"rounds in which two others send while it is removed",
		Run: noPushAfterLeave,
	})
}

// theTeller is the advisory lock under which one gateway tells of events that were not appended by a gateway ("posted" in ASCII).
const theTeller = 0x706f73746564

// unheard makes a change of which the gateways would be told by posted rows, and loses these.
func (c *chat) unheard(what string, change func()) fault.Receipt {
	c.Helper()
	leave := c.obstruct("take the teller's place", `SELECT pg_advisory_xact_lock($1)`, int64(theTeller))
	defer leave()
	change()
	proof := ""
	if n := c.exec(`DELETE FROM tidings.posted`); n > 0 {
		proof = fmt.Sprintf("%d row that nobody had read was taken away", n)
	}
	return fault.New("lost wake-up", what, proof)
}

func noPushAfterLeave(t *lab.T) {
	const rounds, each = 8, 5
	c := newChat(t)
	quick := with("TIDINGS_GATEWAY_RATE", "100000")
	a, b := c.node("a", quick), c.node("b", quick)
	a.conversation("c-marker", "ana", "cy")
	ana, ben, cy := a.device("ana", "ana-1"), b.device("ben", "ben-1"), b.device("cy", "cy-1")

	// The gateway of the former member does not hear of the leave.
	for i, sender := range []*peer{ana, ben} {
		unknown := false
		for try := 0; try < 5 && !unknown; try++ { // a gateway compares with the database now and then, and may find it out
			conv := fmt.Sprintf("c-unheard-%d-%d", i, try)
			a.conversation(conv, "ana", "ben", "cy")
			ana.say(conv, "m-4", "hello")
			cy.event(conv, 4)
			ben.event(conv, 4)
			c.Fault(c.unheard("the removal of a member from "+conv, func() { c.Equal(conv+": left at", 5, a.leave(conv, "cy")) }))
			unknown = countConv(cy.received("left"), conv) == 0
			sender.say(conv, "m-6", private)
			ana.say(conv, "m-7", private)
			ben.event(conv, 7)
			cy.event("c-marker", ana.say("c-marker", conv, "after all that"))
			c.Equal(conv+": pushed", []int64{4, 5}, cy.pushed(conv, 3))
		}
		c.True(sender.dev+" sent while the gateway did not know of the leave", unknown)
	}

	// Others send while it is removed.
	a.conversation("c-race", "ana", "ben")
	for r := range rounds {
		joined := a.join("c-race", "cy")
		cy.event("c-race", joined)
		c.Together("sends and a removal", 3, func(i int) {
			switch i {
			case 0:
				a.leave("c-race", "cy")
			default:
				for k := range each {
					[]*peer{ana, ben}[i-1].say("c-race", fmt.Sprintf("m-%d-%d", r, k), "hello")
				}
			}
		})
	}
	cy.await("the last leave", soon, func(f frame) bool {
		return f.t() == "left" && f.str("conv") == "c-race" && f.num("seq") == one[int64](c.scene, `SELECT max(leave_seq) FROM tidings.member WHERE conv_id = 'c-race' AND user_id = 'cy'`)
	})
	last := ana.say("c-race", "m-last", private)
	ben.event("c-race", last)
	cy.event("c-marker", ana.say("c-marker", "c-race", "after all that"))

	astray := 0
	for _, seq := range cy.pushed("c-race", 0) {
		if !one[bool](c.scene, `SELECT EXISTS (SELECT FROM tidings.member WHERE conv_id = 'c-race' AND user_id = 'cy' AND $1 BETWEEN join_seq AND leave_seq)`, seq) {
			astray++
		}
	}
	c.Equal("in races: pushed outside the membership", 0, astray)
	c.Equal("in races: told that it left", rounds, countConv(cy.received("left"), "c-race"))
	hidden := one[int64](c.scene, `SELECT count(*) FROM tidings.event e WHERE conv_id = 'c-race' AND seq > 2 AND NOT EXISTS
		(SELECT FROM tidings.member m WHERE m.conv_id = e.conv_id AND m.user_id = 'cy' AND e.seq BETWEEN m.join_seq AND m.leave_seq)`)
	c.Examined("pushes in races", len(cy.pushed("c-race", 0)))
	c.Examined("events outside the membership", int(hidden))
	c.Equal("secrets in all that cy was told", 0, mentions(private, cy.heard()))
}

// countConv counts the frames about a conversation.
func countConv(frames []frame, conv string) (n int) {
	for _, f := range frames {
		if f.str("conv") == conv {
			n++
		}
	}
	return n
}
