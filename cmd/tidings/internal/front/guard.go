// Who may use the switches, and how refusals are written.

package front

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/tidings-project/tidings"
)

// comeBack is what clients are told to wait for what is not there just now.
const comeBack = time.Second

// bodyMost is how long the body of a request may be.
const bodyMost = 64 << 10

// quiet is a log of what happens to peers that go away.
var quiet = log.New(io.Discard, "", 0)

// guard lets only this machine's own page use what is below. A name that an attacker leads to 127.0.0.1 is another Host; a page of another origin can
// send a POST and open a WebSocket, and is told by its headers.
func guard(h http.Handler, port int) http.Handler {
	hosts := map[string]bool{}
	for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
		hosts[net.JoinHostPort(name, strconv.Itoa(port))] = true
	}
	origins := http.NewCrossOriginProtection() // of what changes something
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if !hosts[r.Host] {
			refuse(w, tidings.Errorf(tidings.Forbidden, "this answers at 127.0.0.1 and localhost only, port %d", port))
			return
		}
		if origin := r.Header.Get("Origin"); origins.Check(r) != nil || origin != "" && origin != "http://"+r.Host {
			refuse(w, tidings.Errorf(tidings.Forbidden, "this is for the page of this server alone"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// read reads the body of a request, which has to be JSON: no form of another page can send that.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Header.Get("Content-Type") != "application/json" {
		return tidings.Errorf(tidings.InvalidArgument, "the Content-Type has to be application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMost))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return tidings.Errorf(tidings.InvalidArgument, "read the body: %w", err)
	}
	return nil
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer is gone: there is nobody to tell
}

// refuse writes an error.
func refuse(w http.ResponseWriter, err error) {
	code := tidings.ErrorCode(err)
	text := err.Error()
	var coded *tidings.Error
	if errors.As(err, &coded) {
		text = coded.Message
		if coded.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(coded.RetryAfter.Seconds()))))
		}
	}
	answer(w, tidings.Codes[code].HTTP, map[string]any{"code": code, "message": text})
}

func notFound(format string, args ...any) error {
	return tidings.Errorf(tidings.NotFound, format, args...)
}

// withPath is a request for another path.
func withPath(r *http.Request, path string) *http.Request {
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = path, ""
	return r
}
