// Tests of what children say, and of what is kept of it.

package front

import (
	"bytes"
	"strings"
	"testing"
)

func TestPrefixedWritesWholeLines(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{to: &out, prefix: "a | "}
	for _, text := range []string{"one\ntw", "o\n", "\n", strings.Repeat("x", longestLine+1), "rest"} {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "a | one\na | two\na | \na | " + strings.Repeat("x", longestLine+1) + "\n"; out.String() != want {
		t.Errorf("it wrote %.60q", out.String())
	}
}

func TestJournalKeepsTheNewest(t *testing.T) {
	var j journal
	for n := range 2 * kept {
		j.add("line %d", n)
	}
	all := j.all()
	if len(all) != kept || all[0].Text != "line 50" || all[kept-1].Text != "line 99" {
		t.Errorf("it keeps %d, from %q to %q", len(all), all[0].Text, all[len(all)-1].Text)
	}
}
