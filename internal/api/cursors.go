// The operations on cursors: delivered and read.

package api

import (
	"context"
	"net/http"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// Cursor is how far a conversation was delivered or read.
type Cursor struct {
	Epoch int64 `json:"epoch,omitempty" minimum:"0" maximum:"9007199254740991" default:"0" doc:"That of the caller's copy of the log; 0: whichever is current."`
	Seq   int64 `json:"seq" minimum:"1" maximum:"9007199254740991"`
}

// DeliveredCursor is how far a device has stored a conversation without a hole.
type DeliveredCursor struct {
	Cursor
	Device  string `json:"device,omitempty" doc:"The device. Default: the device of the token, if it has one."`
	Install string `json:"install" doc:"The device's installation. A new one becomes the device's current one, and the former ones are refused from then on."`
}

// Delivered is the stored cursor.
type Delivered struct {
	Conv  string `json:"conv"`
	Epoch int64  `json:"epoch"`
	Seq   int64  `json:"seq"`
}

func (a *API) cursors() {
	scopes := []string{store.ScopeActUser}

	type deliveredIn struct {
		ConvPath
		Body DeliveredCursor
	}
	type deliveredOut struct{ Body Delivered }
	register(a, conversationOp(http.MethodPut, conversationPath+"/delivered", "put-delivered", "Say how far a device has stored a conversation",
		"The cursor only grows and stops at the head; the answer is the stored one.", tidings.NotMember, tidings.EpochChanged, tidings.InstallReplaced),
		scopes, func(ctx context.Context, in *deliveredIn) (*deliveredOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			device, err := actingDevice(ctx, in.Body.Device)
			if err != nil {
				return nil, err
			}
			d, err := a.deliver(ctx, user, device, in.Conv, in.Body)
			return &deliveredOut{d}, err
		})

	type readIn struct {
		ConvPath
		Body Cursor
	}
	type readOut struct{ Body wire.ReadState }
	register(a, conversationOp(http.MethodPut, conversationPath+"/read", "put-read", "Say how far a user has read a conversation",
		"On whichever device. The cursor only grows; beyond the head is CURSOR_AHEAD, and nothing is stored. The answer is the stored one, with what is unread after it.",
		tidings.NotMember, tidings.EpochChanged, tidings.CursorAhead),
		scopes, func(ctx context.Context, in *readIn) (*readOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			r, err := a.store.Read(ctx, user, in.Conv, in.Body.Epoch, in.Body.Seq)
			state := wire.ReadState{Conv: in.Conv, Epoch: r.Epoch, Seq: r.Seq, Unread: r.Unread, UnreadMore: r.UnreadMore}
			if err == nil && r.Moved && a.readMoved != nil {
				a.readMoved(user, state)
			}
			return &readOut{state}, err
		})
}

func (a *API) deliver(ctx context.Context, user, device, conv string, c DeliveredCursor) (Delivered, error) {
	no, err := a.store.Install(ctx, user, device, c.Install)
	if err != nil {
		return Delivered{}, err
	}
	acked, err := a.store.Ack(ctx, []store.Ack{{Conv: conv, User: user, Device: device, InstallNo: no, Epoch: c.Epoch, Seq: c.Seq}})
	if err != nil {
		return Delivered{}, err
	}
	if code := acked[0].Code; code != "" {
		return Delivered{}, &tidings.Error{Code: code, Message: tidings.Codes[code].When, Epoch: acked[0].Epoch}
	}
	return Delivered{conv, acked[0].Epoch, acked[0].Seq}, nil
}
