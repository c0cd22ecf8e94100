// The control to the rule of one request for one call: the plain Go client makes more than one.

package channeltest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/channel/channeltest"
)

// The control to the one-request rule: the plain Go client, in the same scenes, makes more than one.
func TestPlainClientRepeats(t *testing.T) {
	post := func(t *testing.T, client *http.Client, url string) (*http.Response, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // or the connection is not kept
			_ = resp.Body.Close()
		}
		return resp, err
	}
	t.Run("reset on a kept connection", func(t *testing.T) {
		peer, err := channeltest.ResettingServer()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for range 2 {
			if _, err := post(t, client, peer.URL()); err != nil {
				t.Fatal(err)
			}
		}
		if n := peer.Begun(); n != 3 {
			t.Errorf("%d requests for two calls, want 3: the control controls nothing", n)
		}
	})
	t.Run("PROTOCOL_ERROR", func(t *testing.T) {
		peer, err := channeltest.StartHTTPPeer(channeltest.HTTP2, "{}")
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		peer.Next(channeltest.Fault{Stream: "PROTOCOL_ERROR"})
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: peer.TLS(), ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		if _, err := post(t, client, peer.URL()); err != nil {
			t.Skipf("this Go release does not repeat after PROTOCOL_ERROR: %v", err)
		}
		if n := peer.Begun(); n != 2 {
			t.Errorf("%d requests for one call, want 2", n)
		}
	})
	t.Run("redirect", func(t *testing.T) {
		peer, err := channeltest.StartHTTPPeer(channeltest.HTTP1, "{}")
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		peer.Next(channeltest.Fault{Status: 307, Header: http.Header{"Location": {"/elsewhere"}}})
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		resp, err := post(t, client, peer.URL())
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		if n := peer.Begun(); n != 2 {
			t.Errorf("%d requests for one call, want 2", n)
		}
	})
}
