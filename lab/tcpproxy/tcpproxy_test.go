// Tests of the TCP proxy.

package tcpproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tidings-project/tidings/lab/tcpproxy"
)

const (
	soon  = 10 * time.Second
	quiet = 50 * time.Millisecond // how long silence is listened to; a longer delay can only hide an error, not make one
)

// echo starts a server that sends every line back, and tells on ended when a client's stream has ended.
func echo(t *testing.T) (addr string, ended chan error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ended = make(chan error, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				ended <- err
			}()
		}
	}()
	return ln.Addr().String(), ended
}

// client is a connection that sends and reads lines.
type client struct {
	*testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) say(s string) {
	c.T.Helper()
	if _, err := io.WriteString(c, s+"\n"); err != nil {
		c.Fatal(err)
	}
}

func (c *client) hear(within time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(within))
	return c.r.ReadString('\n')
}

func (c *client) expect(s string) {
	c.T.Helper()
	if got, err := c.hear(soon); got != s+"\n" {
		c.Fatalf("heard %q (%v), want %q", got, err, s)
	}
}

func (c *client) silence() {
	c.T.Helper()
	if got, err := c.hear(quiet); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatalf("heard %q (%v), want silence", got, err)
	}
}

func TestProxy(t *testing.T) {
	t.Run("forwards, and passes the end of a stream on", func(t *testing.T) {
		addr, ended := echo(t)
		p := tcpproxy.Start(t, addr)
		c := dial(t, p.Addr())
		c.say("hello")
		c.expect("hello")
		c.Conn.(*net.TCPConn).CloseWrite()
		if err := <-ended; err != nil {
			t.Errorf("the server saw %v, want the end of the stream", err)
		}
		if _, err := c.hear(soon); err != io.EOF {
			t.Errorf("the client saw %v, want EOF", err)
		}
	})

	for _, d := range []tcpproxy.Direction{tcpproxy.ToServer, tcpproxy.ToClient, tcpproxy.Both} {
		t.Run("holds "+d.String(), func(t *testing.T) {
			addr, _ := echo(t)
			p := tcpproxy.Start(t, addr)
			c := dial(t, p.Addr())
			c.say("one")
			c.expect("one")
			if r := p.Hold(d); r.Proof != "1 connections" {
				t.Errorf("receipt: %+v", r)
			}
			c.say("two")
			c.silence()
			p.Release(d)
			c.expect("two")
		})
	}

	t.Run("cuts both ways", func(t *testing.T) {
		addr, ended := echo(t)
		p := tcpproxy.Start(t, addr)
		if r := p.Cut(tcpproxy.Both); r.Proof != "" {
			t.Errorf("nothing was cut, with proof %q", r.Proof)
		}
		c := dial(t, p.Addr())
		c.say("one")
		c.expect("one")
		if r := p.Cut(tcpproxy.Both); r.Proof == "" || r.Kind != "cut both ways" {
			t.Errorf("receipt: %+v", r)
		}
		if _, err := c.hear(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the client saw %v, want an end", err)
		}
		<-ended
		again := dial(t, p.Addr())
		again.say("two")
		again.expect("two")
	})

	t.Run("cuts to the server, also what is held", func(t *testing.T) {
		addr, ended := echo(t)
		p := tcpproxy.Start(t, addr)
		c := dial(t, p.Addr())
		c.say("one")
		c.expect("one")
		p.Hold(tcpproxy.ToServer)
		c.say("two")
		p.Cut(tcpproxy.ToServer)
		if err := <-ended; err != nil {
			t.Errorf("the server saw %v, want the end of the stream", err)
		}
		if got, err := c.hear(soon); err != io.EOF {
			t.Errorf("the client heard %q (%v), want EOF", got, err)
		}
	})

	t.Run("cuts to the client only", func(t *testing.T) {
		addr, ended := echo(t)
		p := tcpproxy.Start(t, addr)
		c := dial(t, p.Addr())
		c.say("one")
		c.expect("one")
		p.Cut(tcpproxy.ToClient)
		if _, err := c.hear(soon); err != io.EOF {
			t.Errorf("the client saw %v, want EOF", err)
		}
		select {
		case err := <-ended:
			t.Errorf("the server saw an end, too: %v", err)
		case <-time.After(quiet):
		}
	})

	t.Run("refuses and accepts again", func(t *testing.T) {
		addr, _ := echo(t)
		p := tcpproxy.Start(t, addr)
		c := dial(t, p.Addr())
		c.say("one")
		c.expect("one")
		if r := p.Refuse(); r.Proof == "" {
			t.Errorf("receipt: %+v", r)
		}
		if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection: %v, want refused", err)
		}
		c.say("two")
		c.expect("two")
		if err := p.Accept(); err != nil {
			t.Fatal(err)
		}
		again := dial(t, p.Addr())
		again.say("three")
		again.expect("three")
	})
}

func TestRedirect(t *testing.T) {
	first, _ := echo(t)
	second, ended := echo(t)
	p := tcpproxy.Start(t, first)
	stays := dial(t, p.Addr())
	stays.say("at the first")
	stays.expect("at the first")
	p.Redirect(second)
	goes := dial(t, p.Addr())
	goes.say("at the second")
	goes.expect("at the second")
	stays.say("still at the first")
	stays.expect("still at the first")
	goes.Close()
	select {
	case <-ended:
	case <-time.After(soon):
		t.Error("the new connection did not go to the second target")
	}
}
