// Channels from the configuration.

package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/smtp"
	"github.com/tidings-project/tidings/channel/webhook"
	"github.com/tidings-project/tidings/dispatch"
)

// Channel is a channel of the configuration file. Its name there is the one that preferences use. Exactly one of SMTP,
// Webhook and Double is given.
type Channel struct {
	Concurrency int           `yaml:"concurrency" help:"Calls at the same time. Default 64."`
	Timeout     time.Duration `yaml:"timeout" help:"How long a call may take. Default 15s."`
	Lease       time.Duration `yaml:"lease" help:"How long a claim holds; must be longer than the timeout and 500ms. Default 60s or twice the timeout, whichever is longer."`

	SMTP    *SMTP    `yaml:"smtp" help:"E-mail through a submission server; the address of a preference is the recipient."`
	Webhook *Webhook `yaml:"webhook" help:"Signed HTTP requests as of Standard Webhooks 1.0.0."`
	Double  *Double  `yaml:"double" help:"A scripted double, for development: it delivers nothing."`
}

// SMTP configures package channel/smtp.
type SMTP struct {
	Addr     string `yaml:"addr" help:"host:port of the submission server."`
	Mode     string `yaml:"mode" help:"starttls (default, and required then), implicit, or none."`
	From     string `yaml:"from" help:"The sender: Name <user@host>."`
	Username string `yaml:"username" help:"For authentication; empty: none."`
	Password Secret `yaml:"password" help:"A secret."`
	Hello    string `yaml:"hello" help:"The name in EHLO. Default: the domain of from."`
	Domain   string `yaml:"domain" help:"The domain of Message-IDs. Default: the domain of from."`
}

// Webhook configures package channel/webhook.
type Webhook struct {
	URL          string            `yaml:"url" help:"Where to post. Empty: the address of each preference is the URL."`
	Secrets      []Secret          `yaml:"secrets" help:"Signing secrets (whsec_…); all of them sign, so that one can be exchanged. Receipts are verified with them."`
	Header       map[string]string `yaml:"header" help:"Further request headers."`
	KeyWindow    time.Duration     `yaml:"key_window" help:"How long the receiver recognises a repeated webhook-id. Default 0: it does not."`
	SafeStatuses []int             `yaml:"safe_statuses" help:"Answers that prove that the receiver took nothing. Default: see docs/channels.md."`
	PlainHTTP    bool              `yaml:"plain_http" help:"Allows http:// URLs."`
	AllowPrivate bool              `yaml:"allow_private" help:"Allows every target address. Otherwise loopback, private and other special ones are refused."`
	Allowed      []netip.Prefix    `yaml:"allowed" help:"Target address ranges that are allowed besides public ones."`
}

// Double configures a channel to package channeltest's doubles.
type Double struct {
	URL  string `yaml:"url" help:"Where the doubles listen."`
	Mode string `yaml:"mode" help:"push, sms or plain."`
	// Secrets sign the double's receipts.
	Secrets []Secret `yaml:"secrets" help:"Secrets that the double's receipts are verified with."`
}

// open makes the transports of all channels. Its error is an ErrConfig. close gives up their connections.
func open(configured map[string]Channel) (_ map[string]channel.Channel, close func(), err error) {
	opened := map[string]channel.Channel{}
	close = func() {
		for _, c := range opened {
			if c, ok := c.(interface{ Close() }); ok {
				c.Close()
			}
		}
	}
	for name, c := range configured {
		transport, err := c.open()
		if err != nil {
			close()
			return nil, nil, fmt.Errorf("%w: channel %s: %w", ErrConfig, name, err)
		}
		opened[name] = transport
	}
	return opened, close, nil
}

func (c *Channel) open() (channel.Channel, error) {
	kinds := slices.DeleteFunc([]bool{c.SMTP != nil, c.Webhook != nil, c.Double != nil}, func(given bool) bool { return !given })
	if len(kinds) != 1 {
		return nil, errors.New("needs exactly one of smtp, webhook and double")
	}
	switch {
	case c.SMTP != nil:
		password, err := c.SMTP.Password.read()
		if err != nil {
			return nil, err
		}
		return opened(smtp.New(smtp.Config{Addr: c.SMTP.Addr, Mode: smtp.TLSMode(c.SMTP.Mode), From: c.SMTP.From,
			Username: c.SMTP.Username, Password: password, Hello: c.SMTP.Hello, Domain: c.SMTP.Domain}))
	case c.Webhook != nil:
		secrets, err := webhookSecrets(c.Webhook.Secrets)
		if err != nil {
			return nil, err
		}
		header := http.Header{}
		for name, value := range c.Webhook.Header {
			header.Set(name, value)
		}
		return opened(webhook.New(webhook.Config{URL: c.Webhook.URL, Secrets: secrets, Header: header, KeyWindow: c.Webhook.KeyWindow,
			SafeStatuses: c.Webhook.SafeStatuses, PlainHTTP: c.Webhook.PlainHTTP, AllowPrivate: c.Webhook.AllowPrivate, Allowed: c.Webhook.Allowed}))
	}
	secrets, err := webhookSecrets(c.Double.Secrets)
	if err != nil {
		return nil, err
	}
	options := channeltest.ChannelOptions{Secrets: secrets}
	switch c.Double.Mode {
	case channeltest.ModePush:
		return channeltest.Push(c.Double.URL, options), nil
	case channeltest.ModeSMS:
		return channeltest.SMS(c.Double.URL, options), nil
	case channeltest.ModePlain:
		return channeltest.Plain(c.Double.URL, options), nil
	}
	return nil, fmt.Errorf("%q is no mode of a double", c.Double.Mode)
}

// opened keeps a nil pointer from becoming a channel.
func opened[C channel.Channel](c C, err error) (channel.Channel, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

func webhookSecrets(configured []Secret) ([]webhook.Secret, error) {
	var secrets []webhook.Secret
	for _, s := range configured {
		text, err := s.read()
		if err != nil {
			return nil, err
		}
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// lanes are the worker's channels.
func lanes(configured map[string]Channel, opened map[string]channel.Channel) []dispatch.Channel {
	var out []dispatch.Channel
	for name, c := range configured {
		out = append(out, dispatch.Channel{Name: name, Channel: opened[name], Concurrency: c.Concurrency, Timeout: c.Timeout, Lease: c.Lease})
	}
	slices.SortFunc(out, func(a, b dispatch.Channel) int { return strings.Compare(a.Name, b.Name) })
	return out
}
