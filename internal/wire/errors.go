// Refusals as frames.

package wire

import (
	"errors"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
)

// defaultRetryAfter is the pause that a refusal asks for which may be repeated, when nothing better is known: without one a client
// that does as it is told would ask as fast as it can.
const defaultRetryAfter = time.Second

// AppendError writes the reply of a refusal to the request rid of the type t; both may be empty when they could not be read. An
// error without a code of tidings.Codes is INTERNAL, and of such one nothing is told.
func AppendError(dst []byte, rid, t string, err error) []byte {
	var e *tidings.Error
	if !errors.As(err, &e) {
		e = &tidings.Error{Code: tidings.Internal}
	}
	code := e.Code
	info, known := tidings.Codes[code]
	if !known {
		code, info = tidings.Internal, tidings.Codes[tidings.Internal]
	}
	message := strings.ReplaceAll(e.Message, string(code)+": ", "") // a quoted error of ours says it once more
	if code == tidings.Internal || code == tidings.NotMember || message == "" {
		message = info.When // NOT_MEMBER: an absent conversation must look like a forbidden one
	}
	stored := info.Stored
	switch {
	case e.Stored != "":
		stored = e.Stored
	case code == tidings.NotFound:
		stored = "no" // the log was asked: there is no such event
	}
	dst = appendHead(dst, TypeError, rid)
	dst = appendText(dst, "code", string(code))
	dst = appendText(dst, "message", message)
	if stored != "" {
		dst = appendText(dst, "stored", stored)
	}
	dst = appendText(dst, "retry", info.Retry)
	if after := e.RetryAfter; after > 0 || info.Retry == "same" {
		if after == 0 {
			after = defaultRetryAfter
		}
		dst = appendInt(dst, "retry_after_ms", max(1, after.Milliseconds()))
	}
	ahead := code == tidings.CursorAhead
	if e.Epoch != 0 || ahead || code == tidings.EpochChanged {
		dst = appendInt(dst, "epoch", e.Epoch)
	}
	if e.Head != 0 || ahead {
		dst = appendInt(dst, "head", e.Head) // 0 is the head of an empty log
	}
	if e.Seq != 0 {
		dst = appendInt(dst, "seq", e.Seq)
	}
	return append(dst, '}')
}
