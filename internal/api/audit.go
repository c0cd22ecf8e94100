// What has to be in the log, whatever its level is.

package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidings-project/tidings"
)

// audit logs at Info, also where the log takes only what is graver. After an error, UNAVAILABLE, nothing was logged, and what was to be
// logged must not happen.
func (a *API) audit(ctx context.Context, what string, args ...any) error {
	record := slog.NewRecord(time.Now(), slog.LevelInfo, what, 0)
	record.Add(args...)
	if err := a.log.Handler().Handle(ctx, record); err != nil {
		return &tidings.Error{Code: tidings.Unavailable, Message: "this has to be logged, and cannot be", Err: err}
	}
	return nil
}
