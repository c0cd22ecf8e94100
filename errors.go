// Codes, what they mean, and the error that carries one.

package tidings

import (
	"errors"
	"fmt"
	"time"
)

// Code names the reason of a refusal. The same code stands in an HTTP problem document, in a protocol error and in Go.
type Code string

// The codes of this release. Stored says what is known of the thing that was to be written, Retry what may be done.
const (
	InvalidArgument Code = "INVALID_ARGUMENT" // malformed, or a field is out of its limits
	Unauthenticated Code = "UNAUTHENTICATED"  // no key, or one that is not known or was revoked
	Forbidden       Code = "FORBIDDEN"        // the key lacks the scope
	NotFound        Code = "NOT_FOUND"        // no such thing, or it was purged
	Conflict        Code = "CONFLICT"         // the version or the attempt count that was seen is no longer current
	AlreadySettled  Code = "ALREADY_SETTLED"  // the task is not waiting for a person
	OriginalExpired Code = "ORIGINAL_EXPIRED" // the notification or message under this key was purged
	TooLarge        Code = "TOO_LARGE"        // the request is larger than its limit
	RateLimited     Code = "RATE_LIMITED"     // asked too often
	OutcomeUnknown  Code = "OUTCOME_UNKNOWN"  // the answer to the COMMIT was lost: it may be stored
	Unavailable     Code = "UNAVAILABLE"      // the database cannot be reached, or the process is stopping
	Internal        Code = "INTERNAL"         // a defect of ours

	NotMember           Code = "NOT_MEMBER"            // no member, or no member then; also when there is no such conversation
	NotSender           Code = "NOT_SENDER"            // a recall by another than the sender
	AlreadyRecalled     Code = "ALREADY_RECALLED"      // by another recall
	RecallWindowExpired Code = "RECALL_WINDOW_EXPIRED" // too late for a recall
	IdempotencyMismatch Code = "IDEMPOTENCY_MISMATCH"  // the same cmid with other content
	CursorAhead         Code = "CURSOR_AHEAD"          // a seq beyond the head
	EpochChanged        Code = "EPOCH_CHANGED"         // the log has another history than the caller knows
	InstallReplaced     Code = "INSTALL_REPLACED"      // a newer install of this device is current
)

// CodeInfo is what a code means to a caller.
type CodeInfo struct {
	HTTP   int    // the status of the HTTP answer
	Retry  string // "no", "same" (repeat with the same key), "resync" or "auth" (with other credentials)
	Stored string // "no", "unchanged" (this request changed nothing), "unknown", "purged", or "" where nothing is stored
	When   string // one sentence for people
}

// Codes holds every code. API answers, OpenAPI and the documentation are made from it.
var Codes = map[Code]CodeInfo{
	InvalidArgument: {400, "no", "unchanged", "The request is malformed or a field is out of its limits."},
	Unauthenticated: {401, "auth", "unchanged", "There is no key, or it is unknown or revoked."},
	Forbidden:       {403, "auth", "unchanged", "The key lacks the scope that this call needs."},
	NotFound:        {404, "no", "unchanged", "There is no such thing, or it was purged."},
	Conflict:        {409, "no", "unchanged", "The version or attempt count that was seen is no longer current."},
	AlreadySettled:  {409, "no", "unchanged", "The task is not waiting for a person, or no longer."},
	OriginalExpired: {410, "no", "purged", "The notification or message under this key was stored and has been purged since."},
	TooLarge:        {413, "no", "unchanged", "The request is larger than its limit."},
	RateLimited:     {429, "same", "unchanged", "Asked too often: wait as told and repeat."},
	OutcomeUnknown:  {503, "same", "unknown", "The answer to the commit was lost: it may be stored. Repeat with the same key."},
	Unavailable:     {503, "same", "unchanged", "The database cannot be reached or the process is stopping."},
	Internal:        {500, "same", "unknown", "A defect of the server."},

	NotMember:           {403, "no", "no", "The user is no member of the conversation, or was none at that event; or there is no such conversation."},
	NotSender:           {403, "no", "no", "Only the sender can recall a message."},
	AlreadyRecalled:     {409, "no", "no", "Another request has recalled the message."},
	RecallWindowExpired: {409, "no", "no", "The time within which a message can be recalled is over."},
	IdempotencyMismatch: {422, "no", "no", "Something else was stored under this cmid."},
	CursorAhead:         {409, "resync", "", "The seq is beyond the head of the log."},
	EpochChanged:        {409, "resync", "", "The conversation's log has another history than the caller's: drop the local copy and sync."},
	InstallReplaced:     {409, "no", "unchanged", "A newer install of this device is current."},
}

// Error is a refusal with its code. Message is for people and never holds bodies, addresses or tokens.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // how long to wait before a repeat; 0 when nothing is known
	Epoch      int64         // of EPOCH_CHANGED and CURSOR_AHEAD: the current one
	Head       int64         // of CURSOR_AHEAD
	Seq        int64         // of ORIGINAL_EXPIRED: where the message stood
	Stored     string        // what is known of what was to be written, where it is more than Codes says; "": just that
	Err        error         // the cause, for logs; never part of an answer
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes a refusal; an error among the arguments that is formatted with %w stays reachable by errors.Is.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// ErrorCode is the code of err: the one it carries, or Internal. A nil error has the empty code.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
