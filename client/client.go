// Package client is a client of conversations: it sends, keeps a complete copy of the logs that it follows, and survives what
// networks and servers do. What it promises is described in docs/client.md; the protocol in docs/protocol.md.
//
// A message is in the outbox before Send returns, and a recall before Recall does; there it stays until the server has given a final
// answer. Events come to the application in the order of their seqs, without a hole that is not explained, and once per history of
// the log.
package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// Token is what a token source returns. Expires tells when to ask for the next one ahead of time; zero: when the server refuses it.
type Token struct {
	Text    string
	Expires time.Time
}

// Position is a place in one history of a log: everything up to Seq is known. The zero Position is the beginning.
type Position struct {
	Epoch, Seq int64
}

// Config says who connects where. The fields up to Device are required; a zero field among the others has the default that stands
// beside it.
type Config struct {
	URL    string                                       // ws, wss, http or https; without a path /v1/ws is meant
	Token  func(ctx context.Context) (Token, error)     // asked before each connection, and again before the token ends
	Device string                                       // this app of this user: an id that stays the same for its life
	Name   string                                       // the app and its version, for the server's people: tidings-go
	Outbox string                                       // the file of the outbox; empty: in memory, and lost with the process
	Handle func(Update)                                 // gets everything in order, one at a time; see Update. It must not call Close. nil: nothing is told
	Start  func(conv string) (after Position, yes bool) // from where a conversation is followed, and whether; nil: each, from its beginning. It must not call the client

	Install string // this installation: an id. Default: a random one that the outbox's file remembers

	Keep      int           // 1 000 events of one conversation that stay in memory after Handle had them
	Window    int           // 1 000 events of one conversation that may wait for Handle; more are not asked for
	MaxOutbox int           // 10 000 entries in the outbox, or ended and not yet told to Handle
	Pipeline  int           // 1 message of a conversation under way at once. With more, one that was refused for now may come after later ones
	AckEvery  time.Duration // 500 ms between two acks of one conversation; below 0: no acks

	RequestTimeout time.Duration // 30 s until a connection that does not answer is given up
	BackoffMin     time.Duration // 500 ms: the first pause before a new attempt is between 0 and this, and doubles
	BackoffMax     time.Duration // 30 s

	TLS  *tls.Config
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // default: net.Dialer
}

func (c *Config) check() error {
	if !strings.Contains(c.URL, "://") { // without one a host and its port are read as something else
		return tidings.Errorf(tidings.InvalidArgument, "the URL of the server, %q, needs http:// or https:// in front", c.URL)
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return fmt.Errorf("read the URL of the server: %w", err)
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	case "ws", "wss":
	default:
		return tidings.Errorf(tidings.InvalidArgument, "the URL of the server has the scheme %q, not ws, wss, http or https", u.Scheme)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/ws"
	}
	c.URL = u.String()
	if c.Token == nil {
		return tidings.Errorf(tidings.InvalidArgument, "there is no source of tokens")
	}
	if c.Install != "" {
		if err := tidings.CheckID("install", c.Install); err != nil {
			return err
		}
	}
	setDefault(&c.Name, "tidings-go")
	setDefault(&c.Keep, 1000)
	setDefault(&c.Window, 1000)
	setDefault(&c.MaxOutbox, 10_000)
	setDefault(&c.Pipeline, 1)
	setDefault(&c.AckEvery, 500*time.Millisecond)
	setDefault(&c.RequestTimeout, 30*time.Second)
	setDefault(&c.BackoffMin, 500*time.Millisecond)
	setDefault(&c.BackoffMax, 30*time.Second)
	return tidings.CheckID("device", c.Device)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Client is a device of a user. Its methods can be called from any goroutine, those that do not wait also from Handle.
type Client struct {
	cfg    Config
	file   *outboxFile // nil: in memory
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // for the writer: there may be something to send
	again  chan struct{} // for run: connect now
	stain  chan struct{} // for scrub: the file has what it should not have any more

	mu      sync.Mutex
	user    string // as the server or the outbox says; empty before the first welcome
	session *session
	limits  wire.Limits // of the newest welcome
	convs   map[string]*conversation
	due     []*conversation // those that may have something to send
	asks    []*ask          // requests of the application that wait to be sent
	box     outbox
	news    news
	state   Connection
	closed  bool
	stained bool // the file still has the body of a message that was recalled
}

// Open loads the outbox and begins to connect; it does not wait for the connection. The caller has to call Close.
func Open(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), again: make(chan struct{}, 1), stain: make(chan struct{}, 1),
		convs: map[string]*conversation{}, limits: wire.NewLimits(0), box: newOutbox(), news: news{wake: make(chan struct{}, 1)}}
	if cfg.Outbox != "" {
		file, stored, err := openOutbox(cfg.Outbox, cfg.Device, cfg.Install)
		if err != nil {
			return nil, err
		}
		c.file, c.user, c.cfg.Install = file, stored.User, file.install
		c.load(stored)
	} else if c.cfg.Install == "" {
		c.cfg.Install = rand.Text()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.run)
	if c.file != nil {
		c.work.Go(c.scrub)
	}
	if cfg.Handle != nil {
		c.work.Go(c.deliver)
	}
	return c, nil
}

