// Tests of who may use the switches.

package front

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		port         int
		method, host string
		headers      []string
		status       int
	}{
		{8080, "GET", "127.0.0.1:8080", nil, 200},
		{8080, "GET", "localhost:8080", nil, 200},
		{8080, "GET", "[::1]:8080", nil, 200},
		{8080, "GET", "127.0.0.1", nil, 403},
		{8080, "GET", "localhost.:8080", nil, 403},
		{8080, "GET", "evil.test:8080", nil, 403},
		{8080, "GET", "127.0.0.1:80800", nil, 403},
		{8080, "GET", "", nil, 403},
		{80, "GET", "127.0.0.1", nil, 200}, // a browser leaves this port out
		{80, "GET", "localhost:80", nil, 200},
		{80, "GET", "[::1]", nil, 200},
		{80, "GET", "evil.test", nil, 403},
		{80, "POST", "localhost", []string{"Origin", "http://localhost"}, 200},
		{8080, "GET", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8080"}, 200},
		{8080, "GET", "127.0.0.1:8080", []string{"Origin", "http://localhost:8080"}, 403}, // as a WebSocket has it
		{8080, "GET", "127.0.0.1:8080", []string{"Origin", "https://127.0.0.1:8080"}, 403},
		{8080, "GET", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8025"}, 403},
		{8080, "GET", "127.0.0.1:8080", []string{"Origin", "null"}, 403},
		{8080, "GET", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "none"}, 200},
		{8080, "GET", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "same-site"}, 403}, // a page of another port
		{8080, "GET", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{8080, "POST", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{8080, "POST", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:8080"}, 200},
		{8080, "POST", "127.0.0.1:8080", []string{"Origin", "null"}, 403},
		{8080, "POST", "127.0.0.1:8080", nil, 200}, // no browser
	} {
		r := httptest.NewRequest(c.method, "/dev/state", nil)
		r.Host = c.host
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		w := httptest.NewRecorder()
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), c.port).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("port %d: %s with the Host %q and %q is answered with %d, not %d", c.port, c.method, c.host, c.headers, w.Code, c.status)
		}
	}
}
