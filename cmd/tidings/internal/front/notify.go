// The notification corner: one is sent through the API, and looked at.

package front

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
)

// notifyFor is how long a notification of the page is worth sending.
const notifyFor = time.Hour

// answerMost is how much of an answer of the API is read, in bytes.
const answerMost = 4 << 20

// silenceable are the channels whose other side is a scripted double.
var silenceable = []string{channeltest.ModePush, channeltest.ModeSMS, channeltest.ModePlain}

// order is the body of POST /dev/notifications.
type order struct {
	User    string `json:"user"`
	Channel string `json:"channel"`
	Title   string `json:"title"`
	Body    string `json:"body"`
	Silent  bool   `json:"silent"` // the other side takes it and never answers, once
}

// notify submits a notification for one channel.
func (f *Front) notify(w http.ResponseWriter, r *http.Request) {
	var o order
	err := read(w, r, &o)
	if err == nil {
		err = f.silence(&o)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	n := tidings.Notification{User: o.User, EventKey: "demo-" + strings.ToLower(rand.Text()[:10]), Title: o.Title, Body: o.Body,
		Channels: []string{o.Channel}, TTL: tidings.Seconds(notifyFor)}
	text, err := json.Marshal(n)
	if err != nil {
		refuse(w, err)
		return
	}
	if _, ok := f.ask(w, r, http.MethodPost, "/v1/notifications", text); ok {
		answer(w, http.StatusOK, map[string]string{"event_key": n.EventKey})
	}
}

// silence checks whom the order is for, and scripts the double if it asks for that.
func (f *Front) silence(o *order) error {
	person, err := f.person(o.User)
	if err != nil {
		return err
	}
	address := person.Reached[o.Channel]
	switch {
	case address == "":
		return tidings.Errorf(tidings.InvalidArgument, "there is no channel %.40q", o.Channel)
	case !o.Silent:
		return nil
	case !slices.Contains(silenceable, o.Channel):
		return tidings.Errorf(tidings.InvalidArgument, "the other side of %s is no double: it cannot be told to go silent", o.Channel)
	}
	err = f.o.Box.Doubles.Script(channeltest.Script{Mode: o.Channel, Address: address, Steps: []channeltest.Step{{Do: channeltest.DoHang}}})
	if err != nil {
		return fmt.Errorf("tell the double of %s to go silent: %w", o.Channel, err)
	}
	f.log.add("the provider of %s will take the next message for %s and not answer", o.Channel, o.User)
	return nil
}

// notifications shows one, or the newest tasks of a user.
func (f *Front) notifications(w http.ResponseWriter, r *http.Request) {
	user, event := r.URL.Query().Get("user"), r.URL.Query().Get("event_key")
	if _, err := f.person(user); err != nil {
		refuse(w, err)
		return
	}
	query := url.Values{"user": {user}}
	path := "/v1/operator/tasks?"
	if event != "" {
		query.Set("event_key", event)
		path = "/v1/notifications?"
	}
	f.settled(r.Context())
	if said, ok := f.ask(w, r, http.MethodGet, path+query.Encode(), nil); ok {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(said) // the peer is gone: there is nobody to tell
	}
}

func (f *Front) person(user string) (*Person, error) {
	for i := range f.o.People {
		if f.o.People[i].User == user {
			return &f.o.People[i], nil
		}
	}
	return nil, notFound("there is no person %.40q in the demo", user)
}

// ask makes one request to the API for r. What the API does not do is answered, and not ok.
func (f *Front) ask(w http.ResponseWriter, r *http.Request, method, path string, body []byte) (said []byte, ok bool) {
	req, err := http.NewRequestWithContext(r.Context(), method, f.o.Children.api.address()+path, bytes.NewReader(body))
	if err != nil {
		refuse(w, fmt.Errorf("make a request to the API: %w", err))
		return nil, false
	}
	req.Header.Set("Authorization", "Bearer "+f.o.Key)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.http.Do(req)
	if err != nil {
		refuse(w, unavailable("the API does not answer; it is started again by itself"))
		return nil, false
	}
	defer resp.Body.Close()
	said, err = io.ReadAll(io.LimitReader(resp.Body, answerMost))
	if err != nil {
		refuse(w, unavailable("the answer of the API broke off"))
		return nil, false
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		passProblem(w, resp.StatusCode, said)
		return nil, false
	}
	return said, true
}

// passProblem answers with what the API has refused.
func passProblem(w http.ResponseWriter, status int, said []byte) {
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(said, &p) != nil || p.Code == "" {
		p.Code, p.Detail = string(tidings.Internal), "the API answers with no problem document"
	}
	answer(w, status, map[string]string{"code": p.Code, "message": p.Detail})
}
