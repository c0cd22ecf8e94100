// The scripted peer over HTTP/1.1.

package channeltest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

func (p *HTTPPeer) serveHTTP1(conn net.Conn, n int) error {
	r := bufio.NewReader(conn)
	for {
		if _, err := r.Peek(1); err != nil {
			return err
		}
		p.beginning()
		req, err := http.ReadRequest(r)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(io.LimitReader(req.Body, maxRequest))
		if err != nil {
			return err
		}
		f := p.take(HTTPRequest{Conn: n, Method: req.Method, Path: req.URL.RequestURI(), Header: req.Header, Body: body})
		switch {
		case f.Close:
			return nil
		case f.Reset:
			return errReset
		case f.Hang:
			_, err := r.Peek(1) // until the client goes
			return err
		case f.Raw != "":
			_, err := io.WriteString(conn, f.Raw)
			return err
		}
		length := len(f.Body)
		if f.Cut {
			length += 100
		}
		var answer strings.Builder
		fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\n", f.Status, http.StatusText(f.Status), length)
		_ = f.Header.Write(&answer) // a strings.Builder does not fail
		answer.WriteString("\r\n" + f.Body)
		if _, err := io.WriteString(conn, answer.String()); err != nil || f.Cut {
			return err
		}
	}
}
