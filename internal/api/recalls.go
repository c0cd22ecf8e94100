// The operation that takes messages back.

package api

import (
	"context"
	"net/http"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// NewRecall asks to take a message back.
type NewRecall struct {
	Cmid   string `json:"cmid" minLength:"1" maxLength:"128" doc:"The sender's own id of this recall, not of the message; an id."`
	Target int64  `json:"target" minimum:"1" maximum:"9007199254740991" doc:"The seq of the message."`
	Epoch  int64  `json:"epoch,omitempty" minimum:"0" maximum:"9007199254740991" doc:"That of the caller's copy of the log; 0: whichever is current."`
	Device string `json:"device,omitempty" doc:"The device that it is asked from. Default: the device of the token, if it has one."`
}

// Recalled is a message that is recalled.
type Recalled struct {
	Conv  string `json:"conv"`
	Epoch int64  `json:"epoch"`
	Seq   int64  `json:"seq" doc:"Of the recall, which is an event of its own."`
	Dup   bool   `json:"dup" doc:"An earlier call recalled it."`
}

func (a *API) recalls() {
	type recallIn struct {
		ConvPath
		Body NewRecall
	}
	type recallOut struct {
		Status int
		Body   Recalled
	}
	register(a, created(conversationOp(http.MethodPost, conversationPath+"/recalls", "recall-message", "Recall a message",
		"201 when this call recalled it, 200 when an earlier one under the same cmid did, however late it is repeated. Only the sender can, within the conversation's "+
			"recall window. The message loses its content and a recall event is appended; copies that devices have are theirs until they sync.",
		tidings.NotMember, tidings.IdempotencyMismatch, tidings.EpochChanged, tidings.NotFound, tidings.NotSender, tidings.AlreadyRecalled, tidings.RecallWindowExpired), "Recalled"),
		[]string{store.ScopeActUser}, func(ctx context.Context, in *recallIn) (*recallOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			device, err := actingDevice(ctx, in.Body.Device)
			if err != nil {
				return nil, err
			}
			end, err := a.turns.take(ctx, in.Conv)
			if err != nil {
				return nil, err
			}
			defer end()
			recalled, err := a.store.Recall(ctx, store.Recall{Conv: in.Conv, User: user, Device: device, Cmid: in.Body.Cmid, Epoch: in.Body.Epoch, Target: in.Body.Target}, true)
			if err != nil {
				return nil, err
			}
			if err := recalled.Refusal(); err != nil {
				return nil, err
			}
			out := &recallOut{http.StatusOK, Recalled{in.Conv, recalled.Epoch, recalled.Seq, recalled.Dup}}
			if !recalled.Dup {
				out.Status = http.StatusCreated
				a.wake()
			}
			return out, nil
		})
}
