// Writes replies.

package wire

import (
	"slices"

	"github.com/tidings-project/tidings"
)

// AppendWelcome writes the reply to a hello.
func AppendWelcome(dst []byte, rid string, w *Welcome) []byte {
	dst = appendHead(dst, TypeWelcome, rid)
	dst = appendText(dst, "user", w.User)
	dst = appendText(dst, "device", w.Device)
	dst = appendText(dst, "connection", w.Connection)
	dst = appendInt(dst, "now", w.Now)
	dst = appendInt(dst, "ping_ms", w.PingMS)
	dst = append(dst, `,"limits":{"frame":`...)
	dst = appendNumber(dst, int64(w.Limits.Frame))
	dst = appendInt(dst, "body", int64(w.Limits.Body))
	dst = appendInt(dst, "data", int64(w.Limits.Data))
	dst = appendInt(dst, "inflight", int64(w.Limits.Inflight))
	dst = appendInt(dst, "page", int64(w.Limits.Page))
	if w.Limits.ResendMS != 0 {
		dst = appendInt(dst, "resend_ms", w.Limits.ResendMS)
	}
	dst = append(dst, `},"features":[`...)
	for i, feature := range w.Features {
		dst = appendString(appendComma(dst, i), feature)
	}
	return append(dst, "]}"...)
}

// AppendSent writes the reply to a send that is stored.
func AppendSent(dst []byte, rid, conv string, a tidings.Answer) []byte {
	dst = appendHead(slices.Grow(dst, frameRoom+len(rid)+len(conv)), TypeSent, rid)
	dst = appendText(dst, "conv", conv)
	dst = appendInt(dst, "seq", a.Seq)
	dst = appendUUID(dst, "mid", a.Mid)
	dst = appendInt(dst, "epoch", a.Epoch)
	dst = appendBool(dst, "dup", a.Dup)
	dst = appendInt(dst, "at", a.At)
	return append(dst, '}')
}

// AppendRecalled writes the reply to a recall that is stored: seq is that of the recall event.
func AppendRecalled(dst []byte, rid, conv string, epoch, seq int64, dup bool) []byte {
	dst = appendPlace(appendHead(dst, TypeRecalled, rid), conv, epoch)
	dst = appendInt(dst, "seq", seq)
	dst = appendBool(dst, "dup", dup)
	return append(dst, '}')
}

// AppendEvents writes the reply to a sync. Where it would get larger than MaxFrame it ends early and says that there is more: a
// page of the longest messages would be some ten megabytes. One event or range is always written.
func AppendEvents(dst []byte, rid string, p *Page) []byte {
	room := len(dst) + MaxFrame - rangeSize // what ends the page takes less than a range
	dst = appendPlace(appendHead(dst, TypeEvents, rid), p.Conv, p.Epoch)
	dst = appendInt(dst, "head", p.Head)
	dst = appendInt(dst, "min_seq", p.MinSeq)
	dst = appendInt(dst, "after", p.After)
	dst = append(dst, `,"events":[`...)
	more, ranges := p.More, 0
	for i := 0; i < len(p.Events) || ranges < len(p.Withheld); {
		before, isRange := len(dst), i == len(p.Events) || ranges < len(p.Withheld) && p.Withheld[ranges].From < p.Events[i].Seq
		size := ranges * rangeSize
		if isRange {
			size += rangeSize
		} else {
			dst = appendEvent(appendComma(dst, i), &p.Events[i])
		}
		if len(dst)+size > room && i+ranges > 0 {
			dst, more = dst[:before], true
			break
		}
		if isRange {
			ranges++
		} else {
			i++
		}
	}
	dst = append(dst, `],"withheld":[`...)
	for i, w := range p.Withheld[:ranges] {
		dst = append(appendComma(dst, i), `{"from":`...)
		dst = appendNumber(dst, w.From)
		dst = appendInt(dst, "to", w.To)
		dst = append(appendText(dst, "why", w.Why), '}')
	}
	dst = append(dst, ']')
	dst = appendBool(dst, "trimmed", p.Trimmed)
	dst = appendBool(dst, "more", more)
	return append(dst, '}')
}

// rangeSize is more than one withheld range takes.
const rangeSize = 80

// AppendFetched writes the reply to a fetch.
func AppendFetched(dst []byte, rid string, epoch int64, e *tidings.Event) []byte {
	dst = appendInt(appendHead(roomFor(dst, e), TypeFetched, rid), "epoch", epoch)
	return append(appendEvent(append(dst, `,"event":`...), e), '}')
}

// AppendAcked writes the reply to an ack: seq is the stored cursor.
func AppendAcked(dst []byte, rid, conv string, epoch, seq int64) []byte {
	dst = appendPlace(appendHead(slices.Grow(dst, frameRoom+len(rid)+len(conv)), TypeAcked, rid), conv, epoch)
	return append(appendInt(dst, "seq", seq), '}')
}

// AppendRead writes the reply to a read.
func AppendRead(dst []byte, rid string, s ReadState) []byte {
	dst = appendPlace(appendHead(dst, TypeRead, rid), s.Conv, s.Epoch)
	dst = appendInt(dst, "seq", s.Seq)
	dst = appendInt(dst, "unread", s.Unread)
	dst = appendBool(dst, "unread_more", s.UnreadMore)
	return append(dst, '}')
}

// AppendConversations writes the reply to conversations. It ends early as AppendEvents does.
func AppendConversations(dst []byte, rid string, list []Summary, more bool) []byte {
	start := len(dst)
	dst = append(appendHead(dst, TypeConversations, rid), `,"list":[`...)
	for i := range list {
		before := len(dst)
		dst = appendSummary(appendComma(dst, i), &list[i])
		if i > 0 && len(dst) > start+MaxFrame-len(`],"more":false}`) {
			dst, more = dst[:before], true
			break
		}
	}
	dst = append(dst, ']')
	dst = appendBool(dst, "more", more)
	return append(dst, '}')
}

func appendSummary(dst []byte, s *Summary) []byte {
	dst = append(dst, `{"conv":`...)
	dst = appendString(dst, s.Conv)
	dst = appendInt(dst, "epoch", s.Epoch)
	dst = appendInt(dst, "head", s.Head)
	dst = appendInt(dst, "min_seq", s.MinSeq)
	dst = appendInt(dst, "delivered", s.Delivered)
	dst = appendInt(dst, "read", s.Read)
	dst = appendInt(dst, "unread", s.Unread)
	dst = appendBool(dst, "unread_more", s.UnreadMore)
	if s.Last != nil {
		dst = appendEvent(append(dst, `,"last":`...), s.Last)
	}
	dst = appendInt(dst, "at", s.At)
	if s.Left {
		dst = appendBool(dst, "left", true)
	}
	return append(dst, '}')
}

// AppendOutcome writes the reply to outcome.
func AppendOutcome(dst []byte, rid string, o Outcome) []byte {
	dst = appendHead(dst, TypeOutcome, rid)
	dst = appendText(dst, "conv", o.Conv)
	dst = appendText(dst, "cmid", o.Cmid)
	dst = appendInt(dst, "epoch", o.Epoch)
	dst = appendText(dst, "stored", o.Stored)
	if o.Seq != 0 {
		dst = appendInt(dst, "seq", o.Seq)
	}
	return append(dst, '}')
}

// AppendRefreshed writes the reply to a refresh.
func AppendRefreshed(dst []byte, rid string) []byte {
	return append(appendHead(dst, TypeRefreshed, rid), '}')
}
