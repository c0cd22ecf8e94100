// Tests of how frames are read.

package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
)

func ptr[T any](v T) *T { return &v }

func TestDecode(t *testing.T) {
	long := strings.Repeat("x", tidings.MaxID)
	for text, want := range map[string]Request{
		" {\t\"t\" : \"pong\"\r\n} ":                                       {T: "pong", Limit: 100},
		`{"t":"pong","rid":"a","rnd":1,"rnd":2,"x":{"t":["t"]}}`:           {T: "pong", Rid: "a", Limit: 100},
		`{"\u0074":"fetch","rid":"é 😀","conv":"c","seq":9007199254740991}`: {T: "fetch", Rid: "é 😀", Conv: "c", Seq: 9007199254740991, Limit: 100},
		`{"t":"send","rid":"1","conv":"c","cmid":"m","body":""}`:           {T: "send", Rid: "1", Conv: "c", Cmid: "m", Body: ptr(""), Limit: 100},
		`{"t":"send","rid":"1","conv":"` + long + `","cmid":"m","body":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00","data": {"a" : [1e400,-0.5]} ,"epoch":null,"seq":-5}`: {
			T: "send", Rid: "1", Conv: long, Cmid: "m", Body: ptr("\"\\/\b\f\n\r\té😀"), Data: []byte(`{"a" : [1e400,-0.5]}`), Seq: -5, Limit: 100},
		`{"T":"x","Rid":5,"t":"send","rid":"1","conv":"c","cmid":"m","body":"b","data":null}`:    {T: "send", Rid: "1", Conv: "c", Cmid: "m", Body: ptr("b"), Limit: 100},
		`{"after":7,"t":"sync","rid":"1","conv":"c","limit":501}`:                                {T: "sync", Rid: "1", Conv: "c", After: 7, Limit: 500},
		`{"t":"sync","rid":"1","conv":"c","epoch":0,"after":-0,"limit":null}`:                    {T: "sync", Rid: "1", Conv: "c", Limit: 100},
		`{"after":"c-1","t":"conversations","rid":"1","limit":1}`:                                {T: "conversations", Rid: "1", AfterConv: "c-1", Limit: 1},
		`{"t":"conversations","rid":"1","after":""}`:                                             {T: "conversations", Rid: "1", Limit: 100},
		`{"t":"hello","rid":"1","device":"d","install":"i"}`:                                     {T: "hello", Rid: "1", Device: "d", Install: "i", Limit: 100},
		`{"t":"pong","x":` + strings.Repeat(`[{"":`, 31) + `[]` + strings.Repeat(`}]`, 31) + `}`: {T: "pong", Limit: 100},
	} {
		r, err := Decode([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestDecodeRefuses: every case is refused with INVALID_ARGUMENT, and names the request it refuses when it can.
func TestDecodeRefuses(t *testing.T) {
	const head = `{"t":"sync","rid":"7","conv":"c"`
	cases := map[string][]string{ // by the T and Rid that are still read
		" ": {``, ` `, `{`, `null`, `[]`, `"t"`, `7`, `{]`, `{"t"}`, `{t:1}`, `{,}`, "{\"t\nx\":1}", `{"t`, "{\"\\x\":1}", "{\"\\u12g4\":1}",
			"\xff", "{\"t\":\"pong\",\"x\":\"\xc3\"}", "\uFEFF{\"t\":\"pong\"}", `{}`, `{"t":5}`, `{"t":"\ud800"}`, `{"t":null}`},
		"pong ": {`{"t":"pong",}`, `{"t":"pong"},`, `{"t":"pong"}{"t":"pong"}`, `{"t":"pong" "x":1}`, `{"t":"pong","x":01}`, `{"t":"pong","x":.5}`,
			`{"t":"pong","x":1.}`, `{"t":"pong","x":+1}`, `{"t":"pong","x":1e}`, `{"t":"pong","x":-}`, `{"t":"pong","x":nul}`, `{"t":"pong","x":NaN}`,
			`{"t":"pong","x":tru`, `{"t":"pong","x":"\ud800"}`, `{"t":"pong","x":"\ude00\ud83d"}`, `{"t":"pong","\u0000":1}`, "{\"t\":\"pong\",\"x\":\"\x00\"}",
			`{"t":"pong","t":"pong"}`, `{"t":"pong","\u0074":"pong"}`, `{"t":"pong","t":null}`, `{"t":"pong","rid":7}`, `{"t":"pong","rid":"\ud800"}`,
			`{"t":"pong","rid":"` + strings.Repeat("r", MaxRid+1) + `"}`, `{"t":"pong","x":[1,]}`, `{"t":"pong","x":{"a":1,}}`, `{"t":"pong","x":{"a"}}`,
			`{"t":"pong","x":{1:2}}`, `{"t":"pong","x":[1 2]}`, `{"t":"pong","x":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `}`,
			`{"t":"pong","x":` + strings.Repeat(`[`, 60000), `{"t":"pong","conv":true}`, `{"t":"pong","epoch":"1"}`, `{"t":"pong","after":[]}`},
		"unknown ":  {`{"t":"nonsense"}`, `{"t":""}`, `{"t":"Pong"}`, `{"t":"` + strings.Repeat("x", 60000) + `"}`},
		"unknown 7": {`{"t":"signal","rid":"7"}`, `{"t":"unknown","rid":"7"}`},
		"sync ":     {`{"t":"sync","conv":"c"}`, `{"t":"sync","rid":"","conv":"c"}`, `{"t":"sync","rid":null,"conv":"c"}`},
		"sync 7": {head, head + `,"after":-1}`, head + `,"after":"3"}`, head + `,"after":1.0}`, head + `,"after":1e1}`, head + `,"after":9007199254740992}`,
			head + `,"after":99999999999999999999999999}`, head + `,"epoch":-1}`, head + `,"limit":0}`, head + `,"limit":-1}`, head + `,"limit":1.5}`,
			head + `,"conv":"c"}`, head + `,"conv":null}`, head + `,"data":[]}`, head + `,"data":"{}"}`, head + `,"body":7}`,
			`{"t":"sync","conv":5,"rid":"7"}`, `{"conv":"a b","t":"sync","rid":"7"}`, `{"t":"sync","rid":"7"}`, `{"t":"sync","rid":"7","conv":""}`,
			`{"t":"sync","conv":"\ud800","rid":"7"}`, `{"t":"sync","rid":"7","conv":"` + strings.Repeat("c", tidings.MaxID+1) + `"}`},
		"send 7": {`{"t":"send","rid":"7","conv":"c","cmid":"m"}`, `{"t":"send","rid":"7","conv":"c","cmid":"m","body":null}`,
			`{"t":"send","rid":"7","conv":"c","body":"b"}`, `{"t":"send","rid":"7","cmid":"m","body":"b"}`, `{"t":"send","rid":"7","conv":"c","cmid":"a/b","body":"b"}`,
			`{"t":"send","rid":"7","conv":"c","cmid":"m","body":"\u0000"}`, `{"t":"send","rid":"7","conv":"c","cmid":"m","body":"\udfff"}`,
			`{"t":"send","rid":"7","conv":"c","cmid":"m","body":"b","data":{"a":"\ud83d x"}}`, `{"t":"send","rid":"7","conv":"c","cmid":"m","body":"b","body":"b"}`},
		"recall 7": {`{"t":"recall","rid":"7","conv":"c","cmid":"m"}`, `{"t":"recall","rid":"7","conv":"c","cmid":"m","target":0}`,
			`{"t":"recall","rid":"7","conv":"c","target":1}`, `{"t":"recall","rid":"7","cmid":"m","target":1}`},
		"fetch 7":         {`{"t":"fetch","rid":"7","conv":"c"}`, `{"t":"fetch","rid":"7","conv":"c","seq":0}`},
		"ack 7":           {`{"t":"ack","rid":"7","conv":"c","seq":0}`, `{"t":"ack","rid":"7","conv":"c","seq":-1}`, `{"t":"ack","rid":"7","seq":1}`},
		"read 7":          {`{"t":"read","rid":"7","conv":"c","seq":0}`, `{"t":"read","rid":"7","conv":"c","seq":1,"epoch":-9}`},
		"conversations 7": {`{"t":"conversations","rid":"7","after":3}`, `{"t":"conversations","rid":"7","after":"a b"}`, `{"t":"conversations","rid":"7","limit":0}`},
		"outcome 7":       {`{"t":"outcome","rid":"7","conv":"c"}`, `{"t":"outcome","rid":"7","cmid":"m"}`},
		"refresh 7":       {`{"t":"refresh","rid":"7"}`, `{"t":"refresh","rid":"7","token":""}`, `{"t":"refresh","rid":"7","token":"` + strings.Repeat("x", MaxToken+1) + `"}`},
		"hello 7": {`{"t":"hello","rid":"7","device":"d"}`, `{"t":"hello","rid":"7","install":"i"}`, `{"t":"hello","rid":"7","device":"d d","install":"i"}`,
			`{"t":"hello","rid":"7","device":"d","install":"i","client":"` + strings.Repeat("x", MaxClient+1) + `"}`,
			`{"t":"hello","rid":"7","device":"d","install":"i","token":"` + strings.Repeat("x", MaxToken+1) + `"}`},
	}
	for want, texts := range cases {
		for _, text := range texts {
			r, err := Decode([]byte(text))
			if tidings.ErrorCode(err) != tidings.InvalidArgument {
				t.Errorf("%.200q: %v", text, err)
			}
			if got := r.T + " " + r.Rid; got != want && want != " " || want == " " && r.Rid != "" {
				t.Errorf("%.200q names %q, not %q", text, got, want)
			}
		}
	}
	if _, err := Decode([]byte("{\"x\":\"\xed\xa0\x80\"}")); !errors.Is(err, ErrUTF8) {
		t.Errorf("a surrogate in UTF-8: %v", err)
	}
}

// TestDecodeKeepsNothing: the buffer of a frame is read into again.
func TestDecodeKeepsNothing(t *testing.T) {
	frame := []byte(`{"t":"send","rid":"rid","conv":"conv","cmid":"cmid","body":"body","data":{"a":"data"}}`)
	r, err := Decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	clear(frame)
	want := Request{T: "send", Rid: "rid", Conv: "conv", Cmid: "cmid", Body: ptr("body"), Data: []byte(`{"a":"data"}`), Limit: 100}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRequestMessage(t *testing.T) {
	r := Request{T: TypeSend, Rid: "1", Conv: "c", Cmid: "m", Body: ptr(strings.Repeat("b", tidings.MaxBody)), Data: []byte(`{}`)}
	m, err := r.Message("u-ana", "d")
	if err != nil || m.Conv != "c" || m.Sender != "u-ana" || m.Device != "d" || m.Cmid != "m" || m.Body != *r.Body || string(m.Data) != "{}" {
		t.Errorf("%v %+v", err, m)
	}
	r.Body = ptr(*r.Body + "b")
	if _, err := r.Message("u-ana", "d"); tidings.ErrorCode(err) != tidings.TooLarge {
		t.Errorf("a long body: %v", err)
	}
	r.Body, r.Data = ptr(""), []byte(`{"a":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`)
	if _, err := r.Message("u-ana", "d"); tidings.ErrorCode(err) != tidings.InvalidArgument {
		t.Errorf("deep data: %v", err)
	}
}
