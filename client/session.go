// One connection: connect, hello, heartbeat, end, and the pause before the next.

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

const (
	handshakeTimeout = 15 * time.Second
	writeTimeout     = 15 * time.Second
	pongGrace        = 20 * time.Second // after ping_ms without a frame the connection is dead
	drainGrace       = 10 * time.Second // for the server that stops, after its hint
	stable           = 10 * time.Second // a connection that lived so long begins the pauses anew
	readLimit        = 1 << 20          // a frame of a server that is larger is no frame of ours
)

// session is one connection. Its fields are under Client.mu, but for conn.
type session struct {
	conn     *websocket.Conn
	cancel   context.CancelFunc
	began    time.Time
	greeted  bool // the welcome has come
	expires  time.Time
	requests map[string]*request // without an answer yet, by rid
	rids     int64
	patience time.Duration // for the next frame

	pong     bool
	paused   time.Time       // no request before this instant: the server said so
	listing  bool            // the list of conversations is being asked for
	listFrom string          // and goes on after this one
	listAt   time.Time       // not before
	listed   map[string]bool // what it has named so far
	lookAt   time.Time       // when to look for requests without an answer
	drainAt  time.Time       // the server stops then
	refusal  error           // the answer to the hello
	fatal    bool            // the same would happen again
	fault    error           // why the client gave the connection up
}

// request is what a rid stands for.
type request struct {
	kind string // the type of wire, or kindAsk
	v    *conversation
	e    *entry
	ask  *ask
	at   time.Time

	epoch, seq int64 // of a sync, an ack or a read
}

// kindAsk is a request of the application, of whichever type.
const kindAsk = "ask"

// ending is how a session ended.
type ending struct {
	err   error
	code  int           // of the close frame, or that which stands for the refusal of the handshake
	hint  time.Duration // the server's; 0: none
	lived time.Duration // since the welcome; 0: it never came
	fatal bool          // the same would happen again
	ghost bool          // the hello was said, and nobody knows whether the server will take it
}

// run connects again and again until the client is closed.
func (c *Client) run() {
	refused := false // the token of the last connection
	var ghosts []time.Time
	for tries := 0; ; {
		end := c.connect()
		if c.ctx.Err() != nil {
			c.changeState(Connection{State: Stopped, Err: errClosed})
			return
		}
		if end.lived > 0 {
			refused = false
		}
		if end.lived > stable {
			tries = 0
		}
		if end.ghost {
			ghosts = append(ghosts, time.Now())
		}
		for len(ghosts) > 0 && time.Since(ghosts[0]) > c.cfg.RequestTimeout {
			ghosts = ghosts[1:]
		}
		if end.code == wire.CloseReplaced && len(ghosts) > 0 {
			// The newer connection of this device may be an older one of ours: its hello was taken after that of this one.
			ghosts, end.code = ghosts[1:], wire.CloseLostLease
		}
		again := end.code == wire.CloseToken && !refused // the source may have a better one
		refused = end.code == wire.CloseToken
		switch {
		case again:
			continue
		case end.fatal || end.code != 0 && !wire.Reconnects(end.code):
			c.changeState(Connection{State: Stopped, Err: end.err, Code: end.code})
			select {
			case <-c.ctx.Done():
			case <-c.again:
				tries, refused = 0, false
			}
			continue
		}
		wait := end.hint
		if wait == 0 {
			wait = c.pause(tries)
			tries++
		}
		c.changeState(Connection{State: Offline, Err: end.err, Retry: wait, Code: end.code})
		timer := time.NewTimer(wait)
		select {
		case <-c.ctx.Done():
		case <-c.again:
			tries = 0
		case <-timer.C:
		}
		timer.Stop()
	}
}

// connect is one connection from the handshake to its end.
func (c *Client) connect() ending {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	dialing, stop := context.WithTimeout(ctx, handshakeTimeout)
	defer stop()
	token, err := c.cfg.Token(dialing)
	if err != nil {
		return ending{err: fmt.Errorf("get a token: %w", err)}
	}
	dialer := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, NetDialContext: c.cfg.Dial, TLSClientConfig: c.cfg.TLS,
		Proxy: http.ProxyFromEnvironment, ReadBufferSize: 4096, WriteBufferSize: 4096}
	conn, resp, err := dialer.DialContext(dialing, c.cfg.URL, nil)
	if err != nil {
		end := refusedHandshake(c.cfg.URL, resp, fmt.Errorf("connect: %w", err))
		if end.hint > 0 {
			end.hint += c.pause(0) // everybody else was told the same
		}
		return end
	}
	if conn.Subprotocol() != wire.Subprotocol {
		_ = conn.Close()
		return ending{err: errors.New("connect: the server does not speak " + wire.Subprotocol)}
	}
	conn.SetReadLimit(readLimit)
	s := &session{conn: conn, cancel: cancel, began: time.Now(), expires: token.Expires, requests: map[string]*request{}, listed: map[string]bool{}, patience: handshakeTimeout, rids: 1}
	hello := wire.AppendRequest(nil, &wire.Request{T: wire.TypeHello, Rid: helloRid, Token: token.Text, Device: c.cfg.Device, Install: c.cfg.Install, Client: c.cfg.Name})
	var parts sync.WaitGroup
	var read error
	parts.Go(func() {
		defer cancel()
		read = c.read(s)
	})
	parts.Go(func() { c.refresh(ctx, s) })
	err = c.write(ctx, s, hello)
	cancel()
	_ = conn.Close() // the reader ends
	parts.Wait()
	return c.ended(s, read, err)
}

