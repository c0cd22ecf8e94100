// Tests of how frames are written.

package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidings-project/tidings"
)

// someEvent draws any event that could be stored, and some that could not.
func someEvent(t *rapid.T) tidings.Event {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\x00\x1f\x7f\"\\/", "<script>&\u2028\u2029", "\xff\xc3(\xed\xa0\x80", "é漢😀\uFFFD"}),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	number := rapid.Int64Range(0, tidings.MaxNumber-1)
	e := tidings.Event{
		Conv: text.Draw(t, "conv"), Seq: number.Draw(t, "seq"), Kind: tidings.Kind(text.Draw(t, "kind")), Mid: text.Draw(t, "mid"),
		Sender: text.Draw(t, "sender"), SDev: text.Draw(t, "sdev"), Cmid: text.Draw(t, "cmid"), Recalled: rapid.Bool().Draw(t, "recalled"),
		Target: number.Draw(t, "target"), Actor: text.Draw(t, "actor"), At: rapid.Int64().Draw(t, "at"),
	}
	if rapid.Bool().Draw(t, "has a body") {
		e.Body = ptr(text.Draw(t, "body"))
	}
	switch rapid.IntRange(0, 2).Draw(t, "data") {
	case 1:
		e.Data, _ = json.Marshal(map[string]any{text.Draw(t, "key"): text.Draw(t, "value"), "n": number.Draw(t, "n")})
	case 2:
		e.Data = json.RawMessage(" {\n\"a\" : [ true , {} ,\"\\u00e9\\ud83d\\ude00<\u2028\" ] } ")
	}
	return e
}

// TestEventIsWhatEncodingJSONWrites: an event's encoding stands for the same value as that of encoding/json, and is UTF-8.
func TestEventIsWhatEncodingJSONWrites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := someEvent(rt)
		want, err := json.Marshal(&e)
		if err != nil {
			rt.Fatal(err)
		}
		got := appendEvent([]byte("before"), &e)[len("before"):]
		if !utf8.Valid(got) {
			rt.Fatalf("not UTF-8: %q", got)
		}
		if diff := cmp.Diff(generic(t, want), generic(t, got)); diff != "" {
			rt.Fatalf("(-encoding/json +wire):\n%s", diff)
		}
		frame, err := DecodeFrame(AppendEvent(nil, 5, &e))
		if err != nil {
			rt.Fatal(err)
		}
		var back tidings.Event
		if err := json.Unmarshal(want, &back); err != nil {
			rt.Fatal(err)
		}
		back.Data, frame.Event.Data = nil, nil // compared above; encoding/json writes it without spaces and with escapes
		if diff := cmp.Diff(&back, frame.Event); diff != "" || frame.Epoch != 5 {
			rt.Fatalf("as a client reads it (-want +got):\n%s", diff)
		}
	})
}

func TestAppendLeavesHTMLAlone(t *testing.T) {
	e := tidings.Event{Body: ptr("<a>&\u2028"), Data: json.RawMessage(`{"h":"<&>"}`)}
	if got := string(appendEvent(nil, &e)); !strings.Contains(got, "\"<a>&\u2028\"") || !strings.Contains(got, `{"h":"<&>"}`) {
		t.Error(got)
	}
}

func TestAppendJSONNeverLeavesInvalidUTF8(t *testing.T) {
	if got := string(appendJSON(nil, []byte("{\"a\xff\":\"\xed\xa0\x80é\"}"))); got != "{\"a\uFFFD\":\"\uFFFD\uFFFD\uFFFDé\"}" {
		t.Errorf("%q", got)
	}
}

