// The operations on notifications.

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/outbox"
)

// commitTimeout bounds the write of a submission. It is the write's own: one that was begun is not abandoned because its caller
// is gone, since that would leave an unknown outcome.
const commitTimeout = 10 * time.Second

// newNotification is tidings.Notification with its documentation.
type newNotification struct {
	User     string `json:"user" minLength:"1" maxLength:"128" doc:"Whom to tell; an id."`
	EventKey string `json:"event_key" minLength:"1" maxLength:"128" doc:"What happened, for example order-1001-shipped; an id. With user it is the identity: submitted again, the first content stands."`

	Title    string          `json:"title,omitempty" maxLength:"1024" doc:"At most 1024 bytes."`
	Body     string          `json:"body" maxLength:"16384" doc:"At most 16 KiB."`
	Data     json.RawMessage `json:"data,omitempty" doc:"A JSON object for the application, at most 8 KiB."`
	Category string          `json:"category,omitempty" maxLength:"128" doc:"What a user can opt out of; an id."`

	Channels []string          `json:"channels,omitempty" doc:"Only these of the user's enabled channels. Default: all of them."`
	Priority *tidings.Priority `json:"priority,omitempty" minimum:"0" maximum:"2" default:"1" doc:"0 urgent, 1 normal, 2 bulk."`

	TTL         tidings.Seconds    `json:"ttl_s" minimum:"1" doc:"When it has become worthless, in seconds from not_before or from now."`
	NotBefore   *time.Time         `json:"not_before,omitempty" doc:"Not earlier than this instant."`
	MaxAttempts int                `json:"max_attempts,omitempty" minimum:"1" maximum:"100" default:"5" doc:"Attempts per task."`
	Duplicates  tidings.Duplicates `json:"duplicates,omitempty" enum:"forbid,allow" default:"forbid" doc:"What to do when it may have been accepted and the channel can neither deduplicate nor be asked: wait for a person, or send again."`
	About       *tidings.About     `json:"about,omitempty" doc:"The conversation's event that it speaks of; nothing is sent once that is gone."`
}

// submission is a request's body: one notification, or {"notifications": […]}.
type submission struct {
	many  bool
	items []tidings.Notification
}

