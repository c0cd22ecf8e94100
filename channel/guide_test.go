// The channel of the guide in docs/channels.md, held to the conformance suite.

package channel_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
)

// pager is the example of docs/channels.md, with a URL of its own.
type pager struct {
	door *channel.Door
	url  string
}

func (p *pager) Contract() channel.Contract {
	return channel.Contract{
		Source: "https://pager.example/docs/idempotency, read 2026-11-30",
		Key:    &channel.Key{Carrier: "header Idempotency-Key", Window: 24 * time.Hour, SameBytes: true},
		Safe:   func(status int) bool { return status == 400 || status == 429 },
	}
}

func (p *pager) Renderer() string { return "pager/1" }

func (p *pager) Send(ctx context.Context, m channel.Message) channel.Outcome {
	body, err := json.Marshal(map[string]string{"to": m.Address, "text": m.Body})
	if err != nil {
		return channel.Outcome{Code: tidings.Rejected, Detail: "the message cannot be rendered"}
	}
	out, _ := p.door.Send(ctx, p.Contract(), m, channel.Request{
		Method: http.MethodPost, URL: p.url, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {m.Key}},
	}, "Idempotency-Key")
	return out
}

func (p *pager) Close() { p.door.Close() }

func TestGuideConforms(t *testing.T) {
	channeltest.Conformance(t, channeltest.Fixture{
		Message: channel.Message{Key: "00112233445566778899aabbccddeeff", Address: "+100", Body: "Hello"},
		HTTP: func(url string, c *tls.Config) channel.Channel {
			return &pager{door: channel.NewDoor(channel.DoorOptions{TLS: c}), url: url}
		},
		Answer: `{}`,
	})
}
