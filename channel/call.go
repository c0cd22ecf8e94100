// One call through the door: what keeps it to one request on the wire.

package channel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

var (
	errTooLate       = errors.New("too late to start: the lease would end before the call")
	errSecondRequest = errors.New("a second request for one call was refused")
	errSealed        = errors.New("the call is over")
	errGivenUp       = errors.New("the connection was given up before the call started")
	errBadRequest    = errors.New("the request cannot be formed")
	errAnswerTooLong = errors.New("the answer is too long")
)

// call is one call of Do on its way to the wire. Each time net/http takes a connection for it that is a use, and the
// first use that asks to write becomes the only one that may. The question is asked at the last moment there is: over
// HTTP/1.1, where a connection carries one request at a time, by the connection itself, below TLS; over HTTP/2, where
// it carries many, when net/http encodes the header fields, under the lock under which it then writes them.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stats  *doorStats
	first  atomic.Pointer[use] // nil: nothing has left; sealed: nothing ever will
}

type use struct{ call *call }

var sealed = new(use)

// late tells why a call must no longer start.
func (c *call) late() error {
	if TooLate(c.ctx) {
		return errTooLate
	}
	return context.Cause(c.ctx)
}

// start asks for leave to write the first byte, or more bytes of the use that had it.
func (c *call) start(u *use) error {
	if c.first.Load() == u {
		return nil
	}
	err := c.late()
	if err == nil && c.first.CompareAndSwap(nil, u) {
		c.stats.written.Add(1)
		return nil
	}
	switch {
	case c.first.Load() == sealed:
		err = errSealed
	case err == nil:
		err = errSecondRequest
	}
	c.stats.refused.Add(1)
	c.cancel(err)
	return err
}

// seal ends a call that failed and tells whether a byte of it may have left. If none has, none will: net/http's own
// goroutines may still be at work, but they find the call sealed.
func (c *call) seal() bool { return !c.first.CompareAndSwap(nil, sealed) }

func (c *call) trace() *httptrace.ClientTrace {
	var current atomic.Pointer[use]
	var h2 atomic.Pointer[wire]
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			u := &use{call: c}
			current.Store(u)
			w, isH2 := unwrap(info.Conn)
			h2.Store(nil)
			switch {
			case w == nil:
				_ = c.start(u) // a connection that we cannot watch: count it as written
			case isH2:
				h2.Store(w)
				// The polite way: a cancelled call does not get as far as its header fields.
				if w.dead.Load() {
					c.cancel(errGivenUp)
				} else if c.first.Load() != nil {
					c.cancel(errSecondRequest)
				} else if err := c.late(); err != nil {
					c.cancel(err)
				}
			default:
				w.user.Store(u)
			}
		},
		WroteHeaderField: func(string, []string) {
			// The last moment: the caller holds the connection's write lock and writes next. The only way left to
			// stop it is to give up the connection; this happens to a process that slept between GotConn and here.
			w := h2.Load()
			switch {
			case w == nil:
			case w.dead.Load():
				c.cancel(errGivenUp) // nothing is written any more, so the call has not started
			case c.start(current.Load()) != nil:
				w.giveUp()
			}
		},
	}
}

// wire is a connection as the network sees it, below TLS.
type wire struct {
	net.Conn
	user atomic.Pointer[use] // the latest request on it; HTTP/1.1 only
	dead atomic.Bool
}

// giveUp ends the connection: not a byte is written after it returns.
func (w *wire) giveUp() {
	w.dead.Store(true)
	_ = w.Conn.Close()
}

func (w *wire) Write(b []byte) (int, error) {
	if w.dead.Load() {
		return 0, net.ErrClosed
	}
	if u := w.user.Load(); u != nil {
		if err := u.call.start(u); err != nil {
			return 0, err
		}
	}
	return w.Conn.Write(b)
}

// unwrap finds the wire below a connection and tells whether HTTP/2 is spoken over it.
func unwrap(conn net.Conn) (w *wire, h2 bool) {
	for {
		switch c := conn.(type) {
		case *wire:
			return c, h2
		case *tls.Conn:
			h2 = h2 || c.ConnectionState().NegotiatedProtocol == "h2"
			conn = c.NetConn()
		default:
			return nil, h2
		}
	}
}
