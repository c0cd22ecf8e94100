// Package worker is the product's worker with the channels of the doubles, for checks: in the process of a check, or in
// one of its own that can be killed (command worker in lab/cmd).
package worker

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/dispatch"
)

// Config describes a worker. It is JSON so that it can be handed to another process.
type Config struct {
	Database    string        `json:"database"` // URL; used by the command only
	Doubles     string        `json:"doubles"`  // base URL of the doubles
	Name        string        `json:"name"`     // in leases and journal
	Channels    []Channel     `json:"channels"`
	Poll        time.Duration `json:"poll"`         // 0: 20 ms
	BackoffBase time.Duration `json:"backoff_base"` // 0: 1 ms
	BackoffCap  time.Duration `json:"backoff_cap"`  // 0: the default of package dispatch
	Drain       time.Duration `json:"drain"`        // 0: the default of package dispatch
	Logger      *slog.Logger  `json:"-"`
}

// Channel is a channel that the worker serves.
type Channel struct {
	Name        string        `json:"name"`
	Mode        string        `json:"mode"`        // the double: push, sms or plain; "": the same as Name
	Concurrency int           `json:"concurrency"` // 0: 8
	Timeout     time.Duration `json:"timeout"`     // 0: 400 ms
	Lease       time.Duration `json:"lease"`       // 0: Timeout, dispatch.Margin and 500 ms

	// What the contract says, when it shall not be what the double promises: if one is set, both replace it.
	Key   *channel.Key   `json:"key,omitempty"`
	Query *channel.Query `json:"query,omitempty"`

	// Channel replaces the double's channel. In this process only.
	Channel channel.Channel `json:"-"`
}

// Worker is a dispatch.Worker and the connections of its channels.
type Worker struct {
	*dispatch.Worker
	close []func()
}

// New makes a worker on pool, which stays the caller's. Close it.
func New(pool *pgxpool.Pool, cfg Config) (*Worker, error) {
	w := &Worker{}
	d := dispatch.Config{Pool: pool, Worker: cfg.Name, PollInterval: cfg.Poll, BackoffBase: cfg.BackoffBase, BackoffCap: cfg.BackoffCap,
		Drain: cfg.Drain, Logger: cfg.Logger}
	standard(&d.PollInterval, 20*time.Millisecond)
	standard(&d.BackoffBase, time.Millisecond)
	for _, c := range cfg.Channels {
		standard(&c.Timeout, 400*time.Millisecond)
		standard(&c.Lease, c.Timeout+dispatch.Margin+500*time.Millisecond)
		if c.Concurrency == 0 {
			c.Concurrency = 8
		}
		ch, err := w.channel(cfg.Doubles, c)
		if err != nil {
			return nil, err
		}
		d.Channels = append(d.Channels, dispatch.Channel{Name: c.Name, Channel: ch, Concurrency: c.Concurrency, Timeout: c.Timeout, Lease: c.Lease})
	}
	var err error
	if w.Worker, err = dispatch.New(d); err != nil {
		return nil, fmt.Errorf("make worker %s: %w", cfg.Name, err)
	}
	return w, nil
}

// Close gives up the idle connections of the doubles' channels.
func (w *Worker) Close() {
	for _, f := range w.close {
		f()
	}
}

func (w *Worker) channel(url string, c Channel) (channel.Channel, error) {
	if c.Channel != nil {
		return c.Channel, nil
	}
	o := channeltest.ChannelOptions{}
	if c.Key != nil || c.Query != nil {
		o.Contract = func(contract *channel.Contract) { contract.Key, contract.Query = c.Key, c.Query }
	}
	if c.Mode == "" {
		c.Mode = c.Name
	}
	switch c.Mode {
	case channeltest.ModePush:
		ch := channeltest.Push(url, o)
		w.close = append(w.close, ch.Close)
		return ch, nil
	case channeltest.ModeSMS:
		ch := channeltest.SMS(url, o)
		w.close = append(w.close, ch.Close)
		return ch, nil
	case channeltest.ModePlain:
		ch := channeltest.Plain(url, o)
		w.close = append(w.close, ch.Close)
		return ch, nil
	}
	return nil, fmt.Errorf("channel %s: there is no double %q", c.Name, c.Mode)
}

func standard(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}
