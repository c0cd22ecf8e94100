// Tests of what is printed.

package main

import (
	"strings"
	"testing"
)

// What others chose stays in its line and commands no terminal.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"billing":            "billing",
		"Bücher für 読者":      "Bücher für 読者",
		"a\x1b[2Jb":          `"a\x1b[2Jb"`,
		"two\nlines":         `"two\nlines"`,
		"tab\tbed":           `"tab\tbed"`,
		"from\u202eright":    `"from\u202eright"`,
		"half of UTF-8 \xff": `"half of UTF-8 \xff"`,
	} {
		if got := plain(text); got != want {
			t.Errorf("%q is printed as %s, want %s", text, got, want)
		}
	}
	var out strings.Builder
	table(&out, func(row func(...any)) { row("ID", "NAME"); row(1, "x\x1b]0;y\a\nz") })
	if got := out.String(); got != "ID  NAME\n1   \"x\\x1b]0;y\\a\\nz\"\n" {
		t.Errorf("the table is %q", got)
	}
	for _, line := range differ(map[string]int64{"event\x1b[2J\nall is well": 3}, map[string]int64{"\x1b[H": 1}) {
		if strings.ContainsAny(line, "\x1b\n") {
			t.Errorf("restore prints %q", line)
		}
	}
}
