// The command notify: submit and show notifications.

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
)

type notifyCmd struct {
	Submit notifySubmitCmd `cmd:"" default:"withargs" help:"Submit a notification."`
	Show   notifyShowCmd   `cmd:"" help:"Show what became of a notification."`
	Cancel notifyCancelCmd `cmd:"" help:"Forbid every further send of a notification."`
}

type notifySubmitCmd struct {
	remote
	asJSON
	User     string `arg:"" help:"Whom to tell."`
	EventKey string `arg:"" help:"What happened, for example order-1001-shipped. With the user it is the identity: repeat it whenever the answer is lost."`

	Title      string        `help:"Title."`
	Body       string        `required:"" help:"Text; @FILE reads it from a file."`
	Data       string        `help:"A JSON object for the application."`
	Category   string        `help:"What a user can opt out of."`
	Channels   []string      `help:"Only these channels."`
	Priority   string        `enum:"urgent,normal,bulk" default:"normal" help:"urgent, normal or bulk."`
	TTL        time.Duration `name:"ttl" default:"24h" help:"When it has become worthless."`
	NotBefore  time.Time     `format:"2006-01-02T15:04:05Z07:00" help:"Not earlier than this instant."`
	Attempts   int           `help:"Attempts per task."`
	Duplicates string        `enum:"forbid,allow" default:"forbid" help:"After an unknown outcome on a channel that can neither deduplicate nor be asked: forbid waits for a person, allow sends again."`
}

func (c *notifySubmitCmd) Run(e *env) error {
	priority := map[string]tidings.Priority{"urgent": tidings.Urgent, "normal": tidings.Normal, "bulk": tidings.Bulk}[c.Priority]
	n := tidings.Notification{User: c.User, EventKey: c.EventKey, Title: c.Title, Body: c.Body, Category: c.Category, Channels: c.Channels,
		Priority: &priority, TTL: tidings.Seconds(c.TTL), MaxAttempts: c.Attempts, Duplicates: tidings.Duplicates(c.Duplicates)}
	if c.Data != "" {
		n.Data = json.RawMessage(c.Data)
	}
	if !c.NotBefore.IsZero() {
		n.NotBefore = &c.NotBefore
	}
	if len(c.Body) > 1 && c.Body[0] == '@' {
		text, err := os.ReadFile(c.Body[1:])
		if err != nil {
			return usage(fmt.Errorf("read the body: %w", err))
		}
		n.Body = string(text)
	}
	if err := n.Check(); err != nil {
		return usage(err)
	}
	var answer tidings.Notified
	if err := c.call(e, http.MethodPost, "/v1/notifications", n, &answer); err != nil {
		return err
	}
	return c.print(e, answer, func() {
		what := "existed"
		switch {
		case answer.Created:
			what = "created"
		case answer.PayloadDiffers:
			what = "existed with other content, which stands"
		}
		fmt.Fprintf(e.stdout, "%s %s, %s\n", answer.ID, what, count(answer.Tasks, "task"))
		if answer.Created && answer.Tasks == 0 {
			fmt.Fprintln(e.stdout, "the user had no enabled channel of these: nobody is told, and a channel that is added later does not change that")
		}
	})
}

type notifyShowCmd struct {
	remote
	asJSON
	User     string `arg:""`
	EventKey string `arg:""`
}

func (c *notifyShowCmd) Run(e *env) error {
	n, err := c.find(e, c.User, c.EventKey)
	if err != nil {
		return err
	}
	return c.print(e, n, func() {
		fmt.Fprintf(e.stdout, "%s for %s: %s\n", n.EventKey, n.User, n.ID)
		times := "created " + when(n.CreatedAt)
		if n.NotBefore != nil {
			times += ", not before " + when(*n.NotBefore)
		}
		times += ", expires " + when(n.ExpiresAt)
		if n.CancelledAt != nil {
			times += ", cancelled " + when(*n.CancelledAt)
		}
		if n.ErasedAt != nil {
			times += ", erased " + when(*n.ErasedAt)
		}
		if n.PurgedAt != nil {
			times += ", purged " + when(*n.PurgedAt)
		}
		fmt.Fprintln(e.stdout, times)
		printTasks(e.stdout, n.Tasks)
	})
}

// find reads a notification by its identity.
func (r remote) find(e *env, user, eventKey string) (n api.Notification, err error) {
	query := url.Values{"user": {user}, "event_key": {eventKey}}
	return n, r.call(e, http.MethodGet, "/v1/notifications?"+query.Encode(), nil, &n)
}

type notifyCancelCmd struct {
	remote
	ID string `arg:"" help:"The notification's id."`
}

func (c *notifyCancelCmd) Run(e *env) error {
	id, err := tidings.ParseUUID(c.ID)
	if err != nil {
		return usage(err)
	}
	var answer struct {
		Cancelled bool `json:"cancelled"`
	}
	if err := c.call(e, http.MethodPost, "/v1/notifications/"+id.String()+"/cancel", nil, &answer); err != nil {
		return err
	}
	if !answer.Cancelled {
		fmt.Fprintln(e.stdout, "was cancelled before")
		return nil
	}
	fmt.Fprintln(e.stdout, "cancelled")
	return nil
}
