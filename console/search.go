// Tasks by user, event key or the provider's id.

package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// rowsShown is how many rows a page of a list has.
const rowsShown = 50

// found is a task in a list.
type found struct {
	Task          string     `json:"task"`
	Notification  string     `json:"notification"`
	User          string     `json:"user"`
	EventKey      string     `json:"event_key"`
	Channel       string     `json:"channel"`
	Slot          string     `json:"slot"`
	State         string     `json:"state"`
	Review        bool       `json:"needs_review"`
	InDoubt       bool       `json:"in_doubt"`
	AttemptCount  int        `json:"attempt_count"`
	ProviderMsgID string     `json:"provider_msg_id"`
	LastError     string     `json:"last_error"`
	CreatedAt     time.Time  `json:"created_at"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
}

// Place is the task's channel with its slot.
func (f found) Place() string { return task{Channel: f.Channel, Slot: f.Slot}.Place() }

// searchPage is the form and what was found.
type searchPage struct {
	User, EventKey, ProviderID string
	Asked                      bool
	Problem                    *refusal
	Tasks                      []found
	Partial                    bool // the user has more than were looked at
	More, First                string
}

func search(v *visit) error {
	p := searchPage{User: v.value("user"), EventKey: v.value("event_key"), ProviderID: v.value("provider_id")}
	query := url.Values{"user": {p.User}, "event_key": {p.EventKey}, "provider_id": {p.ProviderID}, "after": {v.value("after")}, "limit": {strconv.Itoa(rowsShown)}}
	status := http.StatusOK
	if p.User != "" || p.EventKey != "" || p.ProviderID != "" {
		p.Asked = true
		var out struct {
			Tasks   []found `json:"tasks"`
			Next    string  `json:"next"`
			Partial bool    `json:"partial"`
		}
		err := v.get("/v1/operator/tasks", query, &out)
		if problem := refusalOf(err); err != nil && problem.Status == http.StatusBadRequest {
			status, p.Problem = problem.Status, problem
		} else if err != nil {
			return err
		}
		p.Tasks, p.Partial = out.Tasks, out.Partial
		p.More, p.First = pagesOf(home+"/search", query, out.Next)
	}
	v.show(status, "search", "Search", "search", p)
	return nil
}

// pagesOf are the addresses of a list's next page and of its first; empty where there is none or it is this one. The query is that of the call to the API.
func pagesOf(path string, query url.Values, next string) (more, first string) {
	after := query.Get("after")
	query.Del("limit")
	query.Del("after")
	if after != "" {
		first = link(path, query)
	}
	if next != "" {
		query.Set("after", next)
		more = link(path, query)
	}
	return more, first
}
