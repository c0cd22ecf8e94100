// Measures reading and writing frames.

package wire

import (
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
)

// BenchmarkDecodeSend reads a send of 300 bytes.
func BenchmarkDecodeSend(b *testing.B) {
	frame := []byte(`{"t":"send","rid":"1234","conv":"c-0123456789abcdef","cmid":"9a3c5d0e-1f2b-4c3d-8e4f-5a6b7c8d9e0f","body":"` +
		strings.Repeat("word ", 27) + `\n","data":{"reply_to":"x-0123456789abcdef01"}}`)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(frame); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendEvent writes the push of a message of 300 bytes.
func BenchmarkAppendEvent(b *testing.B) {
	e := tidings.Event{
		Conv: "c-0123456789abcdef", Seq: 123456, Kind: tidings.KindMsg, Mid: "7f0d8a52-6c1e-4b7a-9d53-2e1f0a9b8c7d", Sender: "u-ana", SDev: "u-ana-d1",
		Cmid: "9a3c5d0e-1f2b-4c3d-8e4f-5a6b7c8d9e0f", Body: ptr(strings.Repeat("word ", 20) + "\n"), At: 1792466430123,
	}
	dst := AppendEvent(nil, 1<<50, &e)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendEvent(dst[:0], 1<<50, &e)
	}
}
