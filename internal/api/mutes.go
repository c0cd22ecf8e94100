// The operations on what a member wants no notifications of.

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// NewMute says for how long a conversation is muted.
type NewMute struct {
	Until *time.Time `json:"until,omitempty" doc:"Left out: for ever. One that is past ends a mute."`
}

// Mute tells whether a conversation is muted for a user.
type Mute struct {
	Conv  string     `json:"conv"`
	Muted bool       `json:"muted"`
	Until *time.Time `json:"until,omitempty" doc:"Left out of what is muted: for ever."`
}

func (a *API) mutes() {
	type muteIn struct {
		ConvPath
		Body NewMute
	}
	type muteOut struct{ Body Mute }
	scopes := []string{store.ScopeActUser}
	// change has its turn at the conversation's lock, as every request that needs it.
	change := func(ctx context.Context, conv string, do func(user string) error) error {
		user, err := actingUser(ctx)
		if err != nil {
			return err
		}
		end, err := a.turns.take(ctx, conv)
		if err != nil {
			return err
		}
		defer end()
		return do(user)
	}
	register(a, conversationOp(http.MethodPut, conversationPath+"/mute", "mute-conversation", "Be notified of nothing in a conversation",
		"Of messages that the user has not read, until then or until the user leaves. What is on its way already is still sent.", tidings.NotMember),
		scopes, func(ctx context.Context, in *muteIn) (*muteOut, error) {
			out := &muteOut{Mute{Conv: in.Conv}}
			return out, change(ctx, in.Conv, func(user string) (err error) {
				if out.Body.Muted, err = a.store.Mute(ctx, in.Conv, user, in.Body.Until); out.Body.Muted {
					out.Body.Until = in.Body.Until
				}
				return err
			})
		})
	register(a, conversationOp(http.MethodDelete, conversationPath+"/mute", "unmute-conversation", "Be notified of a conversation again",
		"Of messages that become due from now on. It does not matter whether the conversation was muted.", tidings.NotMember),
		scopes, func(ctx context.Context, in *ConvPath) (*muteOut, error) {
			return &muteOut{Mute{Conv: in.Conv}}, change(ctx, in.Conv, func(user string) error { return a.store.Unmute(ctx, in.Conv, user) })
		})
}
