// Refusals as problem documents (RFC 9457).

package api

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
)

// Problem is the body of every refusal: an RFC 9457 problem document of type about:blank with our members beside it.
type Problem struct {
	Title   string       `json:"title" doc:"The status in words."`
	Status  int          `json:"status" doc:"The HTTP status."`
	Code    tidings.Code `json:"code" doc:"The reason, as the same word in every interface."`
	Detail  string       `json:"detail" doc:"What happened, for people."`
	Stored  string       `json:"stored,omitempty" enum:"no,unchanged,unknown,purged" doc:"What is known of the thing that was to be written."`
	Retry   string       `json:"retry" enum:"no,same,resync,auth" doc:"Whether to repeat: no; same, with the same key; resync, after a sync; auth, with other credentials."`
	AfterMS int64        `json:"retry_after_ms,omitempty" doc:"How long to wait before a repeat, in milliseconds; also in the header Retry-After."`
	Epoch   int64        `json:"epoch,omitempty" doc:"Of EPOCH_CHANGED and CURSOR_AHEAD: the current one."`
	Head    *int64       `json:"head,omitempty" doc:"Of CURSOR_AHEAD: the last seq."`
	Seq     int64        `json:"seq,omitempty" doc:"Of ORIGINAL_EXPIRED: where the message stood."`
	Faults  []Fault      `json:"errors,omitempty" doc:"The fields that were refused."`
}

// Fault is one field that was refused.
type Fault struct {
	Location string `json:"location" doc:"Where, for example body.user."`
	Message  string `json:"message"`
}

// defaultRetryAfter is what a refusal that may be repeated asks for when nothing better is known.
const defaultRetryAfter = time.Second

// problemOf is the answer to err. What an INTERNAL error says stays here: it can name what is nobody's business; and so does what a
// NOT_MEMBER says, because a conversation that is absent must look like one that is forbidden.
func problemOf(err error) *Problem {
	var own *Problem
	if errors.As(err, &own) {
		return own
	}
	code := tidings.ErrorCode(err)
	info := tidings.Codes[code]
	p := &Problem{Title: http.StatusText(info.HTTP), Status: info.HTTP, Code: code, Detail: info.When, Stored: info.Stored, Retry: info.Retry}
	if info.Retry == "same" {
		p.AfterMS = defaultRetryAfter.Milliseconds()
	}
	var e *tidings.Error
	if errors.As(err, &e) {
		if code != tidings.Internal && code != tidings.NotMember {
			p.Detail = plain(code, e.Message)
		}
		p.Epoch, p.Seq = e.Epoch, e.Seq
		if e.Stored != "" {
			p.Stored = e.Stored
		}
		if code == tidings.CursorAhead {
			p.Head = &e.Head
		}
		if e.RetryAfter > 0 {
			p.AfterMS = e.RetryAfter.Milliseconds()
		}
	}
	return p
}

// Error is the detail.
func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// Unwrap is the refusal, so that tidings.ErrorCode knows its code.
func (p *Problem) Unwrap() error { return &tidings.Error{Code: p.Code, Message: p.Detail} }

// GetStatus tells huma the status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders tells huma the headers.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.AfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(float64(p.AfterMS)/1000)), 10))
	}
	if p.Code == tidings.Unauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	return h
}

// ContentType tells huma the media type.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// WriteProblem answers err outside of huma.
func WriteProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the peer is gone: there is nobody to tell
}

// TransformSchema lists the codes.
func (*Problem) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	for _, code := range slices.Sorted(maps.Keys(tidings.Codes)) {
		s.Properties["code"].Enum = append(s.Properties["code"].Enum, code)
	}
	return s
}

// plain takes the code from a message that quotes an error of ours: the problem has it already.
func plain(code tidings.Code, message string) string {
	return strings.ReplaceAll(message, string(code)+": ", "")
}

// huma makes its own refusals through these variables; what it would quote of the request is left out.
func init() {
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, message string, faults ...error) huma.StatusError {
		code := tidings.InvalidArgument
		switch {
		case status == http.StatusRequestEntityTooLarge:
			code = tidings.TooLarge
		case status == http.StatusRequestTimeout:
			code = tidings.Unavailable
		case status >= 500:
			code = tidings.Internal
		}
		p := problemOf(tidings.Errorf(code, "%s", message))
		for _, err := range faults {
			var d huma.ErrorDetailer
			switch {
			case err == nil:
			case errors.As(err, &d):
				p.Faults = append(p.Faults, Fault{Location: d.ErrorDetail().Location, Message: plain(code, d.ErrorDetail().Message)})
			default:
				p.Faults = append(p.Faults, Fault{Message: plain(code, err.Error())})
			}
		}
		if len(p.Faults) > 0 && code == tidings.InvalidArgument {
			var all []string
			for _, f := range p.Faults {
				all = append(all, strings.TrimPrefix(f.Location+": ", ": ")+f.Message)
			}
			p.Detail = strings.Join(all, "; ")
		}
		return p
	}
}
