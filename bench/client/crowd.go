// The sockets of a crowd of senders and receivers, and what they count.

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Connect opens the sockets of a crowd: senders NAME-s-0, NAME-s-1, … and receivers NAME-r-0, NAME-r-1, …
type Connect struct {
	Server
	Name               string
	Senders, Receivers int
}

// crowd is the open sockets, and what they count.
type crowd struct {
	server    Server
	name      string
	senders   []*sender
	receivers []*socket
	readers   sync.WaitGroup
	closing   atomic.Bool

	received atomic.Int64 // pushes to receivers
	goal     atomic.Int64 // when so many were received reached gets the instant
	reached  chan time.Time

	mu    sync.Mutex
	wrong error // the first thing that went wrong since it was looked at
}

const readBuffer = 4 << 10

func (c *crowd) connect(o *Connect) error {
	if len(c.senders)+len(c.receivers) > 0 {
		return errors.New("there are sockets already")
	}
	c.server, c.name, c.reached = o.Server, o.Name, make(chan time.Time, 1)
	c.closing.Store(false)
	c.received.Store(0)
	c.goal.Store(0)
	c.senders, c.receivers = make([]*sender, o.Senders), make([]*socket, o.Receivers)
	err := inParallel(o.Receivers, func(i int) (err error) {
		c.receivers[i], err = c.server.open(fmt.Sprintf("%s-r-%d", o.Name, i), i, readBuffer)
		return err
	})
	if err != nil {
		return err
	}
	err = inParallel(o.Senders, func(i int) error {
		s, err := c.server.open(fmt.Sprintf("%s-s-%d", o.Name, i), i, readBuffer)
		c.senders[i] = &sender{socket: s, c: c, n: i, answers: make(chan []byte, 1)}
		return err
	})
	if err != nil {
		return err
	}
	for _, s := range c.senders {
		c.readers.Go(s.read)
	}
	for _, r := range c.receivers {
		c.readers.Go(func() { c.receive(r) })
	}
	return nil
}

// inParallel does n things, 64 at a time.
func inParallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, 64)
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) receive(s *socket) {
	for {
		frame, err := s.next()
		if err != nil {
			c.broken(err)
			return
		}
		n, err := c.server.pushes(s, frame)
		if err != nil {
			c.broken(err)
			return
		}
		if n == 0 {
			continue
		}
		if now, goal := c.received.Add(int64(n)), c.goal.Load(); goal > 0 && now >= goal && now-int64(n) < goal {
			select {
			case c.reached <- time.Now():
			default: // it was told
			}
		}
	}
}

// broken notes what went wrong.
func (c *crowd) broken(err error) {
	if c.closing.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong == nil {
		c.wrong = err
	}
}

func (c *crowd) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

func (c *crowd) close() error {
	c.closing.Store(true)
	for _, s := range c.senders {
		if s != nil && s.socket != nil {
			_ = s.conn.Close()
		}
	}
	for _, s := range c.receivers {
		if s != nil {
			_ = s.conn.Close()
		}
	}
	c.readers.Wait()
	c.senders, c.receivers = nil, nil
	err := c.trouble()
	c.wrong = nil
	return err
}

// body is a text of n bytes.
func body(n int) string { return strings.Repeat("What people write to each other. ", n/33+1)[:n] }
