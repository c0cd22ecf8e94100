// Previews: the text of the message that a notification is about, read just before the call.

package dispatch

import (
	"bytes"
	"context"
	"strconv"
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
			b.skip(a, channel.Outcome{Code: tidings.NotSent, Detail: "the message could not be read"})
		}
		return
	}
	var gone []store.Claimed
	for i, a := range attempts {
		if bodies[i] == nil {
			gone = append(gone, a.Claimed)
		}
	}
	if len(gone) > 0 {
		// Before their attempts end, so that the next claim knows. If it cannot be noted, the next attempt finds out again.
		if err := l.w.store.SourceGone(b.ctx, gone); err != nil {
			l.w.log.Error("cannot note that messages are gone", "channel", l.cfg.Name, "notifications", len(gone), "error", err)
		}
	}
	for i, a := range attempts {
		shown := shownHash(0)
		if bodies[i] != nil && *bodies[i] != "" {
			shown = shownHash(l.w.cfg.PreviewLength)
		}
		switch {
		case bodies[i] == nil:
			b.skip(a, channel.Outcome{Code: tidings.NotSent, Detail: "the message is gone"})
		case a.Keyed && len(a.RequestHash) > 0 && !bytes.Equal(a.RequestHash, shown):
			b.skip(a, channel.Outcome{Code: tidings.NotSent, KeyLost: true, Detail: "the first request under this key showed another length of the message"})
		default:
			a.Body, a.RequestHash, a.shown = shorten(*bodies[i], l.w.cfg.PreviewLength), nil, shown
			go b.run(a)
		}
	}
}

// shownHash stands for the request hash of calls that show messages up to a length; 0: that show none. That of their bytes would outlive a
// recall, and whoever guesses the text could tell that it was it. A message never changes: from what else is frozen, the same renderer
// makes the same bytes unless the length is another.
func shownHash(length int) []byte {
	return channel.HashParts([]byte("preview"), strconv.AppendInt(nil, int64(length), 10))
}

// skip ends an attempt without its call.
func (b *batch) skip(a *attempt, o channel.Outcome) {
	b.lane.circuit.untried()
	b.lane.end(a, o, true)
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
