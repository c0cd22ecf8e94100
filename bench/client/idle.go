// Opens connections that stay idle.

package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Idle opens sockets of the users NAME-0, NAME-1, … and keeps them, answering pings, for a while. They stay open until Close.
type Idle struct {
	Server
	Name        string
	Connections int
	Seconds     float64
}

// Idled is what came of it.
type Idled struct {
	Open  int
	Took  float64 // seconds until all were open
	Pings int     // that were answered
}

func (c *crowd) idle(o *Idle) (*Idled, error) {
	c.closing.Store(false)
	began := time.Now()
	c.receivers = make([]*socket, o.Connections)
	var open, pings atomic.Int64
	err := inParallel(o.Connections, func(i int) error {
		s, err := o.open(fmt.Sprintf("%s-%d", o.Name, i), i, 512)
		if err != nil {
			return fmt.Errorf("after %d: %w", open.Load(), err)
		}
		c.receivers[i] = s
		open.Add(1)
		c.readers.Go(func() {
			defer open.Add(-1)
			for {
				frame, err := s.next()
				if err == nil {
					_, err = o.pushes(s, frame)
				}
				if err != nil {
					c.broken(err)
					return
				}
				pings.Add(1)
			}
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	time.Sleep(time.Duration(o.Seconds * float64(time.Second)))
	return &Idled{Open: int(open.Load()), Took: took.Seconds(), Pings: int(pings.Load())}, c.trouble()
}