// TestPageExplainsEverySeq: however a page is cut, its events and withheld ranges explain every seq from after to the last of
// them, it makes progress, and with no more to come it reaches the head.
func TestPageExplainsEverySeq(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := Page{Conv: "c", Epoch: 1, MinSeq: 1, After: rapid.Int64Range(0, 1000).Draw(rt, "after")}
		body := rapid.SampledFrom([]int{0, 10, 200, 3000, tidings.MaxBody}).Draw(rt, "body")
		fill := rapid.SampledFrom([]string{"x", "\x01", "é"}).Draw(rt, "fill")
		seq := p.After
		for range rapid.IntRange(1, 60).Draw(rt, "runs") {
			if rapid.Bool().Draw(rt, "withheld") {
				to := seq + rapid.Int64Range(1, 1<<40).Draw(rt, "range")
				p.Withheld = append(p.Withheld, Withheld{From: seq + 1, To: to, Why: "not_member"})
				seq = to
				continue
			}
			for range rapid.IntRange(1, 30).Draw(rt, "events") {
				seq++
				p.Events = append(p.Events, tidings.Event{Conv: "c", Seq: seq, Kind: tidings.KindMsg, Sender: "u", Body: ptr(strings.Repeat(fill, body/len(fill)))})
			}
		}
		p.Head = seq
		if p.More = rapid.Bool().Draw(rt, "more"); p.More {
			p.Head++
		}
		frame := AppendEvents([]byte("before"), "1", &p)[len("before"):]
		f, err := DecodeFrame(frame)
		if err != nil {
			rt.Fatal(err)
		}
		if len(frame) > MaxFrame && len(f.Events)+len(f.Withheld) > 1 {
			rt.Fatalf("%d bytes with %d events", len(frame), len(f.Events))
		}
		last, events, withheld := p.After, f.Events, f.Withheld
		for len(events)+len(withheld) > 0 {
			switch {
			case len(events) > 0 && events[0].Seq == last+1:
				last, events = last+1, events[1:]
			case len(withheld) > 0 && withheld[0].From == last+1:
				last, withheld = withheld[0].To, withheld[1:]
			default:
				rt.Fatalf("nothing explains %d: events %d, withheld %v", last+1, len(events), withheld)
			}
		}
		if last == p.After || !f.More && last != p.Head || f.More && last == p.Head {
			rt.Fatalf("it ends at %d of %d, more is %v", last, p.Head, f.More)
		}
		if whole := len(f.Events) == len(p.Events) && len(f.Withheld) == len(p.Withheld); whole != (f.More == p.More) && !(p.More && f.More) {
			rt.Fatalf("%d of %d events, more is %v", len(f.Events), len(p.Events), f.More)
		}
	})
}

// TestManyWithheldRanges: a page of hidden ranges alone is cut too.
func TestManyWithheldRanges(t *testing.T) {
	p := Page{Conv: "c"}
	for seq := int64(1); seq < 3000; seq += 2 {
		p.Withheld = append(p.Withheld, Withheld{From: seq, To: seq, Why: "not_member"})
		p.Events = append(p.Events, tidings.Event{Conv: "c", Seq: seq + 1, Kind: tidings.KindJoin, Sender: "u"})
	}
	p.Head = 3000
	f, err := DecodeFrame(AppendEvents(nil, "1", &p))
	if err != nil || !f.More || len(f.Events) < 100 || len(f.Withheld) != len(f.Events) {
		t.Errorf("%v, more is %v, %d events, %d ranges", err, f.More, len(f.Events), len(f.Withheld))
	}
	p.Events = nil
	frame := AppendEvents(nil, "1", &p)
	if f, err = DecodeFrame(frame); err != nil || !f.More || len(f.Withheld) < 500 || len(frame) > MaxFrame {
		t.Errorf("%v, more is %v, %d ranges in %d bytes", err, f.More, len(f.Withheld), len(frame))
	}
}

func TestLongListIsCut(t *testing.T) {
	list := make([]Summary, MaxPage)
	for i := range list {
		list[i] = Summary{Conv: strings.Repeat("c", tidings.MaxID), Last: &tidings.Event{Body: ptr(strings.Repeat("b", 1000))}}
	}
	frame := AppendConversations(nil, "1", list, false)
	f, err := DecodeFrame(frame)
	if err != nil || !f.More || len(f.List) < 40 || len(frame) > MaxFrame {
		t.Errorf("%v, more is %v, %d of %d in %d bytes", err, f.More, len(f.List), len(list), len(frame))
	}
	if f, err = DecodeFrame(AppendConversations(nil, "1", list[:5], false)); err != nil || f.More || len(f.List) != 5 {
		t.Errorf("%v, more is %v, %d of 5", err, f.More, len(f.List))
	}
	huge := Summary{Last: &tidings.Event{Body: ptr(strings.Repeat("\x01", tidings.MaxBody))}}
	if f, err = DecodeFrame(AppendConversations(nil, "1", []Summary{huge, huge}, false)); err != nil || !f.More || len(f.List) != 1 {
		t.Errorf("%v, more is %v, %d of the 2 huge ones", err, f.More, len(f.List))
	}
}
