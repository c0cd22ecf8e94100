// Holds frames and errors to the examples that the clients share.

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
)

// TestExamples reads each example as the side that receives it does, writes it again as the side that sends it does, and wants
// the same bytes. What the two sides name the same thing is so held to the files, and the files are what other languages read.
func TestExamples(t *testing.T) {
	seen := map[string]bool{}
	for name, example := range examples(t) {
		t.Run(name, func(t *testing.T) {
			var again []byte
			if strings.HasPrefix(name, "request-") {
				r, err := Decode(example)
				if err != nil {
					t.Fatal(err)
				}
				again = AppendRequest(nil, &r)
				seen["request "+r.T] = true
			} else {
				f, err := DecodeFrame(example)
				if err != nil {
					t.Fatal(err)
				}
				again = appendFrame(t, &f)
				seen[f.T], seen["error "+string(f.Code)] = true, true
			}
			if diff := cmp.Diff(string(example), string(again)); diff != "" {
				t.Errorf("it is written differently (-example +written):\n%s", diff)
			}
			if len(again) > MaxFrame {
				t.Errorf("%d bytes", len(again))
			}
		})
	}
	for _, known := range requestTypes {
		if !seen["request "+known] {
			t.Errorf("no example of the request %s", known)
		}
	}
	for known := range knownFrames {
		if !seen[known] {
			t.Errorf("no example of the frame %s", known)
		}
	}
	for code := range tidings.Codes {
		// Three speak of server keys, preferences and reviews, which have no frames.
		if code != tidings.Forbidden && code != tidings.Conflict && code != tidings.AlreadySettled && !seen["error "+string(code)] {
			t.Errorf("no example of the error %s", code)
		}
	}
}

// appendFrame writes f through the function that a server uses for its type.
func appendFrame(t *testing.T, f *Frame) []byte {
	t.Helper()
	state := ReadState{Conv: f.Conv, Epoch: f.Epoch, Seq: f.Seq, Unread: f.Unread, UnreadMore: f.UnreadMore}
	switch f.T {
	case TypeWelcome:
		return AppendWelcome(nil, f.Rid, &Welcome{f.User, f.Device, f.Connection, f.Now, f.PingMS, f.Limits, f.Features})
	case TypeSent:
		mid, err := tidings.ParseUUID(f.Mid)
		if err != nil {
			t.Fatal(err)
		}
		return AppendSent(nil, f.Rid, f.Conv, tidings.Answer{Seq: f.Seq, Mid: mid, Epoch: f.Epoch, At: f.At, Dup: f.Dup})
	case TypeRecalled:
		return AppendRecalled(nil, f.Rid, f.Conv, f.Epoch, f.Seq, f.Dup)
	case TypeEvents:
		return AppendEvents(nil, f.Rid, &Page{f.Conv, f.Epoch, f.Head, f.MinSeq, f.After, f.Events, f.Withheld, f.Trimmed, f.More})
	case TypeFetched:
		return AppendFetched(nil, f.Rid, f.Epoch, f.Event)
	case TypeAcked:
		return AppendAcked(nil, f.Rid, f.Conv, f.Epoch, f.Seq)
	case TypeRead:
		return AppendRead(nil, f.Rid, state)
	case TypeConversations:
		return AppendConversations(nil, f.Rid, f.List, f.More)
	case TypeOutcome:
		return AppendOutcome(nil, f.Rid, Outcome{f.Conv, f.Cmid, f.Epoch, f.Stored, f.Seq})
	case TypeRefreshed:
		return AppendRefreshed(nil, f.Rid)
	case TypeError:
		return AppendError(nil, f.Rid, "", f.Err())
	case TypeEvent:
		return AppendEvent(nil, f.Epoch, f.Event)
	case TypeLag:
		return AppendLag(nil, f.Conv, f.Epoch, f.Head)
	case TypeCursor:
		state.Seq = f.Read
		return AppendCursor(nil, state)
	case TypeJoined:
		return AppendJoined(nil, f.Conv, f.Epoch, f.Seq)
	case TypeLeft:
		return AppendLeft(nil, f.Conv, f.Epoch, f.Seq)
	case TypeDraining:
		return AppendDraining(nil, time.Duration(f.ReconnectAfterMS)*time.Millisecond)
	case TypePing:
		return AppendPing(nil)
	}
	t.Fatalf("a frame of the type %q", f.T)
	return nil
}

// TestTypesAreTheFrames: what the types of this package are in JSON is what the frames say, so that an HTTP body can be made
// of the one and a frame by the other.
func TestTypesAreTheFrames(t *testing.T) {
	all := examples(t)
	var list struct {
		List []Summary `json:"list"`
		More bool      `json:"more"`
	}
	for name, v := range map[string]any{
		"reply-welcome": &Welcome{}, "reply-events": &Page{}, "reply-read": &ReadState{}, "reply-conversations": &list,
		"reply-outcome": &Outcome{}, "reply-outcome-no": &Outcome{}, "push-event-msg": &struct {
			Epoch int64         `json:"epoch"`
			Event tidings.Event `json:"event"`
		}{},
	} {
		if err := json.Unmarshal(all[name], v); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		frame := generic(t, all[name]).(map[string]any)
		delete(frame, "t")
		delete(frame, "rid")
		if diff := cmp.Diff(any(frame), generic(t, body)); diff != "" {
			t.Errorf("%s (-frame without t and rid +body):\n%s", name, diff)
		}
	}
}

