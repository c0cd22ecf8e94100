// Package wire is the form that conversations have on the WebSocket: frames, their limits, and the codes a socket is closed
// with. A server reads requests with Decode and writes with the Append functions; a client writes with AppendRequest and reads
// with DecodeFrame. testdata holds one example of every frame; clients in other languages read the same files.
package wire

import (
	"time"

	"github.com/tidings-project/tidings"
)

// Subprotocol is what a client has to ask for in the handshake.
const Subprotocol = "tidings.v1"

// The limits that a welcome announces. MaxFrame is what a client may send; what a server sends has at most MaxFrame bytes too,
// unless a single event alone is larger.
const (
	MaxFrame    = 64 << 10 // bytes of one frame
	MaxInflight = 256      // requests of one connection that are not answered yet
	MaxPage     = 500      // events or conversations in one answer
	DefaultPage = 100      // the same when a request names no limit
	MaxRid      = 64       // bytes of a request's id
	MaxClient   = 128      // bytes of the client's name in a hello
	MaxToken    = 8 << 10  // bytes of a token
	MaxDepth    = 64       // nesting of a frame; deeper data than tidings.Message allows is refused by its Check
)

// The types of requests. Replies have types of their own where the table of the protocol says so.
const (
	TypeHello         = "hello"
	TypeSend          = "send"
	TypeRecall        = "recall"
	TypeSync          = "sync"
	TypeFetch         = "fetch"
	TypeAck           = "ack"
	TypeRead          = "read" // also of its reply
	TypeConversations = "conversations"
	TypeOutcome       = "outcome" // also of its reply
	TypeRefresh       = "refresh"
	TypePong          = "pong"

	TypeUnknown = "unknown" // what Decode makes of every other one
)

// The types of replies and, from event on, of pushes.
const (
	TypeError     = "error"
	TypeWelcome   = "welcome"
	TypeSent      = "sent"
	TypeRecalled  = "recalled"
	TypeEvents    = "events"
	TypeFetched   = "fetched"
	TypeAcked     = "acked"
	TypeRefreshed = "refreshed"

	TypeEvent    = "event"
	TypeLag      = "lag"
	TypeCursor   = "cursor"
	TypeJoined   = "joined"
	TypeLeft     = "left"
	TypeDraining = "draining"
	TypePing     = "ping"
)

// The codes that a server closes a socket with. The three below 4000 are those of RFC 6455.
const (
	CloseProtocol = 1002 // an unmasked frame, or another breach of the framing
	CloseUTF8     = 1007 // a text frame that is not UTF-8
	CloseTooLarge = 1009 // a frame above MaxFrame

	CloseDraining  = 4001 // the gateway stops
	CloseSlow      = 4002 // the receiver does not keep up
	CloseHeartbeat = 4003 // no answer to a ping
	CloseLostLease = 4005 // the gateway lost its lease or its database
	CloseTooMany   = 4006 // the user has too many connections

	CloseToken     = 4401 // the token is bad or has expired
	CloseRevoked   = 4403 // the user's tokens were revoked
	CloseReplaced  = 4404 // the same device has connected anew
	CloseNoHello   = 4408 // no hello in time
	CloseNotHello  = 4409 // the first frame is no hello, or a frame is binary
	CloseInstalled = 4410 // a newer install of the device is current
)

// Reconnects tells whether a client that was closed with code may connect again as it is: codes from 4400 to 4499 say no.
func Reconnects(code int) bool { return code < 4400 || code > 4499 }

// Limits is what a server tells a client in its welcome, in bytes, counts and milliseconds.
type Limits struct {
	Frame    int   `json:"frame"`
	Body     int   `json:"body"`
	Data     int   `json:"data"`
	Inflight int   `json:"inflight"`
	Page     int   `json:"page"`
	ResendMS int64 `json:"resend_ms,omitempty"` // an outbox entry that is older asks the person; 0: none is too old
}

// NewLimits are the limits of this package and package tidings; resend is for how long a cmid is certainly remembered, 0 for ever.
func NewLimits(resend time.Duration) Limits {
	return Limits{
		Frame: MaxFrame, Body: tidings.MaxBody, Data: tidings.MaxData, Inflight: MaxInflight, Page: MaxPage,
		ResendMS: resend.Milliseconds(),
	}
}
