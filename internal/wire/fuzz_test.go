// Random frames and strings.

package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
)

// FuzzDecode holds the decoder to encoding/json: it accepts no frame that encoding/json does not, reads the same values, and the
// numbers and strings of what it accepts are within their limits; what it writes again it reads as the same request.
func FuzzDecode(f *testing.F) {
	for _, example := range examples(f) {
		f.Add(example)
	}
	for _, seed := range []string{
		`{"t":"sync","rid":"7","conv":"c","after":-0,"limit":501}`, `{"t":"send","rid":"1","conv":"c","cmid":"m","body":"\ud83d\ude00\u0000"}`,
		`{"\u0074":"pong","x":[{},[],1e400,-0.5,"\/\b",true,false,null]}`, `{"t":"fetch","rid":"1","conv":"c","seq":9007199254740992}`,
		`{"t":"pong","t":"pong"}`, "{\"t\":\"pong\",\"\xff\":1}", `{"t":"conversations","rid":"1","after":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := Decode(bytes.Clone(frame))
		if err != nil {
			if tidings.ErrorCode(err) != tidings.InvalidArgument || len(r.Rid) > MaxRid || !utf8.ValidString(r.Rid) {
				t.Fatalf("%q: %v, rid %q", frame, err, r.Rid)
			}
			if reply := AppendError(nil, r.Rid, r.T, err); !json.Valid(reply) || !utf8.Valid(reply) {
				t.Fatalf("%q is answered %q", frame, reply)
			}
			return
		}
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(frame, &fields); err != nil {
			t.Fatalf("%q was accepted, but: %v", frame, err)
		}
		if got, want := r, read(t, fields); !cmp.Equal(got, want) {
			t.Fatalf("%q (-encoding/json +wire):\n%s", frame, cmp.Diff(want, got))
		}
		if complaint := broken(&r); complaint != "" {
			t.Fatalf("%q was accepted: %s", frame, complaint)
		}
		again := AppendRequest(nil, &r)
		s, err := Decode(again)
		if err != nil {
			t.Fatalf("%q, written as %q: %v", frame, again, err)
		}
		if third := AppendRequest(nil, &s); !bytes.Equal(again, third) {
			t.Fatalf("%q was written as %q, then as %q", frame, again, third)
		}
	})
}

// read makes a request of fields by encoding/json alone.
func read(t *testing.T, fields map[string]json.RawMessage) (r Request) {
	t.Helper()
	r.Limit = DefaultPage
	for name, to := range map[string]any{
		"t": &r.T, "rid": &r.Rid, "conv": &r.Conv, "cmid": &r.Cmid, "token": &r.Token, "device": &r.Device, "install": &r.Install, "client": &r.Client,
		"body": &r.Body, "epoch": &r.Epoch, "seq": &r.Seq, "target": &r.Target, "limit": &r.Limit,
	} {
		if value, ok := fields[name]; ok {
			if err := json.Unmarshal(value, to); err != nil {
				t.Fatalf("%s was accepted, but: %v", name, err)
			}
		}
	}
	if value := fields["data"]; value != nil && string(value) != "null" {
		r.Data = value
	}
	if value := fields["after"]; value != nil && json.Unmarshal(value, &r.After) != nil {
		if err := json.Unmarshal(value, &r.AfterConv); err != nil {
			t.Fatalf("after was accepted, but: %v", err)
		}
	}
	for _, n := range []int64{r.Epoch, r.After, r.Seq, r.Target} {
		if n >= tidings.MaxNumber || n <= -tidings.MaxNumber {
			t.Fatalf("the number %d was accepted", n)
		}
	}
	r.Limit = min(r.Limit, MaxPage)
	return r
}

// broken tells what an accepted request lacks, by the table of the protocol.
func broken(r *Request) string {
	needs := map[string]string{ // c: conv and epoch, m: cmid, b: body, t: target, a: after, l: limit, s: seq, d: device and install, k: token
		TypeHello: "d", TypeSend: "cmb", TypeRecall: "cmt", TypeSync: "cal", TypeFetch: "cs", TypeAck: "cs", TypeRead: "cs",
		TypeConversations: "l", TypeOutcome: "cm", TypeRefresh: "k", TypePong: "-",
	}[r.T]
	if needs == "" || r.Rid == "" && r.T != TypePong || len(r.Rid) > MaxRid {
		return "its type or its rid"
	}
	for _, need := range needs {
		if bad := map[rune]bool{
			'c': !isID(r.Conv) || r.Epoch < 0, 'm': !isID(r.Cmid), 'b': r.Body == nil, 't': r.Target < 1, 'a': r.After < 0, 'l': r.Limit < 1 || r.Limit > MaxPage,
			's': r.Seq < 1, 'd': !isID(r.Device) || !isID(r.Install), 'k': r.Token == "",
		}[need]; bad {
			return string(need)
		}
	}
	return ""
}

func isID(id string) bool { return tidings.CheckID("id", id) == nil }

// FuzzString: whatever bytes a string has, encoding/json reads from its encoding what the bytes stand for.
func FuzzString(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x00\x1f\x7f\"\\/\b\f\n\r\t", "<&>\u2028", "\xff\xc3(\xed\xa0\x80", "é漢😀\uFFFD"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		encoded := appendString(nil, s)
		var got string
		if err := json.Unmarshal(encoded, &got); err != nil || got != string([]rune(s)) || !utf8.Valid(encoded) {
			t.Fatalf("%q is written as %q and read as %q: %v", s, encoded, got, err)
		}
		scan := scanner{b: encoded}
		q, ok := scan.str()
		if !ok || scan.i != len(encoded) || !q.bad && string(q.bytes()) != got {
			t.Fatalf("%q is written as %q and scanned as %q", s, encoded, q.bytes())
		}
	})
}

// FuzzDecodeFrame: a client survives any frame, and what it reads of an error it can pass on.
func FuzzDecodeFrame(f *testing.F) {
	for _, example := range examples(f) {
		f.Add(example)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		frame, err := DecodeFrame(text)
		if err != nil {
			return
		}
		if frame.T == "" || !json.Valid(text) {
			t.Fatalf("%q was read as %+v", text, frame)
		}
		if frame.T == TypeError && tidings.ErrorCode(frame.Err()) != frame.Code {
			t.Fatalf("%q has the error %v", text, frame.Err())
		}
	})
}
