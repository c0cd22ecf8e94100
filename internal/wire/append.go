// The parts that frames are written with.

package wire

import (
	"encoding/hex"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tidings-project/tidings"
)

// appendHead opens a frame; an empty rid is left out.
func appendHead(dst []byte, t, rid string) []byte {
	dst = append(dst, `{"t":"`...)
	dst = append(dst, t...)
	dst = append(dst, '"')
	if rid != "" {
		dst = appendText(dst, "rid", rid)
	}
	return dst
}

func appendPlace(dst []byte, conv string, epoch int64) []byte {
	return appendInt(appendText(dst, "conv", conv), "epoch", epoch)
}

// What surrounds the texts of a frame is shorter than this, escapes and all that is rare left out. The encoders of frequent frames make
// room by it, so that one that begins with nil grows once.
const (
	eventRoom = 224
	frameRoom = 160
)

// roomFor makes room for a frame with an event.
func roomFor(dst []byte, e *tidings.Event) []byte {
	n := eventRoom + len(e.Conv) + len(e.Sender) + len(e.SDev) + len(e.Cmid) + len(e.Data)
	if e.Body != nil {
		n += len(*e.Body)
	}
	return slices.Grow(dst, n)
}

// appendEvent writes what encoding/json makes of e, except that characters of HTML stand as they are. Data has to be JSON, as
// everything is that was decoded here or read from the log.
func appendEvent(dst []byte, e *tidings.Event) []byte {
	dst = append(dst, `{"conv":`...)
	dst = appendString(dst, e.Conv)
	dst = appendInt(dst, "seq", e.Seq)
	dst = appendText(dst, "kind", string(e.Kind))
	if e.Mid != "" {
		dst = appendText(dst, "mid", e.Mid)
	}
	dst = appendText(dst, "sender", e.Sender)
	if e.SDev != "" {
		dst = appendText(dst, "sdev", e.SDev)
	}
	if e.Cmid != "" {
		dst = appendText(dst, "cmid", e.Cmid)
	}
	if e.Body != nil {
		dst = appendText(dst, "body", *e.Body)
	}
	if len(e.Data) > 0 {
		dst = appendJSON(append(dst, `,"data":`...), e.Data)
	}
	if e.Recalled {
		dst = appendBool(dst, "recalled", true)
	}
	if e.Target != 0 {
		dst = appendInt(dst, "target", e.Target)
	}
	if e.Actor != "" {
		dst = appendText(dst, "actor", e.Actor)
	}
	return append(appendInt(dst, "at", e.At), '}')
}

// appendKey writes a comma and a name, which has no character that needs an escape.
func appendKey(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendText(dst []byte, name, s string) []byte {
	return appendString(appendKey(dst, name), s)
}

func appendInt(dst []byte, name string, n int64) []byte {
	return appendNumber(appendKey(dst, name), n)
}

func appendNumber(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendBool(dst []byte, name string, b bool) []byte {
	return strconv.AppendBool(appendKey(dst, name), b)
}

// appendUUID writes the canonical form; an absent id is left out.
func appendUUID(dst []byte, name string, u tidings.UUID) []byte {
	if u.IsZero() {
		return dst
	}
	dst = append(appendKey(dst, name), '"')
	from := 0
	for i, to := range [...]int{4, 6, 8, 10, 16} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, u[from:to])
		from = to
	}
	return append(dst, '"')
}

// appendComma separates the items of a list.
func appendComma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// appendJSON writes raw JSON as it is. A byte that is no UTF-8 can only stand in a string of it and is replaced.
func appendJSON(dst, raw []byte) []byte {
	if utf8.Valid(raw) {
		return append(dst, raw...)
	}
	for _, r := range string(raw) {
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// escapes tells which bytes cannot stand in a JSON string as they are, and from 0x80 on, which have to be looked at.
var escapes = func() (is [256]bool) {
	for c := range is {
		is[c] = c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}
	return is
}()

// appendString writes s as a JSON string; bytes that are no UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if !escapes[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			dst = append(append(dst, s[done:i]...), "\uFFFD"...)
		} else {
			dst = appendEscape(append(dst, s[done:i]...), c)
		}
		i++
		done = i
	}
	return append(append(dst, s[done:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}
