// Ids: what is allowed, buckets, UUIDs.

package tidings

import (
	"crypto/sha256"
	"encoding/hex"
)

// MaxID is the greatest length of an id in bytes.
const MaxID = 128

// CheckID refuses anything that is not an id: 1 to MaxID bytes of printable ASCII without space, '/', '?', '#' and
// '%', so that an id can stand in a URL path, a header and a log line as it is. what names the id in the error.
func CheckID(what, id string) error {
	if id == "" {
		return Errorf(InvalidArgument, "%s is empty", what)
	}
	if len(id) > MaxID {
		return Errorf(InvalidArgument, "%s is %d bytes long, at most %d are allowed", what, len(id), MaxID)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if c < '!' || c > '~' || c == '/' || c == '?' || c == '#' || c == '%' {
			return Errorf(InvalidArgument, "%s has the byte 0x%02x at %d, which an id cannot have", what, c, i)
		}
	}
	return nil
}

// Bucket is the fixed hash by which a user's rows are distributed: the first byte of the SHA-256 of the user's id.
// The SQL function tidings.bucket_of computes the same; it never changes, because stored rows carry it.
func Bucket(userID string) int16 {
	sum := sha256.Sum256([]byte(userID))
	return int16(sum[0])
}

// UUID is an id of a notification, a task or an attempt (its token). Its first byte is the bucket of the user it
// belongs to, so that an id alone finds its place.
type UUID [16]byte

// Bucket is the bucket that the id carries.
func (u UUID) Bucket() int16 { return int16(u[0]) }

// IsZero tells whether the id is absent.
func (u UUID) IsZero() bool { return u == UUID{} }

// String is the canonical form, 8-4-4-4-12 hexadecimal digits.
func (u UUID) String() string {
	text := [36]byte{8: '-', 13: '-', 18: '-', 23: '-'}
	hex.Encode(text[0:8], u[0:4])
	hex.Encode(text[9:13], u[4:6])
	hex.Encode(text[14:18], u[6:8])
	hex.Encode(text[19:23], u[8:10])
	hex.Encode(text[24:36], u[10:16])
	return string(text[:])
}

// MarshalText is the canonical form; an absent id is the empty text.
func (u UUID) MarshalText() ([]byte, error) {
	if u.IsZero() {
		return nil, nil
	}
	return []byte(u.String()), nil
}

// UnmarshalText reads what ParseUUID reads; the empty text is an absent id.
func (u *UUID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*u = UUID{}
		return nil
	}
	parsed, err := ParseUUID(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}

// ParseUUID reads 32 hexadecimal digits, with or without the four dashes of the canonical form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	digits := s
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		digits = s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	}
	if len(digits) != 32 {
		return u, Errorf(InvalidArgument, "an id of %d characters is not a UUID", len(s))
	}
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return UUID{}, Errorf(InvalidArgument, "the id is not a UUID: %v", err)
	}
	return u, nil
}

// Key is the task id as an idempotency key: 32 hexadecimal digits.
//
// A task's id is derived from the installation, the user, the event key, the channel, the slot and the payload, so it
// serves as idempotency key and as the reference for a later query: two different tasks never share one, and the same
// logical task submitted again after a restore meets its old result at the provider.
func (u UUID) Key() string { return hex.EncodeToString(u[:]) }
