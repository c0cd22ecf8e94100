// The answers to sends: what ends a message, what keeps it.

package client

import (
	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// final are the refusals that end a message in the outbox; nothing else does.
var final = map[tidings.Code]bool{
	tidings.OriginalExpired: true, tidings.IdempotencyMismatch: true, tidings.InvalidArgument: true, tidings.TooLarge: true, tidings.NotMember: true,
}

func (c *Client) sendAnswered(r *request, f *wire.Frame) {
	v, e := r.v, r.e
	v.land(e)
	c.look(v)
	if c.box.waiting[key{e.Conv, e.Cmid}] != e {
		return // discarded meanwhile
	}
	err := f.Err()
	if err == nil {
		v.sendTries = 0
		c.finish(v, e, Sent{Seq: f.Seq, Mid: f.Mid, Epoch: f.Epoch, At: f.At, Dup: f.Dup}, nil)
		return
	}
	if f.Stored == "unknown" {
		e.doubted = true
	}
	switch {
	case f.Code == tidings.OriginalExpired:
		c.finish(v, e, Sent{Seq: f.Seq}, err)
	case final[f.Code] || f.Retry == "no":
		c.refuse(v, e, err, e.doubted && f.Stored == "unchanged")
	default: // also what only a new token or a sync would mend: the message itself is not refused
		v.hold = true
		v.sendAt = c.retryAt(f, v.sendTries)
		v.sendTries++
	}
}

// refuse ends an entry, or lets the application decide; when an earlier transmission may have stored it, outcome is asked first.
func (c *Client) refuse(v *conversation, e *entry, err error, ask bool) {
	switch {
	case ask:
		e.verdict = err
	case final[tidings.ErrorCode(err)]:
		c.finish(v, e, Sent{}, err)
	default:
		c.askApplication(e, err)
	}
}

// outcomeAnswered takes what became of a message: of one that waits, or of one that was sent in another history.
func (c *Client) outcomeAnswered(r *request, f *wire.Frame) {
	v, e := r.v, r.e
	v.land(e)
	c.look(v)
	waits := c.box.waiting[key{e.Conv, e.Cmid}] == e
	if !waits && c.box.sent[key{e.Conv, e.Cmid}] != e {
		return // discarded meanwhile
	}
	switch gone := f.Stored == "no" || f.Code == tidings.NotMember; {
	case f.T == wire.TypeOutcome && f.Stored == "yes" && waits:
		c.finish(v, e, Sent{Seq: f.Seq, Epoch: f.Epoch, Dup: true}, nil)
	case f.T == wire.TypeOutcome && f.Stored == "yes":
		c.stands(e, f.Seq, f.Epoch)
	case f.T == wire.TypeOutcome && f.Stored == "purged" && waits:
		c.finish(v, e, Sent{Seq: f.Seq}, &tidings.Error{Code: tidings.OriginalExpired, Message: tidings.Codes[tidings.OriginalExpired].When, Seq: f.Seq})
	case f.T == wire.TypeOutcome && f.Stored == "purged":
		c.empty(e)
	case gone && waits:
		err := e.verdict
		e.verdict, e.doubted = nil, false
		c.refuse(v, e, err, false)
	case gone:
		c.box.unkeep(e)
		_ = c.note(endLine(e))
		c.tell(Lost{e.Entry, e.sent})
	default:
		v.sendAt = c.retryAt(f, v.sendTries)
		v.sendTries++
		if !waits {
			v.suspects = append(v.suspects, e)
		}
	}
}

// finish is the final answer to an entry.
func (c *Client) finish(v *conversation, e *entry, s Sent, err error) {
	v.drop(e)
	e.end(s, err)
	switch {
	case e.recall() || err != nil:
		c.box.forget(e)
		_ = c.note(endLine(e))
	case s.Epoch == v.log.epoch && v.log.recalled(s.Seq):
		c.empty(e)
	default:
		c.box.keep(e)
		_ = c.note(sentLine(&e.Entry, s))
		c.expectSent(v, e, s)
	}
	if c.cfg.Handle != nil {
		c.box.untold++
		c.tell(Ended{e.Entry, s, err})
	}
}

// expectSent looks whether the answer comes from the history that is known here.
func (c *Client) expectSent(v *conversation, e *entry, s Sent) {
	if v.follow && v.log.epoch != 0 && s.Epoch != v.log.epoch {
		v.suspects = append(v.suspects, e)
	}
	c.expect(v, s.Epoch, s.Seq)
}

// stands notes where a message is in the present history.
func (c *Client) stands(e *entry, seq, epoch int64) {
	e.sent.Seq, e.sent.Epoch = seq, epoch
	_ = c.note(sentLine(&e.Entry, e.sent))
}

func (c *Client) askApplication(e *entry, err error) {
	e.asked = true
	c.tell(Asked{e.Entry, err})
}
