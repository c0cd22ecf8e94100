// Conversations: their heads, members and logs. What was said is shown only on request, with a scope of its own, and such a request is logged by the API.

package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// conversation is one with its settings, and on its own page with its members.
type conversation struct {
	Conv        string    `json:"conv"`
	Epoch       int64     `json:"epoch"`
	Head        int64     `json:"head"`
	MinSeq      int64     `json:"min_seq"`
	CreatedAt   time.Time `json:"created_at"`
	RetentionMS *int64    `json:"retention_ms"`
}

// Retention is how long its messages are kept; 0: for ever.
func (c conversation) Retention() time.Duration { return milliseconds(c.RetentionMS) }

func milliseconds(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}

// conversationsPage is the form and what was found.
type conversationsPage struct {
	User, Conv    string
	Asked         bool
	Conversations []listedConversation
	More, First   string
}

type listedConversation struct {
	conversation
	Members int `json:"members"`
}

func listConversations(v *visit) error {
	p := conversationsPage{User: v.value("user"), Conv: v.value("conv")}
	query := url.Values{"user": {p.User}, "conv": {p.Conv}, "after": {v.value("after")}, "limit": {strconv.Itoa(rowsShown)}}
	var out struct {
		Conversations []listedConversation `json:"conversations"`
		Next          string               `json:"next"`
	}
	if p.Asked = p.User != "" || p.Conv != ""; p.Asked {
		if err := v.get("/v1/operator/conversations", query, &out); err != nil {
			return err
		}
	}
	p.Conversations = out.Conversations
	p.More, p.First = pagesOf(home+"/conversations", query, out.Next)
	v.show(http.StatusOK, "conversations", "Conversations", "conversations", p)
	return nil
}

// conversationPage is one conversation with its members and a part of its log.
type conversationPage struct {
	conversation
	RecallWindowMS int64  `json:"recall_window_ms"`
	NotifyAfterMS  *int64 `json:"notify_after_ms"`
	Preview        bool   `json:"preview"`
	People         []struct {
		User     string `json:"user"`
		JoinSeq  int64  `json:"join_seq"`
		LeaveSeq *int64 `json:"leave_seq"`
		Read     int64  `json:"read"`
		Devices  []struct {
			Device    string `json:"device"`
			Delivered int64  `json:"delivered"`
		} `json:"devices"`
	} `json:"members"`
	MorePeople bool `json:"more_members"`

	MemberCount int     `json:"member_count"`
	Events      []event `json:"-"`
	Bodies      bool    `json:"-"` // are shown
	MayRead     bool    `json:"-"` // the key allows it
	Older       string  `json:"-"` // addresses; empty: there are none
	Newer       string  `json:"-"`
	Otherwise   string  `json:"-"` // the same part with bodies, or without
}

// RecallWindow is how long a message can be taken back.
func (p conversationPage) RecallWindow() time.Duration { return milliseconds(&p.RecallWindowMS) }

// NotifyAfter is after how long an unread message makes a notification; 0: never.
func (p conversationPage) NotifyAfter() time.Duration { return milliseconds(p.NotifyAfterMS) }

// event is an entry of a conversation's log.
type event struct {
	Seq        int64           `json:"seq"`
	Kind       string          `json:"kind"`
	Sender     string          `json:"sender"`
	Actor      string          `json:"actor"`
	Cmid       string          `json:"cmid"`
	Target     int64           `json:"target"`
	RecalledBy int64           `json:"recalled_by"`
	At         int64           `json:"at"` // milliseconds since 1970
	Body       *string         `json:"body"`
	Data       json.RawMessage `json:"data"`
}

// When is when the event was stored.
func (e event) When() time.Time { return time.UnixMilli(e.At) }

// DataText is the application's JSON as it stands.
func (e event) DataText() string { return string(e.Data) }

// showConversation shows the newest events, or those behind or in front of a seq.
func showConversation(v *visit) error {
	conv := v.value("conv")
	path := "/v1/operator/conversations/" + url.PathEscape(conv)
	p := conversationPage{MayRead: v.key.has("bodies"), Bodies: v.value("bodies") == "true"}
	if err := v.get(path, nil, &p); err != nil {
		return err
	}
	here := url.Values{"after": {v.value("after")}, "before": {v.value("before")}}
	query := maps.Clone(here)
	query.Set("limit", strconv.Itoa(rowsShown))
	if v.value("after") == "" && v.value("before") == "" {
		query.Set("before", strconv.FormatInt(p.Head+1, 10))
	}
	if p.Bodies {
		query.Set("bodies", "true")
	}
	var part struct {
		Head   int64   `json:"head"`
		MinSeq int64   `json:"min_seq"`
		Events []event `json:"events"`
	}
	if err := v.get(path+"/events", query, &part); err != nil {
		return err
	}
	p.Events = part.Events
	address := func(query url.Values, bodies bool) string {
		query.Set("conv", conv)
		if bodies {
			query.Set("bodies", "true")
		}
		return link(home+"/conversation", query)
	}
	if n := len(p.Events); n > 0 {
		first, last := p.Events[0].Seq, p.Events[n-1].Seq
		if first > part.MinSeq {
			p.Older = address(url.Values{"before": {strconv.FormatInt(first, 10)}}, p.Bodies)
		}
		if last < part.Head {
			p.Newer = address(url.Values{"after": {strconv.FormatInt(last, 10)}}, p.Bodies)
		}
	}
	p.Otherwise = address(here, !p.Bodies)
	v.show(http.StatusOK, "conversation", "Conversation "+conv, "conversations", p)
	return nil
}
