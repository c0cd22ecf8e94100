// The checks 40-origin-rejected, 40-compression-bomb.

package lab_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-origin-rejected",
		Expect: "origins that are not on the list, similar ones, null and two at once: 403 before the upgrade, with a good token, too; the listed one and who " +
			"names none: 101; without a list every origin is refused",
		Run: originRejected,
	})
	lab.Register(lab.Check{
		ID: "40-compression-bomb",
		Expect: "compression is not negotiated; 40 frames that inflate to 48 MiB each close with 1002; 20 such bodies over HTTP are refused; the process grows " +
			"by less than 48 MiB",
		Run: compressionBomb,
	})
}

func originRejected(t *lab.T) {
	c := newChat(t)
	listed, closed := c.node("listed", with("TIDINGS_ORIGINS", "https://app.example,https://other.example:8443")), c.node("closed")
	status := func(n *node, origins ...string) int {
		header := []string{"Authorization", "Bearer " + token("ana")}
		for _, o := range origins {
			header = append(header, "Origin", o)
		}
		s := n.knock(header...)
		defer s.conn.Close()
		if s.answer.StatusCode != http.StatusSwitchingProtocols {
			c.Equal("the refusal is a problem document", "application/problem+json", s.answer.Header.Get("Content-Type"))
		}
		return s.answer.StatusCode
	}
	for _, origin := range []string{"https://app.example", "https://other.example:8443"} {
		c.Equal("listed: "+origin, http.StatusSwitchingProtocols, status(listed, origin))
		c.Equal("nothing listed: "+origin, http.StatusForbidden, status(closed, origin))
	}
	c.Equal("none named", []int{101, 101}, []int{status(listed), status(closed)})
	for _, origin := range []string{"https://evil.example", "http://app.example", "https://app.example:443", "https://app.example.evil.example", "https://evil-app.example",
		"https://sub.app.example", "https://app.example/", "https://other.example", "null", "*", "https://app.example,https://evil.example"} {
		c.Equal("not listed: "+origin, []int{http.StatusForbidden, http.StatusForbidden}, []int{status(listed, origin), status(closed, origin)})
	}
	c.Equal("two at once", http.StatusForbidden, status(listed, "https://app.example", "https://evil.example"))
	c.Until("no connection is left", soon, func() bool { return listed.metric(connections) == 0 && closed.metric(connections) == 0 })
}

func compressionBomb(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	n.conversation("c-1", "ana")
	const inflated, frames, bodies = 48 * mib, 40, 20
	bomb := func(w io.WriteCloser) {
		zeros := make([]byte, mib)
		for range inflated / mib {
			_, err := w.Write(zeros)
			c.Must("make a bomb", err)
		}
		c.Must("make a bomb", w.Close())
	}
	var deflated, gzipped bytes.Buffer
	deflate, err := flate.NewWriter(&deflated, flate.BestCompression)
	c.Must("make a bomb", err)
	bomb(deflate)
	bomb(gzip.NewWriter(&gzipped))
	c.True("a bomb fits into a frame", deflated.Len() < maxFrame)
	forced := masked(0xc1, deflated.Bytes()) // RSV1: compressed (RFC 7692, section 6)

	s := n.knock("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits; server_max_window_bits=15, permessage-bzip2, x-webkit-deflate-frame")
	c.Equal("who offers compression gets", []string{"101", ""}, []string{fmt.Sprint(s.answer.StatusCode), s.answer.Header.Get("Sec-WebSocket-Extensions")})
	before := n.resident()
	c.Together("frames that inflate", 4, func(i int) {
		for j := i; j < frames; j += 4 {
			s := n.knock("Sec-WebSocket-Extensions", "permessage-deflate")
			if j%2 == 0 {
				s.text(frame{"t": "hello", "rid": "hello", "token": token("ben"), "device": fmt.Sprint("d-", j), "install": "i-1"})
				_ = s.next()
			}
			s.write(forced)
			if code, frames := s.ends(); code != 1002 || len(frames) > 0 {
				c.Errorf("a compressed frame is answered with %v and %d", frames, code)
			}
		}
	})
	refused := 0
	for i := range bodies {
		a := n.http(http.MethodPut, fmt.Sprint("/v1/conversations/c-1/messages/m-", i), gzipped.Bytes(), "Authorization", "Bearer "+token("ana"), "Content-Encoding", "gzip")
		if a.status/100 == 4 {
			refused++
		}
	}
	grown := n.resident() - before
	c.Fault(fault.New("compressed bytes", "the gateway and the API",
		fmt.Sprintf("%d frames of %d bytes and %d bodies of %d bytes were sent; each inflates to %d MiB", frames, deflated.Len(), bodies, gzipped.Len(), inflated/mib)))
	c.Equal("compressed bodies refused", bodies, refused)
	c.Equal("head of the log", 1, c.head("c-1"))
	c.True("memory grown by less than 48 MiB", grown < 48*mib)
	c.Figure("memory grown", float64(grown), "B")
	c.Equal("the process serves on", 2, n.device("ana", "ana-1").say("c-1", "m-last", "x"))
}
