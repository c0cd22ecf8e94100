// The operations by which operators see conversations. Content takes a scope of its own and is logged.

package api

import (
	"context"
	"encoding/base64"
	"slices"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// OperatorConversation is a conversation with its settings and members. Its members are not the number that ConversationItem has.
type OperatorConversation struct {
	store.ConversationItem
	RecallWindowMS int64            `json:"recall_window_ms" doc:"How long a message can be recalled, in milliseconds; 0: never."`
	NotifyAfterMS  *int64           `json:"notify_after_ms,omitempty" doc:"After how long an unread message makes a notification, in milliseconds; absent: never."`
	Preview        bool             `json:"preview" doc:"Such a notification shows the text."`
	MemberCount    int              `json:"member_count" doc:"Users that are in it. The count stops at 10001, which means more than 10000."`
	Members        []OperatorMember `json:"members" doc:"Each stay of a user: first of those who are in, then of those who have left, by user; at most 200."`
	MoreMembers    bool             `json:"more_members,omitempty" doc:"There are more."`
}

// OperatorMember is one stay of a user in a conversation; one who came and went has several.
type OperatorMember struct {
	User     string           `json:"user"`
	JoinSeq  int64            `json:"join_seq"`
	LeaveSeq *int64           `json:"leave_seq,omitempty" doc:"Absent: the user is in."`
	Read     int64            `json:"read" doc:"How far the user has read, on whichever device; 0: nothing."`
	Devices  []OperatorDevice `json:"devices" doc:"Those that have said what was delivered to them, at most 20."`
}

// OperatorDevice is how far a device has stored a conversation.
type OperatorDevice struct {
	Device    string `json:"device"`
	Delivered int64  `json:"delivered"`
}

func (a *API) operatorConversations() {
	scopes := []string{store.ScopeOperate}

	type listIn struct {
		User  string `query:"user" maxLength:"128" doc:"Only those that the user is or was in."`
		Conv  string `query:"conv" maxLength:"128" doc:"Only those whose ids begin so; one that is named in full comes first."`
		Limit int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
		After string `query:"after" doc:"The cursor that the page before gave as next."`
	}
	type listOut struct {
		Body struct {
			Conversations []store.ConversationItem `json:"conversations" doc:"By conv."`
			Next          string                   `json:"next,omitempty" doc:"Cursor of the next page; absent on the last."`
		}
	}
	register(a, operatorOp("conversations", "find-conversations", "Find conversations by id or user", ""),
		scopes, func(ctx context.Context, in *listIn) (*listOut, error) {
			after, err := base64.RawURLEncoding.DecodeString(in.After)
			if err != nil || len(after) > 0 && tidings.CheckID("after", string(after)) != nil {
				return nil, tidings.Errorf(tidings.InvalidArgument, "the cursor is not one of this list")
			}
			items, more, err := a.store.FindConversations(ctx, store.ConversationFilter{User: in.User, Conv: in.Conv, Limit: in.Limit, After: string(after)})
			if err != nil {
				return nil, err
			}
			out := &listOut{}
			out.Body.Conversations = items
			if more {
				out.Body.Next = base64.RawURLEncoding.EncodeToString([]byte(items[len(items)-1].Conv))
			}
			return out, nil
		})

	type showOut struct{ Body OperatorConversation }
	register(a, operatorOp("conversations/{conv}", "show-conversation", "See a conversation: head, settings, members and cursors", "NOT_FOUND when there is none."),
		scopes, func(ctx context.Context, in *ConvPath) (*showOut, error) {
			d, err := a.store.ShowConversation(ctx, in.Conv)
			if err != nil {
				return nil, err
			}
			return &showOut{operatorConversation(d)}, nil
		})

	type eventsIn struct {
		ConvPath
		After  int64 `query:"after" minimum:"0" maximum:"9007199254740991" default:"0" doc:"The events behind this seq."`
		Before int64 `query:"before" minimum:"0" maximum:"9007199254740991" default:"0" doc:"Read backwards: the last events in front of this seq, still behind after. 0: read forwards, from after on."`
		Epoch  int64 `query:"epoch" minimum:"0" maximum:"9007199254740991" default:"0" doc:"The history that after and before are of; 0: whichever is current."`
		Limit  int   `query:"limit" minimum:"1" maximum:"200" default:"100"`
		Bodies bool  `query:"bodies" doc:"With body and data. It takes the scope bodies, too, and is logged with the key, the conversation and the seqs."`
	}
	type eventsOut struct{ Body store.LogPart }
	register(a, operatorOp("conversations/{conv}/events", "show-events", "See a conversation's log",
		"Without what was recalled or purged. A page with long content may be shorter than limit. NOT_FOUND when there is no such conversation, FORBIDDEN for bodies without that scope, "+
			"EPOCH_CHANGED when a restore has made another history of it."),
		scopes, func(ctx context.Context, in *eventsIn) (*eventsOut, error) {
			if in.Bodies && !slices.Contains(grantedKey(ctx).Scopes, store.ScopeBodies) {
				return nil, tidings.Errorf(tidings.Forbidden, "to read bodies a key needs the scope %s besides %s", store.ScopeBodies, store.ScopeOperate)
			}
			part, err := a.store.ShowLog(ctx, in.Conv, store.LogFilter{Epoch: in.Epoch, After: in.After, Before: in.Before, Limit: in.Limit, Bodies: in.Bodies})
			if err != nil {
				return nil, err
			}
			if n := len(part.Events); in.Bodies && n > 0 {
				if err := a.audit(ctx, "an operator reads bodies", "by", by(ctx), "conv", in.Conv, "from", part.Events[0].Seq, "to", part.Events[n-1].Seq, "events", n); err != nil {
					return nil, err
				}
			}
			return &eventsOut{part}, nil
		})
}

func operatorConversation(d store.ConversationDetail) OperatorConversation {
	out := OperatorConversation{ConversationItem: d.ConversationItem, RecallWindowMS: d.RecallWindowMS, NotifyAfterMS: d.NotifyAfterMS, Preview: d.Preview,
		MemberCount: d.ConversationItem.Members, Members: make([]OperatorMember, len(d.Memberships)), MoreMembers: d.MoreMembers}
	for i, m := range d.Memberships {
		devices := make([]OperatorDevice, len(m.Devices))
		for j, name := range m.Devices {
			devices[j] = OperatorDevice{name, m.Cursors[j]}
		}
		out.Members[i] = OperatorMember{User: m.User, JoinSeq: m.JoinSeq, LeaveSeq: m.LeaveSeq, Read: m.Read, Devices: devices}
	}
	return out
}
