// The operations on members: join and leave.

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// MemberPath names a user in a conversation.
type MemberPath struct {
	ConvPath
	Member string `path:"user" maxLength:"128" doc:"Who joins or leaves; an id."`
	Actor  string `header:"Tidings-User" maxLength:"128" doc:"The user who did it in the member's stead; members see it in the event. Default: nobody."`
}

// Resolve refuses what is no id.
func (p *MemberPath) Resolve(ctx huma.Context) []error {
	wrong := append(p.ConvPath.Resolve(ctx), checkID("path.user", p.Member)...)
	if p.Actor != "" {
		wrong = append(wrong, checkID("header."+UserHeader, p.Actor)...)
	}
	return wrong
}

// Membership is the answer to a change of members.
type Membership struct {
	Conv    string `json:"conv"`
	User    string `json:"user"`
	Epoch   int64  `json:"epoch"`
	Seq     int64  `json:"seq" doc:"Of the join or leave event; 0 for one who leaves and never was a member."`
	Changed bool   `json:"changed" doc:"This call did it; false: the user was there, or gone, already."`
}

func (a *API) members() {
	type memberOut struct{ Body Membership }
	change := func(do func(ctx context.Context, conv, user, actor string) (store.Membership, error)) func(context.Context, *MemberPath) (*memberOut, error) {
		return func(ctx context.Context, in *MemberPath) (*memberOut, error) {
			actor := in.Actor
			if actor == in.Member {
				actor = "" // nobody's stead
			}
			end, err := a.turns.take(ctx, in.Conv)
			if err != nil {
				return nil, err
			}
			defer end()
			m, err := do(ctx, in.Conv, in.Member, actor)
			if err != nil {
				return nil, err
			}
			if m.Changed {
				a.wake()
			}
			return &memberOut{Membership{in.Conv, in.Member, m.Epoch, m.Seq, m.Changed}}, nil
		}
	}
	scopes := []string{store.ScopeConversations}
	register(a, conversationOp(http.MethodPut, conversationPath+"/members/{user}", "join-conversation", "Make a user a member",
		"From the join event on, which is the first that the user sees. A member stays one, since the same seq.", tidings.NotFound),
		scopes, change(a.store.Join))
	register(a, conversationOp(http.MethodDelete, conversationPath+"/members/{user}", "leave-conversation", "End a user's membership",
		"With the leave event, which is the last that the user sees. One who has left stays gone, since the same seq.", tidings.NotFound),
		scopes, change(a.store.Leave))
}
