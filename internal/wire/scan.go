// Scans JSON strictly.

package wire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON (RFC 8259) from b, which is UTF-8. Its methods return false where the text is no JSON; what is JSON but not
// allowed becomes the fault, and the scan goes on.
type scanner struct {
	b     []byte
	i     int
	fault string // the first one, for people; empty when there is none
}

func (s *scanner) blame(fault string) {
	if s.fault == "" {
		s.fault = fault
	}
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) next(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) literal(word string) bool {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

// quoted is a string as it stands between its quotes.
type quoted struct {
	raw     []byte
	escaped bool // there are escapes in it
	bad     bool // with U+0000 or half of a surrogate pair
}

// str reads a string.
func (s *scanner) str() (q quoted, ok bool) {
	if !s.next('"') {
		return q, false
	}
	start := s.i
	for {
		i := s.i
		for i < len(s.b) && (!escapes[s.b[i]] || s.b[i] >= utf8.RuneSelf) {
			i++
		}
		s.i = i
		switch s.peek() {
		case '"':
			q.raw = s.b[start:s.i]
			s.i++
			return q, true
		case '\\':
			q.escaped = true
			if !s.escape(&q) {
				return q, false
			}
		default: // the end, or a control character
			return q, false
		}
	}
}

// escape reads one escape, or the two of a surrogate pair.
func (s *scanner) escape(q *quoted) bool {
	if s.i+1 >= len(s.b) {
		return false
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	}
	r := hex4(s.b[s.i:])
	if r < 0 {
		return false
	}
	s.i += 6
	switch {
	case r == 0:
		s.blame("a string has U+0000")
		q.bad = true
	case high(r) && low(hex4(s.b[s.i:])):
		s.i += 6
	case high(r) || low(r):
		s.blame("a string has half of a surrogate pair")
		q.bad = true
	}
	return true
}

func high(r rune) bool { return r >= 0xD800 && r < 0xDC00 }
func low(r rune) bool  { return r >= 0xDC00 && r < 0xE000 }

// hex4 reads \uXXXX at the start of b; -1 when it is none.
func hex4(b []byte) (r rune) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// bytes is the text that the string stands for; it may share the frame's memory.
func (q quoted) bytes() []byte {
	if !q.escaped {
		return q.raw
	}
	text, rest := make([]byte, 0, len(q.raw)), q.raw
	for {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return append(text, rest...)
		}
		text = append(text, rest[:i]...)
		c := rest[i+1]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(rest[i:])
			rest = rest[i+6:]
			if second := hex4(rest); high(r) && low(second) {
				r = utf16.DecodeRune(r, second)
				rest = rest[6:]
			}
			text = utf8.AppendRune(text, r) // half a pair becomes U+FFFD; such a string is refused anyway
			continue
		}
		text = append(text, c)
		rest = rest[i+2:]
	}
}

// number reads a number and tells whether it is written as an integer.
func (s *scanner) number() (raw []byte, integer, ok bool) {
	start := s.i
	s.next('-')
	if !s.next('0') && !s.digits() {
		return nil, false, false
	}
	integer = true
	if s.next('.') {
		integer = false
		if !s.digits() {
			return nil, false, false
		}
	}
	if s.next('e') || s.next('E') {
		integer = false
		if !s.next('+') {
			s.next('-')
		}
		if !s.digits() {
			return nil, false, false
		}
	}
	return s.b[start:s.i], integer, true
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// skip reads any value; it is part of depth containers.
func (s *scanner) skip(depth int) bool {
	switch c := s.peek(); c {
	case '"':
		_, ok := s.str()
		return ok
	case '{', '[':
		if depth == MaxDepth {
			s.blame("the frame nests too deeply")
			return false
		}
		return s.container(depth + 1)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		_, _, ok := s.number()
		return ok
	}
}

func (s *scanner) container(depth int) bool {
	end := byte(']')
	if s.b[s.i] == '{' {
		end = '}'
	}
	s.i++
	s.space()
	for first := true; !s.next(end); first = false {
		if !first {
			if !s.next(',') {
				return false
			}
			s.space()
		}
		if end == '}' {
			if _, ok := s.name(); !ok {
				return false
			}
		}
		if !s.skip(depth) {
			return false
		}
		s.space()
	}
	return true
}

// name reads the name of a member and its colon.
func (s *scanner) name() (q quoted, ok bool) {
	if q, ok = s.str(); !ok {
		return q, false
	}
	s.space()
	if !s.next(':') {
		return q, false
	}
	s.space()
	return q, true
}
