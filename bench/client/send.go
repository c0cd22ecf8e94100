// The load of the sends: closed loop, open loop, a single sender.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Send has the senders send for a while to the conversations NAME-0, NAME-1, …: sender i to i, i + senders, i + 2·senders, … in turns.
type Send struct {
	Run           string // distinct, for the cmids
	Conversations int
	Window        int // messages of a sender that are on their way at once
	Seconds       float64
	Rate          float64 // messages per second of all senders, by the clock and not by the answers; 0: as fast as the answers come
	Receipts      int     // pushes that the receivers get of each message
	Body          int     // bytes
}

// Sent is what came of it.
type Sent struct {
	Messages       int
	PerSecond      float64 // until each was answered and received
	P50, P99, Most float64 // send → sent in ms; with a rate from the moment when it was due
	Late           float64 // with a rate: the 99th percentile of how late the client itself was, in ms
}

// sender is one sending socket.
type sender struct {
	*socket
	c *crowd
	n int

	mu     sync.Mutex
	run    *Send
	body   string
	sent   int
	until  time.Time
	starts []time.Time // by number of the message
	took   []float64
	frame  []byte
	done   *sync.WaitGroup // one for each that is not answered

	answers chan []byte // when no Send runs
}

func (c *crowd) send(o *Send) (*Sent, error) {
	if err := c.trouble(); err != nil {
		return nil, err
	}
	var done sync.WaitGroup
	before := c.received.Load()
	began := time.Now()
	until := began.Add(time.Duration(o.Seconds * float64(time.Second)))
	for _, s := range c.senders {
		s.mu.Lock()
		s.run, s.body, s.sent, s.until, s.done, s.starts, s.took = o, body(o.Body), 0, until, &done, s.starts[:0], s.took[:0]
		s.mu.Unlock()
	}
	var late []float64
	if o.Rate > 0 {
		late = c.pace(o, began, until)
	} else {
		for _, s := range c.senders {
			for range o.Window {
				s.start(time.Now())
			}
		}
	}
	if err := c.answered(&done); err != nil {
		return nil, err
	}
	var times []float64
	for _, s := range c.senders {
		s.mu.Lock()
		times = append(times, s.took...)
		s.mu.Unlock()
	}
	if err := c.await(before + int64(len(times)*o.Receipts)); err != nil {
		return nil, err
	}
	elapsed := time.Since(began).Seconds()
	if len(times) == 0 {
		return nil, errors.New("nothing was sent")
	}
	slices.Sort(times)
	r := &Sent{Messages: len(times), PerSecond: float64(len(times)) / elapsed, P50: times[len(times)/2], P99: times[len(times)*99/100], Most: times[len(times)-1]}
	if len(late) > 0 {
		slices.Sort(late)
		r.Late = late[len(late)*99/100]
	}
	return r, nil
}

// pace sends by the clock and tells how late it was itself, in ms.
func (c *crowd) pace(o *Send, began, until time.Time) (late []float64) {
	gap := time.Duration(float64(time.Second) / o.Rate)
	due := began
	for n := 0; due.Before(until); n++ {
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		late = append(late, float64(time.Since(due))/1e6)
		c.senders[n%len(c.senders)].start(due)
		due = due.Add(gap)
	}
	return late
}

// answered waits until every message was.
func (c *crowd) answered(done *sync.WaitGroup) error {
	all := make(chan struct{})
	go func() { // ends with the answers, or with the process
		done.Wait()
		close(all)
	}()
	for deadline := time.Now().Add(120 * time.Second); ; {
		select {
		case <-all:
			return c.trouble()
		case <-time.After(100 * time.Millisecond):
		}
		if err := c.trouble(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("not every message was answered within 120 s")
		}
	}
}

// await waits until receivers have got so many pushes.
func (c *crowd) await(total int64) error {
	for deadline := time.Now().Add(20 * time.Second); c.received.Load() < total; time.Sleep(100 * time.Microsecond) {
		if err := c.trouble(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d pushes were received", c.received.Load(), total)
		}
	}
	if got := c.received.Load(); got > total {
		return fmt.Errorf("%d pushes were received instead of %d", got, total)
	}
	return nil
}

// start sends the next message.
func (s *sender) start(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, at)
	own := (s.run.Conversations - s.n + len(s.c.senders) - 1) / len(s.c.senders)
	conv := 0
	if own > 0 {
		conv = s.n + s.sent%own*len(s.c.senders)
	}
	b := append(s.frame[:0], `{"t":"send","rid":"`...)
	b = strconv.AppendInt(b, int64(s.sent), 10)
	b = append(append(append(b, `","conv":"`...), s.c.name...), '-')
	b = strconv.AppendInt(b, int64(conv), 10)
	b = append(append(append(b, `","cmid":"`...), s.run.Run...), '-')
	b = strconv.AppendInt(b, int64(s.sent), 10)
	b = append(append(append(b, `","body":"`...), s.body...), `"}`...)
	s.frame = b
	s.sent++
	s.done.Add(1)
	if err := s.write(opText, b); err != nil {
		s.c.broken(err)
	}
}

// read takes answers, and sends on each the next message.
func (s *sender) read() {
	for {
		frame, err := s.next()
		if err != nil {
			s.c.broken(err)
			return
		}
		switch {
		case bytes.HasPrefix(frame, sentHead):
			s.ended(frame)
		case bytes.HasPrefix(frame, errorHead):
			s.c.broken(fmt.Errorf("a message was refused: %s", frame))
			return
		default:
			if _, err := s.c.server.pushes(s.socket, frame); err != nil {
				s.c.broken(err)
				return
			}
		}
	}
}

func (s *sender) ended(frame []byte) {
	now := time.Now()
	rid, _, _ := bytes.Cut(frame[len(sentHead):], []byte{'"'})
	n, err := strconv.Atoi(string(rid))
	s.mu.Lock()
	if s.run == nil {
		s.mu.Unlock()
		s.answers <- bytes.Clone(frame)
		return
	}
	if err != nil || n >= len(s.starts) {
		s.mu.Unlock()
		s.c.broken(fmt.Errorf("an answer to no message: %s", frame))
		return
	}
	s.took = append(s.took, float64(now.Sub(s.starts[n]))/1e6)
	next := s.run.Rate == 0 && now.Before(s.until)
	done := s.done
	s.mu.Unlock()
	if next {
		s.start(now)
	}
	done.Done()
}
