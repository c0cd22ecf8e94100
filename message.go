// Events, messages and the answers to them.

package tidings

import (
	"encoding/json"
	"time"
)

// Kind tells what an event is. A client keeps an event of a kind that it does not know, counts its seq and shows nothing.
type Kind string

// The kinds of this release.
const (
	KindMsg    Kind = "msg"    // a message
	KindRecall Kind = "recall" // the sender took the message at Target back
	KindJoin   Kind = "join"   // Sender became a member
	KindLeave  Kind = "leave"  // Sender is a member no longer
)

// DefaultRecallWindow is how long a message can be recalled, unless its conversation says otherwise.
const DefaultRecallWindow = 2 * time.Minute

// MaxNumber is the first integer that a number on the wire cannot be: JavaScript's numbers are exact below it.
const MaxNumber = 1 << 53

// Event is one entry of a conversation's log, in the form that it has on the wire.
type Event struct {
	Conv     string          `json:"conv"`
	Seq      int64           `json:"seq"` // 1, 2, 3 … in commit order, without holes
	Kind     Kind            `json:"kind"`
	Mid      string          `json:"mid,omitempty"`  // of a msg: its id across restores
	Sender   string          `json:"sender"`         // the user who sent, recalled, joined or left
	SDev     string          `json:"sdev,omitempty"` // the device that it was sent from
	Cmid     string          `json:"cmid,omitempty"` // the sender's own id of the message
	Body     *string         `json:"body,omitempty"` // of a msg that was not recalled
	Data     json.RawMessage `json:"data,omitempty"` // the application's JSON object
	Recalled bool            `json:"recalled,omitempty"`
	Target   int64           `json:"target,omitempty"` // of a recall: the seq of the message
	Actor    string          `json:"actor,omitempty"`  // who did it in the sender's stead
	At       int64           `json:"at"`               // milliseconds since 1970 by the database's clock
}

// Message is what is sent to a conversation. (Conv, Sender, Cmid) is its identity: however often and however concurrently it is
// sent, it is one event, and the first content stands.
type Message struct {
	Conv   string          `json:"conv"`
	Sender string          `json:"sender"`           // a user who is a member
	Device string          `json:"device,omitempty"` // the device that it comes from; empty when an application posts it
	Cmid   string          `json:"cmid"`             // an id
	Body   string          `json:"body"`             // at most MaxBody bytes
	Data   json.RawMessage `json:"data,omitempty"`   // a JSON object, at most MaxData bytes; the key reply_to is reserved
}

// Check refuses a message that the database would refuse. The error has the code InvalidArgument or TooLarge.
func (m *Message) Check() error {
	if err := CheckID("conv", m.Conv); err != nil {
		return err
	}
	if err := CheckID("sender", m.Sender); err != nil {
		return err
	}
	if m.Device != "" {
		if err := CheckID("device", m.Device); err != nil {
			return err
		}
	}
	if err := CheckID("cmid", m.Cmid); err != nil {
		return err
	}
	if err := checkText("body", m.Body, MaxBody); err != nil {
		return err
	}
	return checkData(m.Data)
}

// Answer is what became of one Message. Code is empty when it is stored.
type Answer struct {
	Code  Code  `json:"code,omitempty"` // NOT_MEMBER, IDEMPOTENCY_MISMATCH or ORIGINAL_EXPIRED (with Seq)
	Seq   int64 `json:"seq,omitempty"`
	Mid   UUID  `json:"mid,omitzero"`
	Epoch int64 `json:"epoch,omitempty"`
	At    int64 `json:"at,omitempty"` // milliseconds since 1970
	Dup   bool  `json:"dup"`          // an earlier call stored it
}
