// Reads a server's frames, for clients.

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidings-project/tidings"
)

// Frame is what a server sends, read by a client: a reply when it has a Rid, otherwise a push. Which fields count is a matter of
// its type T; those of an unknown type mean nothing.
type Frame struct {
	T   string `json:"t"`
	Rid string `json:"rid"`

	Conv       string `json:"conv"`
	Cmid       string `json:"cmid"` // of outcome
	Epoch      int64  `json:"epoch"`
	Seq        int64  `json:"seq"`
	Mid        string `json:"mid"`         // of sent
	Dup        bool   `json:"dup"`         // of sent and recalled
	At         int64  `json:"at"`          // of sent
	Head       int64  `json:"head"`        // of events, lag and an error
	Read       int64  `json:"read"`        // of cursor
	Unread     int64  `json:"unread"`      // of read and cursor
	UnreadMore bool   `json:"unread_more"` // of read and cursor
	Stored     string `json:"stored"`      // of outcome and an error

	MinSeq   int64           `json:"min_seq"` // of events, and so are the next five
	After    int64           `json:"after"`
	Events   []tidings.Event `json:"events"`
	Withheld []Withheld      `json:"withheld"`
	Trimmed  bool            `json:"trimmed"`
	More     bool            `json:"more"` // also of conversations

	Event *tidings.Event `json:"event"` // of event and fetched
	List  []Summary      `json:"list"`  // of conversations

	Code         tidings.Code `json:"code"` // of an error, and so are the next three
	Message      string       `json:"message"`
	Retry        string       `json:"retry"` // no, same, resync or auth: how to judge a code that is not known
	RetryAfterMS int64        `json:"retry_after_ms"`

	ReconnectAfterMS int64 `json:"reconnect_after_ms"` // of draining

	User       string   `json:"user"` // of welcome, and so are the rest
	Device     string   `json:"device"`
	Connection string   `json:"connection"`
	Now        int64    `json:"now"`
	PingMS     int64    `json:"ping_ms"`
	Limits     Limits   `json:"limits"`
	Features   []string `json:"features"`
}

// DecodeFrame reads a server's frame. Unknown fields are ignored, and an unknown type is not an error: it has T and Rid at least.
func DecodeFrame(frame []byte) (Frame, error) {
	var f Frame
	err := json.Unmarshal(frame, &f)
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && f.T != "" && !knownFrames[f.T] {
		return Frame{T: f.T, Rid: f.Rid}, nil // of a later release, with other types than ours
	}
	if err != nil {
		return Frame{T: f.T, Rid: f.Rid}, fmt.Errorf("read a frame of type %q: %w", f.T, err)
	}
	if f.T == "" {
		return f, errors.New("read a frame: it has no type")
	}
	return f, nil
}

var knownFrames = map[string]bool{
	TypeError: true, TypeWelcome: true, TypeSent: true, TypeRecalled: true, TypeEvents: true, TypeFetched: true, TypeAcked: true,
	TypeRead: true, TypeConversations: true, TypeOutcome: true, TypeRefreshed: true,
	TypeEvent: true, TypeLag: true, TypeCursor: true, TypeJoined: true, TypeLeft: true, TypeDraining: true, TypePing: true,
}

// Err is the refusal that the frame carries, or nil when it is no error. Stored and Retry are fields of the frame.
func (f *Frame) Err() error {
	if f.T != TypeError {
		return nil
	}
	return &tidings.Error{
		Code: f.Code, Message: f.Message, RetryAfter: time.Duration(f.RetryAfterMS) * time.Millisecond,
		Epoch: f.Epoch, Head: f.Head, Seq: f.Seq,
	}
}
