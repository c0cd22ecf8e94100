// Holds bodies of conversations to the examples that the clients share.

package api

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// The bodies of HTTP that are frames of the protocol are those frames, without t and rid; each of the others has an example of its
// own. Clients in other languages read the same files.
func TestBodiesAreTheExamples(t *testing.T) {
	bodies := map[string]any{
		"reply-sent": &Sent{}, "reply-recalled": &Recalled{}, "reply-acked": &Delivered{}, "reply-conversations": &ConversationList{}, "reply-events": &wire.Page{},
		"reply-fetched": &FetchedEvent{}, "reply-read": &wire.ReadState{}, "reply-outcome": &wire.Outcome{}, "reply-outcome-no": &wire.Outcome{},

		"http/settings-request": &SettingsPatch{}, "http/settings": &Settings{},
		"http/conversation-request": &NewConversation{}, "http/conversation": &CreatedConversation{}, "http/membership": &Membership{},
		"http/message-request": &NewMessage{}, "http/recall-request": &NewRecall{}, "http/delivered-request": &DeliveredCursor{}, "http/read-request": &Cursor{},
		"http/mute-request": &NewMute{}, "http/mute": &Mute{},
	}
	const dir = "../wire/testdata/"
	files, err := filepath.Glob(dir + "http/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d examples: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), dir), ".json")
		if strings.HasPrefix(name, "http/problem-") {
			bodies[name] = &Problem{}
		} else if bodies[name] == nil {
			t.Errorf("%s is the example of nothing", name)
		}
	}
	generic := func(text []byte) (v map[string]any) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, body := range bodies {
		example, err := os.ReadFile(dir + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(example, body); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p, ok := body.(*Problem); ok {
			// the refusal that has these particulars
			e := &tidings.Error{Code: p.Code, Message: p.Detail, Epoch: p.Epoch, Seq: p.Seq}
			if p.Head != nil {
				e.Head = *p.Head
			}
			body = problemOf(e)
		}
		again, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		want := generic(example)
		delete(want, "t")
		delete(want, "rid")
		if diff := cmp.Diff(want, generic(again)); diff != "" {
			t.Errorf("%s is written differently (-example +written):\n%s", name, diff)
		}
	}
}
