// A request: its fields, and what each type needs.

package wire

import (
	"encoding/json"

	"github.com/tidings-project/tidings"
)

// Request is what a client sends. Which fields count is a matter of its type T.
type Request struct {
	T         string          // one of the types of requests; beside an error also TypeUnknown or empty
	Rid       string          // repeated by the reply; 1 to MaxRid bytes, only a pong may have none
	Conv      string          // an id
	Cmid      string          // an id
	Token     string          // of hello (may be empty when it came in a header) and refresh
	Device    string          // of hello
	Install   string          // of hello
	Client    string          // of hello: name and version of the client, for people
	AfterConv string          // of conversations: the last one of the page before, or empty
	Body      *string         // of send
	Data      json.RawMessage // of send, as it was written; nil when there is none
	Epoch     int64           // 0: the current one
	After     int64           // of sync
	Seq       int64           // of fetch, ack and read
	Target    int64           // of recall
	Limit     int             // of sync and conversations: 1 to MaxPage, DefaultPage when there was none
}

// Message is what a send wants stored, checked: the error is INVALID_ARGUMENT or TOO_LARGE.
func (r *Request) Message(sender, device string) (tidings.Message, error) {
	m := tidings.Message{Conv: r.Conv, Sender: sender, Device: device, Cmid: r.Cmid, Data: r.Data}
	if r.Body != nil {
		m.Body = *r.Body
	}
	return m, m.Check()
}

// check refuses a request that lacks what its type needs or that has a number out of its range.
func (r *Request) check() error {
	if r.Rid == "" && r.T != TypePong {
		return invalid("rid is missing")
	}
	switch r.T {
	case TypeHello:
		return r.checkHello()
	case TypeSend:
		if r.Body == nil {
			return invalid("body is missing")
		}
		return first(r.checkConv(), tidings.CheckID("cmid", r.Cmid))
	case TypeRecall:
		return first(r.checkConv(), positive("target", r.Target), tidings.CheckID("cmid", r.Cmid))
	case TypeSync:
		if r.After < 0 {
			return invalid("after is negative")
		}
		return first(r.checkConv(), positive("limit", int64(r.Limit)))
	case TypeFetch, TypeAck, TypeRead:
		return first(r.checkConv(), positive("seq", r.Seq))
	case TypeConversations:
		if r.AfterConv != "" {
			return first(tidings.CheckID("after", r.AfterConv), positive("limit", int64(r.Limit)))
		}
		return positive("limit", int64(r.Limit))
	case TypeOutcome:
		return first(r.checkConv(), tidings.CheckID("cmid", r.Cmid))
	case TypeRefresh:
		if r.Token == "" {
			return invalid("token is missing")
		}
		return r.checkToken()
	case TypePong:
		return nil
	case "":
		return invalid("t is missing")
	}
	return invalid("a frame of this type is not known")
}

func (r *Request) checkHello() error {
	if len(r.Client) > MaxClient {
		return invalid("client is longer than allowed")
	}
	return first(r.checkToken(), tidings.CheckID("device", r.Device), tidings.CheckID("install", r.Install))
}

func (r *Request) checkToken() error {
	if len(r.Token) > MaxToken {
		return invalid("token is longer than allowed")
	}
	return nil
}

func (r *Request) checkConv() error {
	if r.Epoch < 0 {
		return invalid("epoch is negative")
	}
	return tidings.CheckID("conv", r.Conv)
}

func positive(what string, n int64) error {
	if n < 1 {
		return invalid(what + " is missing or below 1")
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// invalid is an INVALID_ARGUMENT that says what.
func invalid(what string) error {
	return &tidings.Error{Code: tidings.InvalidArgument, Message: what}
}

// AppendRequest writes r as a client sends it: what its type needs, and the limit where there is one.
func AppendRequest(dst []byte, r *Request) []byte {
	dst = appendHead(dst, r.T, r.Rid)
	switch r.T {
	case TypeHello:
		if r.Token != "" {
			dst = appendText(dst, "token", r.Token)
		}
		dst = appendText(dst, "device", r.Device)
		dst = appendText(dst, "install", r.Install)
		dst = appendText(dst, "client", r.Client)
	case TypeSend:
		dst = appendText(dst, "conv", r.Conv)
		dst = appendText(dst, "cmid", r.Cmid)
		if r.Body != nil {
			dst = appendText(dst, "body", *r.Body)
		}
		if len(r.Data) > 0 {
			dst = appendJSON(append(dst, `,"data":`...), r.Data)
		}
	case TypeRecall:
		dst = appendPlace(dst, r.Conv, r.Epoch)
		dst = appendInt(dst, "target", r.Target)
		dst = appendText(dst, "cmid", r.Cmid)
	case TypeSync:
		dst = appendPlace(dst, r.Conv, r.Epoch)
		dst = appendLimit(appendInt(dst, "after", r.After), r.Limit)
	case TypeFetch, TypeAck, TypeRead:
		dst = appendPlace(dst, r.Conv, r.Epoch)
		dst = appendInt(dst, "seq", r.Seq)
	case TypeConversations:
		if r.AfterConv != "" {
			dst = appendText(dst, "after", r.AfterConv)
		}
		dst = appendLimit(dst, r.Limit)
	case TypeOutcome:
		dst = appendText(dst, "conv", r.Conv)
		dst = appendText(dst, "cmid", r.Cmid)
	case TypeRefresh:
		dst = appendText(dst, "token", r.Token)
	}
	return append(dst, '}')
}

func appendLimit(dst []byte, limit int) []byte {
	if limit == 0 {
		return dst
	}
	return appendInt(dst, "limit", int64(limit))
}
