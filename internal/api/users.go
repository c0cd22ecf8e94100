// The operations on users' preferences and opt-outs.

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// UserPath names a user. It is exported as every type that huma is to look into when it is embedded.
type UserPath struct {
	User string `path:"user" maxLength:"128"`
}

// Resolve refuses what is no id.
func (p *UserPath) Resolve(huma.Context) []error { return checkID("path.user", p.User) }

// PrefPath names a preference.
type PrefPath struct {
	UserPath
	Channel string `path:"channel" maxLength:"128"`
	Slot    string `query:"slot" maxLength:"128" doc:"Tells several addresses of a user on one channel apart. Default: the one without a name."`
}

type optoutPath struct {
	UserPath
	Category string `path:"category" maxLength:"128"`
	Channel  string `query:"channel" maxLength:"128" doc:"Default: every channel."`
}

// users adds preferences and opt-outs.
func (a *API) users() {
	scopes := []string{store.ScopePrefs}
	tags := []string{"users"}

	type prefOut struct{ Body store.Pref }
	type prefsOut struct {
		Body struct {
			Channels []store.Pref `json:"channels"`
		}
	}
	register(a, huma.Operation{OperationID: "list-prefs", Method: http.MethodGet, Path: "/v1/users/{user}/channels", Tags: tags,
		Summary: "Where a user can be reached"},
		scopes, func(ctx context.Context, in *UserPath) (*prefsOut, error) {
			out := &prefsOut{}
			var err error
			out.Body.Channels, err = a.store.GetPrefs(ctx, in.User)
			return out, err
		})
	register(a, huma.Operation{OperationID: "get-pref", Method: http.MethodGet, Path: "/v1/users/{user}/channels/{channel}", Tags: tags,
		Summary: "Where a user can be reached on a channel"},
		scopes, func(ctx context.Context, in *PrefPath) (*prefOut, error) {
			prefs, err := a.store.GetPrefs(ctx, in.User)
			if err != nil {
				return nil, err
			}
			for _, p := range prefs {
				if p.Channel == in.Channel && p.Slot == in.Slot {
					return &prefOut{p}, nil
				}
			}
			return nil, tidings.Errorf(tidings.NotFound, "the user has no such preference")
		})

	type putPrefIn struct {
		PrefPath
		Body struct {
			Address string `json:"address" minLength:"1" maxLength:"4096" doc:"What the channel understands: an e-mail address, a device token, a URL."`
			Enabled *bool  `json:"enabled,omitempty" default:"true"`
			Version *int64 `json:"version,omitempty" doc:"Store only if this is still the version; 0: only if there is none. Otherwise CONFLICT."`
		}
	}
	register(a, huma.Operation{OperationID: "put-pref", Method: http.MethodPut, Path: "/v1/users/{user}/channels/{channel}", Tags: tags,
		Summary:     "Say where a user can be reached on a channel",
		Description: "Tasks that were claimed before keep the address they had."},
		scopes, func(ctx context.Context, in *putPrefIn) (*prefOut, error) {
			p, err := a.store.PutPref(ctx, in.User, store.Pref{Channel: in.Channel, Slot: in.Slot, Address: in.Body.Address, Enabled: *in.Body.Enabled}, in.Body.Version)
			return &prefOut{p}, err
		})
	register(a, huma.Operation{OperationID: "delete-pref", Method: http.MethodDelete, Path: "/v1/users/{user}/channels/{channel}", Tags: tags,
		Summary: "Forget where a user can be reached on a channel"},
		scopes, func(ctx context.Context, in *PrefPath) (*struct{}, error) {
			there, err := a.store.DeletePref(ctx, in.User, in.Channel, in.Slot)
			return nil, absent(there, err)
		})

	type optoutsOut struct {
		Body struct {
			Optouts []store.Optout `json:"optouts"`
		}
	}
	register(a, huma.Operation{OperationID: "list-optouts", Method: http.MethodGet, Path: "/v1/users/{user}/optouts", Tags: tags,
		Summary: "What a user does not want"},
		scopes, func(ctx context.Context, in *UserPath) (*optoutsOut, error) {
			out := &optoutsOut{}
			var err error
			out.Body.Optouts, err = a.store.ListOptouts(ctx, in.User)
			return out, err
		})
	register(a, huma.Operation{OperationID: "put-optout", Method: http.MethodPut, Path: "/v1/users/{user}/optouts/{category}", Tags: tags,
		Summary: "Send a user nothing of a category"},
		scopes, func(ctx context.Context, in *optoutPath) (*struct{}, error) {
			_, err := a.store.PutOptout(ctx, in.User, in.Category, in.Channel)
			return nil, err
		})
	register(a, huma.Operation{OperationID: "delete-optout", Method: http.MethodDelete, Path: "/v1/users/{user}/optouts/{category}", Tags: tags,
		Summary: "Send a user that category again"},
		scopes, func(ctx context.Context, in *optoutPath) (*struct{}, error) {
			there, err := a.store.DeleteOptout(ctx, in.User, in.Category, in.Channel)
			return nil, absent(there, err)
		})
}

// checkID is a Resolver's answer for what is to be an id.
func checkID(location, id string) []error {
	if err := tidings.CheckID("it", id); err != nil {
		return []error{&huma.ErrorDetail{Location: location, Message: problemOf(err).Detail}}
	}
	return nil
}

func absent(there bool, err error) error {
	if err == nil && !there {
		return tidings.Errorf(tidings.NotFound, "there is none")
	}
	return err
}
