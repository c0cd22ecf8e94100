// How commands print: tables, JSON.

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

// plain is text that somebody else chose, in one line that does not command the terminal: quoted if it has anything but what can be seen.
func plain(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.QuoteToGraphic(text)
}

// table writes rows in columns. Cells are plain.
func table(w io.Writer, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		text := make([]string, len(cells))
		for i, c := range cells {
			text[i] = plain(fmt.Sprint(c))
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(text, "\t"), "\t"))
	})
	t.Flush()
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// when is an instant as it is printed everywhere.
func when(t time.Time) string { return t.Format(time.RFC3339) }

// printTasks writes tasks with what their journals say.
func printTasks(w io.Writer, tasks []api.Task) {
	table(w, func(row func(...any)) {
		for _, t := range tasks {
			row("  "+place(t.Channel, t.Slot), state(t.Task), journal(t.Attempts))
		}
	})
}

// place is a channel with its slot.
func place(channel, slot string) string {
	if slot == "" {
		return channel
	}
	return channel + "/" + slot
}

// state is a task's state in words.
func state(t store.Task) string {
	s := string(t.State)
	if t.Review {
		s += ", waits for a person"
	}
	if t.SettledBy != "" {
		s += ", settled by " + t.SettledBy
	}
	return s
}

// journal is what each attempt observed.
func journal(attempts []store.Attempt) string {
	var out []string
	for _, a := range attempts {
		word := string(a.Outcome)
		if word == "" {
			word = "(" + strings.ToLower(string(a.Action)) + " running)"
		}
		if a.LateOutcome != "" {
			word += " (late: " + string(a.LateOutcome) + ")"
		}
		out = append(out, word)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// ago is how long ago something was.
func ago(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return time.Since(*t).Round(time.Second).String()
}
