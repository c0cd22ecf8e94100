// The operator console: what is served at which path, and to whom.

// Package console has the pages of Tidings for people. They use its HTTP API and its WebSocket, and nothing else.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"log/slog"
	"net/http"
	"time"
)

// home is where the console lives: its cookies go nowhere else.
const home = "/console"

// pageTimeout bounds all calls that one page makes; it is shorter than a process takes for an answer.
const pageTimeout = 25 * time.Second

// maxForm bounds a form in bytes: the notes and ids of a page of tasks.
const maxForm = 64 << 10

//go:embed templates static/console.css
var files embed.FS

// console serves the pages for operators.
type console struct {
	api   http.Handler
	log   *slog.Logger
	pages pages
	style []byte
}

// New makes the operator console, to be served at /console and below. It knows nothing but the HTTP API, which it calls in this process, each time with the
// key of whoever has signed in. Neither keys nor content are logged.
func New(api http.Handler, log *slog.Logger) http.Handler {
	style, err := files.ReadFile("static/console.css")
	if err != nil {
		panic(err) // the files are part of the program
	}
	sum := sha256.Sum256(style)
	c := &console{api: api, log: log, style: style, pages: parsePages(home + "/console.css?" + hex.EncodeToString(sum[:6]))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /console/console.css", c.serveStyle)
	mux.HandleFunc("GET /console/sign-in", c.signInPage)
	mux.HandleFunc("POST /console/sign-in", c.signIn)
	mux.HandleFunc("POST /console/sign-out", c.signOut)
	mux.Handle("GET /console/{$}", http.RedirectHandler(home, http.StatusSeeOther))
	for _, p := range []struct {
		pattern string
		scope   string // that the page's calls need; empty: any key may
		handle  func(*visit) error
	}{
		{"GET /console", "operate", overview},
		{"GET /console/reviews", "review", listReviews},
		{"GET /console/reviews/confirm", "review", confirmReviews},
		{"POST /console/reviews/resolve", "review", resolveReviews},
		{"GET /console/reviews/results", "review", showResults},
		{"GET /console/tasks/{task}", "review", showTask},
		{"POST /console/tasks/{task}", "review", resolveTask},
		{"GET /console/search", "operate", search},
		{"GET /console/channels", "operate", listChannels},
		{"GET /console/channel", "operate", showChannel},
		{"POST /console/channel/pause", "operate", pauseChannel},
		{"POST /console/channel/resume", "operate", resumeChannel},
		{"GET /console/conversations", "operate", listConversations},
		{"GET /console/conversation", "operate", showConversation},
		{"GET /console/gateways", "operate", listGateways},
		{"GET /console/user", "operate", showUser},
		{"GET /console/report", "operate", showReport},
		{"/console/", "", func(*visit) error {
			return &refusal{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "There is no such page."}
		}},
	} {
		mux.HandleFunc(p.pattern, c.visited(p.scope, p.handle))
	}
	return headers(http.NewCrossOriginProtection().Handler(mux))
}

// headers are those of every answer. The referrer policy is not no-referrer: with that a browser names no origin when it sends a form, and over plain HTTP it
// has no other header by which to tell a form of this page from one of elsewhere.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		next.ServeHTTP(w, r)
	})
}

// serveStyle serves the style sheet, whose address changes with it.
func (c *console) serveStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(c.style) // the peer is gone: there is nobody to tell
}
