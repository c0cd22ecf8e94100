// Notifications, and what is refused before the database sees them.

package tidings

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Limits of a notification.
const (
	MaxTitle       = 1024                 // bytes
	MaxBody        = 16 << 10             // bytes
	MaxData        = 8 << 10              // bytes of JSON
	MaxTTL         = 366 * 24 * time.Hour // the longest time to live
	MaxAttempts    = 100                  // the largest attempt budget
	MaxBatch       = 10_000               // notifications in one call
	DefaultBudget  = 5                    // attempts when a notification names none
	MaxScheduling  = 366 * 24 * time.Hour // how far ahead NotBefore may lie
	maxDataNesting = 32
	maxExponents   = 4096 // the sum of the exponents in data: each is that many digits where it is stored
)

// Priority orders the tasks of a channel. A lower number leaves first, always: a code must not queue behind a newsletter.
type Priority int16

// The priorities. Normal is 1 so that the JSON field can be left out; in Go set it or use the zero value Urgent knowingly.
const (
	Urgent Priority = 0
	Normal Priority = 1
	Bulk   Priority = 2
)

// Duplicates says what to do after an unknown outcome on a channel that can neither deduplicate nor be asked.
type Duplicates string

// The two answers. The empty value is Forbid.
const (
	Forbid Duplicates = "forbid" // wait for a person rather than risk a second copy
	Allow  Duplicates = "allow"  // send again: a second copy is acceptable, a lost one is not
)

// Notification is an intent: tell this user this, once. (User, EventKey) is its identity: however often and however
// concurrently it is submitted, there is one notification, and the first submission's content stands.
type Notification struct {
	User     string `json:"user"`      // whom to tell; an id
	EventKey string `json:"event_key"` // what happened, for example "order-1001-shipped"; an id

	Title    string          `json:"title,omitempty"`    // at most MaxTitle bytes
	Body     string          `json:"body"`               // at most MaxBody bytes
	Data     json.RawMessage `json:"data,omitempty"`     // a JSON object for the application, at most MaxData bytes
	Category string          `json:"category,omitempty"` // what a user can opt out of; an id, or empty

	Channels []string  `json:"channels,omitempty"` // only these of the user's enabled channels; empty: all of them
	Priority *Priority `json:"priority,omitempty"` // nil: Normal

	TTL         Seconds    `json:"ttl_s"`                  // required: when it has become worthless, counted from NotBefore or, without it, from now
	NotBefore   *time.Time `json:"not_before,omitempty"`   // not earlier than this instant
	MaxAttempts int        `json:"max_attempts,omitempty"` // attempts per task; 0: DefaultBudget
	Duplicates  Duplicates `json:"duplicates,omitempty"`   // "": Forbid
	About       *About     `json:"about,omitempty"`        // the conversation's event that it speaks of
}

// About names an event of a conversation. A notification about a message that was recalled, read or whose reader has
// left is not sent.
type About struct {
	Conv string `json:"conv"`
	Seq  int64  `json:"seq"`
}

// Seconds is a duration that is written in JSON as a whole number of seconds.
type Seconds time.Duration

// MarshalJSON writes whole seconds, rounded up: a time to live is never shortened.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(int64((time.Duration(s) + time.Second - 1) / time.Second))
}

// UnmarshalJSON reads a whole number of seconds.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	if n > int64(MaxTTL/time.Second) || n < -int64(MaxTTL/time.Second) {
		return Errorf(InvalidArgument, "%d seconds are out of range, it must be 1 to %d", n, int64(MaxTTL/time.Second))
	}
	*s = Seconds(time.Duration(n) * time.Second)
	return nil
}

// Notified is the answer to one notification.
type Notified struct {
	ID             UUID `json:"id"`              // absent only for a duplicate whose original this transaction's snapshot cannot see
	Created        bool `json:"created"`         // this call created it
	Tasks          int  `json:"tasks"`           // tasks that it has: one for each enabled channel and slot
	PayloadDiffers bool `json:"payload_differs"` // it existed with other content; the first content stands
	Expired        bool `json:"expired"`         // it existed and was purged: ORIGINAL_EXPIRED
}

