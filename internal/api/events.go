// The operations on the log: sync and fetch.

package api

import (
	"context"
	"net/http"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// FetchedEvent is one event.
type FetchedEvent struct {
	Epoch int64         `json:"epoch"`
	Event tidings.Event `json:"event"`
}

func (a *API) events() {
	scopes := []string{store.ScopeActUser}

	type syncIn struct {
		ConvPath
		After int64 `query:"after" minimum:"0" maximum:"9007199254740991" default:"0" doc:"The events behind this seq."`
		Epoch int64 `query:"epoch" minimum:"0" maximum:"9007199254740991" default:"0" doc:"That of the caller's copy of the log; 0: whichever is current."`
		Limit int64 `query:"limit" minimum:"1" maximum:"9007199254740991" default:"100" doc:"More than 500 is taken as 500."`
	}
	type syncOut struct{ Body wire.Page }
	register(a, conversationOp(http.MethodGet, conversationPath+"/events", "sync-events", "Read events behind a seq",
		"events and withheld together explain every seq behind after, up to head, or with more up to the last event. withheld says of each range why it is not there: "+
			"trimmed (older than what is kept) or not_member.",
		tidings.NotMember, tidings.EpochChanged, tidings.CursorAhead),
		scopes, func(ctx context.Context, in *syncIn) (*syncOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			p, err := a.store.Sync(ctx, user, in.Conv, in.Epoch, in.After, int(min(in.Limit, wire.MaxPage)))
			if err != nil {
				return nil, err
			}
			out := &syncOut{wire.Page{Conv: in.Conv, Epoch: p.Epoch, Head: p.Head, MinSeq: p.MinSeq, After: p.After, Events: p.Events,
				Withheld: make([]wire.Withheld, len(p.Withheld)), Trimmed: p.Trimmed, More: p.More}}
			for i, w := range p.Withheld {
				out.Body.Withheld[i] = wire.Withheld(w)
			}
			return out, nil
		})

	type fetchIn struct {
		ConvPath
		Seq   int64 `path:"seq" minimum:"1" maximum:"9007199254740991"`
		Epoch int64 `query:"epoch" minimum:"0" maximum:"9007199254740991" default:"0" doc:"That of the caller's copy of the log; 0: whichever is current."`
	}
	type fetchOut struct{ Body FetchedEvent }
	register(a, conversationOp(http.MethodGet, conversationPath+"/events/{seq}", "fetch-event", "Read one event",
		"NOT_FOUND when it was purged or is beyond the head, NOT_MEMBER when the user was no member then.",
		tidings.NotMember, tidings.EpochChanged, tidings.NotFound),
		scopes, func(ctx context.Context, in *fetchIn) (*fetchOut, error) {
			user, err := actingUser(ctx)
			if err != nil {
				return nil, err
			}
			epoch, event, err := a.store.Fetch(ctx, user, in.Conv, in.Epoch, in.Seq)
			return &fetchOut{FetchedEvent{epoch, event}}, err
		})
}
