// The demo page of `tidings dev`, and the TypeScript client as one module: files of the binary, built from console/web.

package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"time"
)

//go:embed static/demo static/client.js
var demoFiles embed.FS

// Demo serves the demo page: GET / is the page, GET /demo/… its parts, GET /client.js the TypeScript client as an ES module, for the page and for pages of any
// other origin. The page itself asks /dev/… and the WebSockets of the same origin, which the caller has to serve.
func Demo() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", demoFile("static/demo/index.html"))
	client := demoFile("static/client.js")
	mux.HandleFunc("GET /client.js", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // a module of another origin is read only with leave
		client.ServeHTTP(w, r)
	})
	entries, err := fs.ReadDir(demoFiles, "static/demo")
	if err != nil {
		panic(err) // the files are part of the program
	}
	for _, entry := range entries {
		if entry.Name() != "index.html" {
			mux.Handle("GET /demo/"+entry.Name(), demoFile("static/demo/"+entry.Name()))
		}
	}
	return mux
}

// demoFile serves one file. A browser asks each time whether its copy is still the one, so that a new version of the program is seen at once.
func demoFile(name string) http.Handler {
	text, err := demoFiles.ReadFile(name)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	kind := contentType(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", demoPolicy(r.Host))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	})
}

// contentType does not ask the machine's own list, which may call a script something that a browser refuses.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// plainHost is a Host that can stand in a policy: no character of it ends a directive.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// demoPolicy lets the page have scripts, styles and connections of its own host only. Not every browser counts a WebSocket of the same host as 'self', so that it is
// named (https://www.w3.org/TR/CSP3/#match-url-to-source-expression).
func demoPolicy(host string) string {
	sockets := ""
	if plainHost.MatchString(host) {
		sockets = " ws://" + host
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" + sockets +
		"; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
