// The SMTP channel, held to the conformance suite.

package smtp_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/smtp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func message() channel.Message {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return channel.Message{Key: "00112233445566778899aabbccddeeff", User: "u-1", EventKey: "order-1001", Address: "reader@example.org",
		Title: "Bestellung unterwegs – Größe M", Body: "Hello,\n.your order has left.\n..\n", CreatedAt: at, ExpiresAt: at.Add(time.Hour), Attempt: 1}
}

func newChannel(t *testing.T, c smtp.Config) *smtp.Channel {
	t.Helper()
	if c.From == "" {
		c.From = "Shop <noreply@shop.example>"
	}
	ch, err := smtp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ch.Close)
	return ch
}

func TestConformance(t *testing.T) {
	channeltest.Conformance(t, channeltest.Fixture{Message: message(), SMTP: func(addr string, c *tls.Config) channel.Channel {
		mode := smtp.NoTLS
		if c != nil {
			mode = smtp.StartTLS
		}
		return newChannel(t, smtp.Config{Addr: addr, Mode: mode, TLS: c})
	}})
}
