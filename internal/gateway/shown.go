// Replies that show messages: none goes out with what was recalled while it waited.

package gateway

import (
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// unheard is how long after the log was asked a reply may begin to go out that shows messages of a conversation without a feed here: of a
// recall there nobody would hear. It is less than a receiver is slow for whom replies wait.
const unheard = int64(time.Second)

// shown is what a reply that has bodies of messages waits with. It is judged as late as it can be, by the writer.
type shown struct {
	rid, t string
	since  uint64   // hub.recalls before the log was asked
	asked  int64    // when that was, of Gateway.clock
	convs  []string // of which it shows messages
}

// errRecalled takes the place of a reply in whose conversations something was recalled since the log was asked.
var errRecalled = &tidings.Error{Code: tidings.Unavailable, Message: "something was recalled while the answer waited", RetryAfter: time.Second / 10}

// reply is the reply itself, or the refusal in its place.
func (i *item) reply(g *Gateway) []byte {
	if i.shown != nil && !g.hub.stands(i.shown, g.clock()) {
		return wire.AppendError(nil, i.shown.rid, i.shown.t, errRecalled)
	}
	return i.frame
}

// stands tells whether nothing that the reply shows can have been recalled since the log was asked, as far as is known here.
func (h *hub) stands(r *shown, now int64) bool {
	for _, conv := range r.convs {
		if f, ok := h.feeds.get(conv); ok && f.recalledAt.Load() > r.since || !ok && now-r.asked > unheard {
			return false
		}
	}
	return true
}

// asking begins a reply: the log is asked behind it.
func (s *session) asking(req *wire.Request) *shown {
	return &shown{rid: req.Rid, t: req.T, since: s.g.hub.recalls.Load(), asked: s.g.clock()}
}

// of notes the conversations of the events with a body. It returns nil if there is none.
func (r *shown) of(events ...tidings.Event) *shown {
	for i := range events {
		if e := &events[i]; e.Body != nil && (len(r.convs) == 0 || r.convs[len(r.convs)-1] != e.Conv) {
			r.convs = append(r.convs, e.Conv)
		}
	}
	if r.convs == nil {
		return nil
	}
	return r
}
