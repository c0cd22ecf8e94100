// What the development server has done and seen lately, in words.

package front

import (
	"fmt"
	"sync"
	"time"
)

// entry is a line of the journal.
type entry struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// kept is how many of the newest entries there are.
const kept = 50

// journal keeps the newest entries, the newest last.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{time.Now().UTC(), fmt.Sprintf(format, args...)})
	if len(j.entries) > kept {
		j.entries = append([]entry{}, j.entries[len(j.entries)-kept:]...)
	}
}

func (j *journal) all() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]entry{}, j.entries...)
}