// UnmarshalJSON reads one or many.
func (s *submission) UnmarshalJSON(text []byte) error {
	var list struct {
		Notifications *[]json.RawMessage `json:"notifications"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if list.Notifications == nil {
		s.items = make([]tidings.Notification, 1)
		return readNotification(text, &s.items[0])
	}
	s.many, s.items = true, make([]tidings.Notification, len(*list.Notifications))
	for i, text := range *list.Notifications {
		if err := readNotification(text, &s.items[i]); err != nil {
			return tidings.Errorf(tidings.InvalidArgument, "notifications[%d]: %v", i, describe(err))
		}
	}
	return nil
}

// readNotification reads one. The fields that read themselves do not know their names in an error: they are read apart then.
func readNotification(text []byte, n *tidings.Notification) error {
	err := json.Unmarshal(text, n)
	if err == nil {
		return nil
	}
	var fields struct {
		TTL       json.RawMessage `json:"ttl_s"`
		NotBefore json.RawMessage `json:"not_before"`
	}
	if json.Unmarshal(text, &fields) != nil {
		return err
	}
	var own *tidings.Error
	if problem := json.Unmarshal(fields.TTL, &n.TTL); len(fields.TTL) > 0 && problem != nil && !errors.As(problem, &own) {
		return tidings.Errorf(tidings.InvalidArgument, "ttl_s is not a whole number of seconds")
	} else if own != nil {
		return tidings.Errorf(tidings.InvalidArgument, "ttl_s: %s", own.Message)
	}
	if len(fields.NotBefore) > 0 && json.Unmarshal(fields.NotBefore, &n.NotBefore) != nil {
		return tidings.Errorf(tidings.InvalidArgument, "not_before is not a time of RFC 3339, such as 2027-01-31T12:00:00Z")
	}
	return err
}

// Schema describes one or many.
func (submission) Schema(r huma.Registry) *huma.Schema {
	return oneOrMany(r, reflect.TypeFor[newNotification](), "NewNotification")
}

// notified is tidings.Notified with its documentation.
type notified struct {
	ID             tidings.UUID `json:"id"`
	Created        bool         `json:"created" doc:"This call created it."`
	Tasks          int          `json:"tasks" doc:"Tasks that it has: one for each enabled channel and slot."`
	PayloadDiffers bool         `json:"payload_differs" doc:"It existed with other content; the first content stands."`
	Expired        bool         `json:"expired" doc:"It existed and was purged: it was sent or settled long ago. One alone is answered with ORIGINAL_EXPIRED."`
}

// submitted answers as it was asked: one, or {"notifications": […]} in the same order.
type submitted struct {
	many  bool
	items []tidings.Notified
}

// MarshalJSON writes one or many.
func (s submitted) MarshalJSON() ([]byte, error) {
	if len(s.items) == 0 {
		s.items = []tidings.Notified{}
	}
	if s.many {
		return json.Marshal(map[string][]tidings.Notified{"notifications": s.items})
	}
	return json.Marshal(s.items[0])
}

// Schema describes one or many.
func (submitted) Schema(r huma.Registry) *huma.Schema {
	return oneOrMany(r, reflect.TypeFor[notified](), "Notified")
}

func oneOrMany(r huma.Registry, t reflect.Type, name string) *huma.Schema {
	one := r.Schema(t, true, name)
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeObject, Required: []string{"notifications"}, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{"notifications": {Type: huma.TypeArray, Items: one}}}}}
}

// Notification is a stored notification; its tasks carry their journals.
type Notification struct {
	store.Notification
	Tasks []Task `json:"tasks" doc:"By channel and slot; none once purged."`
}

// Task is a task with its journal.
type Task struct {
	store.Task
	Attempts []store.Attempt `json:"attempts" doc:"By number."`
}

func (a *API) notifications() {
	type submitIn struct{ Body submission }
	type submitOut struct {
		Status int
		Body   submitted
	}
	register(a, huma.Operation{OperationID: "notify", Method: http.MethodPost, Path: "/v1/notifications", Tags: []string{"notifications"},
		Summary: "Submit one notification or many",
		Description: "One is answered 201 when this call created it, 200 when it existed, 410 when it existed and was purged. " +
			"Many are stored together or not at all and answered 200. Repeat with the same keys whenever the answer is lost: there will be one.",
		SkipValidateBody: true, // the rules are those of tidings.Notification
		Responses: map[string]*huma.Response{"201": {Description: "Created", Content: map[string]*huma.MediaType{
			"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/Notified"}}}}},
		DefaultStatus: http.StatusOK},
		[]string{store.ScopeNotify}, func(ctx context.Context, in *submitIn) (*submitOut, error) {
			if !in.Body.many { // a list's refusal says which
				if err := in.Body.items[0].Check(); err != nil {
					return nil, err
				}
			}
			answers, err := a.submit(ctx, in.Body.items)
			if err != nil {
				return nil, err
			}
			out := &submitOut{Status: http.StatusOK, Body: submitted{in.Body.many, answers}}
			if !in.Body.many && answers[0].Expired {
				return nil, tidings.Errorf(tidings.OriginalExpired, "this notification was sent or settled and has been purged since")
			}
			if !in.Body.many && answers[0].Created {
				out.Status = http.StatusCreated
			}
			return out, nil
		})

	type getOut struct{ Body Notification }
	type getIn struct {
		ID tidings.UUID `path:"id"`
	}
	register(a, huma.Operation{OperationID: "get-notification", Method: http.MethodGet, Path: "/v1/notifications/{id}", Tags: []string{"notifications"},
		Summary: "Read a notification: each task's state and journal"},
		[]string{store.ScopeNotify, store.ScopeReview}, func(ctx context.Context, in *getIn) (*getOut, error) {
			n, err := a.store.GetNotification(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			with, err := a.withJournals(ctx, n)
			return &getOut{with}, err
		})

	type findIn struct {
		User     string `query:"user" required:"true"`
		EventKey string `query:"event_key" required:"true"`
	}
	register(a, huma.Operation{OperationID: "find-notification", Method: http.MethodGet, Path: "/v1/notifications", Tags: []string{"notifications"},
		Summary: "Read a notification by its identity"},
		[]string{store.ScopeNotify, store.ScopeReview}, func(ctx context.Context, in *findIn) (*getOut, error) {
			n, err := a.store.FindNotification(ctx, in.User, in.EventKey)
			if err != nil {
				return nil, err
			}
			with, err := a.withJournals(ctx, n)
			return &getOut{with}, err
		})

	type cancelOut struct {
		Body struct {
			Cancelled bool `json:"cancelled" doc:"This call did it; false: an earlier one."`
		}
	}
	register(a, huma.Operation{OperationID: "cancel-notification", Method: http.MethodPost, Path: "/v1/notifications/{id}/cancel", Tags: []string{"notifications"},
		Summary:     "Forbid every further send of a notification",
		Description: "What was not sent will not be; a task that may have been accepted waits for a person; a call that is on its way is not taken back."},
		[]string{store.ScopeNotify}, func(ctx context.Context, in *getIn) (*cancelOut, error) {
			out := &cancelOut{}
			var err error
			out.Body.Cancelled, err = a.store.CancelNotification(ctx, in.ID)
			return out, err
		})
}

func (a *API) submit(ctx context.Context, items []tidings.Notification) ([]tidings.Notified, error) {
	writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	answers, err := outbox.Notify(writing, a.store.Pool(), items...)
	if err != nil {
		return nil, err
	}
	for _, n := range answers {
		if n.Created {
			a.wake()
			break
		}
	}
	return answers, nil
}

// withJournals reads each task again with its journal, so that the two are of one moment.
func (a *API) withJournals(ctx context.Context, n store.Notification) (Notification, error) {
	out := Notification{Notification: n, Tasks: []Task{}}
	for _, t := range n.Tasks {
		detail, err := a.store.TaskDetail(ctx, t.ID)
		if tidings.ErrorCode(err) == tidings.NotFound {
			continue // purged meanwhile
		}
		if err != nil {
			return out, err
		}
		out.Tasks = append(out.Tasks, Task{detail.Task, detail.Attempts})
	}
	return out, nil
}
