// The handshake, and breaches of the framing.

package gateway

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/internal/wire"
)

// readBuffer is enough for the frames that an idle connection gets. A larger message is read past it.
const readBuffer = 512

// ServeHTTP takes a socket (GET /v1/ws). Every refusal is a problem document (RFC 9457) before any data of the protocol.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		g.deny(w, http.StatusMethodNotAllowed, tidings.Errorf(tidings.InvalidArgument, "a WebSocket is opened with GET"))
		return
	}
	if !g.allows(r.Header.Values("Origin")) {
		g.deny(w, 0, tidings.Errorf(tidings.Forbidden, "the origin is not allowed"))
		return
	}
	if !slices.Contains(websocket.Subprotocols(r), wire.Subprotocol) {
		g.deny(w, 0, tidings.Errorf(tidings.InvalidArgument, "the subprotocol %s is required", wire.Subprotocol))
		return
	}
	if !g.held() {
		g.deny(w, 0, unavailable("the gateway does not hold its lease"))
		return
	}
	if err := g.roster.reserve(g.cfg.MaxConnections, g.cfg.MaxGreeting); err != nil {
		g.deny(w, 0, err)
		return
	}
	claims, err := g.headerClaims(r)
	if err != nil {
		g.roster.cancel()
		g.deny(w, 0, err)
		return
	}
	t := &tap{}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: g.cfg.CloseWait, ReadBufferSize: readBuffer, WriteBufferPool: noBuffers{}, WriteBufferSize: 1,
		Subprotocols: []string{wire.Subprotocol},
		CheckOrigin:  func(*http.Request) bool { return true }, // judged above
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			g.deny(w, status, tidings.Errorf(tidings.InvalidArgument, "%s", strings.TrimPrefix(reason.Error(), "websocket: ")))
		},
	}
	ws, err := upgrader.Upgrade(hijacker{w, t}, r, nil)
	if err != nil {
		g.roster.cancel()
		return // the answer was given, or there is nobody to give it to
	}
	t.quiet = true
	s := newSession(g, t.Conn)
	s.claims.Store(claims)
	// The reader is a goroutine of its own, so that the handler's, with all that it holds, can end.
	if !g.roster.add(s, func() { g.sessions.Go(func() { s.read(ws, t) }) }) {
		g.roster.cancel()
		// The gateway stops: nothing was promised on it, but the peer may know why it ends.
		_, _ = t.Conn.Write(appendClose(nil, wire.CloseDraining, "the gateway stops"))
		_ = t.Conn.Close()
	}
}

// allows judges the origin of a browser. Other clients send none.
func (g *Gateway) allows(origins []string) bool {
	switch {
	case len(origins) == 0:
		return true
	case len(origins) > 1:
		return false
	}
	return slices.Contains(g.cfg.Origins, "*") || slices.Contains(g.cfg.Origins, origins[0])
}

// headerClaims verifies the token of the Authorization header; nil when there is none.
func (g *Gateway) headerClaims(r *http.Request) (*token.Claims, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return nil, nil
	}
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, tidings.Errorf(tidings.Unauthenticated, "the authorization is no bearer token")
	}
	ctx, cancel := g.requestContext(r.Context())
	defer cancel()
	claims, err := g.verify(ctx, strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	return &claims, nil
}

// deny answers a handshake with a problem document. A status of 0 is that of the error's code.
func (g *Gateway) deny(w http.ResponseWriter, status int, err error) {
	g.report(err, "upgrade")
	code := tidings.ErrorCode(err)
	info := tidings.Codes[code]
	if status == 0 {
		status = info.HTTP
	}
	problem := map[string]any{"title": http.StatusText(status), "status": status, "code": code, "detail": info.When, "stored": info.Stored, "retry": info.Retry}
	var pause time.Duration
	if info.Retry == "same" {
		pause = time.Second // unless a better one is known
	}
	var e *tidings.Error
	if errors.As(err, &e) && code != tidings.Internal {
		problem["detail"] = e.Message
		pause = cmp.Or(e.RetryAfter, pause)
	}
	if pause > 0 {
		problem["retry_after_ms"] = pause.Milliseconds()
		w.Header().Set("Retry-After", strconv.FormatInt(int64((pause+time.Second-1)/time.Second), 10))
	}
	if code == tidings.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem) // the peer is gone: there is nobody to tell
}

// hijacker hands the upgrader a connection that is a tap.
type hijacker struct {
	http.ResponseWriter
	tap *tap
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.tap.Conn = conn
	return h.tap, buffers, err
}

// tap is the connection as the WebSocket library sees it. The library reads the frames and writes the answer to the handshake.
// What it wants to write later is the close frame by which it answers a breach of the protocol: it is kept here, and the session's
// writer, which alone writes to the socket, writes it.
type tap struct {
	net.Conn
	quiet bool
	code  int // of the close frame; 0: none
}

func (t *tap) Write(p []byte) (int, error) {
	if !t.quiet {
		return t.Conn.Write(p)
	}
	if len(p) >= 4 && p[0] == closeFrame {
		t.code = int(binary.BigEndian.Uint16(p[2:]))
	}
	return len(p), nil
}

func (t *tap) SetWriteDeadline(at time.Time) error {
	if t.quiet {
		return nil
	}
	return t.Conn.SetWriteDeadline(at)
}

// noBuffers keeps the library from holding a write buffer, which it never needs.
type noBuffers struct{}

func (noBuffers) Get() any { return nil }
func (noBuffers) Put(any)  {}