// Close ends the connection and waits for everything of the client, also for Handle to return. What is in the outbox stays there
// for the next Open, if it has a file.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
	if c.file == nil || again {
		return nil
	}
	return errors.Join(c.clean(), c.file.close())
}

// errClosed is the answer of a client that was closed.
var errClosed = errors.New("the client is closed")

// Reconnect connects at once: after a pause that is not over, or after the client has stopped (see Connection).
func (c *Client) Reconnect() { signal(c.again) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // it is awake already
	}
}

// User is who the client is by its token; empty before the first connection of a client without a file.
func (c *Client) User() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.user
}

// State is how the connection is now.
func (c *Client) State() Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Message is what Send takes. Its Cmid is the identity of the message: the same again is the same message. Without one it gets a
// random one.
type Message struct {
	Conv string
	Cmid string
	Body string
	Data json.RawMessage
}

// Send puts a message into the outbox and returns when it is safe there: from then on it is sent until the server's final answer.
//
// Errors: INVALID_ARGUMENT and TOO_LARGE; IDEMPOTENCY_MISMATCH when another message with this Cmid is in the outbox; RATE_LIMITED
// when the outbox is full; OUTCOME_UNKNOWN when the file failed, so that it may be sent after the next Open or not at all.
func (c *Client) Send(m Message) (*Pending, error) {
	if m.Cmid == "" {
		m.Cmid = rand.Text()
	}
	check := tidings.Message{Conv: m.Conv, Sender: "me", Cmid: m.Cmid, Body: m.Body, Data: m.Data}
	if err := check.Check(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	limit := c.limits.Frame
	c.mu.Unlock()
	if err := m.fits(limit); err != nil {
		return nil, err
	}
	return c.enter(Entry{Message: m})
}

// enter puts an entry into the outbox.
func (c *Client) enter(one Entry) (*Pending, error) {
	one.At = time.Now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	e, fresh, err := c.box.add(one, c.cfg.MaxOutbox)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if fresh && c.file != nil {
		c.tidy()
		err = c.file.queue(&one)
	}
	if !fresh {
		<-e.stored
		err = e.storing
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh {
		e.storing = err
		close(e.stored)
		if err != nil {
			c.box.forget(e)
			return nil, err
		}
		switch c.box.waiting[key{e.Conv, e.Cmid}] {
		case e:
		case nil: // discarded meanwhile, perhaps before the file had it
			return &Pending{e.Entry, e, c}, c.note(endLine(e))
		default: // and another one has taken its place
			return &Pending{e.Entry, e, c}, nil
		}
		v := c.conversation(e.Conv)
		v.enqueue(e)
		c.look(v)
	}
	return &Pending{e.Entry, e, c}, err
}

// Flush waits until the outbox has nothing that could be sent.
func (c *Client) Flush(ctx context.Context) error {
	for {
		c.mu.Lock()
		var open *entry
		for _, e := range c.box.waiting {
			if !e.asked {
				open = e
				break
			}
		}
		c.mu.Unlock()
		if open == nil {
			return nil
		}
		select {
		case <-open.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the outbox: %w", ctx.Err())
		case <-c.ctx.Done():
			return errClosed
		}
	}
}

// Waiting is what is in the outbox, in the order in which it was queued; also after Close.
func (c *Client) Waiting() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.box.list()
}

// Resend sends an entry again that the application was Asked about.
func (c *Client) Resend(conv, cmid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.box.waiting[key{conv, cmid}]; e != nil && e.asked {
		e.resume()
		c.look(c.conversation(conv))
	}
}

// Discard takes an entry out of the outbox. It may have been stored by an earlier transmission.
func (c *Client) Discard(conv, cmid string) error {
	c.mu.Lock()
	defer c.mu.Unlock() // also for the note: behind it the same Cmid may be taken in anew
	e := c.box.waiting[key{conv, cmid}]
	if e == nil {
		return nil
	}
	c.conversation(conv).drop(e)
	c.box.forget(e)
	e.end(Sent{}, ErrDiscarded)
	return c.note(endLine(e))
}

// ErrDiscarded is what Wait returns for an entry that was discarded.
var ErrDiscarded = errors.New("the application has discarded it")

// MarkRead says that the user has read up to seq. It does not wait; what the server has stored comes as ReadMoved.
func (c *Client) MarkRead(conv string, seq int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.conversation(conv)
	v.wantRead = max(v.wantRead, seq)
	c.look(v)
}

// Events is what memory holds of a conversation from the seq from on, at most limit events, and how far the copy is complete.
func (c *Client) Events(conv string, from int64, limit int) (events []tidings.Event, upTo Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.convs[conv]
	if v == nil {
		return nil, Position{}
	}
	return v.log.events(from, limit), Position{v.log.epoch, v.log.cursor}
}
