// The operations on users' quiet hours.

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings/internal/store"
)

// QuietHours are the hours of every day in which a user is not to be notified of unread messages.
type QuietHours struct {
	Zone string `json:"zone" minLength:"1" maxLength:"64" doc:"A name of the IANA time zone database, as the database knows it: Europe/Berlin."`
	From string `json:"from" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$" doc:"When they begin, HH:MM."`
	To   string `json:"to" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$" doc:"When they end, HH:MM; earlier than from: on the next day."`
}

func (a *API) quiet() {
	scopes := []string{store.ScopePrefs}
	tags := []string{"users"}
	const path = "/v1/users/{user}/quiet"

	type quietOut struct{ Body QuietHours }
	register(a, huma.Operation{OperationID: "get-quiet", Method: http.MethodGet, Path: path, Tags: tags, Summary: "A user's quiet hours"},
		scopes, func(ctx context.Context, in *UserPath) (*quietOut, error) {
			q, err := a.store.GetQuiet(ctx, in.User)
			return &quietOut{QuietHours(q)}, err
		})
	type quietIn struct {
		UserPath
		Body QuietHours
	}
	register(a, huma.Operation{OperationID: "put-quiet", Method: http.MethodPut, Path: path, Tags: tags, Summary: "Set a user's quiet hours",
		Description: "Notifications of unread messages that are created in them are sent when they end. What the clock of the zone shows decides, also on the days on which it is changed."},
		scopes, func(ctx context.Context, in *quietIn) (*quietOut, error) {
			return &quietOut{in.Body}, a.store.PutQuiet(ctx, in.User, store.Quiet(in.Body))
		})
	register(a, huma.Operation{OperationID: "delete-quiet", Method: http.MethodDelete, Path: path, Tags: tags, Summary: "End a user's quiet hours"},
		scopes, func(ctx context.Context, in *UserPath) (*struct{}, error) {
			there, err := a.store.DeleteQuiet(ctx, in.User)
			return nil, absent(there, err)
		})
}
