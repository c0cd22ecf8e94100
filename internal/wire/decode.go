// Decodes and checks a request.

package wire

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tidings-project/tidings"
)

// ErrUTF8 is Decode's error for a frame that is not UTF-8; a socket is closed with CloseUTF8 then.
var ErrUTF8 error = &tidings.Error{Code: tidings.InvalidArgument, Message: "the frame is not valid UTF-8"}

// Decode reads a client's frame in one pass. The error is INVALID_ARGUMENT: for what is no JSON object or nests deeper than
// MaxDepth, has U+0000 or half of a surrogate pair in a string, has a known field twice, with a wrong type or out of its range,
// or lacks what its type needs. Beside an error the Request still has T and Rid when they could be read. Unknown fields are
// ignored, and null is the same as absent. Nothing of frame is kept.
//
// Names are compared exactly, unlike by encoding/json, because clients in other languages do so too. The body's length and the
// shape of data are left to Request.Message.
func Decode(frame []byte) (Request, error) {
	if !utf8.Valid(frame) {
		return Request{}, ErrUTF8
	}
	d := decoder{scanner: scanner{b: frame}}
	d.r.Limit = DefaultPage
	complete := d.object()
	switch {
	case d.fault != "":
	case !complete:
		d.fault = "the frame is not a JSON object, as byte " + strconv.Itoa(d.i) + " shows"
	case d.r.T == TypeConversations && d.numberAfter:
		d.fault = "after is not a string"
	case d.r.T == TypeSync && d.textAfter:
		d.fault = "after is not an integer"
	}
	var err error
	if d.fault != "" {
		err = invalid(d.fault)
	} else {
		err = d.r.check()
	}
	if err != nil {
		return Request{T: d.r.T, Rid: d.r.Rid}, err
	}
	d.r.Limit = min(d.r.Limit, MaxPage)
	return d.r, nil
}

// decoder fills a Request. A fault that leaves the frame readable does not end the pass: the rid may come behind it.
type decoder struct {
	scanner
	r                      Request
	seen                   uint32 // the known fields so far, a bit for each
	textAfter, numberAfter bool   // the type of after, which has to fit t, which may come behind it
}

// The known fields, as bits of seen.
const (
	fieldT = 1 << iota
	fieldRid
	fieldConv
	fieldCmid
	fieldToken
	fieldDevice
	fieldInstall
	fieldClient
	fieldEpoch
	fieldSeq
	fieldTarget
	fieldLimit
	fieldAfter
	fieldBody
	fieldData
)

// object reads the whole frame.
func (d *decoder) object() bool {
	d.space()
	if !d.next('{') {
		return false
	}
	d.space()
	for first := true; !d.next('}'); first = false {
		if !first {
			if !d.next(',') {
				return false
			}
			d.space()
		}
		q, ok := d.name()
		if !ok || !d.field(q.bytes()) {
			return false
		}
		d.space()
	}
	d.space()
	return d.i == len(d.b)
}

// field reads the value of the field name.
func (d *decoder) field(name []byte) bool {
	switch string(name) {
	case "t":
		return d.text(name, fieldT, &d.r.T)
	case "rid":
		return d.text(name, fieldRid, &d.r.Rid)
	case "conv":
		return d.text(name, fieldConv, &d.r.Conv)
	case "cmid":
		return d.text(name, fieldCmid, &d.r.Cmid)
	case "token":
		return d.text(name, fieldToken, &d.r.Token)
	case "device":
		return d.text(name, fieldDevice, &d.r.Device)
	case "install":
		return d.text(name, fieldInstall, &d.r.Install)
	case "client":
		return d.text(name, fieldClient, &d.r.Client)
	case "epoch":
		return d.integer(name, fieldEpoch, &d.r.Epoch)
	case "seq":
		return d.integer(name, fieldSeq, &d.r.Seq)
	case "target":
		return d.integer(name, fieldTarget, &d.r.Target)
	case "limit":
		limit := int64(d.r.Limit)
		ok := d.integer(name, fieldLimit, &limit)
		d.r.Limit = int(limit)
		return ok
	case "after":
		if d.peek() == '"' {
			d.textAfter = true
			return d.text(name, fieldAfter, &d.r.AfterConv)
		}
		d.numberAfter = d.peek() != 'n'
		return d.integer(name, fieldAfter, &d.r.After)
	case "body":
		return d.body(name)
	case "data":
		return d.data(name)
	}
	return d.skip(1)
}

// fresh tells whether a known field is there for the first time and is not null; otherwise the value has to be skipped.
func (d *decoder) fresh(name []byte, bit uint32) bool {
	if d.seen&bit != 0 {
		d.blame(string(name) + " is there twice")
		return false
	}
	d.seen |= bit
	return d.peek() != 'n'
}

// text reads a string into to.
func (d *decoder) text(name []byte, bit uint32, to *string) bool {
	if !d.fresh(name, bit) {
		return d.skip(1)
	}
	if d.peek() != '"' {
		d.blame(string(name) + " is not a string")
		return d.skip(1)
	}
	q, ok := d.str()
	if !ok || q.bad {
		return ok
	}
	text := q.bytes()
	switch {
	case bit == fieldT:
		*to = requestType(text)
	case bit == fieldRid && len(text) > MaxRid:
		d.blame("rid is longer than " + strconv.Itoa(MaxRid) + " bytes")
	default:
		*to = string(text)
	}
	return true
}

// integer reads a number into to.
func (d *decoder) integer(name []byte, bit uint32, to *int64) bool {
	if !d.fresh(name, bit) {
		return d.skip(1)
	}
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		d.blame(string(name) + " is not an integer")
		return d.skip(1)
	}
	raw, integer, ok := d.number()
	if !ok {
		return false
	}
	if !integer {
		d.blame(string(name) + " is not an integer")
		return true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n <= -tidings.MaxNumber || n >= tidings.MaxNumber {
		d.blame(string(name) + " is not below 2^53")
		return true
	}
	*to = n
	return true
}

func (d *decoder) body(name []byte) bool {
	var body string
	absent := d.peek() == 'n' || d.seen&fieldBody != 0
	ok := d.text(name, fieldBody, &body)
	if !absent {
		d.r.Body = &body
	}
	return ok
}

func (d *decoder) data(name []byte) bool {
	if !d.fresh(name, fieldData) {
		return d.skip(1)
	}
	if d.peek() != '{' {
		d.blame("data is not an object")
		return d.skip(1)
	}
	start := d.i
	ok := d.skip(1)
	d.r.Data = slices.Clone(d.b[start:d.i])
	return ok
}

// requestType is t, or TypeUnknown: whoever counts or logs types gets few different ones, and none that a client invented.
func requestType(t []byte) string {
	if known, ok := requestTypes[string(t)]; ok {
		return known
	}
	return TypeUnknown
}

var requestTypes = func() map[string]string {
	types := map[string]string{}
	for _, t := range []string{TypeHello, TypeSend, TypeRecall, TypeSync, TypeFetch, TypeAck, TypeRead, TypeConversations, TypeOutcome,
		TypeRefresh, TypePong} {
		types[t] = t
	}
	return types
}()
