// Post: a message in the caller's transaction.

package outbox

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// postSQL calls the one implementation of the rule, as an application in any language does. It relies on event_cmid.
const postSQL = `SELECT tidings.post_v1(@items::json)`

// Post sends messages to conversations and answers for each, in the same order, what became of it. In a transaction of the caller
// nothing is stored before the caller commits; on a pool or connection it is stored when Post returns without error.
//
// A message is identified by (Conv, Sender, Cmid). A duplicate, also a concurrent one, is an answer with Dup, and so is a refusal
// an answer with its Code; neither is an error, so neither aborts the caller's transaction.
//
// Post locks each conversation until the caller's transaction ends: others who send to it wait for that long, so commit soon. One
// call locks its conversations in the order of their ids; two transactions that each call Post more than once with the same
// conversations in opposite order can deadlock, and PostgreSQL then aborts one of them. The transaction has to be READ
// COMMITTED: under another level what was committed while it waited for the lock could not be seen, and the error is
// INVALID_ARGUMENT.
//
// Gateways look for what was posted many times a second; Wake, after the commit, makes them look now.
//
// Input that would be refused is refused before the database sees it, with the code INVALID_ARGUMENT or TOO_LARGE. Any other
// error means, in a transaction of the caller, that the transaction is aborted; on a pool, that the outcome is unknown unless
// the error carries another code: post again with the same cmids.
func Post(ctx context.Context, db DB, messages ...tidings.Message) ([]tidings.Answer, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	if len(messages) > tidings.MaxBatch {
		return nil, tidings.Errorf(tidings.TooLarge, "%d messages in one call, at most %d are allowed", len(messages), tidings.MaxBatch)
	}
	for i := range messages {
		if err := messages[i].Check(); err != nil {
			if len(messages) == 1 {
				return nil, err
			}
			return nil, tidings.Errorf(tidings.ErrorCode(err), "message %d: %w", i, err)
		}
	}
	items, err := asJSON(messages)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, postSQL, pgx.NamedArgs{"items": items})
	if err != nil {
		return nil, coded("post", err)
	}
	out, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, coded("post", err)
	}
	var answers []tidings.Answer
	if err := json.Unmarshal(out, &answers); err != nil {
		return nil, tidings.Errorf(tidings.Internal, "post: read the database's answers: %w", err)
	}
	if len(answers) != len(messages) {
		return nil, tidings.Errorf(tidings.Internal, "post: the database answered %d of %d messages", len(answers), len(messages))
	}
	return answers, nil
}

// asJSON writes messages as an array. Their data stay byte for byte as they are, as they do when a gateway stores them: they are
// part of what tells a repeat from another message.
func asJSON(messages []tidings.Message) (string, error) {
	out := []byte{'['}
	for i, m := range messages {
		data := m.Data
		m.Data = nil
		item, err := json.Marshal(m)
		if err != nil {
			return "", tidings.Errorf(tidings.InvalidArgument, "write message %d as JSON: %w", i, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		if len(data) > 0 {
			item = append(append(append(item[:len(item)-1], `,"data":`...), data...), '}')
		}
		out = append(out, item...)
	}
	return string(append(out, ']')), nil
}
