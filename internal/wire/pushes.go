// Writes pushes.

package wire

import (
	"slices"
	"time"

	"github.com/tidings-project/tidings"
)

// AppendEvent writes the push of a new event.
func AppendEvent(dst []byte, epoch int64, e *tidings.Event) []byte {
	dst = appendInt(appendHead(roomFor(dst, e), TypeEvent, ""), "epoch", epoch)
	return append(appendEvent(append(dst, `,"event":`...), e), '}')
}

// AppendLag writes the hint that the device is behind head.
func AppendLag(dst []byte, conv string, epoch, head int64) []byte {
	dst = appendPlace(appendHead(slices.Grow(dst, frameRoom+len(conv)), TypeLag, ""), conv, epoch)
	return append(appendInt(dst, "head", head), '}')
}

// AppendCursor writes the news that another device of the user has read up to s.Seq.
func AppendCursor(dst []byte, s ReadState) []byte {
	dst = appendPlace(appendHead(dst, TypeCursor, ""), s.Conv, s.Epoch)
	dst = appendInt(dst, "read", s.Seq)
	dst = appendInt(dst, "unread", s.Unread)
	dst = appendBool(dst, "unread_more", s.UnreadMore)
	return append(dst, '}')
}

// AppendJoined writes the news that the user has become a member; seq is that of the join.
func AppendJoined(dst []byte, conv string, epoch, seq int64) []byte {
	dst = appendPlace(appendHead(dst, TypeJoined, ""), conv, epoch)
	return append(appendInt(dst, "seq", seq), '}')
}

// AppendLeft writes the news that the user is a member no longer; seq is that of the leave.
func AppendLeft(dst []byte, conv string, epoch, seq int64) []byte {
	dst = appendPlace(appendHead(dst, TypeLeft, ""), conv, epoch)
	return append(appendInt(dst, "seq", seq), '}')
}

// AppendDraining writes the news that the gateway stops and after how long to connect again.
func AppendDraining(dst []byte, reconnectAfter time.Duration) []byte {
	return append(appendInt(appendHead(dst, TypeDraining, ""), "reconnect_after_ms", reconnectAfter.Milliseconds()), '}')
}

// AppendPing writes a ping, which a client answers with a pong or any other frame.
func AppendPing(dst []byte) []byte {
	return append(appendHead(dst, TypePing, ""), '}')
}
