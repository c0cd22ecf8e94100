// Package channel says what a notification transport is: Channel, what its provider promises (Contract), what one
// attempt observed (Outcome), and the one door through which every HTTP channel makes its requests.
package channel

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tidings-project/tidings"
)

// Channel hands messages to one provider.
//
// Send makes one attempt: no retry inside, no redirect followed, at most one request on the wire. It must be a pure
// function of the message: the same message gives the same bytes, in this process and in any other, or the provider's
// deduplication is lost. A channel that panics or never returns is contained by its worker; its outcome is unknown.
//
// A channel whose contract has a Query also implements Querier; one whose provider reports by itself implements
// ReceiptParser.
type Channel interface {
	Contract() Contract
	// Renderer names how a message becomes bytes, with its version, for example "webhook/1". It changes whenever the
	// bytes of an unchanged message would.
	Renderer() string
	Send(ctx context.Context, m Message) Outcome
}

// Querier asks the provider what became of a message, by our own reference.
type Querier interface {
	Query(ctx context.Context, r Ref) Outcome
}

// ReceiptParser reads the provider's own reports and verifies that they are the provider's. A report that cannot be
// verified is an error with the code UNAUTHENTICATED; then nothing of it is believed.
type ReceiptParser interface {
	ParseReceipt(header http.Header, body []byte) ([]Receipt, error)
}

// Contract is what a provider promises, as far as a sender may rely on it after a call without an answer.
type Contract struct {
	Source  string // the document it was read from, and when
	Key     *Key   // the provider recognises a repeated request; nil: it does not
	Query   *Query // the provider can be asked by our reference; nil: it cannot
	Replace bool   // an outstanding copy can be replaced: fewer duplicates, never counted as idempotent

	// Safe tells of a status whether it proves that nothing was accepted: a safe 5xx is HTTP_5XX and retried, a safe
	// 429 is THROTTLED, every other safe status is REJECTED. Every status that it does not name is ambiguous. nil: no
	// status proves anything.
	Safe func(status int) bool
}

// Key describes how a provider recognises a repeated request.
type Key struct {
	Carrier      string        // where the key travels, for example "header Idempotency-Key"
	Window       time.Duration // how long the provider remembers it, from the first request that reached it
	SameBytes    bool          // the provider compares the bytes: other bytes under the same key are refused
	StoredErrors bool          // the provider also replays errors; a replayed error proves nothing of the first request
}

// Query describes how a provider can be asked.
type Query struct {
	Settle        time.Duration // how long after a call the answer may still lag behind
	Horizon       time.Duration // how long the provider can be asked, from the first call; 0: no limit is known
	AbsenceProves bool          // "not found" between Settle and Horizon proves that nothing was accepted
}

// Ref is the reference by which a provider knows a message of ours.
type Ref struct {
	Key     string // the idempotency key: 32 hexadecimal digits
	Address string
	Since   time.Time // when the first call was made, by the database's clock
}

// Message is what a channel sends: the columns of a task and its notification that were frozen at its first claim.
type Message struct {
	Key       string // idempotency key and reference: 32 hexadecimal digits, the same in every attempt
	User      string
	EventKey  string
	Address   string
	Title     string
	Body      string
	Data      json.RawMessage // a JSON object, or nil
	Category  string
	CreatedAt time.Time // of the notification, by the database's clock
	ExpiresAt time.Time // an absolute instant; where a provider wants a relative one, it stays outside the compared bytes
	Attempt   int       // 1 for the first

	// FirstHash is the request hash of an earlier attempt, nil when there was none. When Keyed is set this attempt
	// relies on the provider's deduplication: a request with another hash must not be sent (KeyLost).
	FirstHash []byte
	Keyed     bool
}

// Outcome is what one attempt observed. The zero Outcome is unknown: forgetting to classify is safe.
type Outcome struct {
	Code          tidings.Outcome // "" is recorded as IO_ERROR: may have been accepted
	Status        int             // the provider's status: HTTP or SMTP; 0 when there was none
	ProviderMsgID string          // the provider's id of the message; "" when it gave none
	RetryAfter    time.Duration   // how long the provider asked to wait
	AddressGone   bool            // the provider says that the address no longer exists
	KeyLost       bool            // with NOT_SENT: other bytes than the first request's, so the key protects no longer
	RequestHash   []byte          // SHA-256 of the bytes that the provider compares; nil when nothing was rendered
	Detail        string          // for people, besides the status; never a body, an address or a token
}

// Receipt is a report that a provider made by itself.
type Receipt struct {
	ProviderMsgID string    // "" when the report names our reference only
	Reference     string    // our key, as far as the report repeats it
	Status        string    // the provider's word, for example "delivered"
	At            time.Time // the provider's clock; the zero time when it gave none
	Detail        string
}

type startByKey struct{}

// WithStartBy puts the instant after which no byte of a call may leave into ctx: later, the lease would end before the
// call can. It is a monotonic instant of this process.
func WithStartBy(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, startByKey{}, at)
}

// TooLate tells whether a call must no longer start. The HTTP door and the SMTP channel ask it right before the first byte
// of the message; a channel with its own transport has to do the same and answer NOT_SENT.
func TooLate(ctx context.Context) bool {
	at, ok := ctx.Value(startByKey{}).(time.Time)
	return ok && !time.Now().Before(at)
}
