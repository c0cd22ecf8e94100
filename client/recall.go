// Recalls: those of this device, and what becomes of own messages when anybody recalls them.

package client

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// Recall is what Client.Recall takes. Its Cmid is the identity of the recall, not of the message: the same again is the same recall.
// Without one it gets a random one.
type Recall struct {
	Conv   string
	Target Position // where the message stands, as Sent and Arrived tell. Without an Epoch: in the history that is known here
	Cmid   string
}

// Recall puts the recall of a message of the user into the outbox and returns when it is safe there: from then on it is sent until
// the server's final answer. A message that is still in the outbox has no place yet: Discard it, or wait for Sent.
//
// The answer can be NOT_SENDER, NOT_FOUND, ALREADY_RECALLED, RECALL_WINDOW_EXPIRED, INVALID_ARGUMENT (it is no message), NOT_MEMBER,
// IDEMPOTENCY_MISMATCH, or EPOCH_CHANGED: the log has another history, in which the message may stand elsewhere.
//
// Errors: INVALID_ARGUMENT, and those of Send.
func (c *Client) Recall(r Recall) (*Pending, error) {
	if r.Cmid == "" {
		r.Cmid = rand.Text()
	}
	if err := tidings.CheckID("conv", r.Conv); err != nil {
		return nil, err
	}
	if err := tidings.CheckID("cmid", r.Cmid); err != nil {
		return nil, err
	}
	if r.Target.Epoch == 0 {
		c.mu.Lock()
		if v := c.convs[r.Conv]; v != nil {
			r.Target.Epoch = v.log.epoch
		}
		c.mu.Unlock()
	}
	if r.Target.Seq < 1 || r.Target.Epoch < 1 {
		return nil, tidings.Errorf(tidings.InvalidArgument, "recall a message of %s: its place is not known: seq %d, epoch %d", r.Conv, r.Target.Seq, r.Target.Epoch)
	}
	return c.enter(Entry{Message: Message{Conv: r.Conv, Cmid: r.Cmid}, Target: r.Target})
}

// finalForRecall are the refusals that end a recall in the outbox; nothing else does.
var finalForRecall = map[tidings.Code]bool{
	tidings.NotSender: true, tidings.NotFound: true, tidings.AlreadyRecalled: true, tidings.RecallWindowExpired: true, tidings.IdempotencyMismatch: true,
	tidings.InvalidArgument: true, tidings.NotMember: true, tidings.EpochChanged: true,
}

func (c *Client) recallAnswered(r *request, f *wire.Frame) {
	v, e := r.v, r.e
	v.land(e)
	c.look(v)
	if c.box.waiting[key{e.Conv, e.Cmid}] != e {
		return // discarded meanwhile, or its history has ended
	}
	err := f.Err()
	if f.Code == tidings.NotFound && e.doubted {
		err = nil // an earlier transmission has done it, and both were purged since; whichever way, the message is gone
	}
	if f.Stored == "unknown" {
		e.doubted = true
	}
	switch {
	case err == nil:
		v.sendTries = 0
		c.finish(v, e, Sent{Seq: f.Seq, Epoch: f.Epoch, Dup: f.Dup || f.Code != ""}, nil)
		c.emptyAt(e.Conv, e.Target)
		if f.Seq > 0 {
			c.expect(v, f.Epoch, f.Seq)
		}
	case finalForRecall[f.Code]:
		c.finish(v, e, Sent{}, err)
		if f.Code == tidings.AlreadyRecalled {
			c.emptyAt(e.Conv, e.Target)
		}
		if f.Code == tidings.EpochChanged {
			c.expect(v, f.Epoch, 0)
		}
	case f.Retry == "no":
		c.askApplication(e, err)
	default:
		v.hold = true
		v.sendAt = c.retryAt(f, v.sendTries)
		v.sendTries++
	}
}

// endRecalls ends what was to be recalled in the history that is known, before the one with the epoch now takes its place: the
// seq may name another event there.
func (c *Client) endRecalls(v *conversation, now int64) {
	for _, e := range slices.Clone(v.queue) {
		if e.recall() && (e.Target.Epoch != now || now == v.log.epoch) {
			c.finish(v, e, Sent{}, &tidings.Error{Code: tidings.EpochChanged, Message: tidings.Codes[tidings.EpochChanged].When, Epoch: now})
		}
	}
}

// takeBack looks whether an event, which was merged if it could be, takes the content of a message of this device. Then the outbox forgets
// the message, whoever has recalled it.
func (c *Client) takeBack(v *conversation, epoch int64, e *tidings.Event) {
	at := Position{epoch, e.Seq}
	switch {
	case e.Kind == tidings.KindRecall:
		at.Seq = e.Target
	case !e.Recalled:
		return
	}
	c.emptyAt(v.conv, at)
	if epoch != v.log.epoch {
		return
	}
	if e.Kind == tidings.KindRecall {
		e = v.log.at(at.Seq)
	}
	if e == nil || e.Sender != c.user || e.Cmid == "" {
		return
	}
	k := key{v.conv, e.Cmid}
	if own := c.box.waiting[k]; own != nil && !own.recall() { // it is stored, though no answer has said so
		own.Body, own.Data = "", nil
		c.finish(v, own, Sent{Seq: e.Seq, Mid: e.Mid, Epoch: epoch, At: e.At, Dup: true}, nil)
	}
	if own := c.box.sent[k]; own != nil { // perhaps in another history
		c.empty(own)
	}
}

// emptyAt forgets the message of this device that was sent to a place, because it was recalled.
func (c *Client) emptyAt(conv string, at Position) {
	for _, e := range c.box.recent {
		if e.Conv == conv && e.sent.Epoch == at.Epoch && e.sent.Seq == at.Seq {
			c.empty(e)
			return
		}
	}
}

// trimmed forgets the messages that were sent to places before minSeq: they are purged, and so may be what has recalled them.
func (c *Client) trimmed(conv string, epoch, minSeq int64) {
	for _, e := range slices.Clone(c.box.recent) {
		if e.Conv == conv && e.sent.Epoch == epoch && e.sent.Seq < minSeq {
			c.empty(e)
		}
	}
}

// empty forgets a message that was sent, with its body.
func (c *Client) empty(e *entry) {
	c.box.forget(e)
	c.box.unkeep(e)
	e.Body, e.Data = "", nil
	for i := range c.news.list {
		if u, ok := c.news.list[i].update.(Ended); ok && u.Conv == e.Conv && u.Cmid == e.Cmid {
			u.Body, u.Data = "", nil
			c.news.list[i].update = u
		}
	}
	if c.file != nil {
		_ = c.note(endLine(e))
		c.stained = true
		signal(c.stain)
	}
}

// scrubPause is how long bodies of recalled messages stay in the file, so that it is rewritten once for a row of recalls.
const scrubPause = 100 * time.Millisecond

// scrub rewrites the file without the bodies of messages that were recalled, until the client is closed.
func (c *Client) scrub() {
	wait := func(pause time.Duration) bool {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-c.ctx.Done():
			return false
		case <-timer.C:
			return true
		}
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.stain:
		}
		for pause := scrubPause; wait(pause) && c.clean() != nil; {
			pause = c.cfg.BackoffMax // a full disk, say
		}
	}
}

// clean rewrites the file if it has the body of a recalled message.
func (c *Client) clean() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stained {
		return nil
	}
	return c.compact()
}
