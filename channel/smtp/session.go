// One SMTP session: its phases, and what each proves when it breaks.

package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/textproto"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

var (
	errNoStartTLS  = errors.New("the server offers no STARTTLS")
	errNoMechanism = errors.New("the server offers neither AUTH PLAIN nor AUTH LOGIN")
	errTooMuch     = errors.New("the server talks too much")
)

// session is a connection that has been greeted and authenticated, between two transactions.
type session struct {
	conn   *conn
	client *smtp.Client
	idle   time.Time // since when
}

// session takes a kept connection that still answers, or makes one.
func (c *Channel) session(ctx context.Context) (*session, error) {
	for s := c.sessions.take(); s != nil; s = c.sessions.take() {
		s.conn.bind(ctx)
		if s.client.Noop() == nil {
			return s, nil
		}
		s.conn.Close()
	}
	return c.connect(ctx)
}

func (c *Channel) connect(ctx context.Context) (_ *session, err error) {
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.config.Addr)
	if err != nil {
		return nil, err
	}
	conn := &conn{Conn: tcp}
	conn.bind(ctx)
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	var client *smtp.Client
	switch c.config.Mode {
	case Implicit:
		secure := tls.Client(conn, c.config.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		client = smtp.NewClient(secure)
	case StartTLS:
		// The library offers STARTTLS only together with its first greeting, in which it calls itself localhost; the
		// greeting inside TLS, which is the one that counts, has our name.
		if client, err = smtp.NewClientStartTLS(conn, c.config.TLS); err != nil {
			var reply *smtp.SMTPError
			var garbage textproto.ProtocolError
			if !errors.As(err, &reply) && !errors.As(err, &garbage) && !conn.failed() {
				err = errNoStartTLS
			}
			return nil, err
		}
	default:
		client = smtp.NewClient(conn)
	}
	if err := client.Hello(c.config.Hello); err != nil {
		return nil, err
	}
	if c.config.Username != "" {
		var mechanism sasl.Client
		switch {
		case client.SupportsAuth(sasl.Plain):
			mechanism = sasl.NewPlainClient("", c.config.Username, c.config.Password)
		case client.SupportsAuth(sasl.Login):
			mechanism = sasl.NewLoginClient(c.config.Username, c.config.Password)
		default:
			return nil, errNoMechanism
		}
		if err := client.Auth(mechanism); err != nil {
			return nil, err
		}
	}
	return &session{conn: conn, client: client}, nil
}

// maxReplies bounds what a server can make us read in one attempt, in bytes.
const maxReplies = 1 << 20

// conn is a connection, below TLS, that ends with the context it is bound to, whatever deadlines the library sets, and
// remembers whether a write failed. Reads and writes come from one goroutine; only bind's watcher is another.
type conn struct {
	net.Conn
	readErr, writeErr error
	read              int

	mu      sync.Mutex
	ctx     context.Context
	until   time.Time
	unwatch func() bool
}

// bind gives the connection to the call of ctx.
func (c *conn) bind(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.until, c.read = ctx, callTime(ctx), 0
	_ = c.Conn.SetDeadline(c.until)
	c.unwatch = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.Conn.SetDeadline(time.Unix(1, 0))
	})
}

// release takes it back from its call; false when the call has already been cut off.
func (c *conn) release() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unwatch()
}

// SetDeadline cannot outlast the call.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		t = time.Unix(1, 0)
	} else if t.IsZero() || t.After(c.until) {
		t = c.until
	}
	return c.Conn.SetDeadline(t)
}

// expired tells whether the call is over. It asks the clock: after a sleep the context's timer may not have run yet.
func (c *conn) expired() bool { return c.ctx.Err() != nil || !time.Now().Before(c.until) }

func (c *conn) Read(b []byte) (int, error) {
	if c.read > maxReplies {
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(b)
	c.read += n
	if err != nil {
		err = c.cause(err)
		c.readErr = err
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		err = c.cause(err)
		c.writeErr = err
	}
	return n, err
}

// cause names a cancelled call as such: on the wire it looks like a deadline.
func (c *conn) cause(err error) error {
	if c.ctx.Err() == context.Canceled {
		return context.Canceled
	}
	return err
}

func (c *conn) writeFailed() bool { return c.writeErr != nil }
func (c *conn) failed() bool      { return c.readErr != nil || c.writeErr != nil }

// Close closes without a word.
func (c *conn) Close() error {
	c.release()
	return c.Conn.Close()
}

// idleTime is how long a kept connection is used again; servers give up after five minutes (RFC 5321, section
// 4.5.3.2.7), some much earlier.
const idleTime = 30 * time.Second

// pool keeps connections that ended their last transaction with a 250.
type pool struct {
	max    int
	mu     sync.Mutex
	idle   []*session
	closed bool
}

// put keeps s if there is room for it.
func (p *pool) put(s *session) bool {
	if !s.conn.release() {
		return false
	}
	s.idle = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.max {
		return false
	}
	p.idle = append(p.idle, s)
	return true
}

// take is the session that was used last, so that the others can grow too old, or nil.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 && time.Since(p.idle[0].idle) > idleTime {
		p.idle[0].conn.Close()
		p.idle = p.idle[1:]
	}
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	s := p.idle[last]
	p.idle = p.idle[:last]
	return s
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		s.conn.Close()
	}
	p.idle = nil
}
