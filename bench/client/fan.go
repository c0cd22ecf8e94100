// The load of the fan-out: single messages, and a flood.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fan sends messages to the conversation NAME-0, or publishes to the channel of that name, one at a time: the next one when every receiver
// has got the one before, after a pause.
type Fan struct {
	Run      string
	Messages int
	PauseMS  int
	Text     string // the body, or what is published
	Publish  string // URL that publishes what is posted to it and answers when it began, in ns since 1970; empty: sender 0 sends
}

// Fanned are instants in ns since 1970, by message.
type Fanned struct {
	Began []int64 // when it was sent
	Given []int64 // when its publication began, as the server says; without Publish empty
	Seqs  []int64 // without Publish
	Last  []int64 // when the last receiver had got it
}

func (c *crowd) fan(o *Fan) (*Fanned, error) {
	f := &Fanned{}
	c.settle()
	publish := c.publisher(o.Run, o.Text, o.Publish)
	for range o.Messages {
		c.goal.Store(c.received.Load() + int64(len(c.receivers)))
		f.Began = append(f.Began, time.Now().UnixNano())
		what, err := publish()
		if err != nil {
			return nil, err
		}
		select {
		case at := <-c.reached:
			f.Last = append(f.Last, at.UnixNano())
		case <-time.After(10 * time.Second):
			return nil, errors.Join(errors.New("a message was not received by all"), c.trouble())
		}
		if o.Publish != "" {
			f.Given = append(f.Given, what)
		} else {
			f.Seqs = append(f.Seqs, what)
		}
		time.Sleep(time.Duration(o.PauseMS) * time.Millisecond)
	}
	return f, c.trouble()
}

// Flood does the same as fast as it goes, with several messages on their way.
type Flood struct {
	Run     string
	Window  int
	Seconds float64
	Text    string
	Publish string
}

// Flooded is what came of it.
type Flooded struct {
	Messages  int
	PerSecond float64 // deliveries
}

func (c *crowd) flood(o *Flood) (*Flooded, error) {
	publish := c.publisher(o.Run, o.Text, o.Publish)
	c.settle()
	before := c.received.Load()
	each := int64(len(c.receivers))
	began := time.Now()
	until := began.Add(time.Duration(o.Seconds * float64(time.Second)))
	n := int64(0)
	for time.Now().Before(until) {
		if n-(c.received.Load()-before)/each >= int64(o.Window) {
			c.goal.Store(before + (n-int64(o.Window)+1)*each)
			if c.received.Load() < c.goal.Load() {
				select {
				case <-c.reached:
				case <-time.After(10 * time.Millisecond): // it was reached before it was set
				}
			}
			if err := c.trouble(); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := publish(); err != nil {
			return nil, err
		}
		n++
	}
	c.goal.Store(0)
	if err := c.await(before + n*each); err != nil {
		return nil, err
	}
	return &Flooded{Messages: int(n), PerSecond: float64(n*each) / time.Since(began).Seconds()}, nil
}

// settle forgets a goal of before.
func (c *crowd) settle() {
	c.goal.Store(0)
	select {
	case <-c.reached:
	default:
	}
}

// publisher returns what sends the next message and returns when the server has taken it. Of a send it returns the seq, of a publication
// when it began.
func (c *crowd) publisher(run, text, url string) func() (int64, error) {
	if url != "" {
		return func() (int64, error) { return post(url, text) }
	}
	n := 0
	s := c.senders[0]
	return func() (int64, error) {
		n++
		if err := s.text(fmt.Sprintf(`{"t":"send","rid":"%d","conv":"%s-0","cmid":"%s-%d","body":"%s"}`, n, c.name, run, n, text)); err != nil {
			return 0, err
		}
		select {
		case frame := <-s.answers:
			_, rest, _ := bytes.Cut(frame, []byte(`"seq":`))
			digits, _, _ := bytes.Cut(rest, []byte{','})
			return strconv.ParseInt(string(digits), 10, 64)
		case <-time.After(10 * time.Second):
			return 0, errors.Join(errors.New("a message was not answered"), c.trouble())
		}
	}
}

func post(url, text string) (int64, error) {
	response, err := http.Post(url, "application/json", strings.NewReader(text))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(answer), 10, 64)
}
