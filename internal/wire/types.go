// The bodies of replies.

package wire

import "github.com/tidings-project/tidings"

// Welcome answers a hello. Times are milliseconds, Now since 1970 by the database's clock.
type Welcome struct {
	User       string   `json:"user"`
	Device     string   `json:"device"`
	Connection string   `json:"connection"`
	Now        int64    `json:"now"`
	PingMS     int64    `json:"ping_ms"`
	Limits     Limits   `json:"limits"`
	Features   []string `json:"features"`
}

// Page answers a sync: events after After in the order of their seqs. Events and Withheld together explain every seq from After
// to the last one that either names, which is Head unless there is More.
type Page struct {
	Conv     string          `json:"conv"`
	Epoch    int64           `json:"epoch"`
	Head     int64           `json:"head"`
	MinSeq   int64           `json:"min_seq"`
	After    int64           `json:"after"`
	Events   []tidings.Event `json:"events"`
	Withheld []Withheld      `json:"withheld"`
	Trimmed  bool            `json:"trimmed"`
	More     bool            `json:"more"`
}

// Withheld is a range of seqs, both ends inclusive, of which the caller gets no events.
type Withheld struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Why  string `json:"why"` // trimmed or not_member; a client ignores what it does not know
}

// ReadState answers a read: the stored cursor and what is unread after it.
type ReadState struct {
	Conv       string `json:"conv"`
	Epoch      int64  `json:"epoch"`
	Seq        int64  `json:"seq"`
	Unread     int64  `json:"unread"`
	UnreadMore bool   `json:"unread_more"` // there are more than Unread
}

// Summary is one entry of a user's list of conversations. Its fields are those of the store's, in the same order, so that one
// converts to the other.
type Summary struct {
	Conv       string         `json:"conv"`
	Epoch      int64          `json:"epoch"`
	Head       int64          `json:"head"`
	MinSeq     int64          `json:"min_seq"`
	Delivered  int64          `json:"delivered"`
	Read       int64          `json:"read"`
	Unread     int64          `json:"unread"`
	UnreadMore bool           `json:"unread_more"`
	Last       *tidings.Event `json:"last,omitempty"` // the newest event that the user may see
	At         int64          `json:"at"`             // when it was stored
	Left       bool           `json:"left,omitempty"` // the user is a member no longer; everything stops at the leave
}

// Outcome answers what became of a message.
type Outcome struct {
	Conv   string `json:"conv"`
	Cmid   string `json:"cmid"`
	Epoch  int64  `json:"epoch"`
	Stored string `json:"stored"`        // yes, no (not now) or purged
	Seq    int64  `json:"seq,omitempty"` // of yes and purged
}
