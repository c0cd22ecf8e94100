// The operations on channels.

package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/store"
)

// Channel is a channel with what its provider promises and how it is doing.
type Channel struct {
	Name     string              `json:"name"`
	Contract *Contract           `json:"contract,omitempty" doc:"Absent when this process does not serve the channel. Then another one has to, or its tasks wait."`
	Pause    *store.ChannelState `json:"pause,omitempty" doc:"Absent when it is not paused."`
	Health   store.ChannelHealth `json:"health" doc:"Counts stop at 10001, which means more than 10000."`
}

// Contract is channel.Contract in JSON.
type Contract struct {
	Source    string         `json:"source" doc:"The document it was read from, and when."`
	Renderer  string         `json:"renderer" doc:"How a message becomes bytes, with its version."`
	Key       *KeyContract   `json:"key,omitempty" doc:"The provider recognises a repeated request."`
	Query     *QueryContract `json:"query,omitempty" doc:"The provider can be asked by our reference."`
	Replace   bool           `json:"replace" doc:"An outstanding copy can be replaced."`
	Safe      []string       `json:"safe_statuses" doc:"Statuses that prove that nothing was accepted: 410, or a range 500-599."`
	InReceipt bool           `json:"receipts" doc:"The provider reports by itself."`
}

// KeyContract is channel.Key in JSON.
type KeyContract struct {
	Carrier      string `json:"carrier"`
	WindowS      int64  `json:"window_s" doc:"How long the provider remembers a key, in seconds."`
	SameBytes    bool   `json:"same_bytes" doc:"Other bytes under the same key are refused."`
	StoredErrors bool   `json:"stored_errors" doc:"Errors are replayed, too; a replayed error proves nothing."`
}

// QueryContract is channel.Query in JSON.
type QueryContract struct {
	SettleMS      int64 `json:"settle_ms" doc:"How long after a call the answer may still lag behind, in milliseconds."`
	HorizonS      int64 `json:"horizon_s" doc:"How long the provider can be asked, in seconds; 0: no limit is known."`
	AbsenceProves bool  `json:"absence_proves" doc:"Not found, between the two, proves that nothing was accepted."`
}

func contractOf(c channel.Channel) *Contract {
	from := c.Contract()
	out := &Contract{Source: from.Source, Renderer: c.Renderer(), Replace: from.Replace, Safe: safeStatuses(from.Safe)}
	_, out.InReceipt = c.(channel.ReceiptParser)
	if k := from.Key; k != nil {
		out.Key = &KeyContract{Carrier: k.Carrier, WindowS: int64(k.Window / time.Second), SameBytes: k.SameBytes, StoredErrors: k.StoredErrors}
	}
	if q := from.Query; q != nil {
		out.Query = &QueryContract{SettleMS: q.Settle.Milliseconds(), HorizonS: int64(q.Horizon / time.Second), AbsenceProves: q.AbsenceProves}
	}
	return out
}

// safeStatuses writes down what a contract says only by a function.
func safeStatuses(safe func(int) bool) []string {
	out := []string{}
	for status := 300; safe != nil && status <= 599; status++ {
		first := status
		for status <= 599 && safe(status) {
			status++
		}
		switch {
		case status == first+1:
			out = append(out, strconv.Itoa(first))
		case status > first:
			out = append(out, fmt.Sprintf("%d-%d", first, status-1))
		}
	}
	return out
}

// ChannelPath names a channel.
type ChannelPath struct {
	Channel string `path:"channel" maxLength:"128"`
}

// Resolve refuses what is no id.
func (p *ChannelPath) Resolve(huma.Context) []error { return checkID("path.channel", p.Channel) }

func (a *API) channelOps() {
	scopes := []string{store.ScopeOperate}
	tags := []string{"channels"}

	type channelsOut struct {
		Body struct {
			Channels []Channel `json:"channels"`
		}
	}
	register(a, huma.Operation{OperationID: "list-channels", Method: http.MethodGet, Path: "/v1/channels", Tags: tags,
		Summary: "What each channel promises and how it is doing"},
		scopes, func(ctx context.Context, _ *struct{}) (*channelsOut, error) {
			out := &channelsOut{}
			var err error
			out.Body.Channels, err = a.listChannels(ctx)
			return out, err
		})

	// A pause is for every worker, and a process need not have the channels of the others: so an unknown one is no error.
	type noteOut struct {
		Body struct {
			Note string `json:"note,omitempty" doc:"Says that this process does not have the channel: it may be misspelt."`
		}
	}
	note := func(channel string) *noteOut {
		out := &noteOut{}
		if a.channels[channel] == nil {
			out.Body.Note = "no channel of this process; it holds for every worker that has it"
		}
		return out
	}
	type pauseIn struct {
		ChannelPath
		Body struct {
			Reason string     `json:"reason" minLength:"1" maxLength:"1000"`
			Until  *time.Time `json:"until,omitempty" doc:"When it resumes by itself. Default: when it is resumed."`
		}
	}
	register(a, huma.Operation{OperationID: "pause-channel", Method: http.MethodPost, Path: "/v1/channels/{channel}/pause", Tags: tags,
		Summary: "Claim nothing on a channel, in any worker", Description: "What was claimed before is still sent; what expires meanwhile does so."},
		scopes, func(ctx context.Context, in *pauseIn) (*noteOut, error) {
			return note(in.Channel), a.store.PauseChannel(ctx, in.Channel, in.Body.Until, in.Body.Reason, by(ctx))
		})
	register(a, huma.Operation{OperationID: "resume-channel", Method: http.MethodPost, Path: "/v1/channels/{channel}/resume", Tags: tags,
		Summary: "End a pause"},
		scopes, func(ctx context.Context, in *ChannelPath) (*noteOut, error) {
			if err := a.store.ResumeChannel(ctx, in.Channel); err != nil {
				return nil, err
			}
			a.wake()
			return note(in.Channel), nil
		})
}

// listChannels are the channels of this process, those that are paused, and those that have scheduled tasks.
func (a *API) listChannels(ctx context.Context) ([]Channel, error) {
	states, err := a.store.ChannelStates(ctx)
	if err != nil {
		return nil, err
	}
	names, err := a.store.ScheduledChannels(ctx)
	if err != nil {
		return nil, err
	}
	for name := range a.channels {
		names = append(names, name)
	}
	for _, s := range states {
		names = append(names, s.Channel)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	health, err := a.store.ChannelHealth(ctx, names)
	if err != nil {
		return nil, err
	}
	out := []Channel{}
	for i, name := range names {
		c := Channel{Name: name, Health: health[i]}
		if transport := a.channels[name]; transport != nil {
			c.Contract = contractOf(transport)
		}
		if j := slices.IndexFunc(states, func(s store.ChannelState) bool { return s.Channel == name && s.Paused }); j >= 0 {
			c.Pause = &states[j]
		}
		out = append(out, c)
	}
	return out, nil
}
