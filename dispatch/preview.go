// Previews: the text of the message that a notification is about, read just before the call.

package dispatch

import (
	"context"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/store"
)

const (
	// DefaultPreview is the length of a preview in characters.
	DefaultPreview = 140
	// previewPatience bounds the reading of the messages, which takes of the time that a call has.
	previewPatience = 2 * time.Second
)

// preview reads the messages that attempts of a batch are about, all at once, and makes their calls. The claim reads no
// conversation; so what is recalled between it and now is noticed here. An attempt whose message is gone makes no call and ends as
// NOT_SENT, and its notification is told, so that the next claim settles the task.
func (b *batch) preview(attempts []*attempt) {
	l := b.lane
	claimed := make([]store.Claimed, len(attempts))
	for i, a := range attempts {
		claimed[i] = a.Claimed
	}
	ctx, cancel := context.WithTimeout(b.ctx, min(l.cfg.Timeout/2, previewPatience))
	bodies, err := l.w.store.Previews(ctx, claimed)
	cancel()
	if err != nil {
		l.w.log.Error("the messages of previews cannot be read; nothing was sent", "channel", l.cfg.Name, "attempts", len(attempts), "error", err)
		for _, a := range attempts {
			b.skip(a, "the message could not be read")
		}
		return
	}
	var gone []tidings.UUID
	for i, a := range attempts {
		if bodies[i] == nil {
			gone = append(gone, a.Note)
		}
	}
	if len(gone) > 0 {
		// Before their attempts end, so that the next claim knows. If it cannot be noted, the next attempt finds out again.
		if err := l.w.store.SourceGone(b.ctx, gone); err != nil {
			l.w.log.Error("cannot note that messages are gone", "channel", l.cfg.Name, "notifications", len(gone), "error", err)
		}
	}
	for i, a := range attempts {
		if bodies[i] == nil {
			b.skip(a, "the message is gone")
			continue
		}
		a.Body = shorten(*bodies[i], l.w.cfg.PreviewLength)
		go b.run(a)
	}
}

// skip ends an attempt without its call.
func (b *batch) skip(a *attempt, why string) {
	b.lane.circuit.untried()
	b.lane.end(a, channel.Outcome{Code: tidings.NotSent, Detail: why}, true)
	b.done()
}

// shorten cuts a text to a number of characters, the last of which is then an ellipsis.
func shorten(text string, most int) string {
	n, end := 0, 0 // characters that were passed; where to cut
	for at := range text {
		if n == most-1 {
			end = at
		}
		if n++; n > most {
			return text[:end] + "…"
		}
	}
	return text
}
