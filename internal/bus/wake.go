// What travels on the bus.

package bus

import (
	"encoding/json"
	"fmt"

	"github.com/tidings-project/tidings"
)

// Wake says that a conversation has grown.
type Wake struct {
	Conv   string   `json:"c"`
	Epoch  int64    `json:"e,omitempty"` // 0: not known to the sender
	Head   int64    `json:"h"`           // at least up to here
	Joined []string `json:"j,omitempty"` // users who may be connected and not know the conversation yet
}

// Cursor says how far a user has read, for the user's sessions at other gateways.
type Cursor struct {
	User   string `json:"u"`
	Conv   string `json:"c"`
	Epoch  int64  `json:"e"`
	Read   int64  `json:"r"`
	Unread int64  `json:"n"`
	More   bool   `json:"m,omitempty"` // Unread is a lower bound
}

// Displaced says that a device has a newer connection than this one.
type Displaced struct {
	Gateway    string       `json:"g"` // the gateway that holds the older one
	User       string       `json:"u"`
	Connection tidings.UUID `json:"i"`
}

// Item is one thing told: exactly one of its fields is set.
type Item struct {
	Wake      *Wake      `json:"w,omitempty"`
	Cursor    *Cursor    `json:"c,omitempty"`
	Displaced *Displaced `json:"d,omitempty"`
}

// origin is who tells.
type origin struct {
	Sender  string `json:"g"`
	Run     string `json:"r"`           // tells apart the processes that had one sender's name: each starts its numbers anew
	Listens bool   `json:"l,omitempty"` // it hears others, too: what they have to tell is of use to it
}

// payload is the text of one NOTIFY. A sender's payloads with items are numbered 1, 2, 3 …; one without repeats the last number.
type payload struct {
	origin
	Number int64  `json:"n"`
	Bye    bool   `json:"b,omitempty"` // the sender ends here by its own will
	Items  []Item `json:"i,omitempty"`
}

// maxPayload is what PostgreSQL takes: a payload has to be shorter than 8000 bytes.
const maxPayload = 7999

// joinedPerItem keeps an item below maxPayload whatever the ids are: JSON writes a byte of an id in up to 6.
const joinedPerItem = 6

// pack writes items as payloads numbered from first.
func pack(from origin, first int64, items []Item) (texts []string, err error) {
	empty, err := json.Marshal(payload{origin: from, Number: 1<<53 - 1, Items: []Item{{}}})
	if err != nil {
		return nil, fmt.Errorf("write a wake-up: %w", err)
	}
	for start := 0; start < len(items); {
		size, end := len(empty), start
		for ; end < len(items); end++ {
			one, err := json.Marshal(items[end])
			if err != nil {
				return nil, fmt.Errorf("write a wake-up: %w", err)
			}
			if size += len(one) + 1; size > maxPayload && end > start {
				break
			}
		}
		text, err := json.Marshal(payload{origin: from, Number: first + int64(len(texts)), Items: items[start:end]})
		if err != nil {
			return nil, fmt.Errorf("write a wake-up: %w", err)
		}
		texts = append(texts, string(text))
		start = end
	}
	return texts, nil
}

// repetition is a payload without items.
func repetition(from origin, last int64, bye bool) string {
	text, err := json.Marshal(payload{origin: from, Number: last, Bye: bye})
	if err != nil {
		panic(fmt.Sprintf("texts and numbers cannot be written as JSON: %v", err))
	}
	return string(text)
}
