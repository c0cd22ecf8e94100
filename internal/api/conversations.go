// The operations on conversations: create, list; and what all of them share.

package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// conversationPath begins the paths that are about one conversation.
const conversationPath = "/v1/conversations/{conv}"

// ConvPath names a conversation.
type ConvPath struct {
	Conv string `path:"conv" maxLength:"128" doc:"The conversation; an id."`
}

// Resolve refuses what is no id.
func (p *ConvPath) Resolve(huma.Context) []error { return checkID("path.conv", p.Conv) }

// conversationOp is an operation on conversations that is refused with the listed codes, beside those of any operation.
func conversationOp(method, path, id, summary, description string, codes ...tidings.Code) huma.Operation {
	op := huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{"conversations"}, Summary: summary, Description: description,
		Responses: map[string]*huma.Response{}}
	codes = append(codes, tidings.InvalidArgument, tidings.Unauthenticated, tidings.Forbidden, tidings.Unavailable)
	if method != http.MethodGet {
		codes = append(codes, tidings.OutcomeUnknown)
	}
	for _, code := range codes {
		status := strconv.Itoa(tidings.Codes[code].HTTP)
		if r := op.Responses[status]; r != nil {
			r.Description += ", " + string(code)
		} else {
			op.Responses[status] = &huma.Response{Description: string(code)}
		}
	}
	return op
}

// created adds to an operation that it answers 201 with a body of the named schema when the call stored something.
func created(op huma.Operation, schema string) huma.Operation {
	op.DefaultStatus = http.StatusOK
	op.Responses["201"] = &huma.Response{Description: "Created", Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/" + schema}}}}
	return op
}

// NewConversation is what a conversation is created with.
type NewConversation struct {
	RecallWindowMS *int64     `json:"recall_window_ms,omitempty" minimum:"0" maximum:"3153600000000" doc:"How long a message can be recalled, in milliseconds; 0: never. Left out: 120000."`
	RetentionMS    OptionalMS `json:"retention_ms,omitzero" doc:"How long events are kept, in milliseconds; null: for ever. Left out: the server's default, as it is now."`
	NotifyAfterMS  OptionalMS `json:"notify_after_ms,omitzero" doc:"After how long members who are not connected are notified of a message that they have not read, in milliseconds; null: never. Left out: the server's default, as it is now."`
	Preview        *bool      `json:"preview,omitempty" doc:"Such a notification shows the beginning of the message. Left out: it does not."`
	Members        []string   `json:"members,omitempty" maxItems:"10000" doc:"The first members, each once: their joins are the events 1, 2, 3 and so on."`
}

// CreatedConversation is the answer to the creation of a conversation.
type CreatedConversation struct {
	Conv    string `json:"conv"`
	Created bool   `json:"created" doc:"This call created it; false: it was there, created alike."`
}

// ConversationList is a page of a user's conversations.
type ConversationList struct {
	List []wire.Summary `json:"list" doc:"By conv."`
	More bool           `json:"more" doc:"There are more, after the last one of this page."`
}

func (a *API) conversations() {
	type createIn struct {
		ConvPath
		Body NewConversation
	}
	type createOut struct {
		Status int
		Body   CreatedConversation
	}
	register(a, created(conversationOp(http.MethodPut, conversationPath, "create-conversation", "Create a conversation",
		"201 when this call created it, 200 when it was created before with the same first members (in any order) and has the settings that are named, CONFLICT when not. "+
			"Members who came or went since do not matter, nor do settings that are left out.", tidings.Conflict), "CreatedConversation"),
		[]string{store.ScopeConversations}, func(ctx context.Context, in *createIn) (*createOut, error) {
			c := store.Conversation{Conv: in.Conv, RecallWindow: tidings.DefaultRecallWindow, Retention: a.retention, NotifyAfter: a.notifyAfter, Members: in.Body.Members,
				AnyWindow: in.Body.RecallWindowMS == nil, AnyRetention: !in.Body.RetentionMS.Named,
				AnyNotifyAfter: !in.Body.NotifyAfterMS.Named, AnyPreview: in.Body.Preview == nil, Preview: in.Body.Preview != nil && *in.Body.Preview}
			if window := durationOf(in.Body.RecallWindowMS); window != nil {
				c.RecallWindow = *window
			}
			if in.Body.RetentionMS.Named {
				c.Retention = in.Body.RetentionMS.duration()
			}
			if in.Body.NotifyAfterMS.Named {
				c.NotifyAfter = in.Body.NotifyAfterMS.duration()
			}
			made, err := a.store.CreateConversation(ctx, c)
			if err != nil {
				return nil, err
			}
			out := &createOut{http.StatusOK, CreatedConversation{in.Conv, made}}
			if made {
				out.Status = http.StatusCreated
				a.wake()
			}
			return out, nil
		})

	type listIn struct {
		After  string `query:"after" maxLength:"128" doc:"The last conv of the page before."`
		Device string `query:"device" maxLength:"128" doc:"Whose delivered cursors to show. Default: the device of the token, if it has one."`
		Limit  int64  `query:"limit" minimum:"1" maximum:"9007199254740991" default:"100" doc:"More than 500 is taken as 500."`
	}
	type listOut struct{ Body ConversationList }
	register(a, conversationOp(http.MethodGet, "/v1/conversations", "list-conversations", "List a user's conversations",
		"Those that the user is or was in, with head, cursors, unread messages and the last event that the user may see."),
		[]string{store.ScopeActUser}, func(ctx context.Context, in *listIn) (*listOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			device, err := actingDevice(ctx, in.Device)
			if err != nil {
				return nil, err
			}
			for name, id := range map[string]string{"after": in.After, "device": device} {
				if id == "" {
					continue
				}
				if err := tidings.CheckID(name, id); err != nil {
					return nil, err
				}
			}
			list, more, err := a.store.Conversations(ctx, user, device, in.After, int(min(in.Limit, wire.MaxPage)))
			if err != nil {
				return nil, err
			}
			out := &listOut{ConversationList{make([]wire.Summary, len(list)), more}}
			for i, s := range list {
				out.Body.List[i] = wire.Summary(s)
			}
			return out, nil
		})
}
