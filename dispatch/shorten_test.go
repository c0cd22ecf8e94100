// Tests of where a preview is cut.

package dispatch

import "testing"

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöüß", 4, "äöüß"}, {"äöüßx", 4, "äöü…"}, {"日本語", 2, "日…"}, {"ab", 1, "…"}, {"a", 1, "a"}, {"🙂🙂🙂", 2, "🙂…"},
	} {
		if got := shorten(c.text, c.most); got != c.want {
			t.Errorf("%q in %d characters is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
