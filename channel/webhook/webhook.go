// Package webhook delivers notifications to an HTTP endpoint of anybody's, signed as Standard Webhooks 1.0.0
// (https://github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md) describes.
package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
)

// Config describes one endpoint, or one kind of endpoint when the address is the URL. What a receiver does with a
// request that got no answer is its operator's word: KeyWindow and SafeStatuses say it.
type Config struct {
	URL     string      // where to post; "": each task's address is its URL
	Secrets []Secret    // at least one; each signs, so that a secret can be changed without a gap
	Header  http.Header // more headers, for example Authorization; no part of the compared bytes

	// KeyWindow is how long the receiver recognises a repeated webhook-id; 0: it does not. Standard Webhooks only
	// suggests that receivers remember an id, for example for five minutes.
	KeyWindow time.Duration
	// SafeStatuses are the answers that prove that the receiver took nothing; nil: DefaultSafe.
	SafeStatuses []int

	PlainHTTP    bool           // allows http:// URLs: whoever is on the way can read the notifications
	AllowPrivate bool           // allows every address; otherwise only public ones and those in Allowed
	Allowed      []netip.Prefix // addresses that are allowed besides public ones
	TLS          *tls.Config    // nil: the system's roots
}

// DefaultSafe are the answers by which HTTP itself says that a request was refused and not carried out (RFC 9110,
// section 15.5, and RFC 6585 for 431). Standard Webhooks calls every other answer than 2xx a failure, but a failure can
// come after the work was done, so these are left out: 409, which receivers use for "I have it already"; 408, 429 and
// 5xx, which a gateway in between can answer for a receiver that is at work. A receiver that promises more is declared
// with SafeStatuses.
var DefaultSafe = []int{400, 401, 403, 404, 405, 410, 411, 413, 414, 415, 421, 422, 431}

// Channel posts to one endpoint. It implements channel.Channel and channel.ReceiptParser.
type Channel struct {
	config Config
	door   *channel.Door
}

// New makes a channel. The error has the code InvalidArgument.
func New(c Config) (*Channel, error) {
	if len(c.Secrets) == 0 || slices.ContainsFunc(c.Secrets, func(s Secret) bool { return len(s.key) == 0 }) {
		return nil, tidings.Errorf(tidings.InvalidArgument, "a webhook needs a secret, and none that is empty")
	}
	if c.URL != "" && !c.allowedURL(c.URL) {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the webhook's URL is not an absolute https URL without user and fragment")
	}
	c.Header = c.Header.Clone()
	for name, values := range c.Header {
		if !headerName.MatchString(name) || slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, unicode.IsControl) }) {
			return nil, tidings.Errorf(tidings.InvalidArgument, "a header of the webhook has a bad name or a control character")
		}
	}
	if c.KeyWindow < 0 {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the webhook's key window is negative")
	}
	if c.SafeStatuses == nil {
		c.SafeStatuses = DefaultSafe
	}
	for _, status := range c.SafeStatuses {
		if status < 400 || status > 599 {
			return nil, tidings.Errorf(tidings.InvalidArgument, "status %d cannot prove that a webhook was refused, only 400 to 599 can", status)
		}
	}
	options := channel.DoorOptions{TLS: c.TLS}
	if !c.AllowPrivate {
		options.Guard = channel.PublicOnly(c.Allowed...)
	}
	return &Channel{config: c, door: channel.NewDoor(options)}, nil
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // a token of RFC 9110, section 5.6.2

// Close gives up the idle connections.
func (c *Channel) Close() { c.door.Close() }

// Contract is what the endpoint's operator declared.
func (c *Channel) Contract() channel.Contract {
	contract := channel.Contract{
		Source: "Standard Webhooks 1.0.0, read 2026-11-30; key window and safe statuses as declared for the endpoint",
		Safe:   func(status int) bool { return slices.Contains(c.config.SafeStatuses, status) },
	}
	if c.config.KeyWindow > 0 {
		contract.Key = &channel.Key{Carrier: "header webhook-id", Window: c.config.KeyWindow}
	}
	return contract
}

// Renderer names the rendering and the fixed endpoint: a repeat under the same key is one only at the receiver that knows it.
func (c *Channel) Renderer() string {
	if c.config.URL == "" {
		return "webhook/1"
	}
	sum := sha256.Sum256([]byte(c.config.URL))
	return "webhook/1 " + hex.EncodeToString(sum[:4])
}

// payload is the body of a webhook. Its order of fields is part of the rendering.
type payload struct {
	Type      string          `json:"type"` // "notification"
	ID        string          `json:"id"`   // the webhook-id
	User      string          `json:"user"`
	Address   string          `json:"address,omitempty"` // absent when it is the URL
	EventKey  string          `json:"event_key"`
	Title     string          `json:"title,omitempty"`
	Body      string          `json:"body"`
	Data      json.RawMessage `json:"data,omitempty"`
	Category  string          `json:"category,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`
}

// Send makes one attempt. The timestamp and the signatures are new in each attempt and no part of the compared bytes.
func (c *Channel) Send(ctx context.Context, m channel.Message) channel.Outcome {
	target, p := c.config.URL, payload{Type: "notification", ID: m.Key, User: m.User, Address: m.Address, EventKey: m.EventKey,
		Title: m.Title, Body: m.Body, Data: m.Data, Category: m.Category, CreatedAt: m.CreatedAt.UTC(), ExpiresAt: m.ExpiresAt.UTC()}
	if target == "" {
		target, p.Address = m.Address, ""
		if !c.config.allowedURL(target) {
			return channel.Outcome{Code: tidings.Rejected, Detail: "the address is not an absolute https URL without user and fragment"}
		}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return channel.Outcome{Code: tidings.Rejected, Detail: "the message cannot be rendered: data is not JSON"}
	}
	header := c.config.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	Sign(header, c.config.Secrets, m.Key, time.Now(), body)
	out, resp := c.door.Send(ctx, c.Contract(), m, channel.Request{Method: http.MethodPost, URL: target, Header: header, Body: body}, HeaderID)
	if out.Code == tidings.Accepted && resp.BodyErr == nil {
		var answer struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(resp.Body, &answer) == nil {
			out.ProviderMsgID = channel.ProviderID(answer.ID)
		}
	}
	return out
}

// ParseReceipt reads what the receiver reports later, a Receipt that is signed with one of the endpoint's secrets. The
// receiver has no other way to prove who it is, so a secret belongs to one endpoint only.
func (c *Channel) ParseReceipt(header http.Header, body []byte) ([]channel.Receipt, error) {
	return ParseReceipt(header, c.config.Secrets, time.Now(), body)
}

// allowedURL tells whether s can be posted to. User and password would appear in places where a header does not.
func (c *Config) allowedURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" && c.PlainHTTP) && u.Host != "" && u.Hostname() != "" &&
		u.User == nil && u.Fragment == "" && u.Opaque == ""
}