// Check refuses a notification that the database would refuse, so that bad input never aborts the caller's transaction.
// The error has the code InvalidArgument or TooLarge.
func (n *Notification) Check() error {
	if err := CheckID("user", n.User); err != nil {
		return err
	}
	if err := CheckID("event_key", n.EventKey); err != nil {
		return err
	}
	if n.Category != "" {
		if err := CheckID("category", n.Category); err != nil {
			return err
		}
	}
	for _, c := range n.Channels {
		if err := CheckID("channel", c); err != nil {
			return err
		}
	}
	if err := checkText("title", n.Title, MaxTitle); err != nil {
		return err
	}
	if err := checkText("body", n.Body, MaxBody); err != nil {
		return err
	}
	if err := checkData(n.Data); err != nil {
		return err
	}
	if n.Priority != nil && (*n.Priority < Urgent || *n.Priority > Bulk) {
		return Errorf(InvalidArgument, "priority is %d, only 0 (urgent), 1 (normal) and 2 (bulk) exist", *n.Priority)
	}
	if n.TTL == 0 {
		return Errorf(InvalidArgument, "ttl_s is missing: say after how many seconds it is worthless")
	}
	if n.TTL < 0 || time.Duration(n.TTL) > MaxTTL {
		return Errorf(InvalidArgument, "ttl_s is %v, it must be 1 to %d seconds", time.Duration(n.TTL).Seconds(), int64(MaxTTL/time.Second))
	}
	if n.MaxAttempts < 0 || n.MaxAttempts > MaxAttempts {
		return Errorf(InvalidArgument, "max_attempts is %d, it must be 1 to %d", n.MaxAttempts, MaxAttempts)
	}
	if d := n.Duplicates; d != "" && d != Forbid && d != Allow {
		return Errorf(InvalidArgument, "duplicates is neither %q nor %q", Forbid, Allow)
	}
	if n.About != nil {
		if err := CheckID("about.conv", n.About.Conv); err != nil {
			return err
		}
		if n.About.Seq < 1 {
			return Errorf(InvalidArgument, "about.seq is %d, the first event has 1", n.About.Seq)
		}
	}
	if n.NotBefore != nil && (n.NotBefore.Year() < 2000 || time.Until(*n.NotBefore) > MaxScheduling) {
		return Errorf(InvalidArgument, "not_before is out of range: at most %d days ahead are allowed", MaxScheduling/(24*time.Hour))
	}
	return nil
}

// checkText refuses what PostgreSQL cannot store as text, and what is too long.
func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return Errorf(TooLarge, "%s is %d bytes long, at most %d are allowed", what, len(s), limit)
	}
	if !utf8.ValidString(s) {
		return Errorf(InvalidArgument, "%s is not valid UTF-8", what)
	}
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return Errorf(InvalidArgument, "%s contains U+0000", what)
		}
	}
	return nil
}

// checkData refuses what is not a JSON object, what nests too deeply, and the escapes that PostgreSQL's jsonb refuses:
// U+0000 and lone surrogates.
func checkData(data json.RawMessage) error {
	if len(data) == 0 {
		return nil
	}
	if err := checkText("data", string(data), MaxData); err != nil {
		return err
	}
	if !json.Valid(data) {
		return Errorf(InvalidArgument, "data is not JSON")
	}
	depth, inString, first, exponents := 0, false, byte(0), 0
	for i := 0; i < len(data); i++ {
		c := data[i]
		if first == 0 && c > ' ' {
			first = c
		}
		switch {
		case inString && c == '\\' && data[i+1] == 'u':
			r, ok := escaped(data[i:])
			if !ok {
				return Errorf(InvalidArgument, "data has an escaped U+0000 or a lone surrogate")
			}
			i += r - 1
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == 'E' || c == 'e') && isDigit(data[i-1]): // not the e of true and false
			if exponents += exponent(data[i+1:]); exponents > maxExponents {
				return Errorf(InvalidArgument, "data has numbers with too large exponents")
			}
		case !inString && (c == '{' || c == '['):
			if depth++; depth > maxDataNesting {
				return Errorf(InvalidArgument, "data nests deeper than %d levels", maxDataNesting)
			}
		case !inString && (c == '}' || c == ']'):
			depth--
		}
	}
	if first != '{' {
		return Errorf(InvalidArgument, "data is not a JSON object")
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// exponent is the amount of the exponent at the start of b, at most maxExponents and one.
func exponent(b []byte) (n int) {
	for _, c := range b {
		switch {
		case isDigit(c):
			n = min(10*n+int(c-'0'), maxExponents+1)
		case c != '+' && c != '-':
			return n
		}
	}
	return n
}

// escaped reads one \uXXXX at the start of b, or a surrogate pair of two, and returns its length in bytes; false for
// U+0000 and for half a pair. b is valid JSON.
func escaped(b []byte) (int, bool) {
	hex4 := func(b []byte) (r rune) {
		for _, c := range b[2:6] {
			switch {
			case c >= 'a':
				c -= 'a' - 10
			case c >= 'A':
				c -= 'A' - 10
			default:
				c -= '0'
			}
			r = r<<4 | rune(c)
		}
		return r
	}
	r := hex4(b)
	switch {
	case r == 0:
		return 0, false
	case r >= 0xD800 && r < 0xDC00:
		if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
			return 0, false
		}
		if low := hex4(b[6:]); low < 0xDC00 || low > 0xDFFF {
			return 0, false
		}
		return 12, true
	case r >= 0xDC00 && r <= 0xDFFF:
		return 0, false
	}
	return 6, true
}
