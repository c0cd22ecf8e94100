// The settings of a conversation: what a creation can say, and the operation that changes them.

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// century is the longest setting, in milliseconds.
const century = int64(store.LongestSetting / time.Millisecond)

// OptionalMS is a time that there may be none of, in milliseconds, in a request, where a field that is left out says something else than
// null.
type OptionalMS struct {
	Named bool   // the field is there
	MS    *int64 // nil: null
}

// Schema implements huma.SchemaProvider.
func (OptionalMS) Schema(huma.Registry) *huma.Schema {
	least, most := 1.0, float64(century)
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Nullable: true, Minimum: &least, Maximum: &most}
}

// UnmarshalJSON is called where the field is there, also for null.
func (o *OptionalMS) UnmarshalJSON(text []byte) error {
	o.Named, o.MS = true, nil
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	return json.Unmarshal(text, &o.MS)
}

// MarshalJSON writes what UnmarshalJSON reads.
func (o OptionalMS) MarshalJSON() ([]byte, error) { return json.Marshal(o.MS) }

// IsZero leaves the field out where it was left out.
func (o OptionalMS) IsZero() bool { return !o.Named }

// duration is the time; nil: there is none.
func (o OptionalMS) duration() *time.Duration { return durationOf(o.MS) }

// durationOf is ms as a duration. What is no setting, because no duration is so long, stays so: it is judged by its schema and by the store.
func durationOf(ms *int64) *time.Duration {
	if ms == nil {
		return nil
	}
	d := time.Duration(max(-1, min(*ms, century+1))) * time.Millisecond
	return &d
}

// millisecondsOf is d in milliseconds; nil: there is none.
func millisecondsOf(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// SettingsPatch names the settings that are to change.
type SettingsPatch struct {
	RecallWindowMS *int64     `json:"recall_window_ms,omitempty" minimum:"0" maximum:"3153600000000" doc:"How long a message can be recalled, in milliseconds; 0: never. Left out: as it is."`
	RetentionMS    OptionalMS `json:"retention_ms,omitzero" doc:"How long events are kept, in milliseconds; null: for ever. Left out: as it is."`
	NotifyAfterMS  OptionalMS `json:"notify_after_ms,omitzero" doc:"After how long members who are not connected are notified of a message that they have not read, in milliseconds; null: never. Left out: as it is."`
	Preview        *bool      `json:"preview,omitempty" doc:"Such a notification shows the beginning of the message. Left out: as it is."`
}

// Settings are those of a conversation as they are now.
type Settings struct {
	Conv           string `json:"conv"`
	RecallWindowMS int64  `json:"recall_window_ms" doc:"How long a message can be recalled, in milliseconds; 0: never."`
	RetentionMS    *int64 `json:"retention_ms" doc:"How long events are kept, in milliseconds; null: for ever."`
	NotifyAfterMS  *int64 `json:"notify_after_ms" doc:"After how long members who are not connected are notified of a message that they have not read, in milliseconds; null: never."`
	Preview        bool   `json:"preview" doc:"Such a notification shows the beginning of the message."`
}

func (a *API) settings() {
	type changeIn struct {
		ConvPath
		Body SettingsPatch
	}
	type changeOut struct{ Body Settings }
	register(a, conversationOp(http.MethodPatch, conversationPath, "change-conversation", "Change the settings of a conversation",
		"The answer shows them all, also when none is named. Recalls are judged by the window as it is then. What a shorter retention lets go does not come back. A wait before notifications counts for messages that are sent from then on.", tidings.NotFound),
		[]string{store.ScopeConversations}, func(ctx context.Context, in *changeIn) (*changeOut, error) {
			end, err := a.turns.take(ctx, in.Conv)
			if err != nil {
				return nil, err
			}
			defer end()
			now, err := a.store.ChangeSettings(ctx, in.Conv, store.SettingsChange{RecallWindow: durationOf(in.Body.RecallWindowMS),
				Retention: in.Body.RetentionMS.duration(), Forever: in.Body.RetentionMS.Named && in.Body.RetentionMS.MS == nil,
				NotifyAfter: in.Body.NotifyAfterMS.duration(), NeverNotify: in.Body.NotifyAfterMS.Named && in.Body.NotifyAfterMS.MS == nil, Preview: in.Body.Preview})
			if err != nil {
				return nil, err
			}
			return &changeOut{Settings{Conv: in.Conv, RecallWindowMS: now.RecallWindow.Milliseconds(), RetentionMS: millisecondsOf(now.Retention),
				NotifyAfterMS: millisecondsOf(now.NotifyAfter), Preview: now.Preview}}, nil
		})
}
