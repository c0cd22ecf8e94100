// Templates: how pages are made of them, and what they can call.

package console

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"
)

// page is what every template gets.
type page struct {
	Title    string
	Section  string // the entry of the menu that the page belongs to
	Operator string
	Key      *keyInfo // nil: nobody is signed in
	Notice   *notice
	Data     any
}

// pages are the templates by name, each with the frame around it.
type pages map[string]*template.Template

const frameName = "frame.html"

// parsePages reads all templates; style is the style sheet's address.
func parsePages(style string) pages {
	frame := template.Must(template.New(frameName).Funcs(template.FuncMap{
		"style": func() string { return style },
		"menu":  func() []entry { return menu },
		"utc":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"ago":   func(t time.Time) string { return ago(time.Since(t)) },
		"span":  span,
		"join":  strings.Join,
		"count": count,
	}).ParseFS(files, "templates/"+frameName, "templates/parts.html"))
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is well-formed
	}
	all := pages{}
	for _, name := range names {
		if base := path.Base(name); base != frameName && base != "parts.html" {
			all[strings.TrimSuffix(base, ".html")] = template.Must(template.Must(frame.Clone()).ParseFS(files, name))
		}
	}
	return all
}

// write answers with a page, whole or not at all.
func (p pages) write(log *slog.Logger, w http.ResponseWriter, r *http.Request, status int, name string, data page) {
	var text bytes.Buffer
	if err := p[name].ExecuteTemplate(&text, frameName, data); err != nil {
		log.ErrorContext(r.Context(), "a page of the console failed", "page", r.Pattern, "error", err)
		http.Error(w, "INTERNAL: a defect of the console; its log says more.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // the peer is gone: there is nobody to tell
}

// entry is one of the menu.
type entry struct{ Section, Path, Text string }

var menu = []entry{
	{"overview", home, "Overview"},
	{"reviews", home + "/reviews", "Reviews"},
	{"search", home + "/search", "Search"},
	{"channels", home + "/channels", "Channels"},
	{"conversations", home + "/conversations", "Conversations"},
	{"gateways", home + "/gateways", "Gateways"},
	{"report", home + "/report", "Report"},
}

// ago says how long ago something was, or in what time it will be.
func ago(d time.Duration) string {
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

// span is a duration as people say it, in its largest unit or two.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "min")
	default:
		return two(d, 24*time.Hour, "days", time.Hour, "h")
	}
}

func two(d, unit time.Duration, name string, below time.Duration, belowName string) string {
	text := fmt.Sprintf("%d %s", d/unit, name)
	if rest := d % unit / below; rest > 0 && d/unit < 10 {
		text += fmt.Sprintf(" %d %s", rest, belowName)
	}
	return text
}

// count is a number of things.
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case n > 10_000: // where the API stops counting
		return "more than 10000 " + thing + "s"
	default:
		return fmt.Sprintf("%d %ss", n, thing)
	}
}
