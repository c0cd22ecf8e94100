// Tests of the turns of calls that wait for a conversation.

package api

import (
	"context"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
)

// More requests than have a turn wait, each gets one, and nothing is kept afterwards.
func TestTurns(t *testing.T) {
	var ts turns
	var ends []func()
	for range writersAtOnce {
		end, err := ts.take(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := ts.take(short, "c"); tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("one too many: %v", err)
	}
	if end, err := ts.take(t.Context(), "another"); err != nil {
		t.Error(err)
	} else {
		end()
	}
	took := make(chan func())
	go func() {
		end, err := ts.take(t.Context(), "c")
		if err != nil {
			t.Error(err)
		}
		took <- end
	}()
	ends[0]()
	ends[0] = <-took
	for _, end := range ends {
		end()
	}
	if len(ts.convs) != 0 {
		t.Errorf("%d conversations are kept", len(ts.convs))
	}
}