// examples are the files of testdata by their names, each without the newline at its end; of the errors each line is one.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 30 {
		t.Fatalf("only %d examples: %v", len(files), err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		name, text := strings.TrimSuffix(filepath.Base(file), ".json"), readFile(t, file)
		if name != "reply-errors" {
			all[name] = bytes.TrimSuffix(text, []byte("\n"))
			continue
		}
		var errs []json.RawMessage
		if err := json.Unmarshal(text, &errs); err != nil {
			t.Fatal(err)
		}
		for i, e := range errs {
			all[fmt.Sprintf("%s-%d", name, i+1)] = e
		}
	}
	return all
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// generic is JSON as encoding/json reads it without a type, with numbers as they are written.
func generic(t testing.TB, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

func TestErrors(t *testing.T) {
	secret := errors.New("password of 10.0.0.7")
	for name, c := range map[string]struct {
		t    string
		err  error
		want string
	}{
		"without a code": {TypeSend, secret,
			`{"t":"error","rid":"7","code":"INTERNAL","message":"A defect of the server.","stored":"unknown","retry":"same","retry_after_ms":1000}`},
		"an unknown code": {TypeSend, &tidings.Error{Code: "BUSY", Message: "psst"},
			`{"t":"error","rid":"7","code":"INTERNAL","message":"A defect of the server.","stored":"unknown","retry":"same","retry_after_ms":1000}`},
		"wrapped": {TypeSync, fmt.Errorf("sync: %w", &tidings.Error{Code: tidings.RateLimited, Message: "slow down", RetryAfter: time.Microsecond}),
			`{"t":"error","rid":"7","code":"RATE_LIMITED","message":"slow down","stored":"unchanged","retry":"same","retry_after_ms":1}`},
		"quoting another": {TypeSend, tidings.Errorf(tidings.TooLarge, "message 1: %w", tidings.Errorf(tidings.TooLarge, "body is long")),
			`{"t":"error","rid":"7","code":"TOO_LARGE","message":"message 1: body is long","stored":"unchanged","retry":"no"}`},
		"no member": {TypeFetch, &tidings.Error{Code: tidings.NotMember, Message: "c-1 does not exist"},
			`{"t":"error","rid":"7","code":"NOT_MEMBER","message":"` + tidings.Codes[tidings.NotMember].When + `","stored":"no","retry":"no"}`},
		"a malformed recall": {TypeRecall, invalid("target is 0"),
			`{"t":"error","rid":"7","code":"INVALID_ARGUMENT","message":"target is 0","stored":"unchanged","retry":"no"}`},
		"a recall of no message": {TypeRecall, &tidings.Error{Code: tidings.InvalidArgument, Message: "event 2 is a join", Stored: "no"},
			`{"t":"error","rid":"7","code":"INVALID_ARGUMENT","message":"event 2 is a join","stored":"no","retry":"no"}`},
		"a recall of nothing": {TypeRecall, &tidings.Error{Code: tidings.NotFound, Message: "no event 9"},
			`{"t":"error","rid":"7","code":"NOT_FOUND","message":"no event 9","stored":"no","retry":"no"}`},
		"bytes that are no text": {TypeSend, invalid("\xff\x00"),
			`{"t":"error","rid":"7","code":"INVALID_ARGUMENT","message":"` + "\uFFFD" + `\u0000","stored":"unchanged","retry":"no"}`},
	} {
		if got := string(AppendError(nil, "7", c.t, c.err)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
	if got := string(AppendError(nil, "", "", invalid("x"))); !strings.HasPrefix(got, `{"t":"error","code":`) {
		t.Errorf("without a rid: %s", got)
	}
}

// TestUnknownFrames: a client lives with what a later server says.
func TestUnknownFrames(t *testing.T) {
	for text, want := range map[string]Frame{
		`{"t":"signal","conv":7,"event":"typing"}`:                  {T: "signal"},
		`{"t":"later","rid":"3","head":{}}`:                         {T: "later", Rid: "3"},
		`{"t":"lag","conv":"c","epoch":1,"head":2,"colour":["x"]}`:  {T: "lag", Conv: "c", Epoch: 1, Head: 2},
		`{"t":"ping","padding":{"deep":[[[[[[[["x"]]]]]]]]}}`:       {T: "ping"},
		`{"t":"error","code":"LATER","message":"m","retry":"same"}`: {T: "error", Code: "LATER", Message: "m", Retry: "same"},
	} {
		f, err := DecodeFrame([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, f); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{``, `[]`, `"x"`, `{}`, `{"rid":5}`, `{"t":"lag","head":"2"}`, `{"t":"event","event":[]}`, `{"t":"ping"`} {
		if f, err := DecodeFrame([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, f)
		}
	}
}
