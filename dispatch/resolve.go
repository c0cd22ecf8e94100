// A person's word about a parked task, for applications that embed a worker.

package dispatch

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/store"
)

// Resolution is a person's word about a task that waits for one: Verb is Sent, Failed or Resend, By names the person, Note says
// why, and AttemptCount is the count that the person saw.
type Resolution = store.Resolution

// The verbs of a Resolution.
const (
	Sent   = store.VerbSent   // it was sent
	Failed = store.VerbFailed // it was not sent
	Resend = store.VerbResend // send it once more: a second copy is accepted
)

// Resolve carries out a person's word, once: of two persons one wins. Errors carry a code: NOT_FOUND; ALREADY_SETTLED when the
// task waits no longer; CONFLICT when its attempt count is not the one that the person saw; INVALID_ARGUMENT, also for a
// resend of what must not be sent any more.
func Resolve(ctx context.Context, pool *pgxpool.Pool, r Resolution) error {
	return store.New(pool).Resolve(ctx, r)
}
