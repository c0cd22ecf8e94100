// The one HTTP door: transport, limits, redirects.

package channel

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"
)

// MaxAnswer is how much of an answer's body the door reads, in bytes. What follows is not read, and the connection is
// given up.
const MaxAnswer = 64 << 10

// The door's own bounds on setting up a connection. A dial is not tied to the call that caused it: net/http lets it
// finish for the next one, so it needs an end of its own. Everything else ends with the call's context.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	pingAfter        = 15 * time.Second // an HTTP/2 connection that has been silent for so long is asked whether it lives
)

// Door is the one way by which an HTTP channel reaches its provider: one call of Do puts at most one request on the
// wire, whatever the provider does with it, and says whether a byte of it left.
//
// Go's client does not promise that. It sends again what it takes for idempotent (a GET, a request with an
// Idempotency-Key) when a kept connection breaks, and over HTTP/2 anything whose body it can rewind: see
// shouldRetryRequest in net/http's transport.go and h2_bundle.go, Go 1.26. And it follows redirects. The door uses the
// Transport alone, so there are no redirects and no cookies, hands bodies over without a way to rewind them, and lets
// each connection ask for leave before the first byte of a request (see call).
//
// A Door is safe for concurrent use and has connections of its own, so that no other client's connection can get
// around its Guard. Close it when the channel is no longer used.
type Door struct {
	transport *http.Transport
	stats     doorStats
}

// DoorOptions configure a Door. The zero value is usable.
type DoorOptions struct {
	// Guard judges the resolved address of each connection right before it is dialled; an error refuses it. nil: every
	// address is allowed. With a Proxy the proxy's address is judged, since the proxy resolves the target.
	Guard func(netip.Addr) error
	Proxy *url.URL    // nil: none, whatever the environment says
	TLS   *tls.Config // nil: the system's roots
	HTTP1 bool        // never HTTP/2
	Idle  int         // idle connections kept for one host; 0: 256
}

type doorStats struct{ calls, written, refused atomic.Uint64 }

// DoorStats counts what went through a door since it was made.
type DoorStats struct {
	Calls   uint64 // calls of Do
	Written uint64 // requests of which at least one byte may have left
	Refused uint64 // writes that were refused: a second request for the same call, or a start that came too late
}

// Request is one HTTP request.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
}

// Response is what one call brought.
type Response struct {
	Written bool // a byte of the request may have left; false is proof that none has and none will
	Err     error

	Status  int // 0: no status line came
	Header  http.Header
	Body    []byte // at most MaxAnswer bytes
	BodyErr error  // why the body is incomplete; the status line stands nevertheless
}

// NewDoor makes a door.
func NewDoor(o DoorOptions) *Door {
	if o.Idle == 0 {
		o.Idle = 256
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if o.Guard != nil {
		dialer.ControlContext = guardControl(o.Guard)
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &wire{Conn: conn}, nil
		},
		TLSClientConfig:        o.TLS,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           4 * o.Idle,
		MaxIdleConnsPerHost:    o.Idle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: MaxAnswer,
		DisableCompression:     true, // what is bounded is what was sent
		ForceAttemptHTTP2:      !o.HTTP1,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	if o.Proxy != nil {
		t.Proxy = http.ProxyURL(o.Proxy)
	}
	return &Door{transport: t}
}

// Close gives up the idle connections.
func (d *Door) Close() { d.transport.CloseIdleConnections() }

// Stats reads the counters.
func (d *Door) Stats() DoorStats {
	return DoorStats{Calls: d.stats.calls.Load(), Written: d.stats.written.Load(), Refused: d.stats.refused.Load()}
}

// Do makes one call. It ends with ctx at the latest, and no byte of it leaves after the instant of WithStartBy.
func (d *Door) Do(ctx context.Context, r Request) Response {
	d.stats.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &call{ctx: ctx, cancel: cancel, stats: &d.stats}
	if err := c.late(); err != nil {
		return Response{Err: err}
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, c.trace()), r.Method, r.URL, nil)
	if err != nil {
		return Response{Err: errBadRequest}
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if len(req.Header["User-Agent"]) == 0 {
		req.Header.Set("User-Agent", "tidings")
	}
	if len(r.Body) > 0 {
		// Only an io.Reader of a known type gets a GetBody from net/http; this one cannot be rewound.
		req.Body = io.NopCloser(struct{ io.Reader }{bytes.NewReader(r.Body)})
		req.ContentLength = int64(len(r.Body))
	}

	resp, err := d.transport.RoundTrip(req)
	if err != nil {
		out := Response{Written: c.seal(), Err: err}
		if cause := context.Cause(ctx); cause != nil {
			out.Err = cause
		}
		return out
	}
	defer resp.Body.Close()
	out := Response{Written: true, Status: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode < 200 {
		return out // 101: the body is the connection itself, and reading it would not end with ctx
	}
	out.Body, out.BodyErr = io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if len(out.Body) > MaxAnswer {
		out.Body, out.BodyErr = out.Body[:MaxAnswer], errAnswerTooLong
	}
	return out
}