const helloRid = "1"

// refusedHandshake reads what an HTTP answer says about the next attempt.
func refusedHandshake(url string, resp *http.Response, err error) ending {
	end := ending{err: err}
	if resp == nil {
		return end
	}
	end.err = fmt.Errorf("%w: status %d", err, resp.StatusCode)
	if resp.StatusCode == http.StatusNotFound {
		end.err = fmt.Errorf("connect: there is no gateway at %s: status 404", url)
	}
	if s, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && s > 0 {
		end.hint = time.Duration(min(s, 3600)) * time.Second
	}
	if resp.StatusCode == http.StatusUnauthorized {
		end.code = wire.CloseToken
	}
	return end
}

// ended takes everything back that has no answer, and says why the session ended.
func (c *Client) ended(s *session, read, written error) ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = nil
	for _, r := range s.requests {
		if r.kind == wire.TypeSend || r.kind == wire.TypeRecall {
			r.e.doubted = true
		}
		c.release(r)
	}
	end := ending{err: read}
	var closed *websocket.CloseError
	if errors.As(read, &closed) && closed.Code == websocket.CloseAbnormalClosure {
		closed = nil // the library's word for an end without a close frame
	}
	switch {
	case closed != nil:
		end.code = closed.Code
	case s.fault != nil:
		end.err = s.fault
	case written != nil && !errors.Is(written, context.Canceled): // then the reader knows why
		end.err = written
	}
	if s.refusal != nil {
		end.err, end.fatal = s.refusal, s.fatal
		if code := tidings.ErrorCode(s.refusal); closed == nil && code == tidings.Unauthenticated {
			end.code = wire.CloseToken
		} else if closed == nil && code == tidings.InstallReplaced {
			end.code = wire.CloseInstalled
		}
		var e *tidings.Error
		if errors.As(s.refusal, &e) {
			end.hint = e.RetryAfter
		}
	}
	if s.greeted {
		end.lived = time.Since(s.began)
	}
	end.ghost = !s.greeted && s.refusal == nil && end.code == 0
	if !s.drainAt.IsZero() {
		end.hint = max(time.Until(s.drainAt), time.Millisecond)
	}
	return end
}

// read takes frames until the connection ends.
func (c *Client) read(s *session) error {
	var buf bytes.Buffer
	for {
		c.mu.Lock()
		patience := s.patience
		c.mu.Unlock()
		if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		kind, r, err := s.conn.NextReader()
		if err != nil {
			return err
		}
		buf.Reset()
		if _, err := buf.ReadFrom(r); err != nil {
			return err
		}
		if kind != websocket.TextMessage {
			continue // nothing of this protocol
		}
		f, err := wire.DecodeFrame(buf.Bytes())
		if err != nil {
			return err
		}
		c.take(s, &f)
	}
}

// write says hello and then what there is to say, until ctx ends.
func (c *Client) write(ctx context.Context, s *session, hello []byte) error {
	frames := [][]byte{hello}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for _, frame := range frames {
			if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return err
			}
			if err := s.conn.WriteMessage(websocket.TextMessage, frame); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		var next time.Time
		frames, next = c.outgoing(s, time.Now())
		if ctx.Err() != nil {
			if c.ctx.Err() != nil { // a farewell that need not arrive
				_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
			}
			return ctx.Err()
		}
		if len(frames) > 0 {
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// refresh gets a new token before the one of the session ends.
func (c *Client) refresh(ctx context.Context, s *session) {
	for tries := 0; ; {
		c.mu.Lock()
		expires := s.expires
		c.mu.Unlock()
		if expires.IsZero() {
			return
		}
		left := time.Until(expires)
		wait := max(left-min(left/5, 5*time.Minute), c.cfg.BackoffMin)
		if tries > 0 {
			wait = c.pause(tries)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		tries++
		token, err := c.cfg.Token(ctx)
		if err != nil {
			continue // the server ends the connection when the token does
		}
		f, err := c.ask(ctx, wire.Request{T: wire.TypeRefresh, Token: token.Text})
		if err != nil || f.Err() != nil {
			continue
		}
		tries = 0
		c.mu.Lock()
		s.expires = token.Expires
		c.mu.Unlock()
	}
}
