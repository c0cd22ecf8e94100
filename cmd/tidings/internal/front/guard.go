// Who may use the switches.

package front

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidings-project/tidings"
)

// guard lets only this machine's own page use what is below. A name that an attacker leads to 127.0.0.1 is another Host; a page of another origin can
// send a POST, open a WebSocket and ask for an image or a script, and is told by its headers.
func guard(h http.Handler, port int) http.Handler {
	hosts := map[string]bool{}
	for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
		hosts[net.JoinHostPort(name, strconv.Itoa(port))] = true
		if port == 80 { // which browsers leave out
			hosts[strings.TrimSuffix(net.JoinHostPort(name, ""), ":")] = true
		}
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
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		if origins.Check(r) != nil || origin != "" && origin != "http://"+r.Host || site == "same-site" || site == "cross-site" {
			refuse(w, tidings.Errorf(tidings.Forbidden, "this is for the page of this server alone"))
			return
		}
		h.ServeHTTP(w, r)
	})
}
