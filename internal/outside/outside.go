// Package outside keeps what must not be lost with the database, in a directory outside of it and of its backups: the journal of what
// was taken back, which a recovery replays, and the witness of the newest commit, by which a start notices that the database is older.
package outside

import (
	"time"

	"github.com/tidings-project/tidings"
)

// What a Taking can be.
const (
	TookRecall  = "recall"  // a message was recalled: Conv, Mid, and its sender and cmid as User and Cmid
	TookPurge   = "purge"   // the events up to Cutoff were purged: Conv
	TookLeave   = "leave"   // a user was removed: Conv, User
	TookJoin    = "join"    // a user who had left came back: Conv, User
	TookErase   = "erase"   // what a user had written up to Cutoff was erased, and where the user is reached: User
	TookRecover = "recover" // a recovery has given Epoch to all conversations: nothing else. It has no row in the database.
)

// Taking is one line of the journal: something that was taken back, and that a restored database would bring to light again.
type Taking struct {
	ID     tidings.UUID `json:"id"`
	At     time.Time    `json:"at"` // by the database's clock
	What   string       `json:"what"`
	Conv   string       `json:"conv,omitempty"`
	Mid    string       `json:"mid,omitempty"`
	User   string       `json:"user,omitempty"`
	Cmid   string       `json:"cmid,omitempty"`
	Cutoff *time.Time   `json:"cutoff,omitempty"`
	Epoch  int64        `json:"epoch"` // the history in which it was done; histories are ordered by it

	Installation tidings.UUID `json:"installation,omitzero"` // whose journal it is: that of tidings.installation, which a restored copy shares
}
