// The operations on messages: send and outcome.

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
	"github.com/tidings-project/tidings/outbox"
)

// MessagePath names a message by its sender's own id of it.
type MessagePath struct {
	ConvPath
	Cmid string `path:"cmid" maxLength:"128" doc:"The sender's own id of the message; an id."`
}

// Resolve refuses what is no id.
func (p *MessagePath) Resolve(ctx huma.Context) []error {
	return append(p.ConvPath.Resolve(ctx), checkID("path.cmid", p.Cmid)...)
}

// NewMessage is a message's content.
type NewMessage struct {
	Body   string          `json:"body" doc:"At most 16 KiB."`
	Data   json.RawMessage `json:"data,omitempty" doc:"A JSON object for the application, at most 8 KiB. The key reply_to is reserved."`
	Device string          `json:"device,omitempty" doc:"The device that it is sent from. Default: the device of the token, if it has one."`
}

// Sent is a message that is stored.
type Sent struct {
	Conv  string       `json:"conv"`
	Seq   int64        `json:"seq"`
	Mid   tidings.UUID `json:"mid" doc:"Identifies the message across restores."`
	Epoch int64        `json:"epoch"`
	Dup   bool         `json:"dup" doc:"An earlier call stored it."`
	At    int64        `json:"at" doc:"When it was stored, in milliseconds since 1970."`
}

func (a *API) messages() {
	scopes := []string{store.ScopeActUser}
	const path = conversationPath + "/messages/{cmid}"

	type sendIn struct {
		MessagePath
		Body NewMessage
	}
	type sendOut struct {
		Status int
		Body   Sent
	}
	register(a, created(conversationOp(http.MethodPut, path, "send-message", "Send a message",
		"201 when this call stored it, 200 when an earlier one did. However often and however late it is repeated with the same cmid, it is one message; "+
			"other content under the same cmid is an IDEMPOTENCY_MISMATCH.",
		tidings.NotMember, tidings.IdempotencyMismatch, tidings.OriginalExpired, tidings.TooLarge), "Sent"),
		scopes, func(ctx context.Context, in *sendIn) (*sendOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			device, err := actingDevice(ctx, in.Body.Device)
			if err != nil {
				return nil, err
			}
			m := tidings.Message{Conv: in.Conv, Sender: user, Device: device, Cmid: in.Cmid, Body: in.Body.Body}
			if !bytes.Equal(in.Body.Data, []byte("null")) { // which is as good as none
				m.Data = in.Body.Data
			}
			sent, err := a.send(ctx, m)
			if err != nil {
				return nil, err
			}
			out := &sendOut{http.StatusCreated, Sent{in.Conv, sent.Seq, sent.Mid, sent.Epoch, sent.Dup, sent.At}}
			if sent.Dup {
				out.Status = http.StatusOK
			}
			return out, nil
		})

	type outcomeOut struct{ Body wire.Outcome }
	register(a, conversationOp(http.MethodGet, path, "get-outcome", "Ask what became of a user's own message",
		"stored is yes or purged, at seq, or no: not now; a transmission that is still on its way may be stored later, and only sending the cmid again settles it.",
		tidings.NotMember),
		scopes, func(ctx context.Context, in *MessagePath) (*outcomeOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			end, err := a.turns.take(ctx, in.Conv)
			if err != nil {
				return nil, err
			}
			defer end()
			o, err := a.store.Outcome(ctx, in.Conv, user, in.Cmid)
			return &outcomeOut{wire.Outcome{Conv: in.Conv, Cmid: in.Cmid, Epoch: o.Epoch, Stored: o.Stored, Seq: o.Seq}}, err
		})
}

// send posts a message, so that the gateways hear of it.
func (a *API) send(ctx context.Context, m tidings.Message) (tidings.Answer, error) {
	end, err := a.turns.take(ctx, m.Conv)
	if err != nil {
		return tidings.Answer{}, err
	}
	defer end()
	answers, err := a.store.Committing(ctx, "send a message", []tidings.Message{m}, func(ctx context.Context, db *store.Committer) ([]tidings.Answer, error) {
		return outbox.Post(ctx, db, m)
	})
	if err != nil {
		return tidings.Answer{}, err
	}
	sent := answers[0]
	if sent.Code != "" {
		return tidings.Answer{}, &tidings.Error{Code: sent.Code, Message: tidings.Codes[sent.Code].When, Seq: sent.Seq}
	}
	if !sent.Dup {
		a.wake()
	}
	return sent, nil
}
