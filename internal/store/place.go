// Places in lists of tasks: the cursors of their pages.

package store

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/tidings-project/tidings"
)

// placeCursor is a place in a list of tasks that is ordered by a time and the id: opaque to callers, so that its meaning can change.
func placeCursor(at time.Time, id tidings.UUID) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", at.UnixMicro(), id.Key()))
}

// parsePlace reads a placeCursor; of an empty one the time is zero.
func parsePlace(cursor string) (at time.Time, id tidings.UUID, err error) {
	if cursor == "" {
		return time.Time{}, id, nil
	}
	var micro int64
	var key string
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %s", &micro, &key)
	}
	if err == nil {
		id, err = tidings.ParseUUID(key)
	}
	if err != nil {
		return time.Time{}, id, tidings.Errorf(tidings.InvalidArgument, "the cursor is not one of this list")
	}
	return time.UnixMicro(micro).UTC(), id, nil
}
