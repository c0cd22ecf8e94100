// From an HTTP exchange to an outcome: what it proves.

package channel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidings-project/tidings"
)

// Send makes the one call of an attempt and says what it proves. compared names the headers that the provider compares
// besides method, URL and body; they are part of the request hash. The response is for what only the channel knows, such
// as the provider's id of the message; it is the zero Response when the call was not made.
func (d *Door) Send(ctx context.Context, c Contract, m Message, r Request, compared ...string) (Outcome, Response) {
	hash := r.Hash(compared...)
	if m.Keyed && len(m.FirstHash) > 0 && !bytes.Equal(m.FirstHash, hash) {
		return Outcome{Code: tidings.NotSent, KeyLost: true, RequestHash: hash,
			Detail: "the first request under this key had other bytes"}, Response{}
	}
	resp := d.Do(ctx, r)
	out := Classify(c, resp)
	out.RequestHash = hash
	return out, resp
}

// Hash is the HashParts of method, URL, each named header with its values, and body.
func (r Request) Hash(headers ...string) []byte {
	parts := [][]byte{[]byte(r.Method), []byte(r.URL)}
	for _, name := range headers {
		parts = append(parts, []byte(http.CanonicalHeaderKey(name)))
		for _, v := range r.Header.Values(name) {
			parts = append(parts, []byte(v))
		}
	}
	return HashParts(append(parts, r.Body)...)
}

// HashParts is the SHA-256 of the parts, each with its length before it: a request hash for channels that do not speak
// HTTP.
func HashParts(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	return h.Sum(nil)
}

// maxProviderID is the longest id of a provider that is kept, in bytes.
const maxProviderID = 256

// ProviderID is a provider's id of a message as it can be stored and shown: id itself, or "" when it is longer than 256
// bytes or holds anything but printable characters.
func ProviderID(id string) string {
	if len(id) > maxProviderID || !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return id
}

// Classify says what a response to a send proves under a contract. A 2xx status line proves acceptance even when the
// body cannot be read; a status that the contract declares safe proves the opposite; everything else after the first
// byte is unknown.
func Classify(c Contract, r Response) Outcome {
	out := Outcome{Status: r.Status, RetryAfter: RetryAfter(r.Header)}
	safe := c.Safe != nil && r.Status != 0 && c.Safe(r.Status)
	switch {
	case r.Status == 0:
		out.Code, out.Detail = withoutStatus(r)
	case r.Status >= 200 && r.Status < 300:
		out.Code = tidings.Accepted
		if r.BodyErr != nil {
			out.Detail = "accepted, the answer's body is incomplete: " + Describe(r.BodyErr)
		}
	case r.Status >= 500 && r.Status < 600:
		out.Code, out.Detail = tidings.HTTP5xx, "server error"
	case safe && r.Status == http.StatusTooManyRequests:
		out.Code, out.Detail = tidings.Throttled, "asked to wait"
	case safe:
		out.Code, out.Detail = tidings.Rejected, "refused"
	default:
		out.Code, out.Detail = tidings.IOError, "ambiguous status"
	}
	out.AddressGone = r.Status == http.StatusGone
	return out
}

// QueryFailed is the outcome of a question whose response is no usable answer.
func QueryFailed(r Response) Outcome {
	out := Outcome{Code: tidings.QueryFailed, Status: r.Status, RetryAfter: RetryAfter(r.Header)}
	switch {
	case r.Status == 0:
		var code tidings.Outcome
		if code, out.Detail = withoutStatus(r); code == tidings.NotSent {
			out.Code = code
		}
	case r.BodyErr != nil:
		out.Detail = "the answer's body is incomplete: " + Describe(r.BodyErr)
	default:
		out.Detail = "no usable answer"
	}
	return out
}

func withoutStatus(r Response) (tidings.Outcome, string) {
	switch detail := Describe(r.Err); {
	case !r.Written:
		return tidings.NotSent, detail
	case isTimeout(r.Err):
		return tidings.Timeout, detail
	default:
		return tidings.IOError, detail
	}
}

// maxRetryAfter bounds what a provider can ask for; a task has expired long before.
const maxRetryAfter = 366 * 24 * time.Hour

// RetryAfter reads a Retry-After header (RFC 9110, section 10.2.3). A date is taken relative to the answer's own Date
// header: both were written by one clock, which need not agree with ours. 0 when there is none or it makes no sense.
func RetryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	wait := time.Duration(0)
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		wait = maxRetryAfter
		if n < int64(maxRetryAfter/time.Second) {
			wait = time.Duration(n) * time.Second
		}
	} else if until, err := http.ParseTime(v); err == nil {
		if now, err := http.ParseTime(h.Get("Date")); err == nil {
			wait = until.Sub(now)
		}
	}
	return min(max(wait, 0), maxRetryAfter)
}
