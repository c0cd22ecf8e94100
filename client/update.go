// What the application is told: the types of Update.

package client

import (
	"time"

	"github.com/tidings-project/tidings"
)

// Update is what Config.Handle gets: one of the types of this file. An application ignores types that it does not know.
//
// Handle may take its time. Meanwhile the connection lives on, at most Config.Window events of a conversation wait in memory, and
// further ones stay with the server. An event counts as delivered when Handle has returned; what has to outlive the process has to
// be stored by then.
type Update interface{ update() }

// State is how a connection is.
type State string

// The states. A client that is Stopped stays so until Reconnect.
const (
	Offline State = "offline"
	Online  State = "online"
	Stopped State = "stopped"
)

// Connection tells that the state has changed; of several changes that waited only the newest is told.
type Connection struct {
	State State
	Err   error         // why it is not online
	Retry time.Duration // of Offline: the pause before the next attempt
	Code  int           // of the close frame, if one came
}

// Arrived is the next event of a conversation. Its kind may be one that the application does not know: it counts, and is not shown.
type Arrived struct {
	Epoch int64
	Event tidings.Event
}

// Withheld is a range of seqs, both ends inclusive, that the user does not get, and why: "trimmed", "not_member", or something
// that a later server says.
type Withheld struct {
	Conv     string
	Epoch    int64
	From, To int64
	Why      string
}

// Recalled is an event that has arrived before and has lost its content since. It is told as long as memory holds the event (Config.Keep);
// the recall itself arrives, too, as an event whose Target is the seq.
type Recalled struct {
	Epoch int64
	Event tidings.Event
}

// Dropped tells that the log has another history now: what was known of the conversation is void, and everything arrives again
// under the new Epoch. With Err (NOT_MEMBER) there is nothing to arrive.
type Dropped struct {
	Conv  string
	Epoch int64
	Err   error
}

// Ended is the final answer to a message or recall of the outbox, also to one of an earlier process: Sent, or the refusal Err.
type Ended struct {
	Entry
	Sent Sent
	Err  error
}

// Asked is an entry that is not sent until the application calls Resend or Discard: a message so old that the server may have forgotten
// its Cmid (Err is nil), or what was refused with Err in a way that is not final.
type Asked struct {
	Entry
	Err error
}

// Lost is a message of this device that was stored, and that a restored database does not have. It is not sent again by itself.
type Lost struct {
	Entry
	Sent Sent
}

// ReadMoved is how far the user has read, on whichever device, and how many messages after that are unread; More: or more.
type ReadMoved struct {
	Conv   string
	Epoch  int64
	Seq    int64
	Unread int64
	More   bool
}

func (Connection) update() {}
func (Arrived) update()    {}
func (Withheld) update()   {}
func (Recalled) update()   {}
func (Dropped) update()    {}
func (Ended) update()      {}
func (Asked) update()      {}
func (Lost) update()       {}
func (ReadMoved) update()  {}
