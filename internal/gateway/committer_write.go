// Writes a batch of sends, repeats it where the rules say so, and answers each.

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// commit writes a batch and answers its messages, except for those that it leaves in their part. With a wait the batch is of one
// conversation, whose lock is waited for.
func (c *committer) commit(ctx context.Context, batch []*part, wait time.Duration) {
	for _, p := range batch {
		c.giveUp(p)
	}
	msgs, places := fold(batch)
	if len(msgs) == 0 {
		return
	}
	answers, doubt, err := c.write(ctx, msgs, wait)
	if doubt {
		for _, p := range batch {
			for i := range p.sends {
				p.sends[i].doubt = true
			}
		}
	}
	switch {
	case err == nil:
		c.settle(batch, places, answers)
	case doubt, wait > 0 && tidings.ErrorCode(err) == tidings.Unavailable: // the last: the lock was not to be had
		for _, p := range batch {
			p.fail(len(p.sends), err)
		}
	default:
		c.oneByOne(ctx, batch, wait)
	}
}

// giveUp answers the messages that have waited too long for their turn; the oldest come first.
func (c *committer) giveUp(p *part) {
	n := 0
	for n < len(p.sends) && time.Since(p.sends[n].since) > c.opts.Patience {
		n++
	}
	if n > 0 {
		p.fail(n, &tidings.Error{Code: tidings.Unavailable, Message: "the message has waited too long for its turn", RetryAfter: time.Second})
	}
}

// write sends messages. When the answer is lost it sends them once more, on a new connection, because what ended one has often ended
// all: under the same keys nothing is stored twice, and the second answer tells what became of the first. doubt says that the first
// one was lost.
func (c *committer) write(ctx context.Context, msgs []tidings.Message, wait time.Duration) (answers []tidings.Answer, doubt bool, err error) {
	began := time.Now()
	answers, err = c.send(ctx, msgs, wait)
	if err != nil && !store.Refused(err) {
		doubt = true
		c.renew()
		answers, err = c.send(ctx, msgs, wait)
	}
	if err == nil && c.opts.Observe != nil {
		c.opts.Observe(len(msgs), time.Since(began))
	}
	return answers, doubt, err
}

// oneByOne sends the messages of a batch that certainly was rolled back, each on its own, so that each gets the answer that is its
// due. When the database cannot be reached it stops trying.
func (c *committer) oneByOne(ctx context.Context, batch []*part, wait time.Duration) {
	var down error
	for _, p := range batch {
		sends := p.sends
		for i := range sends {
			if p.locked {
				p.left = append(p.left, sends[i:]...)
				break
			}
			p.sends = sends[i : i+1]
			if down != nil {
				p.fail(1, down)
				continue
			}
			answers, doubt, err := c.write(ctx, []tidings.Message{sends[i].msg}, wait)
			sends[i].doubt = sends[i].doubt || doubt
			if err == nil {
				c.settle([]*part{p}, []int{0}, answers)
				continue
			}
			p.fail(1, err)
			if doubt || tidings.ErrorCode(err) == tidings.Unavailable {
				down = &tidings.Error{Code: tidings.Unavailable, Message: "the database cannot be reached", RetryAfter: time.Second, Err: err}
			}
		}
	}
}

// fold returns the messages of a batch with each key once, as it arrived first, and for each message of the batch, in order, the
// place of the one that is sent for it.
func fold(batch []*part) (msgs []tidings.Message, places []int) {
	type key struct{ sender, cmid string }
	n := 0
	for _, p := range batch {
		n += len(p.sends)
	}
	msgs, places = make([]tidings.Message, 0, n), make([]int, 0, n)
	for _, p := range batch {
		if len(p.sends) == 1 { // as it is for most conversations: nothing to fold
			places = append(places, len(msgs))
			msgs = append(msgs, p.sends[0].msg)
			continue
		}
		first := make(map[key]int, len(p.sends))
		for _, w := range p.sends {
			k := key{w.msg.Sender, w.msg.Cmid}
			place, repeated := first[k]
			if !repeated {
				place = len(msgs)
				first[k] = place
				msgs = append(msgs, w.msg)
			}
			places = append(places, place)
		}
	}
	return msgs, places
}

// settle answers a batch that was committed, with what fold said of it: first committed hears of all events, then each message is
// answered.
func (c *committer) settle(batch []*part, places []int, answers []tidings.Answer) {
	type reply struct {
		to     *outgoing
		answer tidings.Answer
	}
	replies := make([]reply, 0, len(places))
	events := make([]tidings.Event, 0, len(answers))
	firsts := make([]*waiting, 0, len(answers)) // by place
	for _, p := range batch {
		began := len(events)
		for i := range p.sends {
			w, place := &p.sends[i], places[0]
			places = places[1:]
			answer := answers[place]
			switch repeat := place < len(firsts); {
			case !repeat:
				firsts = append(firsts, w)
				// After a lost answer a duplicate is perhaps our own message, which nobody has been told of, and which may have been
				// recalled by now.
				if answer.Code == "" && (!answer.Dup || w.doubt) {
					events = append(events, eventOf(&w.msg, answer))
				}
			case answer.Code == store.Busy:
			case sameContent(&w.msg, &firsts[place].msg):
				answer.Dup = answer.Code == ""
			case answer.Code == "" && !answer.Dup:
				answer = tidings.Answer{Code: tidings.IdempotencyMismatch, Epoch: answer.Epoch}
			default:
				// Its twin was refused, or is older than this batch, so that only the log can tell what is stored under the key. No
				// later message of its sender has got a seq that this one could have had: they were judged at the same instant.
				p.left = append(p.left, *w)
				continue
			}
			if answer.Code == store.Busy {
				p.left, p.locked = append(p.left, *w), true
				continue
			}
			p.answered(w)
			replies = append(replies, reply{w.outgoing, answer})
		}
		slices.SortFunc(events[began:], func(a, b tidings.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	var l late
	if len(events) > 0 {
		c.committed(events, &l)
	}
	for _, r := range replies {
		r.to.done(r.answer, nil)
	}
	l.begin()
}

// sameContent compares what the hash of a message is made of.
func sameContent(a, b *tidings.Message) bool { return a.Body == b.Body && bytes.Equal(a.Data, b.Data) }

// eventOf is the event that a stored message has become; of one that was stored before only where it stands (see hub.committed).
func eventOf(m *tidings.Message, a tidings.Answer) tidings.Event {
	if a.Dup {
		return tidings.Event{Conv: m.Conv, Seq: a.Seq}
	}
	return tidings.Event{Conv: m.Conv, Seq: a.Seq, Kind: tidings.KindMsg, Mid: a.Mid.String(), Sender: m.Sender, SDev: m.Device, Cmid: m.Cmid,
		Body: &m.Body, Data: m.Data, At: a.At}
}

// fail answers the first n messages of a part with an error and takes them out. Of a message that may have been stored by an
// earlier transaction no error may say that it was not.
func (p *part) fail(n int, err error) {
	for i := range p.sends[:n] {
		w, err := &p.sends[i], err
		if w.doubt && store.Refused(err) {
			err = &tidings.Error{Code: tidings.OutcomeUnknown, Message: "the answer to an earlier commit was lost", RetryAfter: time.Second, Err: err}
		}
		p.answered(w)
		w.done(tidings.Answer{}, err)
	}
	p.sends = p.sends[n:]
}

// answered counts a message as answered.
func (p *part) answered(w *waiting) {
	p.count++
	p.bytes += sizeOf(&w.msg)
}
