// Signatures of Standard Webhooks.

package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Tolerance is how far a received timestamp may lie from our clock, either way. Standard Webhooks leaves the value to
// the receiver and asks for one, against replays.
const Tolerance = 5 * time.Minute

const secretPrefix = "whsec_"

// Secret is a symmetric signing key. It prints as "whsec_…" only.
type Secret struct{ key []byte }

// ParseSecret reads the form that Standard Webhooks gives a secret: "whsec_" and 24 to 64 bytes in base64.
func ParseSecret(s string) (Secret, error) {
	text, ok := strings.CutPrefix(s, secretPrefix)
	if !ok {
		return Secret{}, tidings.Errorf(tidings.InvalidArgument, "a webhook secret begins with %s", secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Secret{}, tidings.Errorf(tidings.InvalidArgument, "a webhook secret is not base64 after %s", secretPrefix)
	}
	if len(key) < 24 || len(key) > 64 {
		return Secret{}, tidings.Errorf(tidings.InvalidArgument, "a webhook secret has %d bytes, 24 to 64 are allowed", len(key))
	}
	return Secret{key: key}, nil
}

func (s Secret) String() string { return secretPrefix + "…" }

// GoString keeps the key out of %#v.
func (s Secret) GoString() string { return s.String() }

// UnmarshalText reads what ParseSecret reads.
func (s *Secret) UnmarshalText(text []byte) error {
	parsed, err := ParseSecret(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

func (s Secret) sign(id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Sign sets the three headers: one signature for each secret, so that a receiver that knows the old or the new one
// accepts it while they are being changed. id must not contain a dot.
func Sign(header http.Header, secrets []Secret, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(s.sign(id, timestamp, body))
	}
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	header.Set(HeaderSignature, strings.Join(signatures, " "))
}

// Verify accepts a message that one of the secrets signed within Tolerance of now. Its error has the code
// Unauthenticated.
func Verify(header http.Header, secrets []Secret, now time.Time, body []byte) error {
	id, timestamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	if id == "" || timestamp == "" {
		return tidings.Errorf(tidings.Unauthenticated, "the webhook has no id or no timestamp")
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return tidings.Errorf(tidings.Unauthenticated, "the webhook's timestamp is not a number")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > Tolerance || age < -Tolerance {
		return tidings.Errorf(tidings.Unauthenticated, "the webhook's timestamp is %v from now, at most %v are tolerated", age.Round(time.Second), Tolerance)
	}
	for signature := range strings.FieldsSeq(header.Get(HeaderSignature)) {
		text, ok := strings.CutPrefix(signature, "v1,")
		if !ok {
			continue
		}
		got, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			continue
		}
		for _, s := range secrets {
			if len(s.key) > 0 && hmac.Equal(got, s.sign(id, timestamp, body)) {
				return nil
			}
		}
	}
	return tidings.Errorf(tidings.Unauthenticated, "the webhook has no signature of a known secret")
}
