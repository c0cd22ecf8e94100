// Channels that speak to the doubles, one for each mode.

package channeltest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/webhook"
)

// ChannelOptions change a channel of the doubles. The zero value is the contract of package doc.
type ChannelOptions struct {
	Door     *channel.Door           // nil: one of its own
	Contract func(*channel.Contract) // changes the declared contract, for checks of what follows from it
	Secrets  []webhook.Secret        // whose receipts are believed
}

const contractSource = "package channeltest: the doubles' own promise, holds for them only"

// sender is what the three channels share.
type sender struct {
	url      string
	mode     string
	door     *channel.Door
	contract channel.Contract
	secrets  []webhook.Secret
}

func newSender(baseURL, mode string, o ChannelOptions, c channel.Contract) sender {
	c.Source = contractSource
	c.Safe = func(status int) bool {
		return status == 503 || status == 400 || status == 410 || status == 429
	}
	if o.Contract != nil {
		o.Contract(&c)
	}
	if o.Door == nil {
		o.Door = channel.NewDoor(channel.DoorOptions{})
	}
	return sender{url: baseURL, mode: mode, door: o.Door, contract: c, secrets: o.Secrets}
}

// Contract is what the double promises.
func (s *sender) Contract() channel.Contract { return s.contract }

// Renderer names the rendering.
func (s *sender) Renderer() string { return "channeltest-" + s.mode + "/1" }

// Close gives up the door's idle connections.
func (s *sender) Close() { s.door.Close() }

// Door is the door that the channel uses, for its counters.
func (s *sender) Door() *channel.Door { return s.door }

// Send makes one attempt.
func (s *sender) Send(ctx context.Context, m channel.Message) channel.Outcome {
	body, err := json.Marshal(sendBody{Ref: m.Key, Address: m.Address, Title: m.Title, Body: m.Body, Data: m.Data, ExpiresAt: m.ExpiresAt.UTC()})
	if err != nil {
		return channel.Outcome{Code: tidings.Rejected, Detail: "the message cannot be rendered: data is not JSON"}
	}
	req := channel.Request{Method: http.MethodPost, URL: s.url + "/" + s.mode + "/send", Body: body,
		Header: http.Header{"Content-Type": {"application/json"}}}
	if s.contract.Key != nil {
		req.Header.Set("Idempotency-Key", m.Key)
	}
	out, resp := s.door.Send(ctx, s.contract, m, req, "Idempotency-Key")
	var answer sendAnswer
	if out.Code == tidings.Accepted && resp.BodyErr == nil && json.Unmarshal(resp.Body, &answer) == nil {
		out.ProviderMsgID = answer.ID
		if answer.Replayed {
			out.Code = tidings.AcceptedReplay
		}
	}
	return out
}

// parseReceipt reads a report of a double.
func (s *sender) parseReceipt(header http.Header, body []byte) ([]channel.Receipt, error) {
	return webhook.ParseReceipt(header, s.secrets, time.Now(), body)
}

// PushChannel talks to the push double.
type PushChannel struct{ sender }

// Push is the channel of the push double at baseURL: it recognises a key for 24 hours and cannot be asked.
func Push(baseURL string, o ChannelOptions) *PushChannel {
	return &PushChannel{newSender(baseURL, ModePush, o, channel.Contract{
		Key: &channel.Key{Carrier: "header Idempotency-Key", Window: 24 * time.Hour},
	})}
}

// ParseReceipt implements channel.ReceiptParser.
func (c *PushChannel) ParseReceipt(header http.Header, body []byte) ([]channel.Receipt, error) {
	return c.parseReceipt(header, body)
}

// SMSChannel talks to the sms double.
type SMSChannel struct{ sender }

// SMS is the channel of the sms double at baseURL: it recognises no key, and can be asked at once and conclusively.
func SMS(baseURL string, o ChannelOptions) *SMSChannel {
	return &SMSChannel{newSender(baseURL, ModeSMS, o, channel.Contract{
		Query: &channel.Query{AbsenceProves: true},
	})}
}

// Query implements channel.Querier.
func (c *SMSChannel) Query(ctx context.Context, r channel.Ref) channel.Outcome {
	resp := c.door.Do(ctx, channel.Request{Method: http.MethodGet, URL: c.url + "/sms/messages?ref=" + url.QueryEscape(r.Key)})
	var answer queryAnswer
	if resp.Status != http.StatusOK || resp.BodyErr != nil || json.Unmarshal(resp.Body, &answer) != nil {
		return channel.QueryFailed(resp)
	}
	if answer.Accepted == 0 {
		return channel.Outcome{Code: tidings.QueryNotFound, Status: resp.Status}
	}
	out := channel.Outcome{Code: tidings.QueryFound, Status: resp.Status}
	if len(answer.IDs) > 0 {
		out.ProviderMsgID = answer.IDs[0]
	}
	return out
}

// ParseReceipt implements channel.ReceiptParser.
func (c *SMSChannel) ParseReceipt(header http.Header, body []byte) ([]channel.Receipt, error) {
	return c.parseReceipt(header, body)
}

// PlainChannel talks to the plain double.
type PlainChannel struct{ sender }

// Plain is the channel of the plain double at baseURL, which neither recognises a key nor can be asked.
func Plain(baseURL string, o ChannelOptions) *PlainChannel {
	return &PlainChannel{newSender(baseURL, ModePlain, o, channel.Contract{})}
}
